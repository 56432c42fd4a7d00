"""The cloud's copy of an edge's tail: draft ids after the log that no verdict has been given for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgedraft.core.sequence import common_prefix_length
from edgedraft.errors import GapError, InvalidRequestError
from edgedraft.protocol.messages import Draft
from edgedraft.types import DraftDistribution


@dataclass(frozen=True, slots=True)
class Question:
    """A verdict asked for at `asked_s` on everything before `position`."""

    position: int
    asked_s: float


class PendingTail:
    """Draft ids of the present `epoch`, from the log's end on.

    `judged`: for each id whether it is up for judgement (always, unless the edge owns the log). `questions`: the
    verdicts asked for and not given, the oldest first. `dead_epoch`: the newest epoch that a mismatch has killed (rule
    3). `num_dropped`: ids thrown away.
    """

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.distributions: list[DraftDistribution] = []
        self.judged: list[bool] = []
        self.questions: list[Question] = []
        self.epoch = 0
        self.dead_epoch = -1
        self.num_dropped = 0

    def __len__(self) -> int:
        return len(self.ids)

    def is_dead(self, epoch: int) -> bool:
        """Rule 3: after a mismatch nothing of that epoch can be right."""
        return epoch <= self.dead_epoch

    def is_current(self, epoch: int) -> bool:
        return epoch == self.epoch and not self.is_dead(epoch)

    def begin(self, epoch: int) -> None:
        self.epoch = epoch
        self.clear()

    def kill(self) -> None:
        self.dead_epoch = self.epoch
        self.clear()

    def clear(self) -> None:
        self.num_dropped += len(self.ids)
        self.ids = []
        self.distributions = []
        self.judged = []
        self.questions = []

    def take(self, message: Draft, log: Sequence[int], max_tokens: int) -> None:
        """Use the part of a draft that goes past what is held; anything unequal kills its epoch.

        Raises `GapError` where ids are missing in between, `InvalidRequestError` past `max_tokens` unjudged ids.
        """
        length = len(log)
        held_end = length + len(self.ids)
        if message.position > held_end:
            raise GapError(f"Draft.position is {message.position}; expected {held_end}.", expected=held_end)
        end = message.position + len(message.token_ids)
        held = [*log[message.position : end], *self.ids[max(0, message.position - length) : max(0, end - length)]]
        overlap = common_prefix_length(held, message.token_ids)
        if overlap < len(held):
            self.num_dropped += len(message.token_ids) - overlap
            self.kill()
            return
        self.ids.extend(message.token_ids[overlap:])
        self.distributions.extend((message.distributions or [])[overlap:])
        judged = range(len(message.token_ids)) if message.judged is None else frozenset(message.judged)
        self.judged.extend(offset in judged for offset in range(overlap, len(message.token_ids)))
        if len(self.ids) > max_tokens:
            raise InvalidRequestError(
                f"token_ids would make {len(self.ids)} unjudged ids; the limit is {max_tokens}.",
                field="token_ids",
                remedy="Ask for a verdict earlier.",
            )

    @property
    def num_unjudged_first(self) -> int:
        """How many ids stand before the first that is up for judgement."""
        return self.judged.index(True) if True in self.judged else len(self.judged)

    def judged_offsets(self, num_ids: int) -> tuple[int, ...] | None:
        """Which of the first `num_ids` ids are up for judgement; None for all."""
        judged = self.judged[:num_ids]
        return None if all(judged) else tuple(offset for offset, wanted in enumerate(judged) if wanted)

    def drop_first(self, count: int) -> None:
        """The first `count` ids have become part of the log."""
        del self.ids[:count]
        del self.distributions[:count]
        del self.judged[:count]
