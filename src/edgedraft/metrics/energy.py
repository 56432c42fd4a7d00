"""Energy of the cloud: what is integrated, over which time, and where the power comes from. Watts, joules, seconds.

Integrated is the power of the whole device (idle power included) while the target computes, prefill and passes, and
nothing while it waits. That is PipeSD's ECS, which is then given per 100 committed tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from edgedraft.errors import InvalidRequestError


class EnergyKind(StrEnum):
    """Whether a figure comes from a sensor or from a declared power."""

    MEASURED = "measured"
    MODELLED = "modelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerModel:
    """A device without a sensor: `active_w` while the target computes, `idle_w` while it waits."""

    name: str
    idle_w: float
    active_w: float

    def __post_init__(self) -> None:
        if not 0 <= self.idle_w <= self.active_w < math.inf:
            raise InvalidRequestError(
                f"idle_w is {self.idle_w} and active_w {self.active_w}; legal: 0 <= idle_w <= active_w, finite.",
                field="active_w",
            )

    def energy_j(self, busy_s: float, idle_s: float = 0.0) -> float:
        """Joules of so much time of each sort; the time that the target waits is left out by default."""
        return self.active_w * busy_s + self.idle_w * idle_s


A800_CLASS = PowerModel(name="A800-class GPU", idle_w=45.0, active_w=175.0)
"""A 40 GB PCIe board: limit 250 W by its data sheet. One 7B model at 4 bits is bound by memory, not by arithmetic, for
which 70 % of the limit is assumed, and 45 W at rest. PipeSD's Table 2 over its verifications at 65 ms would be 50 to
75 W, so compare ratios between strategies rather than joules."""

CPU_CLASS = PowerModel(name="CPU, 45 W class", idle_w=10.0, active_w=45.0)
"""A mobile processor at its base power, as that of PipeSD's edge (Core Ultra 9 185H, 45 W); 10 W at rest is assumed."""


@dataclass(frozen=True, slots=True)
class PowerSample:
    """What a sensor said and when, on the clock of the busy intervals."""

    at_s: float
    power_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyReading:
    """Joules over `busy_s` seconds in which the target computed. `source`: the sensor or the model, for reports."""

    energy_j: float
    busy_s: float
    kind: EnergyKind
    source: str


def energy_over_j(samples: Sequence[PowerSample], busy: Sequence[tuple[float, float]]) -> float:
    """Joules within the `busy` intervals, as (start, end) in seconds: trapezoids over samples in order of time.

    Power between samples is a straight line, before the first and after the last constant. Time that intervals share
    counts once. Raises `InvalidRequestError` for no samples, samples out of order or an interval that ends early.
    """
    times_s = np.array([sample.at_s for sample in samples])
    powers_w = np.array([sample.power_w for sample in samples])
    if not times_s.size or (np.diff(times_s) < 0).any():
        raise InvalidRequestError("samples are none or not in order of time.", field="samples")
    energy_j = 0.0
    for start_s, end_s in _merged(busy):
        inside = (times_s > start_s) & (times_s < end_s)
        corners_s = np.concatenate([[start_s], times_s[inside], [end_s]])
        corners_w = np.interp(corners_s, times_s, powers_w)
        energy_j += float(np.sum(np.diff(corners_s) * (corners_w[1:] + corners_w[:-1])) / 2)
    return energy_j


def _merged(busy: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for start_s, end_s in sorted(busy):
        if not start_s <= end_s:
            raise InvalidRequestError(f"busy holds ({start_s}, {end_s}); legal: start <= end.", field="busy")
        if merged and start_s <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end_s))
        else:
            merged.append((start_s, end_s))
    return merged


def ecs_j_per_100(energy_j: float, num_committed: int) -> float | None:
    """PipeSD's ECS: joules of the cloud per 100 committed tokens; None where none was committed."""
    return 100.0 * energy_j / num_committed if num_committed else None
