"""Virtual time: what is due when, and nothing that waits."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from edgedraft.errors import EdgedraftError

MAX_TIME_S = 1e7
"""Four months: no simulated request takes that long, except one that gets nowhere."""


class Clock:
    """`now_s` moves from one due action to the next and never back. Equal times keep the order of asking."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._number = 0

    def at(self, time_s: float, action: Callable[[Any], None], subject: object = None) -> None:
        """Have `action(subject)` done at `time_s`. Raises `EdgedraftError` for a time that has passed."""
        if not time_s >= self.now_s:  # which no NaN fulfils
            raise EdgedraftError(f"something is due at {time_s} s, but it is {self.now_s} s already.")
        self._number += 1
        heapq.heappush(self._due, (time_s, self._number, action, subject))

    def run(self) -> None:
        """Do what is due until nothing is. Raises `EdgedraftError` where that has no end."""
        due, take = self._due, heapq.heappop
        while due:
            self.now_s, _, action, subject = take(due)
            if self.now_s > MAX_TIME_S:
                raise EdgedraftError(f"the simulation went on past {MAX_TIME_S:g} s.", remedy="Check link and times.")
            action(subject)
