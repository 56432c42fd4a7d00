"""Holds the option in use, and changes over where another is clearly and repeatedly better."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from edgedraft.tune.choice import (
    MISFIT_ACCEPTANCE_RATE,
    MISFIT_TOKENS,
    Choice,
    Evidence,
    Forecasts,
    Objective,
    Option,
    reason,
)
from edgedraft.tune.forecast import Outcome
from edgedraft.tune.measuring import Measurements
from edgedraft.tune.search import Thresholds

DECIDE_TOKENS = 16
LEAST_TEXT_TOKENS = 24
MEASURED_TOKENS = 128
LEAST_MEASURED_TOKENS = 32
SETTLING_COMMITS = 2
FREE_MARGIN, REOPENING_MARGIN = 0.95, 0.85
FIRST_PROBE_TOKENS, LAST_PROBE_TOKENS, PROBE_TOKENS = 256, 2048, 24
NARROWEST_FACTOR, WIDEST_FACTOR = 0.8, 1.25
LEAST_SHARE_SEEN = 0.7


class Stint:
    """Time and tokens since the option in use was taken up, the newest `MEASURED_TOKENS` of them."""

    def __init__(self) -> None:
        self._commits: deque[tuple[int, float, Sequence[Outcome]]] = deque()
        self._num_to_skip = SETTLING_COMMITS
        self.num_tokens, self._elapsed_s = 0, 0.0

    def add(self, num_tokens: int, elapsed_s: float, outcomes: Sequence[Outcome]) -> None:
        if self._num_to_skip:
            self._num_to_skip -= 1
            return
        self._commits.append((num_tokens, elapsed_s, outcomes))
        self.num_tokens += num_tokens
        self._elapsed_s += elapsed_s
        while self.num_tokens - self._commits[0][0] >= MEASURED_TOKENS:
            oldest_tokens, oldest_s, _ = self._commits.popleft()
            self.num_tokens -= oldest_tokens
            self._elapsed_s -= oldest_s

    def settle(self) -> None:
        """The next commits are those of a beginning."""
        self._num_to_skip = SETTLING_COMMITS

    @property
    def outcomes(self) -> list[Outcome]:
        """The draft tokens that the text passed meanwhile."""
        return [outcome for _, _, outcomes in self._commits for outcome in outcomes]

    @property
    def tpt_s(self) -> float | None:
        """Seconds a token; None before there are enough of them."""
        return self._elapsed_s / self.num_tokens if self.num_tokens >= LEAST_MEASURED_TOKENS else None


class Chooser:
    """One for each kind of request (strategy and objective) of an edge. Pure: told what happened, asked for `option`.

    Decides every `DECIDE_TOKENS` tokens, and changes over when two decisions in a row say so. Without drafts nothing
    is learnt of them, so now and then they are tried again for `PROBE_TOKENS`, ever more rarely while that is in vain.
    """

    def __init__(self, options: Sequence[Option], objective: Objective) -> None:
        self.options = options
        self.objective = objective
        self.option = options[0]
        self.choice: Choice | None = None
        self.thresholds: Thresholds | None = None
        self.num_changes = 0
        self._factors: dict[Option, float] = {}
        self._stint = Stint()
        self._wanted: Option | None = None
        self._since_decision = 0
        self._until_probe = self._probe_after = FIRST_PROBE_TOKENS
        self._is_misfit = False

    @property
    def by_forecast(self) -> bool:
        """Whether thresholds are those of the forecast: passes alone count, which no trial of times could find."""
        return self.objective.pass_price_s == math.inf

    @property
    def is_probing(self) -> bool:
        return self._until_probe < 0

    # -- what happens --------------------------------------------------------------------------------------------------

    def took(self, num_tokens: int, elapsed_s: float, measurements: Measurements) -> None:
        """`num_tokens` were committed, `elapsed_s` after the commit before, of which `measurements` know."""
        self._stint.add(num_tokens, elapsed_s, measurements.newest)
        self._since_decision += num_tokens
        if self.option is Option.CLOUD_ONLY:
            self._until_probe -= num_tokens
            if self._until_probe < 0:
                measurements.text.clear()  # what it was like before is no news
                self._probe()

    def begin_request(self) -> None:
        """Another text, which drafts may suit that did not suit the last one."""
        self._stint.settle()
        self._since_decision = 0
        if self.option is Option.CLOUD_ONLY and not self._is_misfit:
            self._probe()

    def evidence(self, measurements: Measurements, thresholds: Thresholds | None) -> Evidence | None:
        """What to forecast from, where a decision is due."""
        least = PROBE_TOKENS if self.is_probing else DECIDE_TOKENS
        nothing_to_decide = len(self.options) == 1 and not self.by_forecast
        if self.option is Option.CLOUD_ONLY or nothing_to_decide or self._since_decision < least:
            return None
        costs = measurements.costs()
        # A trial ends whatever it has shown: where hardly anything was drafted in time, that is what it has shown.
        is_over = self.is_probing and self._since_decision >= 2 * PROBE_TOKENS and len(measurements.text) > 0
        if costs is None or (len(measurements.text) < LEAST_TEXT_TOKENS and not is_over):
            return None
        self._since_decision = 0
        newest = list(measurements.text)[-MISFIT_TOKENS:]
        num_right = sum(outcome.is_right for outcome in newest)
        if (
            Option.CLOUD_ONLY in self.options
            and num_right < MISFIT_ACCEPTANCE_RATE * len(newest)
            and len(newest) >= MISFIT_TOKENS
        ):
            self._give_up(f"The target accepts {num_right} of {len(newest)} draft tokens: this draft does not suit it.")
            return None
        recent = tuple(self._stint.outcomes)
        if len(recent) < LEAST_SHARE_SEEN * self._stint.num_tokens or self._stint.tpt_s is None:
            recent = ()  # what was not drafted in time is missing, and was hardly like the rest
        return Evidence(tuple(measurements.text), recent, self.option, costs, thresholds, self.objective.pass_price_s)

    # -- decisions -----------------------------------------------------------------------------------------------------

    def decide(self, forecasts: Forecasts) -> None:
        """Change over, or stay, by what was forecast of each option and how the one in use really went."""
        self._is_misfit = False
        self.thresholds = forecasts.thresholds
        self._learn(forecasts)
        pass_price_s = self.objective.pass_price_s
        prices_s, times_s = {}, {}
        for option, forecast in forecasts.by_option.items():
            times_s[option] = forecast.tpt_s * self._factors.get(option, 1.0)
            if option is self.option and self._stint.tpt_s is not None:
                times_s[option] = min(times_s[option], self._stint.tpt_s)  # in doubt for what is in use
            prices_s[option] = times_s[option] + pass_price_s * forecast.passes_per_token
        best = min(prices_s, key=lambda option: prices_s[option])
        if best is not self.option and prices_s[best] > self._margin(best) * prices_s[self.option]:
            best = self.option
        if best is self.option or best is self._wanted or self.is_probing:
            self._settle(best)
            self._wanted = None
        else:
            self._wanted = best
        self.choice = Choice(self.option, times_s, reason(self.option, prices_s, self.objective))

    def _probe(self) -> None:
        self._until_probe = -1
        self._take_up(next(option for option in self.options if option is not Option.CLOUD_ONLY))

    def _learn(self, forecasts: Forecasts) -> None:
        measured_s, forecast = self._stint.tpt_s, forecasts.of_recent
        if measured_s is None or forecast is None or not measured_s > 0.0:
            return
        factor = min(max(measured_s / forecast.tpt_s, NARROWEST_FACTOR), WIDEST_FACTOR)
        self._factors[self.option] = (self._factors.get(self.option, factor) + factor) / 2

    def _margin(self, other: Option) -> float:
        """By how much another has to be better: more where the session has to be opened anew for it."""
        is_free = {self.option, other} == {Option.FLOW, Option.CLOUD_ONLY}
        return FREE_MARGIN if is_free else REOPENING_MARGIN

    def _settle(self, option: Option) -> None:
        if option is Option.CLOUD_ONLY:
            if self.is_probing:
                self._probe_after = min(2 * self._probe_after, LAST_PROBE_TOKENS)
            self._until_probe = self._probe_after
        elif self.is_probing:  # drafts are worth it again
            self._until_probe = self._probe_after = FIRST_PROBE_TOKENS
        if option is not self.option:
            self._take_up(option)

    def _give_up(self, because: str) -> None:
        self._is_misfit = True
        self._settle(Option.CLOUD_ONLY)
        self.choice = Choice(Option.CLOUD_ONLY, {}, because)

    def _take_up(self, option: Option) -> None:
        self.option = option
        self.num_changes += 1
        self._stint = Stint()
        self._since_decision = 0
        self._wanted = None
