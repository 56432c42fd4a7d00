"""The tuner in its place: what it is told, where it starts, when it starts again."""

from __future__ import annotations

import numpy as np

from edgedraft.core.triggers import DualThreshold
from edgedraft.schedule.catalogue import pipesd
from edgedraft.tune.autotuner import Phase
from edgedraft.tune.measuring import Measurements
from edgedraft.tune.search import Thresholds
from edgedraft.tune.thresholds import ThresholdTuning

from .conftest import commit_of, token

GOOD = Thresholds(0.6, 0.35)


def tuning_of(held: Thresholds | None = None) -> ThresholdTuning:
    return ThresholdTuning(np.random.default_rng(0), held)


def decode(tuning: ThresholdTuning, num_tokens: int, tpt_s: float) -> None:
    """Verdicts of five tokens, each suggestion brought at once."""
    measurements = Measurements()
    for position in range(10, 10 + num_tokens, 5):
        commit = commit_of(position, [1] * 5, num_judged=4, num_accepted=4)
        tuning.took(commit, [token(1)] * 4, 5 * tpt_s, measurements)
        if tuning.needs_suggestion:
            tuner = tuning.begin()
            tuner.adopt(tuner.suggest())


def test_nothing_is_tuned_before_pipesd_is_used() -> None:
    tuning = tuning_of()
    assert (tuning.state, tuning.thresholds, tuning.needs_suggestion) == (None, None, False)
    assert tuning.applied(pipesd()) == pipesd()
    assert tuning_of(GOOD).thresholds == GOOD


def test_thresholds_known_from_before_are_held() -> None:
    tuning = tuning_of(GOOD)
    tuning.begin()
    assert tuning.state is not None
    assert tuning.state.phase is Phase.HOLDING
    trigger = tuning.applied(pipesd()).trigger
    assert trigger == DualThreshold(token_threshold=0.6, sequence_threshold=0.35)


def test_a_forecast_is_held_and_what_is_known_is_better_than_a_forecast() -> None:
    tuning = tuning_of()
    tuning.begin(GOOD)
    assert tuning.state is not None
    assert tuning.state.phase is Phase.HOLDING
    assert tuning.thresholds == GOOD
    known = tuning_of(GOOD)
    known.begin(Thresholds(0.9, 0.9))
    assert known.thresholds == GOOD


def test_sixteen_trials_and_then_the_best_is_held() -> None:
    tuning = tuning_of()
    decode(tuning, 16 * 30, 0.1)
    assert tuning.state is not None
    assert (tuning.state.phase, tuning.state.num_trials) == (Phase.HOLDING, 16)


def test_it_begins_anew_when_the_time_per_token_has_changed() -> None:
    tuning = tuning_of(GOOD)
    decode(tuning, 500, 0.1)
    assert tuning.num_retunes == 0
    decode(tuning, 300, 0.15)
    assert tuning.num_retunes == 1
    assert tuning.state is not None
    assert tuning.state.phase is Phase.MEASURING


def test_a_clock_that_jumps_is_no_drift() -> None:
    tuning, measurements = tuning_of(GOOD), Measurements()
    tuning.begin()
    for elapsed_s in (float("nan"), -5.0, float("nan")) * 200:
        tuning.took(commit_of(10, [1] * 5, num_judged=4, num_accepted=4), [token(1)] * 4, elapsed_s, measurements)
    assert tuning.num_retunes == 0
