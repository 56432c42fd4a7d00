"""A gate fires on a change, not on noise."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.errors import InvalidRequestError
from edgedraft.tune.gates import ChangeGate


def firings(gate: ChangeGate, values: list[float]) -> list[int]:
    return [index for index, value in enumerate(values) if gate.changed(value)]


def test_the_first_figure_is_the_reference() -> None:
    gate = ChangeGate()
    assert not gate.changed(0.036)
    assert gate.reference == 0.036


def test_it_fires_at_the_third_figure_outside_and_takes_their_mean() -> None:
    gate = ChangeGate(reference=100.0)
    assert firings(gate, [130.0, 140.0, 150.0, 141.0, 139.0]) == [2]
    assert gate.reference == 140.0


@pytest.mark.parametrize(
    ("value", "fires"), [(119.9, False), (120.0, False), (120.1, True), (80.0, False), (79.9, True)]
)
def test_a_fifth_on_either_side_is_the_bound(value: float, fires: bool) -> None:
    assert bool(firings(ChangeGate(reference=100.0), [value] * 3)) is fires


def test_figures_between_and_on_the_other_side_start_the_count_anew() -> None:
    assert firings(ChangeGate(reference=100.0), [150.0, 150.0, 101.0, 150.0, 150.0]) == []
    assert firings(ChangeGate(reference=100.0), [150.0, 150.0, 50.0, 50.0, 150.0, 150.0]) == []


def test_what_is_small_in_itself_never_counts() -> None:
    assert firings(ChangeGate(reference=1e-5, least=1e-3), [9e-4] * 5) == []
    assert firings(ChangeGate(reference=1e-5, least=1e-3), [2e-3] * 5) == [2]
    assert firings(ChangeGate(reference=0.0), [1e-9] * 3) == [2]


def test_after_a_decision_its_own_figure_is_the_reference() -> None:
    gate = ChangeGate(reference=100.0)
    gate.changed(150.0)
    gate.changed(150.0)
    gate.settle(150.0)
    assert firings(gate, [150.0] * 5) == []
    gate.settle(None)
    assert firings(gate, [300.0] * 5) == []


@pytest.mark.parametrize("seed", range(5))
def test_noise_does_not_fire_it_and_a_step_does(seed: int) -> None:
    generator = np.random.default_rng(seed)
    steady = generator.normal(100.0, 8.0, 1000).tolist()
    gate = ChangeGate(reference=100.0)
    assert firings(gate, steady) == []
    after = firings(gate, generator.normal(150.0, 8.0, 200).tolist())
    assert len(after) in (1, 2), "once, or once more where the first three were unlike the rest"
    assert after[0] <= 5


@given(st.lists(st.floats(), max_size=50))
def test_no_figure_breaks_it(values: list[float]) -> None:
    gate = ChangeGate()
    firings(gate, values)
    assert gate.reference is None or math.isfinite(gate.reference)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ChangeGate(0.0), "relative is 0.0; legal: above 0"),
        (lambda: ChangeGate(math.nan), "relative is nan"),
        (lambda: ChangeGate(least=-1.0), "least is -1.0; legal: 0 or more"),
        (lambda: ChangeGate(confirmations=0), "confirmations is 0; legal: 1 or more"),
    ],
)
def test_bad_bounds_are_refused(build: Callable[[], ChangeGate], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        build()
