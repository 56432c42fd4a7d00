"""The posterior against scikit-learn's, the choice of a kernel, expected improvement against sampling."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgedraft.errors import InvalidRequestError
from edgedraft.tune.gaussian_process import (
    GaussianProcess,
    Kernel,
    expected_improvement,
    fit_kernel,
)


def measurements(num_points: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    points = generator.uniform(0, 1, (num_points, 2))
    return points, 0.05 + 0.1 * (points[:, 0] - 0.6) ** 2 + 0.01 * generator.normal(size=num_points)


@given(
    num_points=st.integers(2, 20),
    seed=st.integers(0, 1000),
    scales=st.tuples(st.floats(0.05, 3), st.floats(0.05, 3)),
    signal=st.floats(0.1, 4),
    noise=st.floats(1e-3, 4),
)
@settings(max_examples=15)
def test_the_posterior_is_scikit_learns(
    num_points: int, seed: int, scales: tuple[float, float], signal: float, noise: float
) -> None:
    gaussian_process = pytest.importorskip("sklearn.gaussian_process")
    kernels = gaussian_process.kernels
    points, values = measurements(num_points, seed)
    theirs = gaussian_process.GaussianProcessRegressor(
        kernels.ConstantKernel(signal) * kernels.Matern(scales, nu=2.5) + kernels.WhiteKernel(noise),
        alpha=1e-10,
        normalize_y=True,
        optimizer=None,
    ).fit(points, values)
    ours = GaussianProcess(points, values, Kernel(length_scales=scales, signal_variance=signal, noise_variance=noise))
    where = np.random.default_rng(seed + 1).uniform(0, 1, (30, 2))
    mean, std = ours.predict(where)
    their_mean, their_std = theirs.predict(where, return_std=True)
    noiseless = np.sqrt(np.maximum((their_std / values.std()) ** 2 - noise, 0.0))  # theirs includes the noise
    assert mean == pytest.approx(their_mean, abs=1e-6)
    assert ours.predict_standardised(where)[1] == pytest.approx(noiseless, abs=1e-6)
    assert std == pytest.approx(noiseless * values.std(), abs=1e-6)


def test_a_kernel_is_chosen_by_marginal_likelihood() -> None:
    points, values = measurements(16, seed=3)
    outputs = (values - values.mean()) / values.std()
    chosen = fit_kernel(points, values)

    def log_likelihood(kernel: Kernel) -> float:
        covariance = kernel.covariance(points, points) + kernel.noise_variance * np.eye(16)
        sign, log_determinant = np.linalg.slogdet(covariance)
        assert sign > 0
        return float(-0.5 * (outputs @ np.linalg.solve(covariance, outputs) + log_determinant))

    best = log_likelihood(chosen)
    for first in (0.25, 0.5, 1.0, 2.0):
        for second in (0.25, 0.5, 1.0, 2.0):
            for variance in (0.2, 0.5, 1.0, 2.0):
                for ratio in (0.1, 0.3, 1.0, 3.0):
                    other = Kernel(
                        length_scales=(first, second), signal_variance=variance, noise_variance=variance * ratio
                    )
                    assert log_likelihood(other) <= best + 1e-9


def test_pure_noise_is_called_noise() -> None:
    generator = np.random.default_rng(0)
    kernel = fit_kernel(generator.uniform(0, 1, (16, 2)), generator.normal(size=16))
    assert kernel.noise_variance > kernel.signal_variance


@pytest.mark.parametrize("values", [[0.3], [0.3, 0.3], [0.3, 0.3, 0.3]])
def test_equal_values_give_that_value_everywhere(values: list[float]) -> None:
    points = np.linspace(0.1, 0.9, 2 * len(values)).reshape(-1, 2)
    mean, std = GaussianProcess(points, np.array(values), fit_kernel(points, np.array(values))).predict(points)
    assert mean == pytest.approx(0.3)
    assert np.isfinite(std).all()


@given(mean=st.floats(-2, 2), std=st.floats(0.01, 2), best=st.floats(-2, 2), exploration=st.floats(0, 0.5))
@settings(max_examples=30)
def test_expected_improvement_is_the_mean_of_the_improvements(
    mean: float, std: float, best: float, exploration: float
) -> None:
    draws = mean + std * np.random.default_rng(0).normal(size=200_000)
    sampled = np.maximum(best - exploration - draws, 0.0).mean()
    exact = expected_improvement(np.array([mean]), np.array([std]), best, exploration)
    assert exact == pytest.approx([sampled], abs=0.01 * std + 1e-9)


def test_a_certain_point_improves_by_what_it_is_better() -> None:
    improvement = expected_improvement(np.array([-1.0, 1.0]), np.zeros(2), 0.0, 0.1)
    assert improvement == pytest.approx([0.9, 0.0])


@pytest.mark.parametrize(
    ("points", "values"),
    [
        (np.zeros((0, 2)), np.zeros(0)),
        (np.zeros((2, 2)), np.zeros(3)),
        (np.zeros(2), np.zeros(2)),
        (np.zeros((2, 2)), np.array([1.0, math.nan])),
        (np.full((2, 2), math.inf), np.zeros(2)),
    ],
)
def test_what_cannot_be_fitted_is_refused(points: np.ndarray, values: np.ndarray) -> None:
    with pytest.raises(InvalidRequestError):
        fit_kernel(points, values)


@pytest.mark.parametrize(
    ("field", "kernel"),
    [
        ("length_scales", {"length_scales": ()}),
        ("length_scales", {"length_scales": (0.0,)}),
        ("signal_variance", {"length_scales": (1.0,), "signal_variance": math.nan}),
        ("noise_variance", {"length_scales": (1.0,), "noise_variance": -1.0}),
    ],
)
def test_an_illegal_kernel_names_its_field(field: str, kernel: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        Kernel(**kernel)  # type: ignore[arg-type]
    assert raised.value.field == field


def test_a_kernel_of_other_dimensions_is_refused() -> None:
    with pytest.raises(InvalidRequestError):
        GaussianProcess(np.zeros((2, 2)), np.zeros(2), Kernel(length_scales=(1.0,)))
