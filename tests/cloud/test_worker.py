"""The thread that owns the target, driven from an event loop as the cloud drives it."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import numpy as np
import pytest

from edgedraft.backends.base import ScoreRequest
from edgedraft.backends.toy_model import ToyModel, ToySettings
from edgedraft.cloud.worker import TargetWorker
from edgedraft.core.events import (
    REQUESTED,
    CancelPass,
    CloseTarget,
    CloudEvent,
    OpenTarget,
    PassDone,
    PrefillDone,
    RunPass,
    TargetFailed,
)
from edgedraft.errors import BackendError, ContextLengthError
from edgedraft.protocol.messages import CommitKind
from edgedraft.testing.gates import GatedTarget
from edgedraft.types import Float32Array, Rule, SamplingParams

MODEL = ToyModel(ToySettings(vocab=64, seed=3))
PROMPT = [5, 6, 7, 8]
A, B, C = (letter.encode() * 16 for letter in "ABC")


def greedy(context: Sequence[int], count: int) -> list[int]:
    """What the target alone writes after `context`."""
    token_ids = list(context)
    for _ in range(count):
        token_ids.append(int(np.argmax(MODEL.logits(token_ids)[: MODEL.num_ids])))
    return token_ids[len(context) :]


def run_pass(pass_id: int, draft_ids: Sequence[int] = (), prompt: Sequence[int] = PROMPT) -> RunPass:
    """The first pass after a prefill."""
    return RunPass(
        pass_id=pass_id,
        priority=REQUESTED,
        length=len(prompt),
        committed_ids=(),
        position=len(prompt),
        draft_ids=tuple(draft_ids),
        rule=Rule.MATCH,
        rank=1,
        sampling=SamplingParams(),
    )


class Bench:
    """A worker, and what it reported. `next` waits for the next report."""

    def __init__(self, target: GatedTarget) -> None:
        self.target = target
        self.reports: asyncio.Queue[tuple[bytes, int, CloudEvent]] = asyncio.Queue()
        self.crashed = asyncio.Event()
        self.worker = TargetWorker(target, self._on_result, self.crashed.set)

    def _on_result(self, session: bytes, incarnation: int, event: CloudEvent) -> None:
        self.reports.put_nowait((session, incarnation, event))

    async def next(self) -> tuple[bytes, CloudEvent]:
        session, _, event = await asyncio.wait_for(self.reports.get(), 10)
        return session, event

    async def opened(self, *sessions: bytes) -> None:
        for session in sessions:
            self.worker.submit(session, OpenTarget(1, PROMPT, ()))
        for _ in sessions:
            _, event = await self.next()
            assert event == PrefillDone(1)

    async def until_entered(self, gate_entered: threading.Event) -> None:
        assert await asyncio.to_thread(gate_entered.wait, 10)


@asynccontextmanager
async def bench(target: GatedTarget | None = None) -> AsyncIterator[Bench]:
    target = target or GatedTarget(MODEL, prefill_chunk_tokens=2)
    made = Bench(target)
    made.worker.start()
    try:
        yield made
    finally:
        target.prefill_gate.open()
        target.score_gate.open()
        await made.worker.stop()
        assert not made.worker.ready
        assert target.num_sessions == 0


async def test_a_session_is_prefilled_and_its_draft_judged() -> None:
    expected = greedy(PROMPT, 4)
    wrong = (expected[2] + 1) % 60
    async with bench() as b:
        await b.opened(A)
        b.worker.submit(A, run_pass(7, [*expected[:2], wrong, 1]))
        session, done = await b.next()
        assert session == A
        assert isinstance(done, PassDone)
        assert (done.pass_id, done.num_accepted, done.next_id) == (7, 2, expected[2])
        assert done.kind is CommitKind.RECOVERED
        assert done.queue_s >= 0
        assert done.verify_s > 0


async def test_passes_that_wait_together_share_a_target_pass() -> None:
    target = GatedTarget(MODEL)
    sizes = []
    score = target.score

    def counted(requests: Sequence[ScoreRequest]) -> Sequence[Float32Array]:
        sizes.append(len(requests))
        return score(requests)

    target.score = counted  # type: ignore[method-assign]
    async with bench(target) as b:
        await b.opened(A, B, C)
        b.target.score_gate.shut()
        b.worker.submit(A, run_pass(1))
        await b.until_entered(b.target.score_gate.entered)
        b.worker.submit(B, run_pass(1))
        b.worker.submit(C, run_pass(1))
        b.target.score_gate.open()
        assert {(await b.next())[0] for _ in range(3)} == {A, B, C}
    assert sizes == [1, 2]


async def test_sessions_that_go_on_at_once_stay_together() -> None:
    target = GatedTarget(MODEL)
    sizes = []
    score = target.score

    def counted(requests: Sequence[ScoreRequest]) -> Sequence[Float32Array]:
        sizes.append(len(requests))
        return score(requests)

    target.score = counted  # type: ignore[method-assign]
    async with bench(target) as b:
        await b.opened(A, B)
        b.target.score_gate.shut()
        b.worker.submit(A, run_pass(1))
        await b.until_entered(b.target.score_gate.entered)
        b.worker.submit(B, run_pass(1))  # waits while A has a pass of its own
        heard = b.worker._on_result
        again = dataclasses.replace(run_pass(2), length=len(PROMPT), committed_ids=greedy(PROMPT, 1), position=5)

        def go_on(session: bytes, incarnation: int, event: CloudEvent) -> None:
            heard(session, incarnation, event)
            if isinstance(event, PassDone) and event.pass_id == 1:
                b.worker.submit(session, again)

        b.worker._on_result = go_on
        b.target.score_gate.open()
        for _ in range(4):
            await b.next()
    assert sizes == [1, 2, 1], "A's second pass joins B's first"


async def test_an_error_of_the_tree_reaches_its_session_only() -> None:
    async with bench(GatedTarget(MODEL, context_length=16)) as b:
        await b.opened(A)
        b.worker.submit(B, OpenTarget(1, [1] * 17, ()))
        session, event = await b.next()
        assert session == B
        assert isinstance(event, TargetFailed)
        assert isinstance(event.error, ContextLengthError)
        b.worker.submit(A, run_pass(1))
        assert isinstance((await b.next())[1], PassDone)


async def test_where_a_shared_pass_fails_each_session_is_tried_alone() -> None:
    target = GatedTarget(MODEL)
    score = target.score

    def poisoned(requests: Sequence[ScoreRequest]) -> Sequence[Float32Array]:
        if any(request.session_id == B for request in requests):
            raise ZeroDivisionError("ids 1, 2, 3 of the prompt")
        return score(requests)

    async with bench(target) as b:
        await b.opened(A, B, C)
        b.target.score_gate.shut()
        b.worker.submit(A, run_pass(1))
        await b.until_entered(b.target.score_gate.entered)
        target.score = poisoned  # type: ignore[method-assign]
        b.worker.submit(B, run_pass(1))
        b.worker.submit(C, run_pass(1))
        b.target.score_gate.open()
        events = dict([await b.next() for _ in range(3)])
        assert isinstance(events[A], PassDone)
        assert isinstance(events[C], PassDone)
        failed = events[B]
        assert isinstance(failed, TargetFailed)
        assert isinstance(failed.error, BackendError)
        assert b.worker.ready


async def test_a_foreign_error_is_logged_by_place_and_told_in_neutral_words(caplog: pytest.LogCaptureFixture) -> None:
    target = GatedTarget(MODEL)

    def broken(session_id: bytes) -> int:
        raise ZeroDivisionError(*PROMPT)

    target.prefill = broken  # type: ignore[method-assign]
    async with bench(target) as b:
        with caplog.at_level(logging.DEBUG):
            b.worker.submit(A, OpenTarget(1, PROMPT, ()))
            _, event = await b.next()
    assert isinstance(event, TargetFailed)
    assert isinstance(event.error, BackendError)
    assert "5, 6, 7" not in str(event.error)
    assert "ZeroDivisionError" in caplog.text
    assert "in broken" in caplog.text
    assert "5, 6, 7" not in caplog.text


async def test_a_closed_or_cancelled_sessions_queued_passes_vanish() -> None:
    async with bench() as b:
        await b.opened(A, B, C)
        b.target.score_gate.shut()
        b.worker.submit(A, run_pass(1))
        await b.until_entered(b.target.score_gate.entered)
        b.worker.submit(B, run_pass(1))
        b.worker.submit(C, run_pass(1))
        b.worker.submit(B, CancelPass(1))
        b.worker.submit(C, CloseTarget())
        b.target.score_gate.open()
        assert (await b.next())[0] == A
        b.worker.submit(A, run_pass(2))
        session, event = await b.next()
        assert session == A
        assert isinstance(event, PassDone)
        assert event.pass_id == 2
        assert b.worker.num_waiting == 0


async def test_a_session_that_closes_during_its_pass_is_freed_when_the_pass_ends() -> None:
    async with bench() as b:
        await b.opened(A, B)
        b.target.score_gate.shut()
        b.worker.submit(A, run_pass(1))
        await b.until_entered(b.target.score_gate.entered)
        b.worker.submit(A, CloseTarget())
        b.worker.submit(B, run_pass(1))
        b.target.score_gate.open()
        while (await b.next())[0] != B:
            pass
        assert b.target.num_sessions == 1


async def test_a_running_prefill_stops_at_the_next_chunk() -> None:
    async with bench(GatedTarget(MODEL, prefill_chunk_tokens=1)) as b:
        b.target.prefill_gate.shut()
        b.worker.submit(A, OpenTarget(1, [1] * 1000, ()))
        await b.until_entered(b.target.prefill_gate.entered)
        b.worker.submit(A, CloseTarget())
        b.worker.submit(B, OpenTarget(1, [1], ()))
        num_chunks = 0
        prefill = b.target.prefill

        def counted(session_id: bytes) -> int:
            nonlocal num_chunks
            num_chunks += session_id == A
            return prefill(session_id)

        b.target.prefill = counted  # type: ignore[method-assign]
        b.target.prefill_gate.open()
        assert await b.next() == (B, PrefillDone(1))
        assert num_chunks == 0
        assert b.target.num_sessions == 1


async def test_a_verdict_does_not_wait_for_a_long_prompt() -> None:
    async with bench(GatedTarget(MODEL, prefill_chunk_tokens=1)) as b:
        await b.opened(A)
        b.target.prefill_gate.shut()
        b.worker.submit(B, OpenTarget(1, [1] * 200, ()))
        await b.until_entered(b.target.prefill_gate.entered)
        b.worker.submit(A, run_pass(1))
        b.target.prefill_gate.open()
        assert [(await b.next())[0] for _ in range(2)] == [A, B]


async def test_a_pass_that_was_cut_off_can_be_run_again() -> None:
    """The row that prefill left is used up by then, so the worker must make it anew."""
    expected = greedy(PROMPT, 1)
    async with bench() as b:
        await b.opened(A)
        b.target.score_gate.shut()
        b.worker.submit(A, run_pass(1, [1, 2]))
        await b.until_entered(b.target.score_gate.entered)
        b.worker.submit(A, CancelPass(1))
        b.worker.submit(A, run_pass(2))
        b.target.score_gate.open()
        events = [(await b.next())[1] for _ in range(2)]
        assert isinstance(events[1], PassDone), events[1]
        assert (events[1].pass_id, events[1].next_id) == (2, expected[0])


async def test_opening_again_reports_the_newer_incarnation() -> None:
    async with bench() as b:
        b.worker.submit(A, OpenTarget(1, PROMPT, ()))
        b.worker.submit(A, OpenTarget(2, PROMPT, [1, 2]))
        reports = [await asyncio.wait_for(b.reports.get(), 10)]
        while reports[-1][1] != 2:
            reports.append(await asyncio.wait_for(b.reports.get(), 10))
        assert reports[-1] == (A, 2, PrefillDone(2))


async def test_the_event_loop_never_waits_for_the_target() -> None:
    async with bench() as b:
        b.target.prefill_gate.shut()
        b.worker.submit(A, OpenTarget(1, PROMPT, ()))
        await b.until_entered(b.target.prefill_gate.entered)
        for session in (B, C):
            b.worker.submit(session, OpenTarget(1, PROMPT, ()))
        assert b.worker.ready
        assert b.worker.num_waiting == 3
        assert b.reports.empty()


async def test_a_crash_of_the_thread_is_seen() -> None:
    target = GatedTarget(MODEL)

    def fatal(session_id: bytes) -> int:
        raise SystemExit("the engine is gone")

    target.prefill = fatal  # type: ignore[method-assign]
    made = Bench(target)
    made.worker.start()
    assert made.worker.ready
    made.worker.submit(A, OpenTarget(1, PROMPT, ()))
    await asyncio.wait_for(made.crashed.wait(), 10)
    assert not made.worker.ready
    made.worker.submit(B, OpenTarget(1, PROMPT, ()))
    await made.worker.stop()
