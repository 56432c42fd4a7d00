"""Thresholds played over a text that others drafted, against playing them one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgedraft.tune.foresight import Foresight
from edgedraft.types import DraftToken

THRESHOLDS = np.array([[0.02, 0.02], [0.3, 0.6], [0.6, 0.3], [0.9, 0.95], [0.999, 0.5]])


def drafted(*confidences: float) -> list[DraftToken]:
    return [DraftToken(1, confidence, 0.5) for confidence in confidences]


def played_alone(text: list[tuple[float, bool]], token: float, sequence: float, cap: int) -> tuple[int, int, int]:
    """Rounds, drafted tokens and committed tokens of one pair, one round after another; the last may be unfinished."""
    rounds = drafted = start = tokens = 0
    while start < len(text):
        product, length, wrong = 1.0, 0, None
        for confidence, is_right in text[start:]:
            product *= confidence
            length += 1
            if wrong is None and not is_right:
                wrong = length
            if confidence <= token or product <= sequence or length >= cap:
                break
        else:
            if wrong is None:  # not fired yet: drafted, not judged
                return rounds, drafted + length, tokens + length
        rounds += 1
        drafted += length
        tokens += length + 1 if wrong is None else wrong
        start += length if wrong is None else wrong
    return rounds, drafted, tokens


@given(
    before=st.lists(st.floats(0.5, 1), max_size=30),
    after=st.lists(st.floats(0.5, 1), max_size=30),
    wrong=st.floats(0.1, 1),
)
@settings(max_examples=60)
def test_every_pair_is_played_as_if_alone(before: list[float], after: list[float], wrong: float) -> None:
    text = [(each, True) for each in before] + [(wrong, False)] + [(each, True) for each in after]
    foresight = Foresight(THRESHOLDS, max_draft_tokens=8)
    foresight.saw(drafted(*before, wrong), len(before))
    foresight.saw(drafted(*after), len(after))
    for index, (token, sequence) in enumerate(THRESHOLDS.tolist()):
        counts = (foresight._rounds[index], foresight._drafted[index], foresight._tokens[index])
        assert counts == played_alone(text, token, sequence, cap=8)


def test_tokens_behind_the_wrong_one_are_not_of_the_text() -> None:
    one, other = Foresight(THRESHOLDS), Foresight(THRESHOLDS)
    one.saw(drafted(0.9, 0.2, 0.8, 0.7), 1)
    other.saw(drafted(0.9, 0.2), 1)
    assert (one._drafted == other._drafted).all()


def test_a_confidence_at_the_threshold_fires() -> None:
    foresight = Foresight(np.array([[0.5, 0.1], [0.1, 0.5], [0.4, 0.4]]))
    foresight.saw(drafted(0.5, 0.9), 2)
    assert foresight._rounds.tolist() == [1, 1, 0]


def test_the_costs_of_a_round_and_of_a_token_are_told_apart() -> None:
    foresight = Foresight(THRESHOLDS)
    for length in (2, 5, 9):
        foresight.saw(drafted(*[0.9] * length), length)
        foresight.timed(length, length + 1, 0.1 + 0.02 * length)
    foresight.end_stretch()
    every, ended = foresight.log_times()
    assert np.exp(ended) == pytest.approx([(3 * 0.1 + 16 * 0.02) / 19], rel=1e-6)
    # The pair that fires at once drafts one token a round and commits it and the bonus token.
    assert np.exp(every[4]) == pytest.approx((0.1 + 0.02) / 2, rel=1e-6)


@pytest.mark.parametrize("rounds", [[], [(4, 0.5)], [(4, 0.5), (4, 0.7)], [(2, 0.9), (6, 0.1)], [(0, 0.3)], [(3, 0.0)]])
def test_costs_that_cannot_be_told_apart_are_still_numbers(rounds: list[tuple[int, float]]) -> None:
    foresight = Foresight(THRESHOLDS)
    for num_drafted, elapsed_s in rounds:
        foresight.saw(drafted(*[0.9] * num_drafted), num_drafted)
        foresight.timed(num_drafted, num_drafted + 1, elapsed_s)
    foresight.end_stretch()
    every, ended = foresight.log_times()
    assert np.isfinite(every).all()
    assert np.isfinite(ended).all()
    assert min(foresight._costs()) >= 0


def test_after_drift_a_tenth_of_the_text_stays_and_the_costs_go() -> None:
    foresight = Foresight(THRESHOLDS)
    foresight.saw(drafted(0.9, 0.8, 0.95), 3)
    foresight.timed(3, 4, 5.0)
    foresight.end_stretch()
    other = foresight.after_drift()
    assert other._drafted == pytest.approx(0.1 * foresight._drafted)
    assert other._tokens == pytest.approx(0.1 * foresight._tokens)
    assert other.log_times()[1].size == 0
    before = foresight._drafted.copy()
    other.saw(drafted(0.5), 0)
    assert (foresight._drafted == before).all()  # a copy: the old one may still be read by a thread
    assert foresight.log_times()[1].size == 1
