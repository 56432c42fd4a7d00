from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.core.verdict_wait import LATE, VerdictWait


def learnt(*, reply_s: float, step_s: float, num_kept: int, num_corrected: int) -> VerdictWait:
    wait = VerdictWait()
    wait.drafted(step_s)
    for corrected in [False] * num_kept + [True] * num_corrected:
        wait.answered(reply_s, corrected=corrected)
    return wait


def test_nothing_is_waited_for_before_anything_is_known() -> None:
    wait = VerdictWait()
    assert wait.until_s(0.0, 0.0, rtt_s=0.03) is None
    wait.drafted(0.5)
    assert wait.until_s(0.0, 0.0, rtt_s=0.0) is None
    assert wait.until_s(0.0, 0.0, rtt_s=0.03) == pytest.approx(LATE * 0.03)


def test_a_slow_draft_waits_for_a_quick_cloud_and_a_quick_one_does_not() -> None:
    slow = learnt(reply_s=0.035, step_s=0.5, num_kept=7, num_corrected=2)
    quick = learnt(reply_s=0.035, step_s=0.025, num_kept=7, num_corrected=2)
    assert slow.until_s(1.0, 1.0, rtt_s=0.03) == pytest.approx(1.0 + LATE * 0.035)
    assert quick.until_s(1.0, 1.0, rtt_s=0.03) is None


def test_a_verdict_that_is_late_is_not_waited_for_any_more() -> None:
    wait = learnt(reply_s=0.04, step_s=0.5, num_kept=1, num_corrected=1)
    assert wait.until_s(1.0, 1.05, rtt_s=0.03) == pytest.approx(1.06)
    assert wait.until_s(1.0, 1.06, rtt_s=0.03) is None
    assert wait.until_s(1.0, 1.07, rtt_s=0.03) is None


def test_near_its_end_the_wait_pays_that_did_not_pay_at_its_start() -> None:
    wait = learnt(reply_s=0.3, step_s=0.1, num_kept=2, num_corrected=2)
    assert wait.until_s(0.0, 0.0, rtt_s=0.1) is None
    assert wait.until_s(0.0, 0.28, rtt_s=0.1) is not None


@given(st.floats(0.001, 2), st.floats(0.001, 2), st.integers(0, 20), st.integers(0, 20), st.floats(0, 0.99))
def test_it_waits_exactly_where_that_loses_less(
    reply_s: float, step_s: float, num_kept: int, num_corrected: int, passed: float
) -> None:
    wait = learnt(reply_s=reply_s, step_s=step_s, num_kept=num_kept, num_corrected=num_corrected)
    left_s = reply_s * (1 - passed) if num_kept + num_corrected else 1.0 - passed
    probability = (num_corrected + 1) / (num_kept + num_corrected + 3)
    lost_waiting_s = (1 - probability) * left_s
    lost_drafting_s = probability * (step_s * math.ceil(left_s / step_s) - left_s)
    if abs(lost_waiting_s - lost_drafting_s) < 1e-6 or abs(left_s / step_s - round(left_s / step_s)) < 1e-6:
        return
    asked_s = 5.0
    now_s = asked_s + (reply_s if num_kept + num_corrected else 1.0) * passed
    assert (wait.until_s(asked_s, now_s, rtt_s=1.0) is not None) == (lost_waiting_s < lost_drafting_s)
