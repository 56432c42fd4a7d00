"""Searches: budgets, domains, and that the Bayesian one finds what the others miss."""

from __future__ import annotations

import math
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.errors import InvalidRequestError
from edgedraft.tune.search import (
    BayesianSearch,
    GridSearch,
    RandomSearch,
    Search,
    Thresholds,
    candidates,
    inputs,
)


def searches(seed: int = 0) -> list[Search]:
    return [
        BayesianSearch(np.random.default_rng(seed)),
        GridSearch(),
        RandomSearch(np.random.default_rng(seed)),
    ]


def true_value(point: Thresholds) -> float:
    """A bowl in the greater threshold, steep towards 1, with its least value 0.1 where that is 0.95."""
    (greater, sequence), (best, _) = inputs(np.array([point]))[0], inputs(np.array([[0.95, 0.5]]))[0]
    return float(0.1 * (1 + 4 * (greater - best) ** 2 + 0.05 * (sequence - 0.3) ** 2))


def found(search: Search, scatter: float, seed: int) -> Thresholds:
    generator = np.random.default_rng(seed)
    while (point := search.suggest()) is not None:
        search.tell(point, true_value(point) * math.exp(scatter * generator.normal()))
    return search.best()


@pytest.mark.parametrize("index", range(3))
def test_a_search_suggests_sixteen_points_of_the_domain_and_stops(index: int) -> None:
    search = searches()[index]
    for value in range(16):
        point = search.suggest()
        assert point is not None
        assert 0 < point.token < 1
        assert 0 < point.sequence < 1
        search.tell(point, 1.0 + value % 3)
    assert search.suggest() is None


def test_the_bayesian_search_beats_grid_and_random_on_a_bowl_near_1() -> None:
    times = [[true_value(found(search, 0.1, seed)) for search in searches(seed)] for seed in range(10)]
    bayesian, grid, uniform = (median(column) for column in zip(*times, strict=True))
    assert bayesian <= 1.05 * 0.1
    assert bayesian < grid
    assert bayesian < uniform


def test_the_same_seed_and_values_give_the_same_search() -> None:
    assert found(BayesianSearch(np.random.default_rng(7)), 0.2, 1) == found(
        BayesianSearch(np.random.default_rng(7)), 0.2, 1
    )


def test_the_unit_of_the_values_changes_nothing() -> None:
    one, other = BayesianSearch(np.random.default_rng(3)), BayesianSearch(np.random.default_rng(3))
    for _ in range(8):
        point = one.suggest()
        assert point is not None
        assert other.suggest() == point
        one.tell(point, true_value(point))
        other.tell(point, 1000 * true_value(point))
    assert one.best() == other.best()


def test_a_given_start_is_the_first_suggestion() -> None:
    first = BayesianSearch(np.random.default_rng(0), first=Thresholds(0.9, 0.95)).suggest()
    assert first == pytest.approx((0.9, 0.95), abs=0.05)


@given(sequence=st.floats(0.01, 0.99), token=st.floats(0.01, 0.99))
def test_a_token_threshold_that_never_fires_first_is_no_coordinate(sequence: float, token: float) -> None:
    lower = token * sequence
    one, other = inputs(np.array([[lower, sequence], [lower / 2, sequence]]))
    assert (one == other).all()


def test_candidates_fill_the_domain_and_are_denser_near_1() -> None:
    points = candidates()
    assert points.min() > 0
    assert points.max() < 1
    cells = {(int(8 * token), int(8 * sequence)) for token, sequence in inputs_of_all(points)}
    assert len(cells) == 64
    assert np.median(points) == pytest.approx(0.75, abs=0.02)


def inputs_of_all(points: np.ndarray) -> np.ndarray:
    return 1 - np.sqrt(1 - points)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_time_that_is_none_is_refused(value: float) -> None:
    with pytest.raises(InvalidRequestError):
        GridSearch().tell(Thresholds(0.5, 0.5), value)


@pytest.mark.parametrize("point", [(0.0, 0.5), (0.5, 1.0), (math.nan, 0.5), (0.5, -0.1)])
def test_thresholds_outside_of_the_domain_are_refused(point: tuple[float, float]) -> None:
    with pytest.raises(InvalidRequestError, match="threshold"):
        BayesianSearch(np.random.default_rng(0), first=Thresholds(*point))


def test_nothing_told_has_no_best() -> None:
    for search in searches():
        with pytest.raises(InvalidRequestError):
            search.best()


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidRequestError):
        BayesianSearch(np.random.default_rng(0), budget=0)
