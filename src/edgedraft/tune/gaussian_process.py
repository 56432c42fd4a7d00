"""A Gaussian process over a few noisy measurements, and the expected improvement on the best of them.

Rasmussen and Williams, Gaussian Processes for Machine Learning (2006): Algorithm 2.1 for the posterior, section 4.2.1
for the Matérn kernel, section 5.4.1 for the marginal likelihood. Expected improvement: Jones et al. 1998.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgedraft.errors import InvalidRequestError

Float64Array = NDArray[np.float64]

LENGTH_SCALES = (0.25, 0.5, 1.0, 2.0)
NOISE_RATIOS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""What `fit_kernel` chooses from: per dimension, in units of the inputs; and noise over signal variance."""
SIGNAL_VARIANCE_RANGE = (0.1, 4.0)
"""Outputs have variance 1. Far outside of this range a handful of points says more about chance than about them."""
DEFAULT_EXPLORATION = 0.1

_JITTER = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """Covariance of standardised outputs: signal_variance · Matérn 5/2(distance) + noise_variance at the same point.

    `length_scales`: one per input dimension, in the units of the inputs. Raises `InvalidRequestError`.
    """

    length_scales: tuple[float, ...]
    signal_variance: float = 1.0
    noise_variance: float = 0.1

    def __post_init__(self) -> None:
        for field, values in (
            ("length_scales", self.length_scales),
            ("signal_variance", (self.signal_variance,)),
        ):
            if not values or not all(0 < value < math.inf for value in values):
                raise InvalidRequestError(f"{field} is {values}; legal: finite and above 0.", field=field)
        if not 0 <= self.noise_variance < math.inf:
            raise InvalidRequestError(
                f"noise_variance is {self.noise_variance}; legal: finite and 0 or more.", field="noise_variance"
            )

    def covariance(self, first: Float64Array, second: Float64Array) -> Float64Array:
        """Of the noiseless function. `first` (n, d), `second` (m, d); returns (n, m)."""
        scales = np.asarray(self.length_scales)
        return self.signal_variance * _matern(_distances(first / scales, second / scales))


class GaussianProcess:
    """The posterior after `values` (n,) at `points` (n, d). Outputs are standardised inside, so units don't matter.

    Raises `InvalidRequestError` where the shapes don't fit, nothing is given or a number is not finite.
    """

    def __init__(self, points: Float64Array, values: Float64Array, kernel: Kernel) -> None:
        self._points, outputs, self._mean, self._scale = _checked(points, values)
        if len(kernel.length_scales) != self._points.shape[1]:
            raise InvalidRequestError(
                f"length_scales has {len(kernel.length_scales)} entries for points of {self._points.shape[1]}.",
                field="length_scales",
            )
        self.kernel = kernel
        covariance = kernel.covariance(self._points, self._points)
        covariance[np.diag_indices_from(covariance)] += kernel.noise_variance + _JITTER
        factor = np.linalg.cholesky(covariance)
        # numpy has no triangular solve; an inverse of a matrix this small costs less than calling it each time.
        self._inverse_factor = np.linalg.inv(factor)
        self._weights = self._inverse_factor.T @ (self._inverse_factor @ outputs)

    def predict(self, points: Float64Array) -> tuple[Float64Array, Float64Array]:
        """Mean and standard deviation, both (m,) in the units of the values, of the noiseless function at (m, d)."""
        mean, std = self.predict_standardised(points)
        return self._mean + self._scale * mean, self._scale * std

    def predict_standardised(self, points: Float64Array) -> tuple[Float64Array, Float64Array]:
        """The same in units of the values' own standard deviation, counted from their mean."""
        covariance = self.kernel.covariance(np.asarray(points, dtype=np.float64), self._points)
        explained = covariance @ self._inverse_factor.T
        variance = self.kernel.signal_variance - np.einsum("ij,ij->i", explained, explained)
        return covariance @ self._weights, np.sqrt(np.maximum(variance, 0.0))


