"""The one timer of an edge session, shared by what it waits for."""

from __future__ import annotations

from edgedraft.core.events import SetTimer


class Alarm:
    """`silence_at_s`: when the cloud will have been silent for too long. `upload_at_s`: when the link is thought free.

    `draft_at_s`: when to draft on at the latest, though a commit is due. None where that is not waited for.
    """

    def __init__(self) -> None:
        self.silence_at_s: float | None = None
        self.upload_at_s: float | None = None
        self.draft_at_s: float | None = None
        self._is_set = False

    @property
    def is_for_silence(self) -> bool:
        """Whether the silence ends first, which is what a timer that fires then means."""
        return self.silence_at_s is not None and self.silence_at_s == self._first

    @property
    def _first(self) -> float | None:
        times = (self.silence_at_s, self.upload_at_s, self.draft_at_s)
        return min((at_s for at_s in times if at_s is not None), default=None)

    def commands(self) -> list[SetTimer]:
        """Set the timer anew, or stop it where it runs for nothing."""
        at_s = self._first
        if at_s is None and not self._is_set:
            return []
        self._is_set = at_s is not None
        return [SetTimer(at_s)]
