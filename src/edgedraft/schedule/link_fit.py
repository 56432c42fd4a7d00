"""Start-up and per-token cost of a link, from when messages were sent and when they arrived.

A message waits until the one before has left, occupies the link for `startup_s + per_token_s * n`, and travels for a
delay that keeps nobody waiting. Where it met an idle link its start-up looks like delay; where it queued behind
others, the start-ups of all of them add up. So arrivals are fitted to

    start of the busy period + startup_s * messages in it so far + per_token_s * their tokens + constant

by robust least squares, and the busy periods follow from the fit, in turn, until both agree. The constant, one for
each zero that arrivals are counted from, holds the delay and the difference of two clocks. The method is our own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgedraft.types import Float64Array

IntArray = npt.NDArray[np.int64]

GUESSED_SHARES = (0.25, 0.4, 0.55, 0.7, 0.85, 1.0)
REFINED_GUESSES = 2
CLEARLY_BETTER = 0.9
MAX_TURNS = 10
SCALE_FLOOR_S = 1e-5
"""Stamps are in whole microseconds: no fit is better than that."""
HUBER_SCALES, OUTLIER_SCALES = 1.5, 6.0
"""A residual of more robust standard deviations counts less; of more than the second, not at all."""
KNOWN_SHARE, KNOWN_ERROR_S = 0.2, 1e-3
"""The start-up is known when its standard error is below that share of it, or below what no plan would notice."""
MIN_SPARE_SAMPLES = 5
"""With fewer samples beyond one for each zero, costs are guesswork: all of it counts as delay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uplink:
    """What was seen. `sent_s`, `num_tokens`: shape (num_messages,), in the order of sending.

    `seen`: indices of the messages whose arrival is known. `arrived_s`: their arrivals, each counted from the zero
    numbered in `zero` (0, 1, ...; none is missing); all of shape (num_seen,).
    """

    sent_s: Float64Array
    num_tokens: Float64Array
    seen: IntArray
    arrived_s: Float64Array
    zero: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class UplinkFit:
    """`startup_s`: None where it can't be told from the delay; then all of it counts as delay.

    `left_s`, shape (num_messages,): when each message had left the link. `residuals_s`, shape (num_seen,): how much
    later than by the fit each arrived. `scale_s`: their robust standard deviation. `loss_s`: what is minimised.
    `sufficient`: whether the samples could have told the costs at all; if not, both are 0.
    """

    startup_s: float | None
    per_token_s: float
    left_s: Float64Array
    residuals_s: Float64Array
    scale_s: float
    loss_s: float
    sufficient: bool


def fit_uplink(uplink: Uplink) -> UplinkFit:
    """The best of the fits that the likeliest guesses lead to; an idle link, unless another explains clearly more.

    Takes a few milliseconds for 100 samples.
    """
    guesses = sorted((_judge(uplink, *guess) for guess in _guesses(uplink)), key=lambda fit: fit.loss_s)
    best = _refine(uplink, _judge(uplink, None, 0.0))
    demanded = CLEARLY_BETTER
    for guess in guesses[:REFINED_GUESSES]:
        fit = _refine(uplink, guess)
        if fit.loss_s < demanded * best.loss_s:
            best, demanded = fit, 1.0
    return best


def _guesses(uplink: Uplink) -> list[tuple[float, float]]:
    """Links that are never idle, half by their messages and half by their tokens, and less busy ones."""
    same = np.flatnonzero(np.diff(uplink.zero) == 0)
    if not len(same):
        return []
    seconds = np.diff(uplink.arrived_s)[same]
    messages = np.diff(uplink.seen)[same]
    tokens = np.maximum(np.diff(np.cumsum(uplink.num_tokens)[uplink.seen])[same], 1.0)
    startup_s, per_token_s = max(0.0, _median(seconds / messages)), max(0.0, _median(seconds / tokens))
    return [(share * startup_s / 2, share * per_token_s / 2) for share in GUESSED_SHARES]


def _refine(uplink: Uplink, guess: UplinkFit) -> UplinkFit:
    """Busy periods from the costs, costs from the busy periods, in turn; the best fit on the way."""
    best = fit = _judge(uplink, *_costs(uplink, guess))
    for _ in range(MAX_TURNS):
        costs = _costs(uplink, fit)
        settled = math.isclose(costs[1], fit.per_token_s, rel_tol=1e-3, abs_tol=1e-6) and math.isclose(
            costs[0] or 0.0, fit.startup_s or 0.0, rel_tol=1e-3, abs_tol=1e-5
        )
        fit = _judge(uplink, *costs)
        if fit.loss_s < best.loss_s:
            best = fit
        if settled:
            break
    return best


