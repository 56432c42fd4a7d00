"""Energy by hand, and what is integrated."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.errors import InvalidRequestError
from edgedraft.metrics.energy import A800_CLASS, CPU_CLASS, PowerModel, PowerSample, ecs_j_per_100, energy_over_j

RAMP = [PowerSample(0.0, 100.0), PowerSample(1.0, 200.0), PowerSample(2.0, 200.0)]


@pytest.mark.parametrize(
    ("busy", "energy_j"),
    [
        ([], 0.0),
        ([(0.0, 1.0)], 150.0),
        ([(0.5, 1.5)], 0.5 * 175 + 0.5 * 200),
        ([(0.2, 0.3)], 0.1 * 125),  # between two samples
        ([(0.0, 0.5), (1.0, 2.0)], 0.5 * 125 + 200),
        ([(1.0, 2.0), (1.2, 1.8), (1.5, 2.0)], 200.0),  # shared time counts once
        ([(2.0, 3.0)], 200.0),  # behind the last sample
        ([(-1.0, 0.0)], 100.0),
        ([(1.0, 1.0)], 0.0),
    ],
)
def test_power_is_integrated_over_the_busy_time_alone(busy: list[tuple[float, float]], energy_j: float) -> None:
    assert energy_over_j(RAMP, busy) == pytest.approx(energy_j)


@given(
    powers=st.lists(st.floats(0, 500), min_size=1, max_size=20),
    cuts=st.lists(st.floats(0, 20), min_size=2, max_size=2).map(sorted),
    middle=st.floats(0, 1),
)
def test_two_halves_are_the_whole(powers: list[float], cuts: list[float], middle: float) -> None:
    samples = [PowerSample(float(index), power) for index, power in enumerate(powers)]
    start, end = cuts
    cut = start + middle * (end - start)
    halves = energy_over_j(samples, [(start, cut)]) + energy_over_j(samples, [(cut, end)])
    assert halves == pytest.approx(energy_over_j(samples, [(start, end)]), abs=1e-6)


@pytest.mark.parametrize("samples", [[], [PowerSample(1.0, 1.0), PowerSample(0.0, 1.0)]])
def test_samples_that_are_none_or_out_of_order_are_refused(samples: list[PowerSample]) -> None:
    with pytest.raises(InvalidRequestError):
        energy_over_j(samples, [(0.0, 1.0)])


@pytest.mark.parametrize("busy", [(1.0, 0.0), (0.0, math.nan)])
def test_an_interval_that_ends_before_it_starts_is_refused(busy: tuple[float, float]) -> None:
    with pytest.raises(InvalidRequestError):
        energy_over_j(RAMP, [busy])


def test_a_model_counts_busy_time_and_idle_time_only_if_asked() -> None:
    model = PowerModel(name="board", idle_w=10.0, active_w=100.0)
    assert model.energy_j(2.0) == 200.0
    assert model.energy_j(2.0, idle_s=3.0) == 230.0
    assert A800_CLASS.active_w > CPU_CLASS.active_w


@pytest.mark.parametrize(("idle_w", "active_w"), [(-1.0, 1.0), (2.0, 1.0), (0.0, math.inf), (math.nan, 1.0)])
def test_an_impossible_model_is_refused(idle_w: float, active_w: float) -> None:
    with pytest.raises(InvalidRequestError):
        PowerModel(name="board", idle_w=idle_w, active_w=active_w)


def test_ecs_is_per_hundred_committed_tokens() -> None:
    assert ecs_j_per_100(28.0, 50) == 56.0
    assert ecs_j_per_100(28.0, 0) is None
