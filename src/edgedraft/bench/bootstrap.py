"""Bootstrap intervals over texts: how far a figure would move with other prompts of the same kind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgedraft.errors import InvalidRequestError
from edgedraft.types import Float64Array

LEVEL = 0.95
NUM_RESAMPLES = 2_000
Interval = tuple[float, float]


def tpt_interval(totals_ms: Sequence[float], num_tokens: Sequence[int], rng: np.random.Generator) -> Interval:
    """Percentile interval (Efron 1979) of sum(`totals_ms`) / sum(`num_tokens`), texts drawn with replacement.

    Both have shape (num_texts,), in the same order. Raises `InvalidRequestError` where they do not, or are empty.
    """
    return _percentiles(_resampled(totals_ms, num_tokens, _draws(len(totals_ms), rng)))


def ratio_interval(
    above_ms: Sequence[float],
    above_tokens: Sequence[int],
    below_ms: Sequence[float],
    below_tokens: Sequence[int],
    rng: np.random.Generator,
) -> Interval:
    """The same of one run's time per token over another's, paired: both see the same texts in every resample.

    All four have shape (num_texts,), the same text at the same place.
    """
    draws = _draws(len(above_ms), rng)
    return _percentiles(_resampled(above_ms, above_tokens, draws) / _resampled(below_ms, below_tokens, draws))


def _draws(num_texts: int, rng: np.random.Generator) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    if num_texts < 1:
        raise InvalidRequestError("an interval over no texts; legal: 1 or more.", field="texts")
    return rng.integers(0, num_texts, size=(NUM_RESAMPLES, num_texts))


def _resampled(
    totals_ms: Sequence[float], num_tokens: Sequence[int], draws: np.ndarray[tuple[int, int], np.dtype[np.int64]]
) -> Float64Array:
    if len(totals_ms) != draws.shape[1] or len(num_tokens) != draws.shape[1]:
        raise InvalidRequestError(
            f"an interval over {draws.shape[1]} texts with {len(totals_ms)} times and {len(num_tokens)} lengths.",
            field="texts",
        )
    sums: Float64Array = np.asarray(totals_ms, dtype=np.float64)[draws].sum(axis=1)
    lengths: Float64Array = np.asarray(num_tokens, dtype=np.float64)[draws].sum(axis=1)
    return np.divide(sums, lengths)


def _percentiles(values: Float64Array) -> Interval:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
