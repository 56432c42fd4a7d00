from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.core.gate import Chance, Everything, Measure, Nothing, SendUnit, Threshold
from edgedraft.core.gating import Gating
from edgedraft.errors import InvalidRequestError
from edgedraft.types import DraftToken


def token(entropy: float = 0.5, confidence: float = 0.8, second: float = 0.1) -> DraftToken:
    return DraftToken(1, confidence, entropy, second_id=2, second_confidence=second)


@pytest.mark.parametrize(
    ("measure", "value"),
    [
        (Measure.ENTROPY, 0.5),
        (Measure.MAX_PROBABILITY, 0.8),
        (Measure.MARGIN, math.log(8.0)),
        (Measure.LOG_PROBABILITY, math.log(0.8)),
    ],
)
def test_the_comparison_is_strict(measure: Measure, value: float) -> None:
    """UGSD: escalate iff the highest entropy is above the threshold, not at it."""
    assert measure.of(token()) == pytest.approx(value)
    exactly = measure.of(token())
    assert not Threshold(measure, exactly).doubts(token(), 0)
    surer = math.nextafter(exactly, -math.inf if measure.rises else math.inf)
    assert Threshold(measure, surer).doubts(token(), 0)


def test_a_token_without_a_rival_is_not_doubted_for_its_margin() -> None:
    assert not Threshold(Measure.MARGIN, 100.0).doubts(token(confidence=1.0, second=0.0), 0)


def test_a_threshold_is_a_number() -> None:
    with pytest.raises(InvalidRequestError, match="threshold"):
        Threshold(Measure.ENTROPY, math.nan)


def test_everything_nothing_and_chance() -> None:
    assert Everything().doubts(token(), 3)
    assert not Nothing().doubts(token(), 3)
    doubted = [Chance(0.25, seed=1).doubts(token(), position) for position in range(4000)]
    assert 0.22 < sum(doubted) / 4000 < 0.28
    assert doubted == [Chance(0.25, seed=1).doubts(token(), position) for position in range(4000)]
    assert doubted != [Chance(0.25, seed=2).doubts(token(), position) for position in range(4000)]
    with pytest.raises(InvalidRequestError, match="share"):
        Chance(1.5)


@given(st.lists(st.floats(0, 2), min_size=1, max_size=9), st.floats(0, 2), st.integers(2, 50))
def test_a_block_is_escalated_by_its_highest_entropy(entropies: list[float], threshold: float, start: int) -> None:
    block = [token(entropy) for entropy in entropies]
    gate = Threshold(Measure.ENTROPY, threshold)
    doubted = [start + offset for offset, entropy in enumerate(entropies) if entropy > threshold]
    end = start + len(block)
    assert Gating(gate=gate, unit=SendUnit.TOKENS).judged(block, start, []) == doubted
    whole = Gating(gate=gate, unit=SendUnit.BLOCK).judged(block, start, [])
    assert whole == (list(range(start, end)) if max(entropies) > threshold else [])
    from_first = Gating(gate=gate, unit=SendUnit.FROM_FIRST).judged(block, start, [])
    assert from_first == (list(range(doubted[0], end)) if doubted else [])
