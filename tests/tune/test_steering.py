"""Steering by hand: events in, changes of strategy out. (How it does in whole requests: tests/sim/test_steering.py.)"""

from __future__ import annotations

import numpy as np
import pytest

from edgedraft.core.events import LinkUp, MessageReceived, SendToCloud, Start, StrategyChanged, TokenDrafted
from edgedraft.core.strategy import Strategy
from edgedraft.core.triggers import DualThreshold
from edgedraft.metrics.records import ControlRecord
from edgedraft.protocol.messages import Timings
from edgedraft.schedule.catalogue import auto, flow, pipesd, vanilla
from edgedraft.tune.choice import Objective
from edgedraft.tune.search import Thresholds
from edgedraft.tune.steering import Knowledge, Steering
from edgedraft.types import Assist

from .conftest import commit_of, draft_of, token

GOOD = Thresholds(0.6, 0.35)


def knowledge_of(held: Thresholds | None = None) -> Knowledge:
    return Knowledge(np.random.default_rng(0), held=held)


def begin(steering: Steering) -> Strategy | None:
    """What the session is told to begin with instead."""
    change = steering.observe(Start(), (), 0.0)
    steering.observe(LinkUp(0, rtt_s=0.02), (), 0.0)
    return change.strategy if isinstance(change, StrategyChanged) else None


class Request:
    """Rounds of four draft tokens and one of the target's, each `round_s` long."""

    def __init__(self, steering: Steering, *, confidence: float = 0.95, is_right: bool = True) -> None:
        self.steering = steering
        self.changes: list[Strategy] = []
        self._confidence = confidence
        self._is_right = is_right
        self._position, self._now_s = 10, 1.0

    def round(self, round_s: float = 0.2) -> None:
        self._now_s += 0.01 * (self._position % 7)  # rounds of one length would tell nothing of the link
        ids = [self._position + offset for offset in range(4)]
        for offset, token_id in enumerate(ids):
            drafted = TokenDrafted(0, self._position + offset, token(token_id, self._confidence))
            self._tell(drafted, 0.02)
        sent = draft_of(self._position, ids)
        self._tell(TokenDrafted(9, 0, None), 0.0, SendToCloud(sent))
        num_accepted = 4 if self._is_right else 0
        text = [*ids, 1] if self._is_right else [2]
        timings = Timings(0, 30_000, 30_000, round(self._now_s * 1e6), self._position + 4)
        commit = commit_of(self._position, text, num_judged=4, num_accepted=num_accepted, timings=timings)
        self._position += len(text)
        self._tell(MessageReceived(commit), round_s - 0.08)

    def _tell(self, event: object, after_s: float, *commands: SendToCloud) -> None:
        self._now_s += after_s
        change = self.steering.observe(event, commands, self._now_s)  # type: ignore[arg-type]
        if isinstance(change, StrategyChanged):
            self.changes.append(change.strategy)


def test_a_strategy_that_the_caller_made_keeps_its_numbers_and_is_measured() -> None:
    steering = Steering(knowledge_of(), pipesd(token_threshold=0.7), by_name=False)
    assert begin(steering) is None
    request = Request(steering)
    for _ in range(60):
        request.round()
    assert request.changes == []
    record = steering.record()
    assert record.draft_step_s == pytest.approx(0.02)
    assert record.verify_step_s == pytest.approx(0.03)
    assert record.link is not None
    assert record.tuner is record.choice is None


def test_strategies_without_a_choice_are_left_alone() -> None:
    steering = Steering(knowledge_of(), vanilla(4))
    assert begin(steering) is None
    request = Request(steering)
    for _ in range(60):
        request.round()
    assert request.changes == []


