"""Decides what the target does next: which waiting passes share a batch, and when a prefill gets its chunk.

Passes are ordered by priority, then by how long ago their session was served, then by age. Two rules keep every
piece of work moving: a pass that was passed over rises one priority after each `PROMOTE_AFTER_BATCHES` batches, and
after a prefill chunk as many passes may run as were waiting when it ended, then the next chunk is due.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgedraft.core.events import RunPass

PROMOTE_AFTER_BATCHES = 4


@dataclass(frozen=True, slots=True)
class QueuedPass:
    """A pass of `session` that waits since `queued_s` (the clock of whoever queues it)."""

    session: bytes
    command: RunPass
    queued_s: float


@dataclass(frozen=True, slots=True)
class PrefillStep:
    """The next chunk of this session's prompt is due."""

    session: bytes


@dataclass(frozen=True, slots=True)
class _Waiting:
    queued: QueuedPass
    number: int
    since_batch: int


class VerifyBatcher:
    """Holds what waits for the target. At most one pass a session: a later one replaces an earlier one."""

    def __init__(self) -> None:
        self._passes: dict[bytes, _Waiting] = {}
        self._prefills: dict[bytes, None] = {}  # an ordered set: the front one is next
        self._last_served: dict[bytes, float] = {}  # batch number
        self._num_added = 0
        self._num_batches = 0
        self._passes_before_chunk = 0
        self._chunk_ended = False

    @property
    def num_waiting(self) -> int:
        """Passes and prefills not yet finished."""
        return len(self._passes) + len(self._prefills)

    def add_pass(self, queued: QueuedPass) -> None:
        self._num_added += 1
        self._passes[queued.session] = _Waiting(queued, self._num_added, self._num_batches)
        # A newcomer goes ahead of those served in the last batch, behind those that have waited longer.
        self._last_served.setdefault(queued.session, self._num_batches - 0.5)

    def add_prefill(self, session: bytes) -> None:
        """Its chunks are handed out by `next_work` until `finish_prefill`. Known already: keeps its turn."""
        self._prefills.setdefault(session, None)

    def finish_prefill(self, session: bytes) -> None:
        self._prefills.pop(session, None)

    def cancel_pass(self, session: bytes, pass_id: int) -> None:
        waiting = self._passes.get(session)
        if waiting is not None and waiting.queued.command.pass_id == pass_id:
            del self._passes[session]

    def cancel(self, session: bytes) -> None:
        """Forget everything about the session."""
        self._passes.pop(session, None)
        self._prefills.pop(session, None)
        self._last_served.pop(session, None)

    def next_work(self, max_sessions: int) -> PrefillStep | list[QueuedPass]:
        """What to run now; an empty list where nothing waits."""
        if self._chunk_ended:
            # Counted now, not when the chunk began: a verdict asked for meanwhile goes before the next chunk.
            self._chunk_ended = False
            self._passes_before_chunk = len(self._passes)
        if self._prefills and (not self._passes or self._passes_before_chunk <= 0):
            self._chunk_ended = True
            return self._next_prefill()
        chosen = self.next_batch(max_sessions)
        self._passes_before_chunk -= len(chosen)
        return chosen

    def _next_prefill(self) -> PrefillStep:
        session = next(iter(self._prefills))
        self._prefills[session] = self._prefills.pop(session)
        return PrefillStep(session)

    def next_batch(self, max_sessions: int) -> list[QueuedPass]:
        """Take out at most `max_sessions` passes, the most urgent first, each of another session."""
        ordered = sorted(self._passes.values(), key=self._urgency)
        chosen = [waiting.queued for waiting in ordered[:max_sessions]]
        if chosen:
            self._num_batches += 1
        for queued in chosen:
            del self._passes[queued.session]
            self._last_served[queued.session] = self._num_batches
        return chosen

    def _urgency(self, waiting: _Waiting) -> tuple[int, float, int]:
        queued = waiting.queued
        promotion = (self._num_batches - waiting.since_batch) // PROMOTE_AFTER_BATCHES
        priority = max(0, queued.command.priority - promotion)
        return priority, self._last_served[queued.session], waiting.number
