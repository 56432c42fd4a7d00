"""Intervals over texts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.bench.bootstrap import ratio_interval, tpt_interval
from edgedraft.errors import InvalidRequestError

RNG = np.random.default_rng
TEXTS = st.lists(st.tuples(st.floats(1, 1e5), st.integers(1, 200)), min_size=1, max_size=30)


@given(TEXTS)
def test_an_interval_lies_within_the_texts_own_times(texts: list[tuple[float, int]]) -> None:
    totals_ms, tokens = zip(*texts, strict=True)
    low, high = tpt_interval(totals_ms, tokens, RNG(0))
    each = [total / count for total, count in texts]
    assert min(each) * (1 - 1e-9) <= low <= high <= max(each) * (1 + 1e-9)


def test_equal_texts_leave_no_doubt_and_unequal_ones_do() -> None:
    assert tpt_interval([50.0] * 10, [5] * 10, RNG(0)) == (10.0, 10.0)
    low, high = tpt_interval([50.0, 100.0] * 5, [5] * 10, RNG(0))
    assert low < 15.0 < high
    assert (low, high) == tpt_interval([50.0, 100.0] * 5, [5] * 10, RNG(0)), "same seed, same interval"


def test_more_texts_narrow_the_interval_as_their_root() -> None:
    values = RNG(1).normal(100, 10, size=900)
    few = tpt_interval(values[:100].tolist(), [1] * 100, RNG(0))
    many = tpt_interval(values.tolist(), [1] * 900, RNG(0))
    assert (few[1] - few[0]) / (many[1] - many[0]) == pytest.approx(3, rel=0.25)


@given(TEXTS)
def test_a_ratio_is_paired(texts: list[tuple[float, int]]) -> None:
    """Twice the time on every text is a ratio of two, without doubt, however unequal the texts are."""
    totals_ms, tokens = zip(*texts, strict=True)
    low, high = ratio_interval([2 * total for total in totals_ms], tokens, totals_ms, tokens, RNG(0))
    assert (low, high) == (pytest.approx(2.0), pytest.approx(2.0))


def test_no_texts_and_unequal_numbers_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="no texts"):
        tpt_interval([], [], RNG(0))
    with pytest.raises(InvalidRequestError, match="2 texts with 2 times and 1 lengths"):
        tpt_interval([1.0, 2.0], [1], RNG(0))
    with pytest.raises(InvalidRequestError, match="2 texts with 1 times"):
        ratio_interval([1.0, 2.0], [1, 1], [1.0], [1, 1], RNG(0))
