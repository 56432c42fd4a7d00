"""Declared times of the models."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest

from edgedraft.errors import InvalidRequestError
from edgedraft.sim.compute import EdgeProfile, TargetProfile


def test_draft_step_without_jitter_takes_its_time_and_no_dice() -> None:
    dice = Random(1)
    before = dice.getstate()
    assert EdgeProfile(draft_s=0.03).step_s(dice) == 0.03
    assert dice.getstate() == before


def test_jitter_is_relative_keeps_the_mean_and_follows_the_seed() -> None:
    profile = EdgeProfile(draft_s=0.1, draft_jitter=0.2)
    steps = [profile.step_s(dice) for dice in [Random(5)] for _ in range(4000)]
    assert 0.08 <= min(steps) < 0.081
    assert 0.119 < max(steps) <= 0.12
    assert sum(steps) / len(steps) == pytest.approx(0.1, rel=0.01)
    assert profile.step_s(Random(5)) == steps[0]


def test_ids_beyond_the_first_and_those_of_the_prompt_are_taken_in_first() -> None:
    profile = EdgeProfile(draft_s=1.0, append_s_per_token=0.1, prefill_s_per_token=0.01)
    assert profile.taking_in_s(1, 0) == 0.0
    assert profile.taking_in_s(3, 0) == pytest.approx(0.2)
    assert profile.taking_in_s(50, 50) == pytest.approx(0.5)
    assert profile.taking_in_s(53, 50) == pytest.approx(0.7)


def test_pass_grows_with_drafts_and_sessions() -> None:
    target = TargetProfile(step_s=0.03, per_draft_s=0.001, per_session_s=0.01)
    assert target.pass_s([0]) == 0.03
    assert target.pass_s([5]) == pytest.approx(0.035)
    assert target.pass_s([5, 0, 3]) == pytest.approx(0.058)


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("draft_s", lambda: EdgeProfile(draft_s=-1)),
        ("draft_jitter", lambda: EdgeProfile(draft_s=1, draft_jitter=1)),
        ("append_s_per_token", lambda: EdgeProfile(draft_s=1, append_s_per_token=math.nan)),
        ("prefill_s_per_token", lambda: EdgeProfile(draft_s=1, prefill_s_per_token=math.inf)),
        ("step_s", lambda: TargetProfile(step_s=-0.1)),
        ("per_draft_s", lambda: TargetProfile(step_s=1, per_draft_s=-1)),
        ("per_session_s", lambda: TargetProfile(step_s=1, per_session_s=-1)),
        ("prefill_s_per_token", lambda: TargetProfile(step_s=1, prefill_s_per_token=-1)),
        ("prefill_chunk_tokens", lambda: TargetProfile(step_s=1, prefill_chunk_tokens=0)),
    ],
)
def test_bad_profile_names_the_field(field: str, make: Callable[[], object]) -> None:
    with pytest.raises(InvalidRequestError, match=f"^{field} is ") as caught:
        make()
    assert caught.value.field == field
