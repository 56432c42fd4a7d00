"""When what arrives on a bad link: profiles and schedules, without sockets or clocks.

What a burst meets, in this order: it waits for its turn on the link (one queue for each direction, shared by all
connections), occupies it for `startup_s + size / bytes_per_s`, travels for `delay_s` plus jitter, and is delivered.
So bandwidth is shared and delay is not, as on a real link.
"""
# ruff: noqa: S311 - a bad network needs no cryptographic randomness

from __future__ import annotations

import enum
import math
import random
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
    Raises `InvalidRequestError` naming the field.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float = math.inf
    startup_s: float = 0.0

    def __post_init__(self) -> None:
        for field in ("delay_s", "jitter_s", "startup_s"):
            _require(field, getattr(self, field), 0 <= getattr(self, field) < math.inf, "0 or more seconds")
        _require("bytes_per_s", self.bytes_per_s, self.bytes_per_s > 0, "above 0; infinity for no limit")


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
        while (ends := [end_s for start_s, end_s in self._until(at_s) if start_s <= at_s < end_s]) != []:
            at_s = max(ends)
        return at_s

    def finish_s(self, start_s: float, work_s: float) -> float:
        """When work begun at `start_s` is done, if it pauses in every stall."""
        at_s = self.release_s(start_s)
        while (ahead := [start_s for start_s, _ in self._until(at_s + work_s) if at_s < start_s < at_s + work_s]) != []:
            pause_s = min(ahead)
            work_s -= pause_s - at_s
            at_s = self.release_s(pause_s)
        return at_s + work_s

    def _until(self, at_s: float) -> list[tuple[float, float]]:
        while self._drawn_until_s <= at_s:
            start_s = self._drawn_until_s + self._rng.expovariate(1 / self._interval_s)
            self.add(start_s, self._duration_s)
            self._drawn_until_s = start_s + self._duration_s
        return self._windows


class DirectionSchedule:
    """When each burst of one direction is delivered. Times in seconds from the start of the link."""

    def __init__(self, direction: LinkDirection, stalls: Stalls, rng: random.Random) -> None:
        self._direction = direction
        self._stalls = stalls
        self._rng = rng
        self._free_at_s = 0.0
        self._last_delivery_s = 0.0

    def delivery_s(self, arrival_s: float, size_bytes: int) -> float:
        """Told once for each burst, in order of arrival. A burst of 0 bytes (end of stream) occupies nothing."""
        way = self._direction
        work_s = way.startup_s + size_bytes / way.bytes_per_s if size_bytes else 0.0
        self._free_at_s = self._stalls.finish_s(max(arrival_s, self._free_at_s), work_s)
        travelled_s = self._free_at_s + way.delay_s + self._rng.uniform(0.0, way.jitter_s)
        self._last_delivery_s = self._stalls.release_s(max(self._last_delivery_s, travelled_s))
        return self._last_delivery_s


def schedules(profile: LinkProfile, seed: int) -> tuple[dict[Way, DirectionSchedule], Stalls]:
    """Both directions' schedules and the stalls they share. Each has its own generator, so none disturbs another."""
    stalls = Stalls(profile.stall_interval_s, profile.stall_s, random.Random(f"{seed} stalls"))
    ways = {Way.UP: profile.up, Way.DOWN: profile.down}
    return {way: DirectionSchedule(ways[way], stalls, random.Random(f"{seed} {way}")) for way in Way}, stalls
