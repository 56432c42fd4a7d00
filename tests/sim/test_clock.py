"""Virtual time."""

from __future__ import annotations

import math
import random

import pytest

from edgedraft.errors import EdgedraftError
from edgedraft.sim.clock import MAX_TIME_S, Clock


def test_things_happen_in_the_order_of_time_and_then_of_asking() -> None:
    clock, seen = Clock(), []
    for time_s, name in [(2.0, "late"), (1.0, "first"), (1.0, "second"), (0.0, "now")]:
        clock.at(time_s, lambda name: seen.append((clock.now_s, name)), name)
    clock.run()
    assert seen == [(0.0, "now"), (1.0, "first"), (1.0, "second"), (2.0, "late")]


def test_time_never_goes_back() -> None:
    clock, dice, seen = Clock(), random.Random(4), []

    def happen(num_left: int) -> None:
        seen.append(clock.now_s)
        for _ in range(min(num_left, 2)):
            clock.at(clock.now_s + dice.choice([0.0, 0.1, 3.0]), happen, num_left - 1)

    clock.at(0.0, happen, 8)
    clock.run()
    assert len(seen) > 100
    assert seen == sorted(seen)


@pytest.mark.parametrize("late_s", [0.5, math.nan])
def test_nothing_can_be_due_in_the_past(late_s: float) -> None:
    clock = Clock()
    clock.at(1.0, lambda _: clock.at(late_s, print))
    with pytest.raises(EdgedraftError, match=r"it is 1\.0 s already"):
        clock.run()


def test_what_has_no_end_is_stopped() -> None:
    clock = Clock()

    def again(_: None) -> None:
        clock.at(clock.now_s + MAX_TIME_S / 10, again)

    clock.at(0.0, again)
    with pytest.raises(EdgedraftError, match="went on past"):
        clock.run()
