"""Bootstrap intervals of captions' scores and costs: how far a figure would move with other recordings of its kind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgedraft.caption.scoring import CaptionScores, Metric
from edgedraft.errors import InvalidRequestError
from edgedraft.types import Float64Array

LEVEL = 0.95
NUM_RESAMPLES = 1_000
MIN_GAP_POINTS = 4.0
"""Below this a share of the gap is noise: one point of score would be a quarter of the gap or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A value and where 95 % of its resamples lie."""

    value: float
    low: float
    high: float

    def apart(self, other: Interval) -> bool:
        """Whether the two do not overlap, which says more than that their difference is not 0."""
        return self.low > other.high or other.low > self.high

    def __str__(self) -> str:
        return f"{self.value:.1f} [{self.low:.1f}, {self.high:.1f}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class GapClosed:
    """How much of the way from the edge's score to the cloud's a system goes: 1 is all of it, and more is possible.

    `gap`: cloud minus edge, in points. `share` is None where the gap is too small to divide by; `reason` says so then.
    """

    gap: Interval
    share: Interval | None
    reason: str = ""


def interval(
    scores: CaptionScores, metric: Metric, rng: np.random.Generator, *, num_resamples: int = NUM_RESAMPLES
) -> Interval:
    """Percentile interval (Efron 1979) of one score, captions drawn with replacement."""
    return _interval(scores.score(metric), scores.resampled(metric, _weights(scores.num_captions, rng, num_resamples)))


def gap_closed(
    system: CaptionScores,
    edge: CaptionScores,
    cloud: CaptionScores,
    metric: Metric,
    rng: np.random.Generator,
    *,
    num_resamples: int = NUM_RESAMPLES,
) -> GapClosed:
    """(system - edge) / (cloud - edge) with its interval, paired: each resample has the same recordings for all three.

    They must hold the same recordings in the same order. No share is given where the gap is below `MIN_GAP_POINTS`, or
    its own interval reaches 0. Raises `InvalidRequestError` where the three cannot be pairs.
    """
    _require_pairs(edge, cloud)
    _require_pairs(edge, system)
    weights = _weights(edge.num_captions, rng, num_resamples)
    ends = (edge.score(metric), system.score(metric), cloud.score(metric))
    starts, middles, goals = (scores.resampled(metric, weights) for scores in (edge, system, cloud))
    gap = _interval(ends[2] - ends[0], goals - starts)
    if gap.value < MIN_GAP_POINTS:
        reason = f"the cloud is only {gap.value:.1f} points above the edge; a share needs {MIN_GAP_POINTS:g}"
        return GapClosed(gap=gap, share=None, reason=reason)
    if gap.low <= 0:
        reason = f"with {edge.num_captions} captions the gap could be none: {gap}"
        return GapClosed(gap=gap, share=None, reason=reason)
    # A resample without a gap counts as an extreme share, not as one of the opposite sign.
    shares = (middles - starts) / np.maximum(goals - starts, 1e-3)
    return GapClosed(gap=gap, share=_interval((ends[1] - ends[0]) / gap.value, shares))


def ratio_interval(above: Float64Array, below: Float64Array, rng: np.random.Generator) -> Interval:
    """The interval of sum(`above`) / sum(`below`), both of shape (num_captions,), paired.

    0 where there is nothing to divide by.
    """
    weights = _weights(len(above), rng, NUM_RESAMPLES)
    sums, totals = weights @ above, weights @ below
    ratios = np.divide(sums, totals, out=np.zeros_like(sums), where=totals > 0)
    total = float(below.sum())
    return _interval(float(above.sum()) / total if total else 0.0, ratios)


def mean_interval(values: Float64Array, rng: np.random.Generator) -> Interval:
    """The same of the mean of `values`, shape (num_captions,)."""
    return ratio_interval(values, np.ones(len(values)), rng)


def _weights(num_captions: int, rng: np.random.Generator, num_resamples: int) -> Float64Array:
    """How often each caption occurs in each resample: shape (num_resamples, num_captions)."""
    if num_resamples < 1:
        raise InvalidRequestError(f"num_resamples is {num_resamples}; legal: 1 or more.", field="num_resamples")
    shares = np.full(num_captions, 1 / num_captions)
    return rng.multinomial(num_captions, shares, size=num_resamples).astype(np.float64)


def _interval(value: float, resampled: Float64Array) -> Interval:
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value=value, low=float(low), high=float(high))


def _require_pairs(left: CaptionScores, right: CaptionScores) -> None:
    for name in ("num_captions", "tokenisation", "meteor_matching"):
        if getattr(left, name) != getattr(right, name):
            raise InvalidRequestError(
                f"{name} is {getattr(left, name)} on one side and {getattr(right, name)} on the other.",
                field=name,
                remedy="Compare scores of the same recordings, made in the same way.",
            )
