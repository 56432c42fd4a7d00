"""Who goes next: urgent first, in turns, and nobody for ever last."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.core.events import EAGER, OWN, REQUESTED, Priority, RunPass
from edgedraft.schedule.verify_batcher import PROMOTE_AFTER_BATCHES, PrefillStep, QueuedPass, VerifyBatcher
from edgedraft.types import Rule, SamplingParams


def queued(session: str, priority: Priority = REQUESTED, pass_id: int = 1) -> QueuedPass:
    command = RunPass(
        pass_id=pass_id,
        priority=priority,
        length=1,
        committed_ids=(),
        position=1,
        draft_ids=(),
        rule=Rule.MATCH,
        rank=1,
        sampling=SamplingParams(),
    )
    return QueuedPass(session.encode(), command, queued_s=0.0)


def batcher_with(*passes: QueuedPass) -> VerifyBatcher:
    batcher = VerifyBatcher()
    for one in passes:
        batcher.add_pass(one)
    return batcher


def names(batch: Sequence[QueuedPass]) -> list[str]:
    return [one.session.decode() for one in batch]


def test_an_idle_batcher_has_nothing_to_do() -> None:
    assert VerifyBatcher().next_work(4) == []


def test_requested_verdicts_go_before_eager_ones_and_the_targets_own() -> None:
    batcher = batcher_with(queued("own", OWN), queued("eager", EAGER), queued("asked", REQUESTED))
    assert names(batcher.next_batch(3)) == ["asked", "eager", "own"]


def test_within_a_priority_the_older_goes_first() -> None:
    batcher = batcher_with(queued("b"), queued("a"), queued("c"))
    assert names(batcher.next_batch(2)) == ["b", "a"]
    assert names(batcher.next_batch(2)) == ["c"]


def test_a_session_just_served_goes_behind_the_others() -> None:
    batcher = batcher_with(queued("a"))
    batcher.next_batch(1)
    batcher.add_pass(queued("a", pass_id=2))
    batcher.add_pass(queued("b"))
    assert names(batcher.next_batch(2)) == ["b", "a"]


def test_two_sessions_take_turns() -> None:
    batcher = batcher_with(queued("a"), queued("b"))
    served = []
    for pass_id in range(2, 8):
        (one,) = batcher.next_batch(1)
        served.append(one.session.decode())
        batcher.add_pass(queued(served[-1], pass_id=pass_id))
    assert served == ["a", "b"] * 3


def test_a_session_is_once_in_a_batch_and_its_later_pass_replaces_the_earlier() -> None:
    batcher = batcher_with(queued("a", pass_id=1), queued("a", pass_id=2))
    assert [one.command.pass_id for one in batcher.next_batch(4)] == [2]
    assert batcher.num_waiting == 0


def test_a_cancelled_pass_is_gone_and_an_outdated_cancel_does_nothing() -> None:
    batcher = batcher_with(queued("a", pass_id=2))
    batcher.cancel_pass(b"a", 1)
    assert batcher.num_waiting == 1
    batcher.cancel_pass(b"a", 2)
    assert batcher.next_work(4) == []


def test_a_cancelled_session_leaves_nothing_behind() -> None:
    batcher = batcher_with(queued("a"), queued("b"))
    batcher.add_prefill(b"a")
    batcher.cancel(b"a")
    assert batcher.num_waiting == 1
    assert names(batcher.next_batch(4)) == ["b"]


def test_prefills_take_turns() -> None:
    batcher = VerifyBatcher()
    batcher.add_prefill(b"a")
    batcher.add_prefill(b"b")
    assert [batcher.next_work(1) for _ in range(4)] == [PrefillStep(b"a"), PrefillStep(b"b")] * 2
    batcher.finish_prefill(b"a")
    assert [batcher.next_work(1) for _ in range(2)] == [PrefillStep(b"b")] * 2


def test_a_verdict_asked_for_during_a_chunk_goes_before_the_next_chunk() -> None:
    batcher = VerifyBatcher()
    batcher.add_prefill(b"long")
    for _ in range(3):
        assert batcher.next_work(1) == PrefillStep(b"long")
        batcher.add_pass(queued("a"))
        work = batcher.next_work(1)
        assert isinstance(work, list)
        assert names(work) == ["a"]


def test_a_chunk_comes_once_all_that_waited_at_the_last_one_were_served() -> None:
    batcher = VerifyBatcher()
    batcher.add_prefill(b"long")
    batcher.next_work(2)
    for name in "abcd":
        batcher.add_pass(queued(name))
    for number in range(2):
        work = batcher.next_work(2)
        assert isinstance(work, list)
        for one in work:
            batcher.add_pass(queued(one.session.decode(), pass_id=2 + number))
    assert batcher.next_work(2) == PrefillStep(b"long")


def test_the_targets_own_passes_are_served_under_a_flood_of_verdicts() -> None:
    batcher = batcher_with(queued("own", OWN), queued("busy"))
    for number in range(100):
        (one,) = batcher.next_batch(1)
        if one.session == b"own":
            assert number >= PROMOTE_AFTER_BATCHES, "it should have waited for more urgent ones first"
            return
        batcher.add_pass(queued("busy", pass_id=number + 2))
    pytest.fail("the own pass starved")


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["pass", "prefill", "work", "cancel"]), st.integers(0, 5), st.integers(0, 2)),
    max_size=150,
)


@given(STEPS, st.integers(1, 3))
def test_nothing_starves_and_nothing_is_served_twice(steps: list[Step], max_sessions: int) -> None:
    """Whatever comes in between, a pass and a prefill get their turn within a bounded number of steps."""
    batcher = VerifyBatcher()
    waiting: dict[bytes, int] = {}
    prefilling: dict[bytes, int] = {}
    bound = 2 * PROMOTE_AFTER_BATCHES + 4 * 6 + 6
    for number, (kind, who, priority) in enumerate(steps):
        session = bytes([who])
        if kind == "pass" and session not in waiting:
            batcher.add_pass(queued(session.decode(), Priority(priority), pass_id=number))
            waiting[session] = 0
        elif kind == "prefill":
            batcher.add_prefill(session)
            prefilling.setdefault(session, 0)
        elif kind == "cancel":
            batcher.cancel(session)
            waiting.pop(session, None)
            prefilling.pop(session, None)
        elif kind == "work":
            _serve(batcher, waiting, prefilling, max_sessions)
    for _ in range(bound):
        for who in range(6):  # a flood of the most urgent kind
            session = bytes([who])
            if session not in waiting:
                batcher.add_pass(queued(session.decode(), REQUESTED, pass_id=-1))
                waiting[session] = 0
        _serve(batcher, waiting, prefilling, max_sessions)
    assert max(waiting.values(), default=0) <= bound // 2
    assert max(prefilling.values(), default=0) <= 6 * 6 + 6
    assert batcher.num_waiting == len(waiting) + len(prefilling)


def _serve(batcher: VerifyBatcher, waiting: dict[bytes, int], prefilling: dict[bytes, int], max_sessions: int) -> None:
    """Do one piece of work, and count for everything else that it was passed over."""
    work = batcher.next_work(max_sessions)
    if isinstance(work, PrefillStep):
        assert work.session in prefilling
        prefilling[work.session] = -1
    else:
        assert len(work) <= max_sessions
        assert bool(work) == bool(waiting) or prefilling
        for one in work:
            del waiting[one.session]
    for counts in (waiting, prefilling):
        for session in counts:
            counts[session] += 1
