"""The autotuner against grid and random search, in simulated time: 16 candidates of 20 tokens, then the true time.

The shape of PipeSD's Table 3, and what a step in the link does. Every search drives the same online tuner, on the same
texts in the same order, and pays the same for changing thresholds while verdicts are out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from edgedraft.core.events import EdgeCommand, EdgeEvent, MessageReceived, Start, StrategyChanged, TokenDrafted
from edgedraft.core.strategy import Strategy
from edgedraft.core.triggers import DualThreshold
from edgedraft.errors import EdgedraftError
from edgedraft.metrics.derive import tpt_s
from edgedraft.protocol.messages import Commit
from edgedraft.sim.compute import TargetProfile
from edgedraft.sim.edges import SimulatedEdge
from edgedraft.sim.world import simulate
from edgedraft.tune.autotuner import Autotuner, MakeSearch, Phase, with_foresight
from edgedraft.tune.search import BayesianSearch, GridSearch, RandomSearch, Thresholds
from edgedraft.types import DraftToken

SEARCHES: Mapping[str, MakeSearch] = MappingProxyType(
    {
        "grid": lambda generator, budget, first, foresight: GridSearch(math.isqrt(budget)),
        "random": lambda generator, budget, first, foresight: RandomSearch(generator, budget),
        "measured": lambda generator, budget, first, foresight: BayesianSearch(generator, budget=budget, first=first),
        "foresight": with_foresight,
    }
)
"""`measured`: Bayesian, by measured times alone, as published. `foresight`: what edgedraft uses."""
REFERENCE_STEPS = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 0.9999)
MOST_TEXTS = 100


@dataclass(frozen=True, slots=True)
class TuningCase:
    """Where is tuned: an edge, whose texts are drawn from and whose strategy has a dual threshold, and a target."""

    edge: SimulatedEdge
    target: TargetProfile


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """Over all seeds: the true time per token at the chosen pair, in seconds, and over that of the best grid point."""

    search: str
    tpt_s: float
    ratio_median: float
    ratio_worst: float


class TunerSteering:
    """Tells a tuner what the requests of one edge commit, and brings its thresholds to them.

    Suggestions take no simulated time. The first verdict of a request tells of prefill too, so its time counts for
    nothing. Once the tuner holds its choice, or `most_tokens` are committed, nothing is told any more.
    """

    def __init__(self, tuner: Autotuner, strategy: Strategy, most_tokens: int) -> None:
        self._tuner = tuner
        self._strategy = strategy
        self._in_use: Thresholds | None = None
        self._drafted: dict[int, DraftToken] = {}
        self._newest_s = math.nan
        self.num_left = most_tokens

    def observe(self, event: EdgeEvent, commands: Sequence[EdgeCommand], now_s: float) -> EdgeEvent | None:
        match event:
            case Start():
                self._in_use, self._newest_s = None, math.nan
                self._drafted.clear()
            case TokenDrafted(position=position, token=DraftToken() as token):
                self._drafted[position] = token
            case MessageReceived(message=Commit() as commit) if commit.token_ids:
                self._committed(commit, now_s)
        return self._change()

    def _committed(self, commit: Commit, now_s: float) -> None:
        tuner, elapsed_s = self._tuner, now_s - self._newest_s
        self._newest_s = now_s
        if tuner.state.phase is Phase.HOLDING or self.num_left <= 0:
            return
        self.num_left -= len(commit.token_ids)
        positions = range(commit.position, commit.position + commit.num_judged)
        judged = [self._drafted[position] for position in positions if position in self._drafted]
        tuner.took(len(commit.token_ids), elapsed_s, judged=judged, num_accepted=commit.num_accepted)
        if tuner.needs_suggestion:
            tuner.adopt(tuner.suggest())

    def _change(self) -> EdgeEvent | None:
        thresholds = self._tuner.thresholds
        if thresholds == self._in_use:
            return None
        self._in_use = thresholds
        return StrategyChanged(with_thresholds(self._strategy, thresholds))


def with_thresholds(strategy: Strategy, thresholds: Thresholds) -> Strategy:
    trigger = DualThreshold(token_threshold=thresholds.token, sequence_threshold=thresholds.sequence)
    return replace(strategy, trigger=trigger)


def true_tpt_s(case: TuningCase, thresholds: Thresholds) -> float:
    """Seconds per committed token over all texts of the case."""
    edge = replace(case.edge, strategy=with_thresholds(case.edge.strategy, thresholds), steering=None)
    answers = simulate([edge], case.target, seed=0)
    time_s = tpt_s(*[answer.record for answer in answers])
    if time_s is None:
        raise EdgedraftError("the texts of a tuning case hold no token.")
    return time_s


def least_tpt_s(case: TuningCase) -> float:
    """The least true time over a grid much finer than any search may try.

    A token threshold below the sequence threshold never fires first, so such pairs are the same and one will do.
    """
    least = REFERENCE_STEPS[0]
    return min(
        true_tpt_s(case, Thresholds(token, sequence))
        for token in REFERENCE_STEPS
        for sequence in REFERENCE_STEPS
        if token > sequence or token == least
    )


def compare_searches(case: TuningCase, *, seeds: Sequence[int] = range(10)) -> list[SearchOutcome]:
    """One row a search."""
    least_s = least_tpt_s(case)
    outcomes = []
    for name in SEARCHES:
        times_s = [true_tpt_s(case, tuned(case, seed, name).thresholds) for seed in seeds]
        ratios = [time_s / least_s for time_s in times_s]
        outcomes.append(SearchOutcome(name, median(times_s), median(ratios), max(ratios)))
    return outcomes


def tuned(case: TuningCase, seed: int, search: str = "foresight") -> Autotuner:
    """A tuner that has used its 16 trials on texts in an order of the seed's."""
    tuner = Autotuner(np.random.default_rng(seed), make_search=SEARCHES[search])
    tune(tuner, case, seed)
    return tuner


def tune(tuner: Autotuner, case: TuningCase, seed: int, *, most_tokens: int = 10_000) -> int:
    """Decode until the tuner holds its choice or `most_tokens` are committed; returns how many were."""
    steering = TunerSteering(tuner, case.edge.strategy, most_tokens)
    for number, text in zip(range(MOST_TEXTS), _shuffled(case.edge.texts, seed), strict=False):
        if tuner.state.phase is Phase.HOLDING or steering.num_left <= 0:
            break
        edge = replace(case.edge, texts=[text], steering=steering)
        simulate([edge], case.target, seed=seed + number)
    return most_tokens - steering.num_left


_Text = TypeVar("_Text")


def _shuffled(texts: Sequence[_Text], seed: int) -> Iterator[_Text]:
    """All texts, again and again, each time in another order."""
    order = np.random.default_rng(seed)
    while True:
        for index in order.permutation(len(texts)).tolist():
            yield texts[index]


def recovery(before: TuningCase, after: TuningCase, seed: int, *, most_tokens: int) -> float:
    """True time per token, over the least there is, at most `most_tokens` after a step was noticed."""
    tuner = tuned(before, seed)
    tuner.drifted()
    tune(tuner, after, seed + 1, most_tokens=most_tokens)
    return true_tpt_s(after, tuner.state.best or tuner.thresholds) / least_tpt_s(after)
