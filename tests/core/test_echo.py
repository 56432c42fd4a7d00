"""Guesses from the text so far."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgedraft.core.echo import LONGEST, MOST_IDS, SHORTEST, Echo


def by_search(ids: list[int], most: int) -> list[int]:
    """The same, by looking through the text from its end."""
    for num_ids in range(min(LONGEST, len(ids)), SHORTEST - 1, -1):
        for end in range(len(ids) - 1, num_ids - 1, -1):
            if ids[end - num_ids : end] == ids[len(ids) - num_ids :]:
                return ids[end : end + min(most, MOST_IDS)]
    return []


@given(st.lists(st.integers(0, 3), max_size=60), st.lists(st.integers(1, 7), max_size=20), st.integers(1, 12))
def test_it_guesses_what_followed_the_longest_run_the_last_time(ids: list[int], steps: list[int], most: int) -> None:
    echo, length = Echo(), 0
    for step in [*steps, 60]:
        length = min(length + step, len(ids))
        assert list(echo.guess(ids[:length], most)) == by_search(ids[:length], most)


def test_a_text_without_repeats_gives_no_guess() -> None:
    assert list(Echo().guess([1, 2, 3, 4, 5, 6], 8)) == []


def test_nothing_is_guessed_where_nothing_is_wanted() -> None:
    assert list(Echo().guess([1, 2, 3, 1, 2], 0)) == []
    assert list(Echo().guess([1, 2, 3, 1, 2], -3)) == []
