"""When drafts arrived, for the edge, which learns from it what its link is like."""

from __future__ import annotations

from edgedraft.protocol.messages import Draft, Timings


class Arrivals:
    """Arrivals of one incarnation, which are compared with each other only. `end`: position behind the newest draft."""

    def __init__(self) -> None:
        self._first_s = 0.0
        self._last_s = 0.0
        self._end = 0

    def note(self, message: Draft, now_s: float) -> None:
        self._first_s = self._first_s if self._end else now_s
        self._last_s = now_s
        self._end = message.position + len(message.token_ids)

    def timings(self, queue_s: float, verify_s: float, now_s: float) -> Timings:
        """What a commit that leaves now carries."""
        turnaround_us = round((now_s - self._last_s) * 1e6) if self._end else 0
        arrival_us = round((self._last_s - self._first_s) * 1e6) % 2**32
        return Timings(round(queue_s * 1e6), round(verify_s * 1e6), turnaround_us, arrival_us, self._end)
