"""What the text may say next because it said so before: guesses for passes in which the target writes by itself.

Prompt lookup (Saxena 2023): the ids that followed the last time the newest few ids stood in the text. The target judges
them like any draft, so a wrong guess costs nothing where a pass over several ids takes about as long as over one.
"""

from __future__ import annotations

from collections.abc import Sequence

LONGEST, SHORTEST = 4, 2
"""How many of the newest ids have to have stood together before; the longest match wins."""
MOST_IDS = 8
REACH_IDS = 4096
"""How far back the text is remembered when a session opens."""


class Echo:
    """Remembers where each run of `SHORTEST` to `LONGEST` ids last ended in one growing text."""

    def __init__(self) -> None:
        self._ends: dict[tuple[int, ...], int] = {}
        self._num_known = 0

    def guess(self, ids: Sequence[int], most: int) -> Sequence[int]:
        """At most `most` ids that may follow `ids`, which is the text of the last call with more behind it."""
        length = len(ids)
        self._learn(ids)
        for num_ids in range(min(LONGEST, length), SHORTEST - 1, -1):
            end = self._ends.get(tuple(ids[length - num_ids :]))
            if end is not None:
                return ids[end : end + max(0, min(most, MOST_IDS))]
        return ()

    def _learn(self, ids: Sequence[int]) -> None:
        """All runs that something follows."""
        for end in range(max(self._num_known, len(ids) - REACH_IDS, SHORTEST), len(ids)):
            for num_ids in range(SHORTEST, min(LONGEST, end) + 1):
                self._ends[tuple(ids[end - num_ids : end])] = end
        self._num_known = len(ids)
