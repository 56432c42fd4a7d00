"""What may be chosen from for which objective, and what is said of the choice."""

from __future__ import annotations

import math

import pytest

from edgedraft.errors import InvalidRequestError
from edgedraft.tune.choice import Choice, Evidence, Objective, Option, forecasts, options, reason
from edgedraft.tune.forecast import Costs, Outcome
from edgedraft.tune.search import Thresholds

LATENCY, COST = Objective(), Objective(math.inf)
COSTS = Costs(
    draft_s=0.01, startup_s=0.0, per_token_s=0.0, up_s=0.02, down_s=0.02, step_s=0.03, per_id_s=0.0, own_s=0.03
)


@pytest.mark.parametrize(("value", "price_s"), [("latency", 0.0), ("cost", math.inf), (0.05, 0.05), (0, 0.0), (2, 2.0)])
def test_an_objective_is_a_name_or_a_price(value: object, price_s: float) -> None:
    assert Objective.of(value).pass_price_s == price_s


@pytest.mark.parametrize("value", ["fast", "", -0.1, math.nan, math.inf, True, None, [1]])
def test_any_other_objective_is_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidRequestError, match=r"objective is .*legal: 'latency', 'cost'") as caught:
        Objective.of(value)
    assert caught.value.field == "objective"
    assert caught.value.remedy


def test_latency_writes_on_always_and_cost_asks_as_rarely_as_can_be() -> None:
    assert options("auto", LATENCY)[0] is Option.FLOW
    assert {Option.FLOW_NONE, Option.FLOW_BUBBLE} & set(options("auto", LATENCY)) == set()
    assert options("auto", COST) == (Option.PIPESD,)
    assert set(options("auto", Objective(0.01))) == set(Option)
    assert options("flow", LATENCY) == (Option.FLOW,)
    assert options("flow", COST) == (Option.FLOW_NONE,)
    assert options("pipesd", LATENCY) == (Option.PIPESD,)


@pytest.mark.parametrize("name", ["vanilla", "hsl", "edgellm", "cloud-only", "pipesd/fixed"])
def test_other_strategies_are_used_as_they_are(name: str) -> None:
    assert options(name, LATENCY) == ()


def test_every_wanted_option_is_forecast_and_pipesd_with_its_best_thresholds() -> None:
    text = ([Outcome(0.99, is_right=True)] * 9 + [Outcome(0.2, is_right=False)]) * 6
    told = forecasts(Evidence(text, text[:20], Option.FLOW, COSTS), tuple(Option))
    assert set(told.by_option) == set(Option)
    assert told.thresholds.token >= 0.3, "thresholds that never fire draft 64 tokens behind each wrong one"
    assert told.by_option[Option.CLOUD_ONLY].passes_per_token == 1.0
    assert told.by_option[Option.PIPESD].passes_per_token < told.by_option[Option.FLOW].passes_per_token
    assert told.of_recent is not None
    assert forecasts(Evidence(text, (), Option.FLOW, COSTS), (Option.FLOW,)).of_recent is None


def test_thresholds_in_use_are_tried_too() -> None:
    text = ([Outcome(0.96, is_right=True)] * 7 + [Outcome(0.955, is_right=False)]) * 8
    exact = Thresholds(0.957, 0.01)
    assert forecasts(Evidence(text, (), Option.PIPESD, COSTS, exact), (Option.PIPESD,)).thresholds == exact


def test_dearer_passes_ask_more_rarely() -> None:
    """Every fifth token is unsure and right three times of four: asking at each saves time and costs passes."""
    unsure = [Outcome(0.55, is_right=number % 4 != 0) for number in range(16)]
    text = [each for one in unsure for each in (*[Outcome(0.99, is_right=True)] * 4, one)]
    cheap, dear = (
        forecasts(Evidence(text, (), Option.FLOW, COSTS, pass_price_s=price_s), (Option.PIPESD,))
        for price_s in (0.0, 10.0)
    )
    assert dear.by_option[Option.PIPESD].passes_per_token < cheap.by_option[Option.PIPESD].passes_per_token
    assert dear.by_option[Option.PIPESD].tpt_s > cheap.by_option[Option.PIPESD].tpt_s


def test_the_reason_names_the_next_best() -> None:
    prices_s = {Option.FLOW: 0.0123, Option.CLOUD_ONLY: 0.03, Option.PIPESD: 0.02}
    assert reason(Option.FLOW, prices_s, LATENCY) == "flow is predicted at 12.3 ms a token; pipesd at 20.0."
    assert "target passes priced in" in reason(Option.FLOW, prices_s, Objective(0.1))
    assert "allows" in reason(Option.PIPESD, {}, COST)


def test_the_account_has_milliseconds() -> None:
    choice = Choice(Option.FLOW, {Option.FLOW: 0.01234, Option.CLOUD_ONLY: 0.03}, "because.")
    assert choice.to_dict() == {
        "choice": "flow",
        "predicted_tpt_ms": {"flow": 12.34, "cloud-only": 30.0},
        "because": "because.",
    }
