"""The costs are measured on the real things; how large they are is for `bench overhead` to say."""

from __future__ import annotations

import pytest

from edgedraft.bench import control_cost


def test_every_cost_is_measured_on_work_that_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[int] = []
    monkeypatch.setattr(control_cost, "plan_batches", lambda num_tokens, cost, draft_s: planned.append(num_tokens))
    assert control_cost.plan_s() > 0
    assert planned == [control_cost.PLAN_TOKENS] * control_cost.NUM_PLANS


def test_the_last_suggestion_is_timed_and_not_the_refusal_after_it() -> None:
    assert control_cost.suggestion_s() > 1e-5


def test_steering_is_watched_over_whole_requests() -> None:
    assert control_cost.control_s_per_drafted_token("pipesd") > 0
