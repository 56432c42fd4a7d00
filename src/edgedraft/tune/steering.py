"""Steers the requests of an edge: measures, plans uploads, tunes thresholds, chooses the strategy. Pure.

    event, commands --> Measurements --> UploadPlanner, ThresholdTuning, Chooser --> StrategyChanged

What takes milliseconds is not done on the way but handed out by `work`, for a thread that no token waits for.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from edgedraft.core.events import (
    EdgeCommand,
    EdgeEvent,
    LinkDown,
    LinkUp,
    MessageReceived,
    Start,
    StrategyChanged,
)
from edgedraft.core.strategy import Strategy
from edgedraft.metrics.records import ControlRecord, LinkRecord, TunerRecord
from edgedraft.protocol.messages import Commit
from edgedraft.schedule.catalogue import flow, pipesd
from edgedraft.schedule.link import LinkEstimate
from edgedraft.tune.autotuner import STALL_S, Phase, Suggestion, TunerState
from edgedraft.tune.choice import ASSISTS, Forecasts, Objective, Option, forecasts, options
from edgedraft.tune.chooser import Chooser
from edgedraft.tune.measuring import Measurements, is_time
from edgedraft.tune.replanning import UploadPlanner
from edgedraft.tune.search import Thresholds
from edgedraft.tune.thresholds import ThresholdTuning, with_thresholds
from edgedraft.types import Assist, DraftToken

Work = Callable[[], Suggestion | Forecasts]


class Knowledge:
    """What outlives the requests of one edge over one link. `held`: thresholds known from an earlier run.

    `is_working`: work was handed out and its result has not come back. `steered`: whose request it learns from, the
    newest.
    """

    def __init__(self, generator: np.random.Generator, *, held: Thresholds | None = None) -> None:
        self.measurements = Measurements()
        self.planner = UploadPlanner()
        self.tuning = ThresholdTuning(generator, held)
        self.is_working = False
        self.steered: Steering | None = None
        self._choosers: dict[tuple[str, Objective], Chooser] = {}

    def chooser(self, strategy: str, objective: Objective) -> Chooser | None:
        """What chooses for requests of that kind; None where the strategy is used as it is."""
        allowed = options(strategy, objective)
        if not allowed:
            return None
        return self._choosers.setdefault((strategy, objective), Chooser(allowed, objective))


class Steering:
    """Of one request, or of one after another: `Start` begins each. Tells `observe`'s caller of a change of strategy.

    `strategy`: what the request begins with. Steered are 'auto', 'pipesd' and 'flow' where `by_name`; a strategy that
    the caller made keeps its numbers, and what is measured is for the account only. `inline`: do what takes
    milliseconds at once, for the simulator; else the shell asks for `work` after each event.
    """

    def __init__(
        self,
        knowledge: Knowledge,
        strategy: Strategy,
        *,
        objective: Objective | None = None,
        by_name: bool = True,
        inline: bool = True,
    ) -> None:
        self.knowledge = knowledge
        self.news: list[str] = []
        self._first = self._strategy = strategy
        self._chooser = knowledge.chooser(strategy.name, objective or Objective()) if by_name else None
        self._option: Option | None = None
        self._inline = inline
        self._newest_s = math.nan
        self._plans_before = self._retunes_before = 0

    # -- what happens --------------------------------------------------------------------------------------------------

    def observe(self, event: EdgeEvent, commands: Sequence[EdgeCommand], now_s: float) -> EdgeEvent | None:
        """Told each event of the request with the commands that answered it; the answer is the session's next event."""
        measurements = self.knowledge.measurements
        if isinstance(event, Start):
            self._begin()
        if self.knowledge.steered is not self:
            return None  # a newer request drafts now
        commit = event.message if isinstance(event, MessageReceived) and isinstance(event.message, Commit) else None
        judged = measurements.judged(commit) if commit is not None else ()
        writes_on = self._strategy.assist is Assist.ALWAYS
        measurements.observe(event, commands, now_s, writes_on=writes_on)
        if isinstance(event, LinkDown | LinkUp | StrategyChanged):
            self._newest_s = math.nan
        if commit is not None and commit.token_ids and self._chooser is not None:
            elapsed_s, self._newest_s = now_s - self._newest_s, now_s
            self.knowledge.planner.take(measurements)
            if is_time(elapsed_s, STALL_S):
                self._chooser.took(len(commit.token_ids), elapsed_s, measurements)
            if (
                self._chooser.option is Option.PIPESD
                and self._option is Option.PIPESD
                and not self._chooser.by_forecast
            ):
                self._tune(commit, judged, elapsed_s)
        elif not isinstance(event, Start):
            return None
        while self._inline and (work := self.work()) is not None:
            self._take(work())
        return self._change()

    def _tune(self, commit: Commit, judged: Sequence[DraftToken], elapsed_s: float) -> None:
        tuning = self.knowledge.tuning
        num_before = tuning.num_retunes
        tuning.took(commit, judged, elapsed_s, self.knowledge.measurements)
        if tuning.num_retunes > num_before:
            self.news.append("tunes thresholds anew: the time per token, or the round trip, has changed by a fifth")

    def _begin(self) -> None:
        self._strategy, self._option, self._newest_s = self._first, None, math.nan
        self.news.clear()
        knowledge = self.knowledge
        knowledge.steered = self
        self._plans_before, self._retunes_before = knowledge.planner.num_plans, knowledge.tuning.num_retunes
        if self._chooser is not None:
            self._chooser.begin_request()

    # -- work for a thread of its own ----------------------------------------------------------------------------------

    def work(self) -> Work | None:
        """Something that takes milliseconds and reads only what stays as it is; `worked` takes what it returns."""
        knowledge, chooser = self.knowledge, self._chooser
        if chooser is None or knowledge.is_working or knowledge.steered is not self:
            return None
        if chooser.option is Option.PIPESD and not chooser.by_forecast and knowledge.tuning.needs_suggestion:
            knowledge.is_working = True
            return knowledge.tuning.begin().suggest
        held = chooser.thresholds if chooser.by_forecast else knowledge.tuning.thresholds
        evidence = chooser.evidence(knowledge.measurements, held)
        if evidence is None:
            return None
        knowledge.is_working = True
        return lambda: forecasts(evidence, chooser.options)

    def worked(self, result: object) -> EdgeEvent | None:
        """What came of the work, on the thread of `observe`. None: it failed, and no more is handed out."""
        self._take(result)
        return self._change() if self.knowledge.steered is self else None

    def _take(self, result: object) -> None:
        self.knowledge.is_working = result is None
        if isinstance(result, Suggestion):
            self.knowledge.tuning.begin().adopt(result)
        elif isinstance(result, Forecasts) and self._chooser is not None:
            self._chooser.decide(result)
            if self._chooser.option is Option.PIPESD and not self._chooser.by_forecast:
                self.knowledge.tuning.begin(result.thresholds)

    # -- the strategy to use -------------------------------------------------------------------------------------------

    def _change(self) -> EdgeEvent | None:
        """The event that brings the session what it should decode with now, where that is something else."""
        if self._chooser is None:
            return None
        option = self._chooser.option
        strategy = self._strategy
        if option is not self._option:
            strategy = self._made(option)
            if self._option is not None:
                self.news.append(f"goes on with {option}")
            self._option = option
        if option is Option.PIPESD:
            strategy = self._tuned(strategy)
        strategy = self._planned(strategy)
        if strategy == self._strategy:
            return None
        self._strategy = strategy
        return StrategyChanged(strategy)

    def _made(self, option: Option) -> Strategy:
        """The catalogue's; without drafts, what is told to the cloud stays as it is with `flow`."""
        if option is Option.PIPESD:
            return self._first if self._first.name == "pipesd" else pipesd()
        if option is Option.CLOUD_ONLY:
            return dataclasses.replace(flow(), name="cloud-only", uses_draft=False)
        if self._first.name == "flow" and self._first.assist is ASSISTS[option]:
            return self._first
        return flow(assist=ASSISTS[option])

    def _tuned(self, strategy: Strategy) -> Strategy:
        if self._chooser is not None and self._chooser.by_forecast:
            return with_thresholds(strategy, self._chooser.thresholds)
        tuning = self.knowledge.tuning
        tuning.begin()
        return tuning.applied(strategy)

    def _planned(self, strategy: Strategy) -> Strategy:
        planner = self.knowledge.planner
        if strategy.upload == self._strategy.upload and not planner.is_due:
            return strategy
        planned = planner.planned(strategy, self.knowledge.measurements)
        if planned != strategy:
            self.news.append(f"plans uploads anew: {planned.upload}")
        return planned

    # -- what to tell --------------------------------------------------------------------------------------------------

    def take_news(self) -> list[str]:
        """What was decided since the last call, in words, for a log."""
        news, self.news = self.news, []
        return news

    @property
    def is_tuned(self) -> bool:
        """Whether thresholds are held that this edge has found by trials."""
        state = self.knowledge.tuning.state
        return state is not None and state.phase is Phase.HOLDING and state.num_trials > 0

    def record(self) -> ControlRecord:
        """What was measured and done, for the request's account."""
        measurements, tuning, chooser = self.knowledge.measurements, self.knowledge.tuning, self._chooser
        verify = measurements.verify_estimate
        return ControlRecord(
            num_replans=self.knowledge.planner.num_plans - self._plans_before,
            num_retunes=tuning.num_retunes - self._retunes_before,
            draft_step_s=measurements.draft.draft_s,
            verify_step_s=None if verify is None else verify.step_s,
            verify_per_id_s=None if verify is None else verify.per_draft_s,
            link=_link_record(measurements.link.estimate),
            tuner=_tuner_record(tuning.state),
            choice=None if chooser is None or chooser.choice is None else chooser.choice.to_dict(),
        )


def _link_record(estimate: LinkEstimate | None) -> LinkRecord | None:
    if estimate is None:
        return None
    return LinkRecord(
        startup_s=estimate.startup_s,
        per_token_s=estimate.per_token_s,
        delay_s=estimate.delay_s,
        rtt_s=estimate.rtt_s,
        startup_known=estimate.startup_known,
    )


def _tuner_record(state: TunerState | None) -> TunerRecord | None:
    if state is None:
        return None
    return TunerRecord(phase=str(state.phase), num_trials=state.num_trials, thresholds=state.current, best=state.best)
