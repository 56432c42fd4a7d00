"""The thresholds of `pipesd` while requests run: what the tuner is told, and when it begins anew."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from edgedraft.core.strategy import Strategy
from edgedraft.core.triggers import DualThreshold
from edgedraft.protocol.messages import Commit
from edgedraft.tune.autotuner import Autotuner, Phase, TunerState
from edgedraft.tune.measuring import Measurements
from edgedraft.tune.replanning import DriftGate
from edgedraft.tune.search import Thresholds
from edgedraft.types import DraftToken


class ThresholdTuning:
    """The one tuner of an edge. Made when `pipesd` is first used; `held`: thresholds known from an earlier run.

    `num_retunes`: how often drift made it begin anew.
    """

    def __init__(self, generator: np.random.Generator, held: Thresholds | None = None) -> None:
        self.tuner: Autotuner | None = None
        self.num_retunes = 0
        self.held = held
        self._generator = generator
        self._drift = DriftGate()

    @property
    def state(self) -> TunerState | None:
        return None if self.tuner is None else self.tuner.state

    @property
    def thresholds(self) -> Thresholds | None:
        """In use now, or known to be good."""
        return self.held if self.tuner is None else self.tuner.thresholds

    @property
    def needs_suggestion(self) -> bool:
        return self.tuner is not None and self.tuner.needs_suggestion

    def begin(self, forecast: Thresholds | None = None) -> Autotuner:
        """`forecast`: a pair to hold until something drifts, rather than try others at the user's expense."""
        if self.tuner is None:
            self.tuner = Autotuner(self._generator, held=self.held or forecast)
        return self.tuner

    def took(self, commit: Commit, judged: Sequence[DraftToken], elapsed_s: float, measurements: Measurements) -> None:
        """A verdict came `elapsed_s` after the one before it."""
        tuner = self.begin()
        num_tokens = len(commit.token_ids)
        tuner.took(num_tokens, elapsed_s, judged=judged, num_accepted=commit.num_accepted)
        drifted = self._drift.round_changed(measurements)
        if tuner.state.phase is Phase.HOLDING and elapsed_s >= 0.0:
            drifted |= self._drift.time_changed(num_tokens, elapsed_s)
        if drifted:
            self.num_retunes += 1
            self._drift.settle()
            tuner.drifted()

    def applied(self, strategy: Strategy) -> Strategy:
        """`strategy` with the thresholds to use now."""
        return with_thresholds(strategy, None if self.tuner is None else self.tuner.thresholds)


def with_thresholds(strategy: Strategy, thresholds: Thresholds | None) -> Strategy:
    """The strategy with these thresholds; itself where there are none, or where it has them."""
    if thresholds is None:
        return strategy
    trigger = DualThreshold(token_threshold=thresholds.token, sequence_threshold=thresholds.sequence)
    return strategy if strategy.trigger == trigger else dataclasses.replace(strategy, trigger=trigger)
