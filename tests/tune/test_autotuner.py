"""The tuner's phases, what counts for a trial, and what a restart keeps."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgedraft.errors import InvalidRequestError
from edgedraft.tune.autotuner import STALL_S, Autotuner, Phase
from edgedraft.tune.search import Thresholds
from edgedraft.types import DraftToken


def tuner_of(**options: object) -> Autotuner:
    return Autotuner(np.random.default_rng(0), **options)  # type: ignore[arg-type]


def judged(count: int) -> list[DraftToken]:
    return [DraftToken(1, 0.9, 0.5)] * count


def finish_trial(tuner: Autotuner, time_s: float = 0.1) -> None:
    num_before = tuner.state.num_trials
    while tuner.state.num_trials == num_before:
        tuner.took(5, 5 * time_s, judged=judged(4), num_accepted=4)


def run_to_the_end(tuner: Autotuner) -> None:
    while tuner.state.phase is not Phase.HOLDING:
        finish_trial(tuner)
        tuner.adopt(tuner.suggest())


def test_it_tries_sixteen_pairs_and_holds_one() -> None:
    tuner = tuner_of()
    tried = set()
    for number in range(16):
        assert tuner.state.num_trials == number
        assert tuner.state.phase is Phase.MEASURING
        tried.add(tuner.thresholds)
        finish_trial(tuner)
        assert tuner.needs_suggestion
        tuner.adopt(tuner.suggest())
    assert len(tried) > 1
    assert tuner.state.phase is Phase.HOLDING
    assert tuner.thresholds == tuner.state.best
    tuner.took(100, 1.0)
    assert tuner.state.phase is Phase.HOLDING


def test_a_trial_is_twenty_tokens_behind_the_verdict_that_was_out() -> None:
    tuner = tuner_of()
    tuner.took(50, 1.0)  # drafted under the thresholds before
    assert tuner.state.phase is Phase.MEASURING
    for _ in range(3):
        tuner.took(6, 0.5)
    assert tuner.state.phase is Phase.MEASURING
    tuner.took(2, 0.5)
    assert tuner.state.phase is Phase.SUGGESTING


@pytest.mark.parametrize("elapsed_s", [-1.0, math.nan, math.inf, STALL_S + 1])
def test_a_clock_that_jumped_or_a_stall_counts_for_nothing(elapsed_s: float) -> None:
    tuner = tuner_of(skipped_verdicts=0)
    tuner.took(50, elapsed_s)
    assert tuner.state.phase is Phase.MEASURING
    tuner.took(20, 1.0)
    assert tuner.state.phase is Phase.SUGGESTING


def test_a_trial_without_any_time_goes_on() -> None:
    tuner = tuner_of(skipped_verdicts=0)
    tuner.took(50, 0.0)
    assert tuner.state.phase is Phase.MEASURING


def test_decoding_goes_on_while_a_suggestion_is_out() -> None:
    tuner = tuner_of()
    finish_trial(tuner)
    present = tuner.thresholds
    suggestion = tuner.suggest()
    tuner.took(50, 1.0, judged=judged(4), num_accepted=4)
    assert tuner.thresholds == present
    assert suggestion == tuner.suggest()
    tuner.adopt(suggestion)
    assert tuner.thresholds == suggestion.thresholds


@pytest.mark.parametrize("restart", ["drifted", "reset"])
def test_a_suggestion_from_before_a_restart_is_dropped(restart: str) -> None:
    tuner = tuner_of()
    finish_trial(tuner)
    late = tuner.suggest()
    getattr(tuner, restart)()
    started = tuner.thresholds
    tuner.adopt(late)
    assert tuner.thresholds == started
    finish_trial(tuner)
    tuner.adopt(late)
    assert tuner.needs_suggestion


def test_drift_begins_again_from_the_best() -> None:
    tuner = tuner_of()
    run_to_the_end(tuner)
    best = tuner.state.best
    tuner.drifted()
    assert tuner.state.phase is Phase.MEASURING
    assert tuner.thresholds == best
    assert tuner.state.num_trials == 0
    assert tuner.state.num_restarts == 1


def test_reset_forgets_the_best() -> None:
    tuner = tuner_of(held=Thresholds(0.6, 0.4))
    assert tuner.state.phase is Phase.HOLDING
    assert tuner.thresholds == (0.6, 0.4)
    tuner.reset()
    assert tuner.state.phase is Phase.MEASURING
    assert tuner.state.best is None


def test_held_thresholds_are_held_until_drift_and_then_tried_first() -> None:
    tuner = tuner_of(held=Thresholds(0.6, 0.4))
    tuner.took(100, 1.0)
    assert tuner.state.phase is Phase.HOLDING
    tuner.drifted()
    assert tuner.thresholds == pytest.approx((0.6, 0.4), abs=0.06)
    run_to_the_end(tuner)


@pytest.mark.parametrize("options", [{"held": Thresholds(1.0, 0.5)}, {"trial_tokens": 0}, {"skipped_verdicts": -1}])
def test_illegal_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError):
        tuner_of(**options)
