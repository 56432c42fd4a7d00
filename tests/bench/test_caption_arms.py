"""Arms as data, and the gates and strategies that they stand for."""

from __future__ import annotations

import msgspec
import pytest

from edgedraft.bench.caption_arms import ARMS, arms_named, check_threshold, control, gate_of, strategy_of
from edgedraft.bench.caption_results import Arm
from edgedraft.core.gate import Measure
from edgedraft.errors import InvalidRequestError


def test_every_arm_is_a_strategy() -> None:
    for arm in ARMS:
        arm = msgspec.structs.replace(arm, threshold=0.5) if arm.tuned else arm
        strategy = strategy_of(arm, clip_number=0, language="en", text_of=str)
        assert (strategy.gating is None) == (arm.name == "cloud-only")
    assert len({arm.name for arm in ARMS}) == len(ARMS)


def test_unknown_arms_and_missing_numbers_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="arms names 'vanilla'"):
        arms_named(["vanilla"])
    assert [arm.name for arm in arms_named(["never"])] == ["edge-only", "cloud-only", "exact", "never"]
    with pytest.raises(InvalidRequestError, match="threshold of arm 'ugsd' is not set"):
        gate_of(arms_named(["ugsd"])[-1])
    with pytest.raises(InvalidRequestError, match="gate is 'nerves'"):
        gate_of(Arm(name="odd", gate="nerves"))


@pytest.mark.parametrize(("measure", "threshold"), [(Measure.ENTROPY, 9.0), (Measure.MAX_PROBABILITY, 1.0)])
def test_threshold_that_nothing_or_everything_passes_is_refused(measure: Measure, threshold: float) -> None:
    with pytest.raises(InvalidRequestError, match=f"threshold of {measure}"):
        check_threshold(measure, threshold, 259)
    check_threshold(measure, threshold / 2, 259)


def test_chance_differs_from_clip_to_clip() -> None:
    chance = msgspec.structs.replace(control(Arm(name="sparse", gate="max-probability"), 1), shares={"en": 0.5})
    gates = [gate_of(chance, number, "en") for number in range(5)]
    assert len({tuple(gate.doubts(None, at) for at in range(40)) for gate in gates}) == 5  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="shares of arm 'sparse, chance 1' is not set"):
        gate_of(chance, 0, "zh")
