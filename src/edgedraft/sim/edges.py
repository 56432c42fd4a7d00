"""What goes into a simulation and what comes out: edges with their texts, and answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from edgedraft.backends.trace import RecordedText
from edgedraft.core.events import EdgeCommand, EdgeEvent
from edgedraft.core.strategy import Strategy
from edgedraft.errors import InvalidRequestError, UnsupportedError
from edgedraft.metrics.records import RequestRecord
from edgedraft.sim.compute import EdgeProfile
from edgedraft.sim.models import TextModels
from edgedraft.sim.network import LinkProfile
from edgedraft.sim.payload import IDS, Payload
from edgedraft.sim.timeline import Span, Timeline
from edgedraft.types import CommittedToken, FinishReason, Rule

PERFECT_LINK = LinkProfile()


class Steering(Protocol):
    """Watches the requests of one edge and may change the strategy of the one that runs."""

    def observe(self, event: EdgeEvent, commands: Sequence[EdgeCommand], now_s: float) -> EdgeEvent | None:
        """Told each event with the commands that answered it; what it returns is the session's next event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedEdge:
    """One device on its own link, which asks for its texts one after another, the first at `start_s`.

    `texts`: recorded ones, or models that answer after any ids, as strategies need whose text the edge owns.

    `max_tokens`: of each answer; a text that was recorded shorter, and not to an end that `eos_ids` tell, bounds it.
    `steering` is kept from text to text. `silence_s`: after how long a silence the session asks for its cloud (rule 6);
    None: what the client does, or a minute where draft tokens bring a payload along, which no live link does.

    Raises `InvalidRequestError` naming the field, `UnsupportedError` for a rule that recorded choices cannot answer.
    """

    texts: Sequence[RecordedText | TextModels]
    strategy: Strategy
    profile: EdgeProfile
    network: LinkProfile = PERFECT_LINK
    payload: Payload = IDS
    max_tokens: int = 128
    eos_ids: frozenset[int] = frozenset()
    start_s: float = 0.0
    steering: Steering | None = None
    silence_s: float | None = None

    def __post_init__(self) -> None:
        if not self.texts:
            raise InvalidRequestError("texts is empty; legal: at least one.", field="texts")
        if self.max_tokens < 1:
            raise InvalidRequestError(f"max_tokens is {self.max_tokens}; legal: 1 or more.", field="max_tokens")
        if not 0 <= self.start_s < math.inf:
            raise InvalidRequestError(f"start_s is {self.start_s}; legal: 0 or more seconds.", field="start_s")
        if self.network.cut_interval_s < math.inf:
            raise UnsupportedError(
                "cut_interval_s is set; the simulator's links stall but are never cut.", field="cut_interval_s"
            )
        if self.strategy.rule is not Rule.MATCH and any(isinstance(text, RecordedText) for text in self.texts):
            raise UnsupportedError(
                f"rule is '{self.strategy.rule}'; recorded choices answer rule 'match' only.", field="rule"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedAnswer:
    """A finished request. Times in seconds from its start, which was `timeline.started_s` in the world's time.

    `text`: what was asked for, as it was given. `token_times_s`: for each token when it was committed on the edge.
    `num_opens`: how often the cloud was given a session, and with it the recording's features.
    """

    text: RecordedText | TextModels
    edge_number: int
    token_ids: Sequence[int]
    tokens: Sequence[CommittedToken]
    token_times_s: Sequence[float]
    finish_reason: FinishReason
    strategy: Strategy
    record: RequestRecord
    timeline: Timeline
    notices: Sequence[str]
    num_opens: int

    @property
    def spans(self) -> Sequence[Span]:
        """Empty unless the simulation was told to keep them."""
        return self.timeline.spans or ()

    @property
    def target_busy_s(self) -> float:
        """The request's share of the target's time, prompt included; for energy."""
        return sum(each.share_s for each in self.timeline.passes)
