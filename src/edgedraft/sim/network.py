"""When what arrives on a bad link: profiles and schedules, without sockets or clocks.

What a burst meets, in this order: it waits for its turn on the link (one queue for each direction, shared by all
connections), occupies it for `startup_s + size / bytes_per_s`, travels for `delay_s` plus jitter, and is delivered.
So bandwidth is shared and delay is not, as on a real link. The simulator sends by the same schedules, where a burst
is one message.
"""
# ruff: noqa: S311 - a bad network needs no cryptographic randomness

from __future__ import annotations

import bisect
import enum
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from edgedraft.errors import InvalidRequestError


class Way(enum.StrEnum):
    """Up: towards the upstream. Down: back to whoever connected."""

    UP = "up"
    DOWN = "down"


def _require(field: str, value: float, legal: bool, rule: str) -> None:
    if not legal:
        raise InvalidRequestError(f"{field} is {value}; legal: {rule}.", field=field)


# -- what the link is like -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkDirection:
    """One direction. Jitter is uniform in [0, jitter_s] and never lets a later burst overtake.

    `startup_s`: how long a burst (what was read at once, at most 64 KiB) occupies the link besides its bytes.
    `changes`: (from when, bytes per second), ascending, where the bandwidth varies; until the first, `bytes_per_s`
    holds. Raises `InvalidRequestError` naming the field.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float = math.inf
    startup_s: float = 0.0
    changes: Sequence[tuple[float, float]] = ()

    def __post_init__(self) -> None:
        for field in ("delay_s", "jitter_s", "startup_s"):
            _require(field, getattr(self, field), 0 <= getattr(self, field) < math.inf, "0 or more seconds")
        last_s = -math.inf
        for start_s, bytes_per_s in ((0.0, self.bytes_per_s), *self.changes):
            _require("bytes_per_s", bytes_per_s, bytes_per_s > 0, "above 0; infinity for no limit")
            _require("changes", start_s, last_s < start_s < math.inf, "ascending times after 0")
            last_s = start_s


def varying_bandwidth(
    rng: random.Random,
    *,
    low_bytes_per_s: float,
    high_bytes_per_s: float,
    every_s: float = 20.0,
    until_s: float = 7200.0,
) -> tuple[tuple[float, float], ...]:
    """For `LinkDirection.changes`: a new bandwidth every `every_s` seconds, uniform in the range. What holds before
    the first change is the caller's to say.
    """
    _require("every_s", every_s, 0 < every_s < math.inf, "above 0 seconds")
    _require("until_s", until_s, 0 <= until_s < math.inf, "0 or more seconds")
    _require(
        "low_bytes_per_s", low_bytes_per_s, 0 < low_bytes_per_s <= high_bytes_per_s, "above 0, at most the high one"
    )
    return tuple(
        (count * every_s, rng.uniform(low_bytes_per_s, high_bytes_per_s))
        for count in range(1, int(until_s / every_s) + 1)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkProfile:
    """Both directions, and what happens to the link as a whole.

    `stall_interval_s`, `cut_interval_s`: mean time until the next stall or cut (exponential; infinity: never).
    `stall_s`: how long a stall lasts. Raises `InvalidRequestError` naming the field.
    """

    up: LinkDirection = LinkDirection()
    down: LinkDirection = LinkDirection()
    stall_interval_s: float = math.inf
    stall_s: float = 0.0
    cut_interval_s: float = math.inf

    def __post_init__(self) -> None:
        for field in ("stall_interval_s", "cut_interval_s"):
            _require(field, getattr(self, field), getattr(self, field) > 0, "above 0; infinity for never")
        _require("stall_s", self.stall_s, 0 <= self.stall_s < math.inf, "0 or more seconds")

    @classmethod
    def symmetric(
        cls, *, rtt_s: float, jitter_s: float = 0.0, bytes_per_s: float = math.inf, startup_s: float = 0.0
    ) -> LinkProfile:
        """Both directions alike, with half of `rtt_s` each way."""
        _require("rtt_s", rtt_s, 0 <= rtt_s < math.inf, "0 or more seconds")
        way = LinkDirection(delay_s=rtt_s / 2, jitter_s=jitter_s, bytes_per_s=bytes_per_s, startup_s=startup_s)
        return cls(up=way, down=way)


# -- when what arrives: pure -----------------------------------------------------------------------------------------


class Stalls:
    """The periods in which nothing flows: seeded ones, drawn as time passes, and those asked for with `add`."""

    def __init__(self, interval_s: float, duration_s: float, rng: random.Random) -> None:
        self._interval_s = interval_s
        self._duration_s = duration_s
        self._rng = rng
        self._windows: list[tuple[float, float]] = []
        self._drawn_until_s = 0.0 if duration_s > 0 and interval_s < math.inf else math.inf

    def add(self, start_s: float, duration_s: float) -> None:
        self._windows.append((start_s, start_s + duration_s))

    def release_s(self, at_s: float) -> float:
        """The first moment from `at_s` on that lies in no stall."""
        if not self._windows and at_s < self._drawn_until_s:
            return at_s
        while (ends := [end_s for start_s, end_s in self._until(at_s) if start_s <= at_s < end_s]) != []:
            at_s = max(ends)
        return at_s

    def finish_s(self, start_s: float, work_s: float) -> float:
        """When work begun at `start_s` is done, if it pauses in every stall."""
        if not self._windows and start_s + work_s < self._drawn_until_s:
            return start_s + work_s
        at_s = self.release_s(start_s)
        while (ahead := [start_s for start_s, _ in self._until(at_s + work_s) if at_s < start_s < at_s + work_s]) != []:
            pause_s = min(ahead)
            work_s -= pause_s - at_s
            at_s = self.release_s(pause_s)
        return at_s + work_s

    def open_s(self, start_s: float, end_s: float) -> float:
        """How much of the period lies in no stall."""
        open_s, at_s = 0.0, self.release_s(start_s)
        while at_s < end_s:
            pause_s = min((start for start, _ in self._until(end_s) if at_s < start < end_s), default=end_s)
            open_s += pause_s - at_s
            at_s = self.release_s(pause_s)
        return open_s

    def _until(self, at_s: float) -> list[tuple[float, float]]:
        while self._drawn_until_s <= at_s:
            start_s = self._drawn_until_s + self._rng.expovariate(1 / self._interval_s)
            self.add(start_s, self._duration_s)
            self._drawn_until_s = start_s + self._duration_s
        return self._windows


class DirectionSchedule:
    """When each burst of one direction is delivered. Times in seconds from the start of the link.

    `free_at_s`: when the last burst has left, so that the next can start.
    """

    def __init__(self, direction: LinkDirection, stalls: Stalls, rng: random.Random) -> None:
        self.free_at_s = 0.0
        self._direction = direction
        self._stalls = stalls
        self._rng = rng
        self._last_delivery_s = 0.0

    def delivery_s(self, arrival_s: float, size_bytes: int) -> float:
        """Told once for each burst, in order of arrival. A burst of 0 bytes (end of stream) occupies nothing."""
        way = self._direction
        start_s = max(arrival_s, self.free_at_s)
        if way.changes and size_bytes:
            self.free_at_s = self._varying_finish_s(start_s, size_bytes)
        else:
            work_s = way.startup_s + size_bytes / way.bytes_per_s if size_bytes else 0.0
            self.free_at_s = self._stalls.finish_s(start_s, work_s)
        travelled_s = self.free_at_s + way.delay_s
        if way.jitter_s:
            travelled_s += self._rng.uniform(0.0, way.jitter_s)
        self._last_delivery_s = self._stalls.release_s(max(self._last_delivery_s, travelled_s))
        return self._last_delivery_s

    def _varying_finish_s(self, start_s: float, size_bytes: int) -> float:
        """The start-up, then the bytes, each period at its own bandwidth."""
        way, stalls = self._direction, self._stalls
        at_s = stalls.finish_s(start_s, way.startup_s)
        left_bytes = float(size_bytes)
        index = bisect.bisect_right(way.changes, at_s, key=lambda change: change[0])
        while True:
            bytes_per_s = way.changes[index - 1][1] if index else way.bytes_per_s
            done_s = stalls.finish_s(at_s, left_bytes / bytes_per_s)
            change_s = way.changes[index][0] if index < len(way.changes) else math.inf
            if done_s <= change_s:
                return done_s
            left_bytes -= bytes_per_s * stalls.open_s(at_s, change_s)
            at_s, index = change_s, index + 1


def schedules(profile: LinkProfile, seed: int) -> tuple[dict[Way, DirectionSchedule], Stalls]:
    """Both directions' schedules and the stalls they share. Each has its own generator, so none disturbs another."""
    stalls = Stalls(profile.stall_interval_s, profile.stall_s, random.Random(f"{seed} stalls"))
    ways = {Way.UP: profile.up, Way.DOWN: profile.down}
    return {way: DirectionSchedule(ways[way], stalls, random.Random(f"{seed} {way}")) for way in Way}, stalls