def _judge(uplink: Uplink, startup_s: float | None, per_token_s: float) -> UplinkFit:
    """How well these costs explain what was seen."""
    done_s, ready_s = _queue(uplink, startup_s or 0.0, per_token_s)
    left_s = done_s + np.maximum.accumulate(ready_s)
    late_s = uplink.arrived_s - left_s[uplink.seen]
    constants = np.array([_median(late_s[uplink.zero == number]) for number in range(int(uplink.zero.max()) + 1)])
    residuals_s = late_s - constants[uplink.zero]
    sizes_s = np.sort(np.abs(residuals_s))
    return UplinkFit(
        startup_s=startup_s,
        per_token_s=per_token_s,
        left_s=left_s,
        residuals_s=residuals_s,
        scale_s=_scale_s(sizes_s),
        loss_s=float(sizes_s[: max(1, int(0.9 * len(sizes_s)))].mean()),  # the worst tenth may be stalls
        sufficient=len(residuals_s) >= len(constants) + MIN_SPARE_SAMPLES,
    )


def _queue(uplink: Uplink, startup_s: float, per_token_s: float) -> tuple[Float64Array, Float64Array]:
    """Occupancy up to and with each message, and when each was sent less the occupancy before it.

    A message begins a busy period where the latter is a new maximum (Lindley's recursion, unrolled).
    """
    done_s = np.cumsum(startup_s + per_token_s * uplink.num_tokens)
    return done_s, uplink.sent_s - np.concatenate(([0.0], done_s[:-1]))


def _costs(uplink: Uplink, fit: UplinkFit) -> tuple[float | None, float]:
    """Start-up and per-token cost by weighted least squares over the busy periods of `fit`."""
    _, ready_s = _queue(uplink, fit.startup_s or 0.0, fit.per_token_s)
    is_first = ready_s >= np.maximum.accumulate(ready_s)
    begun = np.maximum.accumulate(np.where(is_first, np.arange(len(ready_s)), 0))[uplink.seen]
    tokens_before = np.concatenate(([0.0], np.cumsum(uplink.num_tokens)))
    samples = np.stack(
        [
            uplink.seen + 1.0 - begun,
            tokens_before[uplink.seen + 1] - tokens_before[begun],
            uplink.arrived_s - uplink.sent_s[begun],
        ]
    )
    sizes_s = np.abs(fit.residuals_s)
    weights = np.minimum(1.0, HUBER_SCALES * fit.scale_s / np.maximum(sizes_s, SCALE_FLOOR_S))
    weights[sizes_s > OUTLIER_SCALES * fit.scale_s] = 0.0
    num_spare = np.count_nonzero(weights) - int(uplink.zero.max()) - 1
    if num_spare < MIN_SPARE_SAMPLES:
        return None, 0.0
    return _solve(_centred(samples, weights, uplink.zero), weights)


def _centred(samples: Float64Array, weights: Float64Array, group: IntArray) -> Float64Array:
    """Take each group's weighted mean away. `samples`: shape (num_columns, num_samples)."""
    total = np.maximum(np.bincount(group, weights), 1e-12)
    return np.stack([row - (np.bincount(group, weights * row) / total)[group] for row in samples])


def _solve(samples: Float64Array, weights: Float64Array) -> tuple[float | None, float]:
    """`samples`: centred messages, tokens and seconds, shape (3, num_samples). Costs are never negative."""
    moments = (samples * weights) @ samples.T
    (mm, mt, ms), (_, tt, ts) = moments[0].tolist(), moments[1].tolist()
    tokens_alone_s = max(0.0, ts / tt) if tt > 1e-6 else 0.0
    determinant = mm * tt - mt * mt
    if determinant <= 1e-9 * mm * tt:
        return None, tokens_alone_s  # messages and tokens went together, or never varied
    startup_s = (tt * ms - mt * ts) / determinant
    per_token_s = (mm * ts - mt * ms) / determinant
    residuals_s = samples[2] - startup_s * samples[0] - per_token_s * samples[1]
    error_s = _scale_s(np.sort(np.abs(residuals_s[weights > 0.0]))) * math.sqrt(tt / determinant)
    if error_s > max(KNOWN_SHARE * startup_s, KNOWN_ERROR_S):
        return None, tokens_alone_s
    if startup_s < 0.0:
        return 0.0, tokens_alone_s
    return (startup_s, per_token_s) if per_token_s >= 0.0 else (max(0.0, ms / mm), 0.0)


def _scale_s(sorted_sizes_s: Float64Array) -> float:
    """Robust standard deviation, from absolute residuals in ascending order."""
    return max(SCALE_FLOOR_S, 1.4826 * float(sorted_sizes_s[len(sorted_sizes_s) // 2]))


def _median(values: Float64Array) -> float:
    """Without the checks that make numpy's several times as dear."""
    ascending = np.sort(values)
    return float(ascending[(len(ascending) - 1) // 2] + ascending[len(ascending) // 2]) / 2
