"""How many draft ids a pass takes where each makes it longer."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.core.block_cut import AcceptanceRate, PassCost, best_cut
from edgedraft.core.events import EAGER, OWN, REQUESTED
from edgedraft.protocol.messages import CommitKind
from edgedraft.types import Assist

from .test_cloud_session import SETTINGS, Session
from .test_cloud_session_drafts import passes


def cost(step_s: float, per_draft_s: float) -> PassCost:
    made = PassCost()
    for num_ids in (0, 4, 1, 9, 2):
        made.add(num_ids, step_s + per_draft_s * num_ids)
    return made


class TestPassCost:
    @given(st.floats(1e-4, 1.0), st.floats(0.0, 0.5))
    def test_a_line_is_found_exactly(self, step_s: float, per_draft_s: float) -> None:
        found = cost(step_s, per_draft_s)

        assert found.per_draft_s == pytest.approx(per_draft_s, abs=1e-9)
        assert found.pass_s(20) == pytest.approx(step_s + 20 * per_draft_s)

    def test_it_is_flat_before_anything_is_known(self) -> None:
        fresh = PassCost()
        assert (fresh.per_draft_s, fresh.pass_s(9)) == (0.0, 0.0)

        for _ in range(5):
            fresh.add(3, 0.03)

        assert (fresh.per_draft_s, fresh.pass_s(9)) == (0.0, pytest.approx(0.03))

    def test_passes_that_others_shared_are_noise_only(self) -> None:
        dice, found = random.Random(1), PassCost()
        for _ in range(400):
            num_ids = dice.randrange(10)
            found.add(num_ids, 0.03 + 0.01 * (num_ids + dice.randrange(10)))

        assert found.per_draft_s == pytest.approx(0.01, rel=0.3)

    def test_it_follows_a_target_that_changes(self) -> None:
        found = cost(0.03, 0.02)
        for num in range(300):
            found.add(num % 7, 0.05 + 0.001 * (num % 7))

        assert found.per_draft_s == pytest.approx(0.001, rel=0.05)
        assert found.pass_s(0) == pytest.approx(0.05, rel=0.05)

    def test_the_first_pass_of_all_warms_up(self) -> None:
        found = PassCost()
        found.add(9, 5.0)
        found.add(0, 0.03)
        found.add(4, 0.03)

        assert (found.per_draft_s, found.pass_s(9)) == (0.0, pytest.approx(0.03))

    def test_a_stall_hardly_counts(self) -> None:
        found = cost(0.03, 0.01)
        found.add(9, 60.0)

        assert found.pass_s(9) < 0.4

    @pytest.mark.parametrize("verify_s", [0.0, -1.0, math.inf, math.nan])
    def test_what_was_not_measured_is_left_out(self, verify_s: float) -> None:
        found = cost(0.03, 0.01)
        found.add(5, verify_s)

        assert found.pass_s(5) == pytest.approx(0.08)


class TestAcceptanceRate:
    def test_it_starts_hopeful_and_comes_to_what_is_seen(self) -> None:
        rate = AcceptanceRate()
        assert rate.rate == pytest.approx(0.8)

        for _ in range(100):
            rate.add(1, then_wrong=True)

        assert rate.rate == pytest.approx(0.5, abs=0.02)

    def test_ids_behind_the_wrong_one_say_nothing(self) -> None:
        rate = AcceptanceRate()
        rate.add(3, then_wrong=False)

        assert rate.rate > 0.8


@given(
    num_waiting=st.integers(0, 32),
    step_s=st.floats(1e-3, 1.0),
    per_draft_s=st.floats(1e-5, 0.5),
    rate=st.floats(0.0, 1.0),
    least=st.integers(0, 1),
)
def test_no_other_number_brings_more_ids_a_second(
    num_waiting: int, step_s: float, per_draft_s: float, rate: float, least: int
) -> None:
    chosen = best_cut(num_waiting, cost(step_s, per_draft_s), rate, least=least)

    def per_second(count: int) -> float:
        return sum(rate**place for place in range(count + 1)) / (step_s + per_draft_s * count)

    assert min(least, num_waiting) <= chosen <= num_waiting
    others = [per_second(count) for count in range(min(least, num_waiting), num_waiting + 1)]
    assert per_second(chosen) == pytest.approx(max(others), rel=1e-6)


@given(st.integers(0, 32), st.floats(0.0, 1.0))
def test_nothing_is_cut_where_ids_are_free_or_no_pass_was_seen(num_waiting: int, rate: float) -> None:
    assert best_cut(num_waiting, cost(0.03, 0.0), rate, least=0) == num_waiting
    assert best_cut(num_waiting, PassCost(), rate, least=0) == num_waiting


class TestInASession:
    def dear(self, **changes: Any) -> Session:
        """A session whose target takes as long for each id as for a pass without any."""
        settings = dataclasses.replace(SETTINGS, pass_cost=cost(0.03, 0.03))
        return Session(settings, prefilled=True, **changes)

    def test_a_long_draft_is_taken_in_pieces(self) -> None:
        settings = dataclasses.replace(SETTINGS, pass_cost=cost(0.03, 0.012))
        session = Session(settings, eager=True)
        session.draft(2, [7, 8, 9, 10, 11], verify=True)

        session.answer(2, 9, CommitKind.BONUS)

        assert passes(session) == [(REQUESTED, (7, 8)), (REQUESTED, (10, 11))]

    def test_the_target_chooses_by_itself_where_that_is_quicker(self) -> None:
        session = self.dear(eager=True, assist=Assist.ALWAYS)
        session.answer(0, 7, CommitKind.OWN)
        session.draft(3, [8, 9])

        session.answer(0, 8, CommitKind.OWN)

        assert passes(session) == [(OWN, ()), (OWN, ()), (EAGER, ())]
        assert session.core.pending.ids == [9], "which is not judged, but compared with what comes"

    def test_without_assist_it_judges_at_least_one(self) -> None:
        session = self.dear(eager=True)
        session.draft(2, [7, 8])

        assert passes(session) == [(EAGER, (7,))]

    def test_a_strategy_that_asks_gets_its_whole_draft_judged(self) -> None:
        session = self.dear()
        session.draft(2, [7, 8, 9], verify=True)

        assert passes(session) == [(REQUESTED, (7, 8, 9))]
