"""A second way on: where the draft was unsure, its other choice, and what it drafts behind that while it waits.

The edge sends such a hedge beside its draft. Where the target turns out to choose so, both sides go on with it at once,
without the round trip that a rejection costs otherwise. Every id is judged all the same, so the text stays exact.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from edgedraft.types import DraftToken

SURE = 0.998
"""No estimate is taken for more certain than this."""


@dataclass(slots=True)
class Hedge:
    """`tokens` could stand from `position` on in place of what the tail says there. `epoch`: what it travels under, and
    goes on under if it is right. `ended`: nothing more is drafted behind it.
    """

    position: int
    epoch: int
    tokens: list[DraftToken] = field(default_factory=list)
    num_sent: int = 0
    ended: bool = False

    @property
    def num_unsent(self) -> int:
        return len(self.tokens) - self.num_sent

    def add(self, token: DraftToken | None, stop_ids: Collection[int]) -> None:
        """The draft's next token behind it; None where it proposes nothing."""
        if token is not None:
            self.tokens.append(token)
        self.ended = token is None or token.token_id in stop_ids

    def agrees_with(self, ids: Sequence[int], position: int) -> bool:
        """Whether the text that has `ids` from `position` on takes this way, as far as both go."""
        settled = ids[self.position - position :]
        return all(token.token_id == settled_id for token, settled_id in zip(self.tokens, settled, strict=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hedging:
    """How a strategy chooses what to draft next.

    `least_use`: where the next token is less likely than this to be of use, nothing is drafted. `patience`: how much
    better the other way must look before the draft changes over, since it has to take in again what it left.
    """

    least_use: float = 0.0
    patience: float = 2.5
    opens: bool = True


class Way(enum.Enum):
    """What to draft next: behind the tail, behind the hedge, behind a new hedge, or nothing."""

    MAIN = enum.auto()
    HEDGE = enum.auto()
    NEW_HEDGE = enum.auto()
    STOP = enum.auto()


def second_is_right(token: DraftToken) -> float:
    """How likely the second choice is the target's, given that the first is not."""
    if token.second_id < 0 or token.second_id == token.token_id:
        return 0.0
    return min(SURE, token.second_confidence / max(1.0 - token.confidence, 1e-9))


class Ways(Protocol):
    """What of a draft tail the choice looks at."""

    tokens: list[DraftToken]
    hedge: Hedge | None
    on_hedge: bool


def best_way(tail: Ways, length: int, hedging: Hedging) -> tuple[Way, int]:
    """What the next draft token is most likely to be of use for and, for a new hedge, the offset in the tail.

    A token is of use where everything before it is right. `length`: tokens of the committed text.
    """
    hedge = tail.hedge
    hedge_offset = None if hedge is None else hedge.position - length
    main_use, best_new, new_offset, hedge_use = 1.0, 0.0, 0, 0.0
    for offset, token in enumerate(tail.tokens):
        right = min(SURE, token.confidence)
        other = main_use * (1.0 - right) * second_is_right(token)
        if offset == hedge_offset:
            hedge_use = other
        elif other > best_new:
            best_new, new_offset = other, offset
        main_use *= right
    if hedge is None:
        if hedging.opens and best_new > max(main_use * hedging.patience, hedging.least_use):
            return Way.NEW_HEDGE, new_offset
        return (Way.MAIN if main_use >= hedging.least_use else Way.STOP), 0
    for token in hedge.tokens[1:]:
        hedge_use *= min(SURE, token.confidence)
    if hedge.ended:
        hedge_use = 0.0
    bonus = 1.0 if tail.on_hedge else 1.0 / hedging.patience
    if max(main_use, hedge_use) < hedging.least_use:
        return Way.STOP, 0
    return (Way.HEDGE if hedge_use * bonus > main_use else Way.MAIN), 0
