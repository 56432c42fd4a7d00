"""One request, as the edge session takes it, and the states it goes through."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from edgedraft.core.strategy import Strategy
from edgedraft.speech_features import SpeechFeatures
from edgedraft.types import OnLinkLoss, SamplingParams


class EdgeState(enum.Enum):
    """Where a request stands. `DOWN`: no link. `LOCAL`: goes on without the cloud. `ENDED`: nothing follows."""

    NEW = "new"
    DOWN = "down"
    OPENING = "opening"
    RESUMING = "resuming"
    LIVE = "live"
    LOCAL = "local"
    ENDED = "ended"


CONNECTED = frozenset({EdgeState.OPENING, EdgeState.RESUMING, EdgeState.LIVE})


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeSessionSettings:
    """One request. `stop_ids` end the text beside the target's `eos_ids`; lengths in tokens, times in seconds.

    `draft_context_length`: None where the draft has no bound or there is no draft. `max_pending_tokens`: the cloud's
    limit on unjudged ids, `assist_lead_tokens` its bound on writing ahead. `silence_s`: the least silence after which
    the session is resumed (rule 6). `logprobs`: ask for the log-probability of each token.
    `features`: what of a recording the cloud is given, once, with `Open`; None where there is none.
    """

    session_id: bytes
    prompt_ids: Sequence[int]
    max_tokens: int
    sampling: SamplingParams
    strategy: Strategy
    eos_ids: frozenset[int]
    stop_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    on_link_loss: OnLinkLoss = OnLinkLoss.WAIT
    draft_context_length: int | None = None
    max_pending_tokens: int = 256
    assist_lead_tokens: int = 64
    silence_s: float = 2.0
    logprobs: bool = False
    features: SpeechFeatures | None = None

    @property
    def end_ids(self) -> frozenset[int]:
        """All ids that end the text."""
        return self.stop_ids | (frozenset() if self.ignore_eos else self.eos_ids)
