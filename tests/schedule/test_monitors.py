"""Draft and verification times, stalls or not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.schedule.monitors import DraftTimeMonitor, VerifyEstimate, VerifyMonitor


def test_draft_time_is_the_mean_of_the_newest_steps() -> None:
    monitor = DraftTimeMonitor(num_samples=4)
    assert monitor.draft_s is None
    for step_s in (9.0, 0.03, 0.03, 0.04, 0.06):
        monitor.add(step_s)
    assert monitor.draft_s == pytest.approx(0.04)
    assert monitor.num_samples == 4


def test_a_stall_hardly_moves_the_draft_time() -> None:
    monitor = DraftTimeMonitor()
    for step_s in [0.036] * 49 + [20.0]:
        monitor.add(step_s)
    assert monitor.draft_s == pytest.approx(0.036 * 54 / 50)


@pytest.mark.parametrize("draft_s", [0.0, -1.0, math.nan, math.inf])
def test_draft_times_that_are_none_are_dropped(draft_s: float) -> None:
    monitor = DraftTimeMonitor()
    monitor.add(draft_s)
    assert (monitor.draft_s, monitor.num_dropped) == (None, 1)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("stall_share", [0.0, 0.1])
def test_verification_is_a_line_in_its_tokens(seed: int, stall_share: float) -> None:
    generator = np.random.default_rng(seed)
    monitor = VerifyMonitor()
    for _ in range(100):
        num_tokens = int(generator.integers(0, 12))
        stall_s = 2.0 if generator.random() < stall_share else 0.0
        monitor.add(num_tokens, 0.030 + 0.004 * num_tokens + generator.normal(0.0, 0.001) + stall_s)
    estimate = monitor.estimate
    assert estimate is not None
    assert estimate.step_s == pytest.approx(0.030, rel=0.05)
    assert estimate.per_draft_s == pytest.approx(0.004, rel=0.05)
    assert estimate.pass_s(8) == pytest.approx(0.062, rel=0.03)


def test_equal_passes_tell_no_slope() -> None:
    monitor = VerifyMonitor()
    for _ in range(5):
        monitor.add(5, 0.065)
    assert monitor.estimate == VerifyEstimate(step_s=0.065, per_draft_s=0.0, num_samples=5)


def test_only_the_newest_passes_count() -> None:
    monitor = VerifyMonitor(num_samples=10)
    for num_tokens in range(30):
        monitor.add(num_tokens, 1.0 + num_tokens if num_tokens < 20 else 0.03)
    assert monitor.estimate == VerifyEstimate(step_s=pytest.approx(0.03), per_draft_s=0.0, num_samples=10)


@pytest.mark.parametrize(("num_tokens", "verify_s"), [(-1, 0.03), (4, 0.0), (4, -1.0), (4, math.nan), (4, math.inf)])
def test_passes_that_are_none_are_dropped(num_tokens: int, verify_s: float) -> None:
    monitor = VerifyMonitor()
    monitor.add(num_tokens, verify_s)
    assert (monitor.estimate, monitor.num_dropped) == (None, 1)


@given(st.lists(st.tuples(st.integers(0, 64), st.floats(1e-6, 1e3)), min_size=1, max_size=30))
def test_costs_are_never_negative(passes: list[tuple[int, float]]) -> None:
    monitor = VerifyMonitor()
    for num_tokens, verify_s in passes:
        monitor.add(num_tokens, verify_s)
    estimate = monitor.estimate
    assert estimate is not None
    assert estimate.step_s >= 0.0
    assert estimate.per_draft_s >= 0.0
