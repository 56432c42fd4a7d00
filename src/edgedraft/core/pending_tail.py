"""The cloud's copy of an edge's tail: draft ids after the log that no verdict has been given for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgedraft.core.sequence import common_prefix_length
from edgedraft.errors import GapError, InvalidRequestError
from edgedraft.protocol.messages import Draft, Hedge
from edgedraft.types import DraftDistribution


@dataclass(slots=True)
class SecondWay:
    """What the edge believes if the text has `ids[0]` at `position` (message `Hedge`)."""

    epoch: int
    position: int
    ids: list[int]


class PendingTail:
    """Draft ids of the present `epoch`, from the log's end on.

    `judged`: for each id whether it is up for judgement (always, unless the edge owns the log). `questions`: the
    positions up to which verdicts are asked for and not given, the oldest first. `dead_epoch`: the newest epoch that a
    mismatch has killed (rule 3). `num_dropped`: ids thrown away.
    """

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.distributions: list[DraftDistribution] = []
        self.judged: list[bool] = []
        self.questions: list[int] = []
        self.epoch = 0
        self.dead_epoch = -1
        self.num_dropped = 0
        self.hedge: SecondWay | None = None
        self._spent_hedge_epoch = 0
        self._left_at = 0

    def __len__(self) -> int:
        return len(self.ids)

    def is_dead(self, epoch: int) -> bool:
        """Rule 3: after a mismatch nothing of that epoch can be right."""
        return epoch <= self.dead_epoch

    def is_current(self, epoch: int) -> bool:
        return epoch == self.epoch and not self.is_dead(epoch)

    def begin(self, epoch: int) -> None:
        """A newer epoch. That of a second way that the text has left is dead from the start."""
        self.epoch = epoch
        if epoch <= self._spent_hedge_epoch:
            self.dead_epoch = epoch
        self.clear()

    def kill(self, position: int) -> None:
        """The text has left the drafts at `position`. The second way lives on where it leaves them there or before."""
        self.dead_epoch, self._left_at = self.epoch, position
        hedge, self.hedge = self.hedge, None
        self.clear()
        self.hedge = hedge
        if hedge is not None and hedge.position > position:
            self.drop_hedge()

    def clear(self) -> None:
        self.num_dropped += len(self.ids)
        self.ids = []
        self.distributions = []
        self.judged = []
        self.questions = []
        self.drop_hedge()

    def drop_hedge(self) -> None:
        """The text went another way: what still comes of this one is dropped."""
        if self.hedge is not None:
            self.num_dropped += len(self.hedge.ids)
            self._spent_hedge_epoch = self.hedge.epoch
            self.hedge = None

    def take(self, message: Draft, log: Sequence[int], max_tokens: int) -> None:
        """Use the part of a draft that goes past what is held; anything unequal kills its epoch.

        Raises `GapError` where ids are missing in between, `InvalidRequestError` past `max_tokens` unjudged ids.
        """
        overlap = self._overlap(message.position, message.token_ids, log)
        if overlap is None:
            return
        self.ids.extend(message.token_ids[overlap:])
        self.distributions.extend((message.distributions or [])[overlap:])
        judged = range(len(message.token_ids)) if message.judged is None else frozenset(message.judged)
        self.judged.extend(offset in judged for offset in range(overlap, len(message.token_ids)))
        check_room(len(self.ids), max_tokens)

    def _overlap(self, position: int, token_ids: Sequence[int], log: Sequence[int]) -> int | None:
        """How many of `token_ids` are held already; None where one contradicts what is held, which kills the epoch."""
        length = len(log)
        held_end = length + len(self.ids)
        if position > held_end:
            raise GapError(f"Draft.position is {position}; expected {held_end}.", expected=held_end)
        end = position + len(token_ids)
        held = [*log[position:end], *self.ids[max(0, position - length) : max(0, end - length)]]
        overlap = common_prefix_length(held, token_ids)
        if overlap == len(held):
            return overlap
        self.num_dropped += len(token_ids) - overlap
        self.kill(position + overlap)
        return None

    def take_hedge(self, message: Hedge, log: Sequence[int], max_tokens: int) -> None:
        """Keep a second way, or use it at once where the text has already come to the place where it leaves.

        Raises `InvalidRequestError` past `max_tokens` ids.
        """
        if self.is_current(message.epoch) and message.position <= len(log) + len(self):
            overlap = self._overlap(message.position, message.token_ids, log)  # the text took this way meanwhile
            if overlap is not None:
                self._extend(message.token_ids[overlap:])
                check_room(len(self.ids), max_tokens)
            return
        held = self.hedge
        if message.epoch <= max(self.epoch, self._spent_hedge_epoch, held.epoch - 1 if held is not None else 0):
            self.num_dropped += len(message.token_ids)
            return
        if held is not None and held.epoch == message.epoch:
            held.ids.extend(message.token_ids)
        else:
            self.drop_hedge()
            self.hedge = held = SecondWay(message.epoch, message.position, list(message.token_ids))
            if self.is_dead(self.epoch) and message.position > self._left_at:
                self.drop_hedge()
        check_room(len(held.ids), max_tokens)
        self.settle_hedge(log)

    def settle_hedge(self, log: Sequence[int]) -> None:
        """Once the text has passed the place: go on with the second way if the text took it, else forget it."""
        hedge = self.hedge
        if hedge is None or len(log) <= hedge.position:
            return
        settled = log[hedge.position :]
        if common_prefix_length(hedge.ids, settled) < min(len(hedge.ids), len(settled)):
            self.drop_hedge()
            return
        self.hedge = None
        self.begin(hedge.epoch)
        self._extend(hedge.ids[len(settled) :])

    def _extend(self, ids: Sequence[int]) -> None:
        """More ids that are all up for judgement."""
        self.ids.extend(ids)
        self.judged.extend([True] * len(ids))

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


def check_room(num_ids: int, max_tokens: int) -> None:
    """Raises `InvalidRequestError` past `max_tokens` unjudged ids."""
    if num_ids > max_tokens:
        raise InvalidRequestError(
            f"token_ids would make {num_ids} unjudged ids; the limit is {max_tokens}.",
            field="token_ids",
            remedy="Ask for a verdict earlier.",
        )
