"""Which strategy is the best one here: forecasts of all that may be used, and one sentence of why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from edgedraft.errors import InvalidRequestError
from edgedraft.tune import forecast
from edgedraft.tune.forecast import Costs, Forecast, Outcome
from edgedraft.tune.search import Thresholds
from edgedraft.types import Assist

MISFIT_TOKENS = 40
MISFIT_ACCEPTANCE_RATE = 0.1
LATENCY, COST = "latency", "cost"
COST_SLACK = 1.1
"""How much slower than the best thresholds others may be for fewer target passes, under the objective `cost`."""
TRIED_THRESHOLDS: Sequence[Thresholds] = tuple(
    Thresholds(token, sequence)
    for token, sequence in ((0.1, 0.02), (0.3, 0.1), (0.3, 0.3), (0.5, 0.3), (0.6, 0.35), (0.8, 0.35), (0.9, 0.6),
                            (0.95, 0.8), (0.99, 0.9))
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Objective:
    """What is to be saved. `pass_price_s`: seconds that one target pass may cost to save; infinity: passes alone."""

    pass_price_s: float = 0.0

    @classmethod
    def of(cls, value: object) -> Objective:
        """'latency', 'cost' or a price. Raises `InvalidRequestError`."""
        if value == LATENCY:
            return cls()
        if value == COST:
            return cls(math.inf)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value < math.inf:
            return cls(float(value))
        raise InvalidRequestError(
            f"objective is {value!r}; legal: '{LATENCY}', '{COST}', or the seconds that saving a target pass is worth.",
            field="objective",
            remedy="Use 'latency' unless target passes cost you.",
        )


class Option(StrEnum):
    """What may be decoded with."""

    FLOW = "flow"
    FLOW_BUBBLE = "flow/bubble"
    FLOW_NONE = "flow/none"
    PIPESD = "pipesd"
    CLOUD_ONLY = "cloud-only"


ASSISTS: Mapping[Option, Assist] = MappingProxyType(
    {Option.FLOW: Assist.ALWAYS, Option.FLOW_BUBBLE: Assist.BUBBLE, Option.FLOW_NONE: Assist.NONE}
)


def options(strategy: str, objective: Objective) -> tuple[Option, ...]:
    """What a request that names `strategy` may be decoded with, the first to begin with; empty: as it is named.

    Where passes alone count, `pipesd` takes fewest: its long drafts are judged whole, and nothing is written unasked.
    """
    price_s = objective.pass_price_s
    flows = tuple(ASSISTS)
    match strategy:
        case "auto" if price_s == 0.0:
            return (Option.FLOW, Option.PIPESD, Option.CLOUD_ONLY)
        case "auto" if price_s == math.inf:
            return (Option.PIPESD,)
        case "auto":
            return (*flows, Option.PIPESD, Option.CLOUD_ONLY)
        case "flow" if price_s == math.inf:
            return (Option.FLOW_NONE,)
        case "flow":
            return flows if price_s else (Option.FLOW,)
        case "pipesd":
            return (Option.PIPESD,)
    return ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a choice rests on. `text`: all that is remembered; `recent`: what the option in use, `used`, was timed on.

    `thresholds`: those of `pipesd` now, where it has any. `pass_price_s`: what they are chosen by besides time.
    """

    text: Sequence[Outcome]
    recent: Sequence[Outcome]
    used: Option
    costs: Costs
    thresholds: Thresholds | None = None
    pass_price_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Forecasts:
    """Of every option, as steps alone would have it, and of the one in use for what it was timed on; None: too little.

    `thresholds`: those that `pipesd` is best with.
    """

    by_option: Mapping[Option, Forecast]
    of_recent: Forecast | None
    thresholds: Thresholds


def forecasts(evidence: Evidence, wanted: Sequence[Option]) -> Forecasts:
    """Takes a millisecond or two; reads nothing but its arguments."""
    tried = TRIED_THRESHOLDS if evidence.thresholds is None else (*TRIED_THRESHOLDS, evidence.thresholds)
    text, costs = evidence.text, evidence.costs
    best = _best({pair: forecast.pipesd(text, costs, pair) for pair in tried}, evidence.pass_price_s)
    in_use = evidence.thresholds or best
    return Forecasts(
        {option: _forecast(option, text, costs, best) for option in wanted},
        _forecast(evidence.used, evidence.recent, costs, in_use) if evidence.recent else None,
        best,
    )


def _best(by_pair: Mapping[Thresholds, Forecast], pass_price_s: float) -> Thresholds:
    """The cheapest pair; where passes alone count, that with the fewest among those not much slower than the best."""
    if pass_price_s < math.inf:
        return min(by_pair, key=lambda pair: by_pair[pair].price_s(pass_price_s))
    most_s = COST_SLACK * min(each.tpt_s for each in by_pair.values())
    return min(
        (pair for pair in by_pair if by_pair[pair].tpt_s <= most_s), key=lambda pair: by_pair[pair].passes_per_token
    )


def _forecast(option: Option, text: Sequence[Outcome], costs: Costs, thresholds: Thresholds) -> Forecast:
    if option is Option.PIPESD:
        return forecast.pipesd(text, costs, thresholds)
    if option is Option.CLOUD_ONLY:
        return forecast.cloud_only(costs)
    return forecast.flow(text, costs, ASSISTS[option])


@dataclass(frozen=True, slots=True)
class Choice:
    """For the account: what is used, the predicted seconds a token of everything that may be, and one sentence."""

    option: Option
    predicted_tpt_s: Mapping[Option, float]
    because: str

    def to_dict(self) -> dict[str, object]:
        milliseconds = {str(option): round(tpt_s * 1e3, 2) for option, tpt_s in self.predicted_tpt_s.items()}
        return {"choice": str(self.option), "predicted_tpt_ms": milliseconds, "because": self.because}


def reason(option: Option, prices_s: Mapping[Option, float], objective: Objective) -> str:
    """Why `option` and not the next best."""
    others = sorted((price_s, other) for other, price_s in prices_s.items() if other is not option)
    if option not in prices_s or not others:
        return f"{option} is what this objective allows."
    unit = "ms a token" if objective.pass_price_s == 0.0 else "ms a token, target passes priced in"
    next_s, following = others[0]
    return f"{option} is predicted at {prices_s[option] * 1e3:.1f} {unit}; {following} at {next_s * 1e3:.1f}."