def test_pipesd_is_tuned_and_begins_the_next_request_with_what_was_found() -> None:
    knowledge = knowledge_of()
    steering = Steering(knowledge, pipesd())
    assert begin(steering) is not None, "the tuner's first pair"
    request = Request(steering)
    for _ in range(16 * 6):
        request.round()
    state = knowledge.tuning.state
    assert state is not None
    assert state.num_trials == 16
    assert steering.is_tuned
    assert len({change.trigger for change in request.changes}) > 3
    following = Steering(knowledge, pipesd())
    first = begin(following)
    assert first is not None
    found = state.current
    assert first.trigger == DualThreshold(token_threshold=found.token, sequence_threshold=found.sequence)


def test_uploads_are_planned_with_the_window_and_said() -> None:
    steering = Steering(knowledge_of(GOOD), pipesd())
    begin(steering)
    request = Request(steering)
    for _ in range(30):
        request.round()
    assert steering.record().num_replans >= 1
    assert any("plans uploads anew" in line for line in steering.take_news())
    assert steering.take_news() == []
    for change in request.changes:
        assert change.name == "pipesd"


def test_auto_goes_on_without_a_draft_that_is_never_right_and_nothing_is_opened_anew() -> None:
    steering = Steering(knowledge_of(), auto())
    begin(steering)
    request = Request(steering, is_right=False)
    for _ in range(60):
        request.round()
    last = request.changes[-1]
    assert (last.name, last.uses_draft, last.terms) == ("cloud-only", False, auto().terms)
    choice = steering.record().choice
    assert choice is not None
    assert choice["choice"] == "cloud-only"
    assert "does not suit" in str(choice["because"])


def test_objective_cost_begins_with_pipesd() -> None:
    steering = Steering(knowledge_of(GOOD), auto(), objective=Objective.of("cost"))
    first = begin(steering)
    assert first is not None
    assert (first.name, first.assist, first.eager) == ("pipesd", Assist.NONE, False)
    steering = Steering(knowledge_of(GOOD), flow(), objective=Objective.of("cost"))
    first = begin(steering)
    assert first is not None
    assert (first.name, first.assist) == ("flow", Assist.NONE)


def test_work_is_handed_out_once_at_a_time_and_decoding_goes_on() -> None:
    knowledge = knowledge_of()
    steering = Steering(knowledge, pipesd(), inline=False)
    begin(steering)
    request = Request(steering)
    while not knowledge.tuning.needs_suggestion:
        request.round()
        assert steering.work() is None or knowledge.tuning.needs_suggestion
    knowledge.is_working = False
    work = steering.work()
    assert work is not None
    assert steering.work() is None
    request.round()
    before = knowledge.tuning.thresholds
    change = steering.worked(work())
    assert isinstance(change, StrategyChanged)
    assert knowledge.tuning.thresholds != before
    assert not knowledge.is_working


def test_work_that_failed_is_not_handed_out_again() -> None:
    knowledge = knowledge_of()
    steering = Steering(knowledge, pipesd(), inline=False)
    begin(steering)
    request = Request(steering)
    while steering.work() is None:
        request.round()
    assert steering.worked(None) is None
    for _ in range(20):
        request.round()
        assert steering.work() is None


def test_an_older_request_no_longer_teaches_nor_changes() -> None:
    knowledge = knowledge_of(GOOD)
    older, newer = Steering(knowledge, pipesd()), Steering(knowledge, pipesd())
    begin(older)
    begin(newer)
    request = Request(older)
    for _ in range(10):
        request.round()
    assert request.changes == []
    assert knowledge.measurements.draft.num_samples == 0


def test_stalls_and_clocks_that_jump_do_no_harm() -> None:
    knowledge = knowledge_of()
    steering = Steering(knowledge, auto())
    begin(steering)
    request = Request(steering)
    for number in range(80):
        request.round(round_s=(0.2, 0.2, 40.0, -3.0)[number % 4])
    record = steering.record()
    assert record.choice is not None
    assert record.choice["predicted_tpt_ms"]["flow"] < 100  # type: ignore[index]
    assert record.draft_step_s == pytest.approx(0.02)


def test_nothing_measured_is_none() -> None:
    assert Steering(knowledge_of(), auto()).record() == ControlRecord()
