"""How many of the waiting draft ids a target pass should take, where each id makes it longer.

On a GPU a pass over nine ids takes about as long as one over a single id, on a processor several times as long. Then
the last ids of a long draft, which are the least likely to be right, cost more than they bring.
"""

from __future__ import annotations

import math

KEPT_PER_PASS = 0.98
"""Weight that all older passes keep with each new one: some fifty of them count."""
STALL_FACTOR = 5.0
"""A pass longer than this many expected ones counts as so many."""

FIRST_ACCEPTANCE = 0.8
FIRST_WEIGHT = 4.0
KEPT_PER_ID = 0.98


class PassCost:
    """Learns from the passes of one target, whatever session they were for: `step_s` plus `per_draft_s` for each id.

    A line by least squares over the newest passes (weights fall geometrically); flat while all took equally many ids.
    The first pass of all warms the engine up and is left out.
    """

    def __init__(self) -> None:
        self._is_warm = False
        self._weight = 0.0
        self._mean_ids = 0.0
        self._mean_s = 0.0
        self._spread_ids = 0.0
        self._spread_both = 0.0

    def add(self, num_draft_ids: int, verify_s: float) -> None:
        """One pass, its wait for the worker not counted. One that took no time was not measured."""
        if not 0.0 < verify_s < math.inf:
            return
        if not self._is_warm:
            self._is_warm = True
            return
        if self._spread_ids > 0.0:  # before that nobody knows what more ids take
            verify_s = min(verify_s, STALL_FACTOR * max(self._mean_s, self.pass_s(num_draft_ids)))
        kept = KEPT_PER_PASS * self._weight
        self._weight = kept + 1.0
        further_ids, further_s = num_draft_ids - self._mean_ids, verify_s - self._mean_s
        self._spread_ids = KEPT_PER_PASS * self._spread_ids + further_ids**2 * kept / self._weight
        self._spread_both = KEPT_PER_PASS * self._spread_both + further_ids * further_s * kept / self._weight
        self._mean_ids += further_ids / self._weight
        self._mean_s += further_s / self._weight

    @property
    def per_draft_s(self) -> float:
        return max(0.0, self._spread_both / self._spread_ids) if self._spread_ids > 0.0 else 0.0

    def pass_s(self, num_draft_ids: int) -> float:
        """How long a pass over so many draft ids takes; 0 before the first was seen."""
        return max(0.0, self._mean_s + self.per_draft_s * (num_draft_ids - self._mean_ids))


class AcceptanceRate:
    """How likely a draft id of this session is right where all before it are; the newest ids count most."""

    def __init__(self) -> None:
        self._right = FIRST_ACCEPTANCE * FIRST_WEIGHT
        self._weight = FIRST_WEIGHT

    def add(self, num_right: int, *, then_wrong: bool) -> None:
        """New text confirmed so many waiting ids and, `then_wrong`, contradicted the next."""
        for is_right in [True] * num_right + [False] * then_wrong:
            self._right = KEPT_PER_ID * self._right + is_right
            self._weight = KEPT_PER_ID * self._weight + 1.0

    @property
    def rate(self) -> float:
        return self._right / self._weight


def best_cut(num_waiting: int, cost: PassCost, acceptance_rate: float, *, least: int) -> int:
    """How many of `num_waiting` draft ids, `least` or more, bring the most ids a second.

    A pass over n of them commits the right ones and the target's next: 1 + r + r**2 + ... + r**n ids on average, where
    each is right with probability r. Ties go to the longer draft.
    """
    per_draft_s = cost.per_draft_s
    pass_s = cost.pass_s(0)
    if per_draft_s <= 0.0 or pass_s <= 0.0:
        return num_waiting
    best, best_per_s, num_ids, right = least, 0.0, 1.0, 1.0
    for count in range(num_waiting + 1):
        if count >= least and num_ids / pass_s >= best_per_s:
            best, best_per_s = count, num_ids / pass_s
        right *= acceptance_rate
        num_ids += right
        pass_s += per_draft_s
    return min(best, num_waiting)
