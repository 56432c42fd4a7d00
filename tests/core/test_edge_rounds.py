"""Rounds: which question a verdict answers, and five parts that add up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.core.edge_rounds import RoundClock
from edgedraft.metrics.records import RoundRecord
from edgedraft.protocol.messages import Commit, CommitKind, Timings


def commit(*, num_judged: int = 2, queue_us: int = 0, verify_us: int = 0) -> Commit:
    return Commit(
        channel=1,
        incarnation=1,
        epoch=0,
        position=5,
        token_ids=[7],
        kind=CommitKind.RECOVERED,
        num_judged=num_judged,
        num_accepted=0,
        timings=Timings(queue_us, verify_us, 0, 0, 0),
    )


def parts(record: RoundRecord) -> tuple[float, ...]:
    return record.draft_s, record.upload_s, record.queue_s, record.verify_s, record.network_s


def test_a_round_is_cut_into_what_was_measured() -> None:
    clock = RoundClock()
    clock.start(1.0)
    clock.asked(1.25, num_drafted=3)
    clock.uploaded(0.125)
    clock.close(commit(queue_us=62_500, verify_us=250_000), 2.0)

    (record,) = clock.records
    assert parts(record) == pytest.approx((0.25, 0.125, 0.0625, 0.25, 0.3125))
    assert (record.round_s, record.num_drafted) == (1.0, 3)


def test_two_questions_are_answered_in_their_order() -> None:
    clock = RoundClock()
    clock.asked(1.0, num_drafted=4)
    clock.uploaded(0.25)
    clock.asked(1.5, num_drafted=3)
    clock.uploaded(0.125)
    clock.close(commit(), 2.0)
    clock.close(commit(), 3.0)

    first, second = clock.records
    assert (first.num_drafted, first.draft_s, first.upload_s) == (4, 1.0, 0.25)
    # The second was asked before its round began, so nothing of it is time spent drafting.
    assert (second.num_drafted, second.draft_s, second.upload_s, second.started_s) == (3, 0.0, 0.125, 2.0)


def test_a_verdict_that_nobody_asked_for_has_its_own_count() -> None:
    clock = RoundClock()
    clock.close(commit(num_judged=5), 1.0)

    assert (clock.records[0].num_drafted, clock.records[0].upload_s) == (5, 0.0)


def test_forgotten_questions_are_not_answered() -> None:
    clock = RoundClock()
    clock.asked(1.0, num_drafted=9)
    clock.uploaded(0.5)
    clock.forget()
    clock.uploaded(0.5)
    clock.close(commit(), 2.0)

    assert (clock.records[0].num_drafted, clock.records[0].upload_s) == (2, 0.0)


TIMES = st.floats(0.0, 5.0)


@given(TIMES, st.lists(st.tuples(TIMES, TIMES), max_size=3), st.lists(st.tuples(TIMES, TIMES, TIMES), max_size=4))
def test_the_five_parts_always_add_up_and_none_is_negative(
    started_s: float, questions: list[tuple[float, float]], answers: list[tuple[float, float, float]]
) -> None:
    clock = RoundClock()
    now_s = started_s
    clock.start(now_s)
    for wait_s, upload_s in questions:
        clock.asked(now_s + wait_s, num_drafted=1)
        clock.uploaded(upload_s)
    for wait_s, queue_s, verify_s in answers:
        now_s += wait_s
        clock.close(commit(queue_us=round(queue_s * 1e6), verify_us=round(verify_s * 1e6)), now_s)

    for record in clock.records:
        assert min(parts(record)) >= 0.0
        assert sum(parts(record)) == pytest.approx(record.round_s)
