"""One edge's way up: its messages one after another, each occupying the link for a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from edgedraft.protocol.messages import Draft, SessionFromEdge
from edgedraft.sim.clock import Clock
from edgedraft.sim.network import DirectionSchedule


class Sender(Protocol):
    """Who put a message on the link."""

    def sent(self, outgoing: Outgoing, start_s: float, arrival_s: float) -> None:
        """It has begun to leave."""

    def has_left(self, outgoing: Outgoing) -> None:
        """The link is done with it. Told for messages that ask."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message on its way up. `asks`: its sender wants to know when the link has taken it."""

    sender: Sender
    message: SessionFromEdge
    size_bytes: int
    queued_s: float
    asks: bool


class Uplink:
    """What waits can be recalled, what has begun to leave cannot."""

    def __init__(self, clock: Clock, schedule: DirectionSchedule, deliver: Callable[[SessionFromEdge], None]) -> None:
        self._clock = clock
        self._schedule = schedule
        self._deliver = deliver
        self._waiting: deque[Outgoing] = deque()
        self._wakes = False

    def put(self, outgoing: Outgoing) -> None:
        if self._waiting or self._clock.now_s < self._schedule.free_at_s:
            self._waiting.append(outgoing)
            self._wake_when_free()
        else:
            self._send(outgoing)

    def recall(self, sender: Sender, is_stale: Callable[[Draft], bool]) -> int:
        """Take back drafts of `sender` that wait and are stale; how many ids they held."""
        stale = [
            outgoing
            for outgoing in self._waiting
            if outgoing.sender is sender and isinstance(outgoing.message, Draft) and is_stale(outgoing.message)
        ]
        for outgoing in stale:
            self._waiting.remove(outgoing)
        return sum(len(outgoing.message.token_ids) for outgoing in stale if isinstance(outgoing.message, Draft))

    def _wake_when_free(self) -> None:
        if not self._wakes:
            self._wakes = True
            self._clock.at(self._schedule.free_at_s, self._send_next)

    def _send_next(self, _: None) -> None:
        self._wakes = False
        if self._waiting:
            self._send(self._waiting.popleft())
        if self._waiting:
            self._wake_when_free()

    def _send(self, outgoing: Outgoing) -> None:
        start_s = self._clock.now_s
        arrival_s = self._schedule.delivery_s(start_s, outgoing.size_bytes)
        self._clock.at(arrival_s, self._deliver, outgoing.message)
        outgoing.sender.sent(outgoing, start_s, arrival_s)
        if outgoing.asks:
            self._clock.at(self._schedule.free_at_s, outgoing.sender.has_left, outgoing)
