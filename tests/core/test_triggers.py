"""When a verdict is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.core.strategy import Trigger
from edgedraft.core.triggers import (
    AdaptiveSequenceConfidence,
    AnyOf,
    DualThreshold,
    Entropy,
    FixedLength,
    Never,
    SequenceConfidence,
    TokenConfidence,
)
from edgedraft.errors import InvalidRequestError
from edgedraft.types import DraftToken


def tokens(*confidences: float, entropy: float = 0.0) -> list[DraftToken]:
    return [DraftToken(7, confidence, entropy) for confidence in confidences]


def fires_at(trigger: Trigger, confidences: Sequence[float]) -> int | None:
    """How many tokens are pending when it first fires."""
    return next((n for n in range(1, len(confidences) + 1) if trigger.fires(tokens(*confidences[:n]))), None)


def test_fixed_length_fires_after_its_tokens_and_says_how_many_are_left() -> None:
    trigger = FixedLength(3)
    assert fires_at(trigger, [0.1] * 5) == 3
    assert [trigger.num_before_firing(tokens(*[0.5] * n)) for n in range(5)] == [3, 2, 1, 1, 1]


def test_token_confidence_looks_at_the_newest_token_only() -> None:
    trigger = TokenConfidence(0.7)
    assert not trigger.fires(tokens(0.2, 0.71))
    assert trigger.fires(tokens(0.9, 0.7))


def test_sequence_confidence_is_the_product() -> None:
    trigger = SequenceConfidence(0.5)
    assert fires_at(trigger, [0.9, 0.8, 0.75, 0.9]) == 4  # 0.9, 0.72, 0.54, 0.486
    assert trigger.fires(tokens(0.5))


@pytest.mark.parametrize(
    ("confidences", "expected"),
    [([0.95, 0.6], 2), ([0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9], 7), ([0.99] * 9, None), ([0.3], 1)],
    ids=["token", "sequence", "neither", "both"],
)
def test_dual_threshold_fires_on_either(confidences: list[float], expected: int | None) -> None:
    assert fires_at(DualThreshold(token_threshold=0.6, sequence_threshold=0.5), confidences) == expected


def test_dual_threshold_includes_both_its_bounds() -> None:
    dual = DualThreshold(token_threshold=0.25, sequence_threshold=0.5)
    assert dual.fires(tokens(0.5))
    assert DualThreshold(token_threshold=0.5, sequence_threshold=0.25).fires(tokens(0.5))


def test_entropy_fires_strictly_above() -> None:
    trigger = Entropy(1.5)
    assert not trigger.fires(tokens(0.9, entropy=1.5))
    assert trigger.fires(tokens(0.9, entropy=1.5001))


def test_never_never_fires_and_lets_the_draft_run() -> None:
    assert fires_at(Never(), [1e-9] * 64) is None
    assert Never().num_before_firing([]) >= 64


def test_any_of_fires_with_the_first_and_runs_with_the_shortest() -> None:
    trigger = AnyOf((FixedLength(3), TokenConfidence(0.2)))
    assert fires_at(trigger, [0.9, 0.9, 0.9]) == 3
    assert fires_at(trigger, [0.9, 0.1, 0.9]) == 2
    assert trigger.num_before_firing([]) == 1
    assert AnyOf((FixedLength(3), FixedLength(5))).num_before_firing(tokens(0.9)) == 2


# -- adaptation ------------------------------------------------------------------------------------------------------


def test_adaptive_halves_after_full_acceptance_and_divides_after_a_rejection() -> None:
    trigger = AdaptiveSequenceConfidence(0.4)
    halved = trigger.after_verdict(tokens(0.9, 0.9), 2)
    assert halved.threshold_now == pytest.approx(0.2)
    raised = halved.after_verdict(tokens(0.8, 0.5, 0.9, 0.5), 1)
    assert raised.threshold_now == pytest.approx(0.2 / (0.8 * 0.5 * 0.9 * 0.5) ** 0.75)
    assert trigger.threshold_now == 0.4, "the old trigger stays as it was"


def test_adaptive_takes_the_factor_of_the_authors_runs() -> None:
    assert AdaptiveSequenceConfidence(0.9, factor=0.95).after_verdict(tokens(0.9), 1).threshold_now == pytest.approx(
        0.855
    )


def test_adaptive_stays_between_floor_and_cap() -> None:
    trigger = AdaptiveSequenceConfidence(0.5, cap=1.5)
    assert trigger.after_verdict(tokens(1e-300, 0.0), 0).threshold_now == 1.5
    assert trigger.after_verdict(tokens(1e-200, 1e-200), 0).threshold_now == 1.5
    for _ in range(60):
        trigger = trigger.after_verdict(tokens(0.9), 1)
    assert trigger.threshold_now == 1e-3
    assert trigger.fires(tokens(0.01, 0.01))


def test_adaptive_never_rises_above_its_own_start_by_its_floor() -> None:
    assert AdaptiveSequenceConfidence(1e-5).after_verdict(tokens(0.9), 1).threshold_now == 1e-5


def test_adaptive_learns_nothing_from_a_verdict_on_nothing() -> None:
    trigger = AdaptiveSequenceConfidence(0.5)
    assert trigger.after_verdict([], 0) is trigger


def test_any_of_adapts_each_of_its_triggers() -> None:
    steady = AnyOf((FixedLength(3), TokenConfidence(0.2)))
    assert steady.after_verdict(tokens(0.9), 0) is steady
    adapted = AnyOf((FixedLength(3), AdaptiveSequenceConfidence(0.4))).after_verdict(tokens(0.9), 1)
    assert adapted == AnyOf((FixedLength(3), AdaptiveSequenceConfidence(0.4, adapted=0.2)))


@given(
    start=st.floats(0.001, 0.999),
    verdicts=st.lists(st.tuples(st.lists(st.floats(0.0, 1.0), max_size=6), st.integers(0, 6)), max_size=20),
)
def test_adaptive_is_always_legal(start: float, verdicts: list[tuple[list[float], int]]) -> None:
    trigger = AdaptiveSequenceConfidence(start)
    for confidences, accepted in verdicts:
        trigger = trigger.after_verdict(tokens(*confidences), min(accepted, len(confidences)))
        assert min(1e-3, start) <= trigger.threshold_now <= 1.0


@pytest.mark.parametrize(
    "trigger",
    [
        FixedLength(3),
        TokenConfidence(0.5),
        SequenceConfidence(0.5),
        DualThreshold(token_threshold=0.5, sequence_threshold=0.5),
        Entropy(1.0),
        Never(),
    ],
    ids=lambda trigger: type(trigger).__name__,
)
def test_steady_triggers_answer_a_verdict_with_themselves(trigger: Trigger) -> None:
    assert trigger.after_verdict(tokens(0.5, 0.5), 1) is trigger


# -- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, 1.5, math.nan, math.inf])
@pytest.mark.parametrize(
    ("build", "field"),
    [
        (TokenConfidence, "token_threshold"),
        (SequenceConfidence, "sequence_threshold"),
        (AdaptiveSequenceConfidence, "sequence_threshold"),
        (lambda value: AdaptiveSequenceConfidence(0.5, factor=value), "factor"),
        (lambda value: AdaptiveSequenceConfidence(0.5, floor=value), "floor"),
        (lambda value: DualThreshold(token_threshold=value, sequence_threshold=0.5), "token_threshold"),
        (lambda value: DualThreshold(token_threshold=0.5, sequence_threshold=value), "sequence_threshold"),
    ],
)
def test_thresholds_outside_zero_and_one_are_refused(
    build: Callable[[float], Trigger], field: str, value: float
) -> None:
    with pytest.raises(InvalidRequestError, match=rf"{field} is {value}; legal: above 0 and below 1") as refused:
        build(value)
    assert refused.value.field == field
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: FixedLength(0), "num_draft_tokens is 0; legal: 1 or more"),
        (lambda: Entropy(-0.1), "threshold_nats is -0.1; legal: 0 or more"),
        (lambda: Entropy(math.nan), "threshold_nats is nan"),
        (lambda: AdaptiveSequenceConfidence(0.5, cap=0.4), "cap is 0.4; legal: from the threshold, 0.5, to 2"),
        (lambda: AdaptiveSequenceConfidence(0.5, cap=2.5), "cap is 2.5"),
        (lambda: AnyOf(()), "triggers is empty"),
    ],
)
def test_other_bad_numbers_are_refused(build: Callable[[], Trigger], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        build()
