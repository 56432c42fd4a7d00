"""Intervals cover what they promise, pairs stay pairs, and a share of too small a gap is not given."""

from __future__ import annotations

import numpy as np
import pytest

from edgedraft.caption.intervals import Interval, gap_closed, interval, ratio_interval
from edgedraft.caption.scoring import NUM_COLUMNS, CaptionScores, Metric
from edgedraft.caption.tokens import Tokenisation
from edgedraft.errors import InvalidRequestError
from edgedraft.types import Float64Array

LENGTH = 20.0


def _scores(right: Float64Array, **changed: object) -> CaptionScores:
    """Captions of twenty tokens, of which `right` are right; METEOR and ROUGE-L are given the same share."""
    rows = np.zeros((len(right), NUM_COLUMNS))
    rows[:, :4] = right[:, None]
    rows[:, 4:10] = LENGTH
    rows[:, 10:] = right[:, None] / LENGTH
    told = {"tokenisation": Tokenisation.EN_13A, "meteor_matching": "equal words", "statistics": rows}
    return CaptionScores(**{**told, **changed})  # type: ignore[arg-type]


def _right(rng: np.random.Generator, share: float, count: int = 200) -> Float64Array:
    return rng.binomial(int(LENGTH), share, size=count).astype(np.float64)


def test_an_interval_is_that_of_drawing_captions_with_replacement() -> None:
    right = _right(np.random.default_rng(0), 0.7)
    found = interval(_scores(right), Metric.BLEU_1, np.random.default_rng(1), num_resamples=4000)
    rng = np.random.default_rng(2)
    means = [100 * rng.choice(right, size=len(right)).mean() / LENGTH for _ in range(4000)]
    assert found.value == pytest.approx(100 * right.mean() / LENGTH)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])), abs=0.15)


def test_intervals_cover_the_true_score_about_95_times_in_100() -> None:
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(300):
        found = interval(_scores(_right(rng, 0.7, 100)), Metric.ROUGE_L, rng, num_resamples=300)
        hits += found.low <= 70.0 <= found.high
    assert 0.90 <= hits / 300 <= 0.98


def test_the_same_generator_gives_the_same_interval() -> None:
    scores = _scores(_right(np.random.default_rng(0), 0.5))
    twice = [interval(scores, Metric.BLEU_4, np.random.default_rng(9)) for _ in range(2)]
    assert twice[0] == twice[1]


def test_intervals_apart() -> None:
    low, middle, high = (Interval(value=v, low=v - 1, high=v + 1) for v in (1.0, 2.5, 3.5))
    assert low.apart(high)
    assert high.apart(low)
    assert not low.apart(middle)
    assert str(high) == "3.5 [2.5, 4.5]"


def test_the_share_of_the_gap_that_a_system_closes() -> None:
    rng = np.random.default_rng(0)
    edge = _right(rng, 0.6)
    cloud = edge + rng.integers(1, 4, size=len(edge))
    system = np.where(np.arange(len(edge)) % 4 == 0, edge, cloud)
    found = gap_closed(_scores(system), _scores(edge), _scores(cloud), Metric.BLEU_1, rng)
    assert found.reason == ""
    assert found.gap.value == pytest.approx(10.0, abs=1.0)
    assert found.share is not None
    assert found.share.value == pytest.approx((system - edge).sum() / (cloud - edge).sum())
    assert 0.6 < found.share.low < found.share.value < found.share.high < 0.9


def test_the_ends_close_nothing_and_everything() -> None:
    rng = np.random.default_rng(0)
    edge, cloud = _scores(_right(rng, 0.5)), _scores(_right(rng, 0.8))
    nothing = gap_closed(edge, edge, cloud, Metric.METEOR, rng).share
    everything = gap_closed(cloud, edge, cloud, Metric.METEOR, rng).share
    assert nothing == Interval(value=0.0, low=0.0, high=0.0)
    assert everything == Interval(value=1.0, low=1.0, high=1.0)


def test_no_share_of_a_gap_below_four_points() -> None:
    rng = np.random.default_rng(0)
    edge = _right(rng, 0.5)
    below, at_least = edge + (np.arange(len(edge)) % 10 < 7), edge + 1
    found = gap_closed(_scores(below), _scores(edge), _scores(below), Metric.BLEU_1, rng)
    assert found.share is None
    assert found.reason == "the cloud is only 3.5 points above the edge; a share needs 4"
    assert found.gap.value == pytest.approx(3.5)
    assert gap_closed(_scores(below), _scores(edge), _scores(at_least), Metric.BLEU_1, rng).share is not None


def test_no_share_of_a_gap_that_may_be_none() -> None:
    """Three recordings, one of them much worse in the cloud: seven points on average, and nothing is known."""
    edge, cloud = _scores(np.array([5.0, 5.0, 15.0])), _scores(np.array([10.0, 10.0, 9.0]))
    found = gap_closed(cloud, edge, cloud, Metric.BLEU_1, np.random.default_rng(0))
    assert found.gap.value > 4
    assert found.share is None
    assert "with 3 captions the gap could be none" in found.reason


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokenisation": Tokenisation.ZH_WORDS}, "tokenisation is zh_words on one side and en_13a"),
        ({"meteor_matching": "equal words, stems"}, "meteor_matching is equal words, stems on one side"),
        ({"statistics": np.ones((3, NUM_COLUMNS))}, "num_captions is 3 on one side and 200"),
    ],
)
def test_scores_that_are_no_pair_are_not_compared(changed: dict[str, object], message: str) -> None:
    right = _right(np.random.default_rng(0), 0.5)
    with pytest.raises(InvalidRequestError, match=message):
        gap_closed(_scores(right), _scores(right, **changed), _scores(right), Metric.BLEU_1, np.random.default_rng(0))
    with pytest.raises(InvalidRequestError):
        gap_closed(_scores(right, **changed), _scores(right), _scores(right), Metric.BLEU_1, np.random.default_rng(0))


def test_no_resamples_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="num_resamples is 0"):
        interval(_scores(np.ones(3)), Metric.BLEU_1, np.random.default_rng(0), num_resamples=0)


def test_ratio_is_of_sums_and_its_interval_holds_it() -> None:
    above, below = np.array([1.0, 3.0, 2.0]), np.array([2.0, 4.0, 2.0])
    ratio = ratio_interval(above, below, np.random.default_rng(0))
    assert ratio.value == pytest.approx(0.75)
    assert ratio.low <= ratio.value <= ratio.high <= 1.0
    assert ratio_interval(np.zeros(2), np.zeros(2), np.random.default_rng(0)).value == 0.0
