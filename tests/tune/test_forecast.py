"""Forecasts against what can be worked out by hand, and what must hold whatever the text and the costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.tune.forecast import Costs, Forecast, Outcome, cloud_only, flow, pipesd
from edgedraft.tune.search import Thresholds
from edgedraft.types import Assist

NEVER = Thresholds(1e-6, 1e-6)
SURE, UNSURE = Outcome(0.999, is_right=True), Outcome(0.2, is_right=True)


def costs_of(**changes: float) -> Costs:
    given_s = {"draft_s": 0.01, "startup_s": 0.0, "per_token_s": 0.0, "up_s": 0.05, "down_s": 0.05}
    return Costs(**{**given_s, "step_s": 0.03, "per_id_s": 0.0, "own_s": 0.03, **changes})


def test_the_cloud_alone_takes_a_step_and_a_pass_a_token() -> None:
    assert cloud_only(costs_of(own_s=0.04)) == Forecast(0.04, 1.0)


def test_a_round_of_pipesd_is_its_drafts_and_one_answer() -> None:
    """Ten tokens, the last one low: 10 steps, up, a pass with 10 ids, down."""
    text = [SURE] * 9 + [Outcome(0.1, is_right=False)]
    told = pipesd(text, costs_of(per_id_s=0.001), Thresholds(0.5, 1e-6))
    assert told.tpt_s == pytest.approx((10 * 0.01 + 0.05 + 0.03 + 10 * 0.001 + 0.05) / 10)
    assert told.passes_per_token == 1 / 10


def test_look_ahead_hides_the_answer_where_the_guess_is_right() -> None:
    """Thresholds that fire at the same two places: behind a right guess drafting goes on, behind a wrong one anew."""
    reused = [SURE] * 5 + [UNSURE] + [SURE] * 30
    dropped = [SURE] * 5 + [UNSURE, Outcome(0.999, is_right=False)] + [SURE] * 29
    thresholds = Thresholds(0.5, 1e-6)
    assert pipesd(reused, costs_of(), thresholds).tpt_s < pipesd(dropped, costs_of(), thresholds).tpt_s - 1e-3


def test_flow_with_a_perfect_draft_is_as_fast_as_it_drafts() -> None:
    assert flow([SURE] * 400, costs_of(), Assist.ALWAYS).tpt_s == pytest.approx(0.01, rel=0.1)


def test_flow_with_a_useless_draft_is_the_cloud_alone() -> None:
    told = flow([Outcome(0.9, is_right=False)] * 100, costs_of(), Assist.ALWAYS)
    assert told.tpt_s == pytest.approx(0.03, rel=0.01)
    assert told.passes_per_token == 1.0


def test_without_assist_every_wrong_token_costs_a_round_trip() -> None:
    told = flow([Outcome(0.9, is_right=False)] * 100, costs_of(), Assist.NONE)
    assert told.tpt_s == pytest.approx(0.01 + 0.05 + 0.03 + 0.05, rel=0.02)


def test_a_guess_that_the_answer_overtakes_is_not_drafted_twice() -> None:
    """Six steps of a second, an answer during the seventh, and on behind what it brought."""
    text = [SURE] * 5 + [UNSURE] + [SURE] * 6
    told = pipesd(text, costs_of(draft_s=1.0), Thresholds(0.5, 1e-6))
    assert told.tpt_s * 12 == pytest.approx(6 + 1 + 5 + 1, abs=0.2)


def test_in_the_bubble_the_target_writes_and_otherwise_it_waits() -> None:
    text = ([SURE] * 8 + [Outcome(0.9, is_right=False)]) * 20
    none, bubble, always = (flow(text, costs_of(draft_s=0.05), assist) for assist in Assist)
    assert none.passes_per_token < bubble.passes_per_token < always.passes_per_token
    assert none.tpt_s > bubble.tpt_s > always.tpt_s


def test_the_cloud_judges_no_more_at_once_than_is_worth_it() -> None:
    """Hardly half of the ids are right, and each takes as long as a pass: then none is judged at all."""
    text = [Outcome(0.9, is_right=place % 5 < 2) for place in range(100)]
    told = flow(text, costs_of(draft_s=0.001, per_id_s=0.03), Assist.ALWAYS)
    assert told.tpt_s == pytest.approx(0.03, rel=0.05)
    assert told.passes_per_token == 1.0


def test_a_pass_that_grows_with_its_ids_makes_flow_slower() -> None:
    text = ([SURE] * 9 + [Outcome(0.3, is_right=False)]) * 10
    assert flow(text, costs_of(per_id_s=0.01), Assist.ALWAYS).tpt_s > flow(text, costs_of(), Assist.ALWAYS).tpt_s


def test_a_target_pass_has_its_price() -> None:
    assert Forecast(0.02, 0.5).price_s(0.01) == 0.025


seconds = st.floats(1e-4, 0.5)
texts = st.lists(st.builds(Outcome, st.floats(0.01, 1.0), st.booleans()), min_size=1, max_size=60)
all_costs = st.builds(
    Costs,
    draft_s=seconds,
    startup_s=st.floats(0, 0.1),
    per_token_s=st.floats(0, 0.1),
    up_s=st.floats(0, 0.5),
    down_s=st.floats(0, 0.5),
    step_s=seconds,
    per_id_s=st.floats(0, 0.05),
    own_s=seconds,
)


@given(texts, all_costs, st.sampled_from(list(Assist)), st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_every_text_comes_to_its_end_in_a_time_above_zero(
    text: list[Outcome], costs: Costs, assist: Assist, token: float, sequence: float
) -> None:
    for told in (flow(text, costs, assist), pipesd(text, costs, Thresholds(token, sequence))):
        assert 0.0 < told.tpt_s < 1e3
        assert 0.0 < told.passes_per_token <= 1.0
