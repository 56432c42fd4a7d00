"""Searches for the pair of thresholds of least time per token: Bayesian, and the two it is compared with."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np

from edgedraft.errors import InvalidRequestError
from edgedraft.tune.foresight import Foresight
from edgedraft.tune.gaussian_process import (
    DEFAULT_EXPLORATION,
    Float64Array,
    GaussianProcess,
    expected_improvement,
    fit_kernel,
)

DEFAULT_BUDGET = 16
NUM_CANDIDATES = 256
_PLASTIC = 1.3247179572447460  # the plastic number, root of x³ = x + 1


class Thresholds(NamedTuple):
    """A point of the domain: both in the open interval (0, 1)."""

    token: float
    sequence: float


class Search(Protocol):
    """Where to measure next. `suggest`, measure, `tell`, and so on until `suggest` answers None."""

    def suggest(self) -> Thresholds | None:
        """The pair to measure now; None once the budget is used."""

    def tell(self, point: Thresholds, value: float) -> None:
        """`value`: the mean time per token measured at `point`, above 0, in whatever unit."""

    def best(self) -> Thresholds:
        """The pair to use, by all that was told. Raises `InvalidRequestError` before anything was."""


class _Told:
    """What searches have in common: a budget and the list of what was told."""

    def __init__(self, budget: int) -> None:
        if budget < 1:
            raise InvalidRequestError(f"budget is {budget}; legal: 1 or more evaluations.", field="budget")
        self._budget = budget
        self._points: list[Thresholds] = []
        self._values: list[float] = []

    def tell(self, point: Thresholds, value: float) -> None:
        if not 0 < value < math.inf:
            raise InvalidRequestError(f"value is {value}; legal: finite and above 0.", field="value")
        check_thresholds(point)
        self._points.append(point)
        self._values.append(value)

    def best(self) -> Thresholds:
        """The pair of the least value told."""
        self._check_told()
        return self._points[int(np.argmin(self._values))]

    def _check_told(self) -> None:
        if not self._points:
            raise InvalidRequestError("nothing was told yet, so nothing is best.", field="value")


class _Listed(_Told):
    """Goes through a list of points, whatever is told."""

    def __init__(self, points: list[Thresholds]) -> None:
        super().__init__(len(points))
        self._listed = points

    def suggest(self) -> Thresholds | None:
        done = len(self._points)
        return self._listed[done] if done < self._budget else None


class GridSearch(_Listed):
    """The middles of side x side equal squares, in order. Its best is the least value told."""

    def __init__(self, side: int = 4) -> None:
        middles = [(index + 0.5) / side for index in range(side)]
        super().__init__([Thresholds(token, sequence) for token in middles for sequence in middles])


class RandomSearch(_Listed):
    """Uniform points. Its best is the least value told."""

    def __init__(self, generator: np.random.Generator, budget: int = DEFAULT_BUDGET) -> None:
        points = generator.uniform(1e-6, 1 - 1e-6, (max(budget, 0), 2))
        super().__init__([Thresholds(float(token), float(sequence)) for token, sequence in points])


class BayesianSearch(_Told):
    """One start, then always the candidate of greatest expected improvement (PipeSD section 3.3 and appendix C).

    `first`: where to start; a random candidate by default. `foresight`: made over `candidates()`, told what happens by
    the caller, its stretches ended in step with `tell`; None: the measured times alone, as the paper has it.

    Values are taken as logarithms: the scatter of a time grows with the time. The acquisition looks at the same 256
    candidates every time, so a point is suggested again where measuring it again tells most.
    """

    def __init__(
        self,
        generator: np.random.Generator,
        *,
        budget: int = DEFAULT_BUDGET,
        first: Thresholds | None = None,
        foresight: Foresight | None = None,
        exploration: float = DEFAULT_EXPLORATION,
    ) -> None:
        super().__init__(budget)
        if first is not None:
            check_thresholds(first)
        self._candidates = candidates()
        self._inputs = inputs(self._candidates)
        self._foresight = foresight
        self._indices: list[int] = []
        self._posterior_so_far: tuple[Float64Array, Float64Array] | None = None
        self._exploration = exploration
        start = int(generator.integers(NUM_CANDIDATES)) if first is None else self._index(first)
        self._first = self._candidate(start)

    def tell(self, point: Thresholds, value: float) -> None:
        super().tell(point, value)
        self._indices.append(self._index(point))
        self._posterior_so_far = None

    def suggest(self) -> Thresholds | None:
        if len(self._points) >= self._budget:
            return None
        if not self._points:
            return self._first
        mean, std = self._posterior()
        best = float(mean[self._indices].min())
        return self._candidate(int(np.argmax(expected_improvement(mean, std, best, self._exploration))))

    def best(self) -> Thresholds:
        """The pair of the least posterior mean: a single value told is too noisy to go by.

        Of those measured; with foresight, which knows something of every candidate, of all.
        """
        self._check_told()
        mean, _ = self._posterior()
        if self._foresight is not None:
            return self._candidate(int(np.argmin(mean)))
        return self._points[int(np.argmin(mean[self._indices]))]

    def _posterior(self) -> tuple[Float64Array, Float64Array]:
        """Mean and standard deviation of the log time at every candidate, in units of the told ones' own spread."""
        if self._posterior_so_far is None:
            self._posterior_so_far = self._fit()
        return self._posterior_so_far

    def _fit(self) -> tuple[Float64Array, Float64Array]:
        expected, surprises = np.zeros(NUM_CANDIDATES), np.log(self._values)
        if self._foresight is not None:
            expected, as_it_was = self._foresight.log_times()
            surprises = surprises - as_it_was
        points = self._inputs[self._indices]
        process = GaussianProcess(points, surprises, fit_kernel(points, surprises))
        mean, std = process.predict(self._inputs)
        spread = float(np.std(surprises)) or 1.0
        return (expected + mean) / spread, std / spread

    def _candidate(self, index: int) -> Thresholds:
        token, sequence = self._candidates[index].tolist()
        return Thresholds(token, sequence)

    def _index(self, point: Thresholds) -> int:
        """The candidate at, or nearest to, `point`."""
        return int(np.argmin(np.square(_stretched(self._candidates) - _stretched(np.asarray(point))).sum(axis=1)))


