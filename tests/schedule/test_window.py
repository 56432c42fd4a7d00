"""The planning window follows the drafts."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.errors import InvalidRequestError
from edgedraft.schedule.window import DraftWindow


def test_twenty_before_the_first_draft() -> None:
    window = DraftWindow()
    assert window.num_tokens == 20
    window.add(4)
    assert window.num_tokens == 4


@pytest.mark.parametrize(("lengths", "expected"), [([2, 3], 3), ([4, 5], 5), ([1, 1, 2], 1), ([1, 2, 2], 2), ([1], 1)])
def test_halves_are_rounded_up(lengths: list[int], expected: int) -> None:
    window = DraftWindow()
    for length in lengths:
        window.add(length)
    assert window.num_tokens == expected


def test_only_the_last_hundred_count() -> None:
    window = DraftWindow()
    for length in [60] * 50 + [8] * 100:
        window.add(length)
    assert window.num_tokens == 8


def test_a_question_without_a_draft_is_not_counted() -> None:
    window = DraftWindow()
    for length in (6, 0, 0):
        window.add(length)
    assert window.num_tokens == 6


@given(st.lists(st.integers(1, 64), min_size=1, max_size=250), st.integers(1, 120))
def test_it_is_the_rounded_mean(lengths: list[int], num_rounds: int) -> None:
    window = DraftWindow(num_rounds=num_rounds)
    for length in lengths:
        window.add(length)
    kept = lengths[-num_rounds:]
    assert window.num_tokens == math.floor(Fraction(sum(kept), len(kept)) + Fraction(1, 2)) >= 1


@pytest.mark.parametrize("field", ["first_tokens", "num_rounds"])
def test_bad_sizes_are_refused(field: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"{field} is 0; legal: 1 or more"):
        DraftWindow(**{field: 0})
