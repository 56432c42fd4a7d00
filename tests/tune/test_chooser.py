"""When the option in use changes, and when it had better not."""

from __future__ import annotations

import pytest

from edgedraft.core.events import MessageReceived, TokenDrafted
from edgedraft.protocol.messages import Timings
from edgedraft.tune.choice import Forecasts, Objective, Option
from edgedraft.tune.chooser import (
    DECIDE_TOKENS,
    FIRST_PROBE_TOKENS,
    LAST_PROBE_TOKENS,
    MEASURED_TOKENS,
    PROBE_TOKENS,
    Chooser,
    Stint,
)
from edgedraft.tune.forecast import Forecast, Outcome
from edgedraft.tune.measuring import Measurements
from edgedraft.tune.search import Thresholds
from edgedraft.types import DraftToken

from .conftest import commit_of

ALL = (Option.FLOW, Option.PIPESD, Option.CLOUD_ONLY)
RIGHT, WRONG = Outcome(0.9, is_right=True), Outcome(0.9, is_right=False)


def forecasts_of(*, recent_s: float | None = None, passes: float = 0.5, **tpt_s: float) -> Forecasts:
    names = {"flow": Option.FLOW, "pipesd": Option.PIPESD, "alone": Option.CLOUD_ONLY}
    return Forecasts(
        {names[name]: Forecast(time_s, passes) for name, time_s in tpt_s.items()},
        None if recent_s is None else Forecast(recent_s, passes),
        Thresholds(0.5, 0.3),
    )


def chooser_of(objective: Objective | None = None) -> Chooser:
    return Chooser(ALL, objective or Objective())


def known(outcomes: list[Outcome]) -> Measurements:
    """Measurements that have seen one draft step, one pass and these outcomes."""
    measurements = Measurements()
    for position in (3, 4):
        event = TokenDrafted(0, position, DraftToken(1, 0.9, 0.1, 0.01))
        measurements.observe(event, (), 0.0, writes_on=True)
    commit = commit_of(3, [9], timings=Timings(0, 30_000, 0, 0, 0))
    measurements.observe(MessageReceived(commit), (), 0.1, writes_on=True)
    measurements.text.extend(outcomes)
    return measurements


def test_it_changes_over_when_two_decisions_in_a_row_say_so() -> None:
    chooser = chooser_of()
    slow = forecasts_of(flow=0.040, pipesd=0.050, alone=0.030)
    chooser.decide(slow)
    assert chooser.option is Option.FLOW
    chooser.decide(forecasts_of(flow=0.020, pipesd=0.050, alone=0.030))
    chooser.decide(slow)
    assert chooser.option is Option.FLOW, "one of them was another opinion"
    chooser.decide(slow)
    assert chooser.option is Option.CLOUD_ONLY
    assert chooser.num_changes == 1


@pytest.mark.parametrize(
    ("better", "changes"),
    [
        ({"flow": 0.0310, "pipesd": 0.05, "alone": 0.030}, False),
        ({"flow": 0.0330, "pipesd": 0.05, "alone": 0.030}, True),
        ({"flow": 0.0330, "pipesd": 0.03, "alone": 0.040}, False),
        ({"flow": 0.0360, "pipesd": 0.03, "alone": 0.040}, True),
    ],
)
def test_small_gains_change_nothing_and_a_session_opened_anew_needs_more(
    better: dict[str, float], changes: bool
) -> None:
    chooser = chooser_of()
    for _ in range(4):
        chooser.decide(forecasts_of(**better))
    assert (chooser.option is not Option.FLOW) is changes


def test_what_was_measured_corrects_the_forecast_of_what_is_in_use() -> None:
    chooser = chooser_of()
    measurements = known([RIGHT] * 64)
    for _ in range(20):
        chooser.took(4, 4 * 0.036, measurements)
    for _ in range(2):
        chooser.decide(forecasts_of(recent_s=0.030, flow=0.030, pipesd=0.09, alone=0.033))
    assert chooser.choice is not None
    assert chooser.choice.predicted_tpt_s[Option.FLOW] == pytest.approx(0.036)
    assert chooser.option is Option.CLOUD_ONLY


def test_in_doubt_it_stays_with_what_was_measured_to_be_fast() -> None:
    chooser = chooser_of()
    measurements = known([RIGHT] * 64)
    for _ in range(20):
        chooser.took(4, 4 * 0.020, measurements)
    for _ in range(4):
        chooser.decide(forecasts_of(flow=0.060, pipesd=0.09, alone=0.030))
    assert chooser.option is Option.FLOW


