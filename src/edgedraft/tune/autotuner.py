"""Tunes both thresholds while decoding goes on. Pure: told what happened, asked what to use.

    MEASURING --enough tokens--> SUGGESTING --adopt--> MEASURING ... --adopt the last--> HOLDING --drifted--> MEASURING

While SUGGESTING, the shell runs `suggest` in a thread of its own and decoding goes on with the present thresholds;
what is committed meanwhile counts for nothing, so that the thread reads what nobody writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from edgedraft.errors import InvalidRequestError
from edgedraft.tune.foresight import MAX_DRAFT_TOKENS, Foresight
from edgedraft.tune.search import DEFAULT_BUDGET, BayesianSearch, Search, Thresholds, candidates, check_thresholds
from edgedraft.types import DraftToken

TRIAL_TOKENS = 20
SKIPPED_VERDICTS = 1
STALL_S = 30.0
"""A verdict that took longer tells of an outage, not of thresholds, and is left out."""


MakeSearch = Callable[[np.random.Generator, int, Thresholds | None, Foresight], Search]
"""Given a generator, a budget of trials, where to start (None: anywhere) and what will see the text."""


def with_foresight(
    generator: np.random.Generator, budget: int, first: Thresholds | None, foresight: Foresight
) -> Search:
    """The search that is used by default."""
    return BayesianSearch(generator, budget=budget, first=first, foresight=foresight)


class Phase(StrEnum):
    MEASURING = "measuring"
    SUGGESTING = "suggesting"
    HOLDING = "holding"


@dataclass(frozen=True, slots=True)
class TunerState:
    """What the tuner is doing, for `accounting` and logs. `best`: None before the first trial ended."""

    phase: Phase
    num_trials: int
    budget: int
    current: Thresholds
    best: Thresholds | None
    num_restarts: int


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What `suggest` found: the pair to use next, whether to stay there, and the best so far."""

    thresholds: Thresholds
    is_final: bool
    best: Thresholds
    run: int


class Autotuner:
    """Online Bayesian tuning (PipeSD section 3.3, appendix C): 16 trials of 20 committed tokens, then the best is held.

    `held`: thresholds known to be good, from an earlier run: they are held until `drifted`. `skipped_verdicts`: how
    many verdicts may be out when thresholds change; they judge tokens drafted under the old ones, so no trial counts
    them. `make_search`: how candidates are chosen. All methods but `suggest` belong to one thread.
    """

    def __init__(
        self,
        generator: np.random.Generator,
        *,
        held: Thresholds | None = None,
        budget: int = DEFAULT_BUDGET,
        trial_tokens: int = TRIAL_TOKENS,
        skipped_verdicts: int = SKIPPED_VERDICTS,
        max_draft_tokens: int = MAX_DRAFT_TOKENS,
        make_search: MakeSearch = with_foresight,
    ) -> None:
        if trial_tokens < 1 or skipped_verdicts < 0:
            field = "trial_tokens" if trial_tokens < 1 else "skipped_verdicts"
            value = trial_tokens if trial_tokens < 1 else skipped_verdicts
            raise InvalidRequestError(f"{field} is {value}; legal: trial_tokens 1 up, skipped 0 up.", field=field)
        if held is not None:
            check_thresholds(held)
        self._generator = generator
        self._budget = budget
        self._trial_tokens = trial_tokens
        self._skipped_verdicts = skipped_verdicts
        self._max_draft_tokens = max_draft_tokens
        self._make_search = make_search
        self._num_restarts = 0
        self._run = 0
        self._best: Thresholds | None = None
        self._begin(first=held, foresight=None)
        if held is not None:
            self._phase, self._current, self._best = Phase.HOLDING, held, held

    # -- what the shell asks -------------------------------------------------------------------------------------------

    @property
    def thresholds(self) -> Thresholds:
        """The pair to decode with now."""
        return self._current

    @property
    def needs_suggestion(self) -> bool:
        """Whether a trial is over and nobody has brought the next pair: run `suggest`, then `adopt`."""
        return self._phase is Phase.SUGGESTING

    @property
    def state(self) -> TunerState:
        return TunerState(self._phase, self._num_trials, self._budget, self._current, self._best, self._num_restarts)

    def suggest(self) -> Suggestion:
        """Takes milliseconds; reads only what stays as it is until `adopt`, so it may run in another thread."""
        run, search = self._run, self._search
        best = search.best()
        following = search.suggest()
        return Suggestion(following or best, following is None, best, run)

    # -- what the shell tells ------------------------------------------------------------------------------------------

    def took(
        self, num_tokens: int, elapsed_s: float, *, judged: Sequence[DraftToken] = (), num_accepted: int = 0
    ) -> None:
        """A verdict committed `num_tokens`, `elapsed_s` after the one before it (or after drafting began).

        `judged`, `num_accepted`: what it judged. Prefill and time between requests don't belong here. A clock that went
        backwards or a stall (`STALL_S`) is left out.
        """
        if self._phase is not Phase.MEASURING:
            return
        self._foresight.saw(judged, num_accepted)
        if self._num_to_skip:
            self._num_to_skip -= 1
        elif 0 <= elapsed_s <= STALL_S:
            self._foresight.timed(len(judged), num_tokens, elapsed_s)
            self._num_tokens += num_tokens
            self._elapsed_s += elapsed_s
            if self._num_tokens >= self._trial_tokens and self._elapsed_s > 0:
                self._end_trial()

    def adopt(self, suggestion: Suggestion) -> None:
        """Use what `suggest` found; one from before `drifted` or `reset` is dropped."""
        if suggestion.run != self._run or self._phase is not Phase.SUGGESTING:
            return
        self._best = suggestion.best
        self._phase = Phase.HOLDING if suggestion.is_final else Phase.MEASURING
        self._use(suggestion.thresholds)

    def drifted(self) -> None:
        """Time per token has changed: tune again, from the present best and with little faith in what was seen."""
        self._num_restarts += 1
        foresight = self._foresight.after_drift()
        self._begin(first=self._best or self._current, foresight=foresight)

    def reset(self) -> None:
        """Forget everything and start at random."""
        self._num_restarts += 1
        self._begin(first=None, foresight=None)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _begin(self, *, first: Thresholds | None, foresight: Foresight | None) -> None:
        self._run += 1
        self._foresight = foresight or Foresight(candidates(), self._max_draft_tokens)
        self._search = self._make_search(self._generator, self._budget, first, self._foresight)
        self._phase = Phase.MEASURING
        self._num_trials = 0
        self._best = None
        start = self._search.suggest()
        assert start is not None  # noqa: S101 - the budget is 1 or more
        self._use(start)

    def _use(self, thresholds: Thresholds) -> None:
        self._current = thresholds
        self._num_to_skip = self._skipped_verdicts
        self._num_tokens, self._elapsed_s = 0, 0.0

    def _end_trial(self) -> None:
        self._foresight.end_stretch()
        self._search.tell(self._current, self._elapsed_s / self._num_tokens)
        self._num_trials += 1
        self._phase = Phase.SUGGESTING
