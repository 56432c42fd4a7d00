"""What is learnt of link, models and text from the events of a session."""

from __future__ import annotations

import math

import pytest

from edgedraft.core.events import EdgeCommand, EdgeEvent, LinkUp, MessageReceived, SendToCloud, Start, TokenDrafted
from edgedraft.protocol.messages import Hedge, Timings
from edgedraft.tune.forecast import Outcome
from edgedraft.tune.measuring import DraftLine, Measurements, is_time

from .conftest import commit_of, draft_of, token


def observe(
    measurements: Measurements, event: EdgeEvent, now_s: float, *commands: EdgeCommand, writes_on: bool = True
) -> None:
    measurements.observe(event, commands, now_s, writes_on=writes_on)


def test_tokens_that_travelled_are_met_with_the_text_up_to_the_first_difference() -> None:
    line = DraftLine()
    for position, token_id in enumerate((11, 12, 13, 14), start=5):
        line.drafted(position, token(token_id, confidence=token_id / 100))
    line.sent(draft_of(5, [11, 12, 13, 14]))
    assert line.passed(commit_of(5, [11, 99])) == [Outcome(0.11, is_right=True), Outcome(0.12, is_right=False)]
    assert line.passed(commit_of(7, [13, 14])) == [], "what was drafted behind a wrong token tells nothing"


def test_a_second_way_is_no_part_of_the_line() -> None:
    line = DraftLine()
    line.drafted(5, token(11, confidence=0.5))
    line.sent(draft_of(5, [11]))
    line.drafted(5, token(77, confidence=0.1))  # drafted behind a hedge, and never sent as a Draft
    assert line.passed(commit_of(5, [11])) == [Outcome(0.5, is_right=True)]


def test_where_the_text_takes_the_second_way_the_line_goes_on_with_it() -> None:
    line = DraftLine()
    line.drafted(5, token(11, confidence=0.5))
    line.sent(draft_of(5, [11]))
    line.drafted(6, token(22, confidence=0.8))
    hedge = Hedge(channel=0, incarnation=1, epoch=1, position=5, token_ids=[21, 22], committed_length=5)
    line.sent(hedge)
    line.drafted(7, token(23, confidence=0.7))
    assert line.passed(commit_of(5, [21])) == [Outcome(0.5, is_right=False)]
    line.sent(draft_of(7, [23], epoch=1))
    assert line.passed(commit_of(6, [22, 99])) == [Outcome(0.8, is_right=True), Outcome(0.7, is_right=False)]


def test_another_epoch_begins_another_line() -> None:
    line = DraftLine()
    line.drafted(5, token(11))
    line.drafted(6, token(12))
    line.sent(draft_of(5, [11, 12]))
    line.drafted(6, token(21))
    line.sent(draft_of(6, [21], epoch=1))
    assert [each.token_id for each in line.tokens(5, 3)] == [21]


def test_passes_without_drafts_give_the_targets_own_pace() -> None:
    measurements = Measurements()
    observe(measurements, Start(), 0.0)
    observe(measurements, TokenDrafted(0, 3, token(1)), 0.01)
    observe(measurements, TokenDrafted(0, 4, token(2)), 0.02)
    for number in range(5):
        timings = Timings(0, 30_000, 0, 0, 0)
        observe(measurements, MessageReceived(commit_of(3 + number, [9], timings=timings)), 1.0 + 0.04 * number)
    costs = measurements.costs()
    assert costs is not None
    assert costs.own_s == pytest.approx(0.04)
    assert costs.step_s == pytest.approx(0.03)
    assert costs.draft_s == pytest.approx(0.02)


def test_a_target_that_waits_for_drafts_shows_no_pace() -> None:
    measurements = Measurements()
    observe(measurements, TokenDrafted(0, 3, token(1)), 0.0)
    observe(measurements, TokenDrafted(0, 4, token(1)), 0.1)
    for number in range(5):
        timings = Timings(0, 30_000, 0, 0, 0)
        event = MessageReceived(commit_of(3 + number, [9], timings=timings))
        observe(measurements, event, 1.0 + number, writes_on=False)
    costs = measurements.costs()
    assert costs is not None
    assert costs.own_s == pytest.approx(0.03)


def test_the_first_step_takes_in_the_prompt_and_does_not_count() -> None:
    measurements = Measurements()
    observe(measurements, Start(), 0.0)
    observe(measurements, TokenDrafted(0, 3, token(1, draft_s=5.0)), 5.0)
    assert measurements.draft.draft_s is None
    observe(measurements, TokenDrafted(0, 4, token(1)), 5.02)
    assert measurements.draft.draft_s == pytest.approx(0.02)


def test_a_link_without_samples_is_as_the_handshake_found_it() -> None:
    measurements = Measurements()
    observe(measurements, LinkUp(0, rtt_s=0.08), 0.0)
    observe(measurements, TokenDrafted(0, 3, token(1)), 0.1)
    observe(measurements, TokenDrafted(0, 4, token(1)), 0.1)
    timings = Timings(2_000, 30_000, 0, 0, 0)
    observe(measurements, MessageReceived(commit_of(3, [9], num_judged=1, timings=timings)), 1.0)
    costs = measurements.costs()
    assert costs is not None
    assert (costs.up_s, costs.down_s) == (0.04, 0.04)
    assert costs.step_s == pytest.approx(0.032), "waiting for the worker is part of it"


def test_links_are_learnt_over_requests_whose_clocks_start_anew() -> None:
    """Ten requests of one message each, 30 ms up and down, never a clock that goes back."""
    measurements = Measurements()
    for number in range(10):
        sent_s = 1.0 - 0.05 * number
        observe(measurements, Start(), 0.0)
        observe(measurements, LinkUp(0), 0.0)
        observe(measurements, TokenDrafted(0, 3, token(1)), sent_s, SendToCloud(draft_of(3, [1])))
        timings = Timings(0, 20_000, 20_000, 0, 4)
        commit = commit_of(3, [1, 2], num_judged=1, num_accepted=1, timings=timings)
        observe(measurements, MessageReceived(commit), sent_s + 0.06 + 0.02)
        measurements.link.opened()
    assert measurements.link.num_dropped == 0
    estimate = measurements.link.estimate
    assert estimate is not None
    assert estimate.rtt_s == pytest.approx(0.06)


def test_nothing_is_known_before_anything_happened() -> None:
    measurements = Measurements()
    assert measurements.costs() is None
    assert measurements.acceptance_rate is None
    assert measurements.verify_estimate is None


@pytest.mark.parametrize(("elapsed_s", "expected"), [(0.5, True), (-1.0, False), (31.0, False), (math.nan, False)])
def test_a_difference_of_readings_may_be_no_time(elapsed_s: float, expected: bool) -> None:
    assert is_time(elapsed_s, 30.0) is expected