def test_a_price_for_passes_is_weighed_against_time() -> None:
    told = Forecasts(
        {Option.FLOW: Forecast(0.020, 0.8), Option.PIPESD: Forecast(0.025, 0.1)}, None, Thresholds(0.5, 0.3)
    )
    dear, cheap = chooser_of(Objective(0.05)), chooser_of(Objective(0.001))
    for _ in range(2):
        dear.decide(told)
        cheap.decide(told)
    assert (dear.option, cheap.option) == (Option.PIPESD, Option.FLOW)


def test_decisions_need_some_text_and_come_every_so_many_tokens() -> None:
    chooser, measurements = chooser_of(), known([RIGHT] * 10)
    chooser.took(DECIDE_TOKENS, 0.1, measurements)
    assert chooser.evidence(measurements, None) is None, "too little text"
    measurements.text.extend([RIGHT] * 30)
    assert chooser.evidence(measurements, None) is not None
    assert chooser.evidence(measurements, None) is None
    chooser.took(DECIDE_TOKENS - 1, 0.1, measurements)
    assert chooser.evidence(measurements, None) is None


def test_a_draft_that_does_not_suit_is_given_up_and_says_so() -> None:
    chooser, measurements = chooser_of(), known([RIGHT] * 100 + [WRONG] * 39 + [RIGHT])
    chooser.took(DECIDE_TOKENS, 0.1, measurements)
    assert chooser.evidence(measurements, None) is None
    assert chooser.option is Option.CLOUD_ONLY
    assert chooser.choice is not None
    assert "does not suit" in chooser.choice.because
    chooser.begin_request()
    assert chooser.option is Option.CLOUD_ONLY, "another text will not make it another draft"


def turned_off() -> tuple[Chooser, Measurements]:
    chooser, measurements = chooser_of(), known([RIGHT] * 64)
    for _ in range(2):
        chooser.decide(forecasts_of(flow=0.060, pipesd=0.09, alone=0.030))
    assert chooser.option is Option.CLOUD_ONLY
    return chooser, measurements


def test_drafts_that_are_off_are_tried_again_ever_more_rarely() -> None:
    chooser, measurements = turned_off()
    waits = []
    for _ in range(6):
        num_tokens = 0
        while chooser.option is Option.CLOUD_ONLY:
            chooser.took(1, 0.03, measurements)
            num_tokens += 1
        waits.append(num_tokens - 1)
        assert chooser.is_probing
        assert not measurements.text
        chooser.decide(forecasts_of(flow=0.060, pipesd=0.09, alone=0.030))
        assert chooser.option is Option.CLOUD_ONLY, "one decision ends a trial"
    assert waits == [FIRST_PROBE_TOKENS, *(min(FIRST_PROBE_TOKENS << n, LAST_PROBE_TOKENS) for n in range(1, 6))]


def test_a_trial_that_is_worth_it_turns_drafts_on() -> None:
    chooser, measurements = turned_off()
    chooser.took(FIRST_PROBE_TOKENS + 1, 8.0, measurements)
    measurements.text.extend([RIGHT] * 30)
    chooser.took(PROBE_TOKENS - 1, 0.3, measurements)
    assert chooser.evidence(measurements, None) is None, "a trial has its length"
    chooser.took(1, 0.3, measurements)
    assert chooser.evidence(measurements, None) is not None
    chooser.decide(forecasts_of(flow=0.010, pipesd=0.09, alone=0.030))
    assert chooser.option is Option.FLOW
    assert not chooser.is_probing


def test_another_text_is_a_reason_to_try_again() -> None:
    chooser, _ = turned_off()
    chooser.begin_request()
    assert chooser.option is Option.FLOW
    assert chooser.is_probing


def test_a_stint_forgets_what_is_long_ago_and_begins_after_a_change_has_settled() -> None:
    stint = Stint()
    for _ in range(2):
        stint.add(50, 100.0, ())
    assert stint.tpt_s is None
    for _ in range(40):
        stint.add(10, 0.5, [RIGHT])
    assert stint.tpt_s == pytest.approx(0.05)
    assert stint.num_tokens < MEASURED_TOKENS + 10
    assert len(stint.outcomes) == stint.num_tokens / 10