def fit_kernel(points: Float64Array, values: Float64Array) -> Kernel:
    """The kernel of greatest marginal likelihood on a fixed grid of length scales and noise ratios.

    Each dimension has a length scale of its own: often one of the two thresholds hardly matters. The signal variance
    that goes best with each of them has a closed form, so it needs no grid. Points and values as for `GaussianProcess`.
    """
    points, outputs, _, _ = _checked(points, values)
    num_points, num_dimensions = points.shape
    scales = np.stack(np.meshgrid(*[LENGTH_SCALES] * num_dimensions, indexing="ij"), axis=-1)
    scales = scales.reshape(-1, num_dimensions)
    squares = (points[:, None, :] - points[None, :, :]) ** 2
    correlation = _matern(np.sqrt(np.einsum("ijd,sd->sij", squares, scales**-2.0)))
    ratios = np.asarray(NOISE_RATIOS)
    matrices = correlation[:, None] + ratios[None, :, None, None] * np.eye(num_points)
    factors = np.linalg.cholesky(matrices)
    log_determinants = 2.0 * np.log(np.diagonal(factors, axis1=-2, axis2=-1)).sum(axis=-1)
    misfits = np.linalg.solve(matrices, outputs[:, None])[..., 0] @ outputs
    variances = np.clip(misfits / num_points, *SIGNAL_VARIANCE_RANGE)
    log_likelihoods = -0.5 * (misfits / variances + num_points * np.log(variances) + log_determinants)
    scale_index, ratio_index = np.unravel_index(int(np.argmax(log_likelihoods)), log_likelihoods.shape)
    variance = float(variances[scale_index, ratio_index])
    return Kernel(
        length_scales=tuple(float(scale) for scale in scales[scale_index]),
        signal_variance=variance,
        noise_variance=variance * float(ratios[ratio_index]),
    )


def expected_improvement(
    mean: Float64Array, std: Float64Array, best: float, exploration: float = DEFAULT_EXPLORATION
) -> Float64Array:
    """How far below `best - exploration` an output is expected to fall (minimising), (m,) as `mean` and `std`.

    `exploration` is the paper's xi. All four are in standardised outputs: 0.1 is then a tenth of the spread of what was
    measured, on a slow link and on a quick one; in seconds it would be all or nothing.
    """
    gain = best - exploration - mean
    safe_std = np.maximum(std, 1e-12)
    z = gain / safe_std
    density = np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
    improvement = gain * _normal_cdf(z) + std * density
    return np.asarray(np.where(std > 1e-12, np.maximum(improvement, 0.0), np.maximum(gain, 0.0)))


def _normal_cdf(z: Float64Array) -> Float64Array:
    """(m,) → (m,). numpy has no error function; a candidate set is small enough for the standard library's."""
    root = math.sqrt(0.5)
    return np.array([0.5 * math.erfc(-value * root) for value in z.tolist()])


def _matern(distances: Float64Array) -> Float64Array:
    """Matérn 5/2 correlation of distances measured in length scales."""
    scaled = math.sqrt(5.0) * distances
    return np.asarray((1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled))


def _distances(first: Float64Array, second: Float64Array) -> Float64Array:
    return np.asarray(np.sqrt(((first[:, None, :] - second[None, :, :]) ** 2).sum(axis=-1)))


def _checked(
    points: Float64Array | Sequence[Sequence[float]], values: Float64Array | Sequence[float]
) -> tuple[Float64Array, Float64Array, float, float]:
    """Points, standardised values, and the mean and scale that were taken out of them."""
    points, values = np.asarray(points, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if points.ndim != 2 or values.shape != points.shape[:1] or not values.size:
        raise InvalidRequestError(
            f"points have shape {points.shape} and values {values.shape}; legal: (n, d) and (n,), n at least 1.",
            field="points",
        )
    if not (np.isfinite(points).all() and np.isfinite(values).all()):
        raise InvalidRequestError("points or values hold a number that is not finite.", field="values")
    mean, scale = float(values.mean()), float(values.std())
    scale = scale if scale > 0 else 1.0
    return points, (values - mean) / scale, mean, scale
