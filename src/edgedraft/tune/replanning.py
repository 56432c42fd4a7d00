"""When uploads are planned anew, and thresholds tuned anew: the gates on what was measured (PipeSD appendix D.2)."""

from __future__ import annotations

import dataclasses
import math

from edgedraft.core.strategy import Strategy
from edgedraft.schedule.link import LinkCost, LinkEstimate
from edgedraft.schedule.upload_plan import plan_batches
from edgedraft.schedule.uploads import UploadPlanned, UploadWhenFree
from edgedraft.tune.gates import ChangeGate
from edgedraft.tune.measuring import Measurements

LEAST_STARTUP_S, LEAST_PER_TOKEN_S, LEAST_DRAFT_S, LEAST_ROUND_S = 1e-3, 1e-4, 2e-4, 1e-3
LEAST_DRIFT_S = 5e-3
"""Thresholds are hardly worth anything where less than that is at stake."""
LEAST_IN_FLIGHT_TOKENS, MOST_IN_FLIGHT_TOKENS, SPARE_IN_FLIGHT_TOKENS = 4, 64, 4


class UploadPlanner:
    """Plans the uploads of `pipesd` and `flow` with measured figures, again when one of them is off by a fifth.

    `num_plans`: how often that changed a strategy. `is_due`: the strategy in use rests on other figures.
    """

    def __init__(self) -> None:
        self.num_plans = 0
        self._gates = {
            "startup": ChangeGate(least=LEAST_STARTUP_S),
            "per_token": ChangeGate(least=LEAST_PER_TOKEN_S),
            "round_trip": ChangeGate(least=LEAST_ROUND_S),
            "draft": ChangeGate(least=LEAST_DRAFT_S),
            "window": ChangeGate(least=1.0, confirmations=1),
        }
        self._seen: LinkEstimate | None = None
        self.is_due = False

    def take(self, measurements: Measurements) -> None:
        """Take in what is known now. Once after each verdict."""
        estimate, draft_s = measurements.link.estimate, measurements.draft.draft_s
        if estimate is None or draft_s is None:
            return
        figures = {"draft": draft_s, "window": float(measurements.window.num_tokens)}
        if estimate is not self._seen:
            figures |= {
                "startup": estimate.startup_s,
                "per_token": estimate.per_token_s,
                "round_trip": estimate.rtt_s,
            }
            self.is_due |= self._seen is None
            self._seen = estimate
        fired = [self._gates[name].changed(figure) for name, figure in figures.items()]
        self.is_due |= any(fired)

    def planned(self, strategy: Strategy, measurements: Measurements) -> Strategy:
        """`strategy` with the upload policy, and the bound in flight, that fit what was measured; itself before."""
        self.is_due = False
        estimate, draft_s = measurements.link.estimate, measurements.draft.draft_s
        if estimate is None or draft_s is None:
            return strategy
        cost = LinkCost(estimate.startup_s, estimate.per_token_s)
        planned = strategy
        if isinstance(strategy.upload, UploadPlanned):
            sizes = plan_batches(min(measurements.window.num_tokens, MOST_IN_FLIGHT_TOKENS), cost, draft_s)
            planned = dataclasses.replace(strategy, upload=UploadPlanned(sizes))
        elif isinstance(strategy.upload, UploadWhenFree):
            in_flight = in_flight_tokens(measurements)
            planned = dataclasses.replace(
                strategy, upload=UploadWhenFree(cost), max_in_flight_tokens=in_flight or strategy.max_in_flight_tokens
            )
        self.num_plans += planned != strategy
        return planned


def in_flight_tokens(measurements: Measurements) -> int | None:
    """How many ids can be on their way usefully: those drafted until the first of them has been judged.

    That is a round trip and two passes, since the target may have begun another; and some to spare. None before
    anything was measured.
    """
    costs = measurements.costs()
    if costs is None:
        return None
    away_s = costs.startup_s + costs.up_s + costs.down_s + 2 * costs.pass_s(1)
    # Judging a block that is long takes longer, in which more is drafted.
    longer = min(0.9, costs.per_id_s / costs.draft_s)
    useful = math.ceil(away_s / costs.draft_s / (1 - longer)) + SPARE_IN_FLIGHT_TOKENS
    return max(LEAST_IN_FLIGHT_TOKENS, min(useful, MOST_IN_FLIGHT_TOKENS))


class DriftGate:
    """Whether thresholds have to be tuned anew: the time per token, or what a round costs beside drafting, moved."""

    def __init__(self, tokens_per_figure: int = 100) -> None:
        self._tokens_per_figure = tokens_per_figure
        self._time_per_token = ChangeGate()
        self._round = ChangeGate(least=LEAST_DRIFT_S)
        self._draft = ChangeGate(least=LEAST_DRIFT_S)
        self._seen: LinkEstimate | None = None
        self._num_tokens, self._elapsed_s = 0, 0.0

    def round_changed(self, measurements: Measurements) -> bool:
        """What thresholds weigh against each other: a round trip and a pass, and a draft step."""
        estimate, costs = measurements.link.estimate, measurements.costs()
        if estimate is None or costs is None or estimate is self._seen:
            return False
        self._seen = estimate
        round_changed = self._round.changed(estimate.rtt_s + costs.step_s)
        return self._draft.changed(costs.draft_s) or round_changed

    def time_changed(self, num_tokens: int, elapsed_s: float) -> bool:
        """Only while thresholds are held: trials change the time by themselves."""
        self._num_tokens += num_tokens
        self._elapsed_s += elapsed_s
        if self._num_tokens < self._tokens_per_figure:
            return False
        figure, self._num_tokens, self._elapsed_s = self._elapsed_s / self._num_tokens, 0, 0.0
        return self._time_per_token.changed(figure)

    def settle(self) -> None:
        """Tuning begins anew: the time that it leads to is not known yet."""
        self._time_per_token.settle(None)
        self._num_tokens, self._elapsed_s = 0, 0.0