def candidates() -> Float64Array:
    """Thresholds to choose from, (256, 2): a low-discrepancy sequence, denser towards 1, where a little means much.

    The sequence is Roberts' additive recurrence on powers of the plastic number. Half of each coordinate is above 0.75.
    """
    steps = np.arange(1, NUM_CANDIDATES + 1)[:, None] * np.array([1 / _PLASTIC, 1 / _PLASTIC**2])
    return np.asarray(1.0 - (1.0 - (0.5 + steps) % 1.0) ** 2)


def inputs(thresholds: Float64Array) -> Float64Array:
    """What the Gaussian process sees of (n, 2) thresholds, (n, 2) in the unit square.

    Sequence confidence never exceeds the newest token's. So a token threshold below the sequence threshold never fires
    first, and all pairs that differ only in it are the same trigger: the first input is the greater of the two.
    """
    greater = thresholds.max(axis=1)
    return _stretched(np.stack([greater, thresholds[:, 1]], axis=1))


def _stretched(thresholds: Float64Array) -> Float64Array:
    """Evens out how much a step means, near 1 and elsewhere."""
    return np.asarray(1.0 - np.sqrt(1.0 - thresholds))


def check_thresholds(point: Thresholds) -> None:
    """Raises `InvalidRequestError` for a threshold outside of (0, 1)."""
    for field, value in zip(("token_threshold", "sequence_threshold"), point, strict=True):
        if not 0 < value < 1:
            raise InvalidRequestError(f"{field} is {value}; legal: above 0 and below 1.", field=field)
