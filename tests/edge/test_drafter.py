"""The draft on its thread: what it holds, who may use it, and how it fails."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from edgedraft.backends.base import DraftBackend
from edgedraft.backends.toy import ToyDraft
from edgedraft.backends.toy_model import ToyModel, ToySettings
from edgedraft.core.events import DraftNext, DraftUnavailable, TokenDrafted
from edgedraft.core.sampling import draft_token
from edgedraft.edge.drafter import FEED_PIECE_TOKENS, Drafter, DraftOrder, DraftSequence
from edgedraft.errors import BackendError
from edgedraft.types import Float32Array, Rule, SamplingParams

MODEL = ToyModel(ToySettings.parse("vocab=64,seed=3"))


class RecordingDraft(ToyDraft):
    """Notes what is evaluated, and on which thread; can be told to fail or to wait."""

    def __init__(self, context_length: int = 4096) -> None:
        super().__init__(MODEL, context_length=context_length)
        self.evaluated: list[list[int]] = []
        self.threads: set[int] = set()
        self.failure: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def append(self, token_ids: Sequence[int]) -> None:
        self.entered.set()
        assert self.gate.wait(10)
        self.threads.add(threading.get_ident())
        super().append(token_ids)
        self.evaluated.append(list(token_ids))

    def draft(self) -> Float32Array:
        if self.failure is not None:
            raise self.failure
        return super().draft()


def order(num_prompt: int = 3, *, reuse: bool = True, sampling: SamplingParams | None = None) -> DraftOrder:
    return DraftOrder(
        sampling=sampling or SamplingParams(),
        rule=Rule.MATCH,
        num_ids=MODEL.num_ids,
        num_prompt=num_prompt,
        reuse=reuse,
    )


def expected(token_ids: Sequence[int], sampling: SamplingParams, num_prompt: int) -> int:
    token = draft_token(
        MODEL.logits(token_ids),
        sampling,
        len(token_ids),
        num_ids=MODEL.num_ids,
        rule=Rule.MATCH,
        prompt_ids=token_ids[:num_prompt],
        output_ids=token_ids[num_prompt:],
    )
    assert token is not None
    return token.token_id


def never() -> bool:
    return False


def test_a_step_drafts_what_the_model_says_at_that_position() -> None:
    sampling = SamplingParams(temperature=0.8, seed=5, frequency_penalty=1.0)
    sequence, told = DraftSequence(RecordingDraft()), order(3, sampling=sampling)
    token_ids = [1, 2, 3]
    command = DraftNext(0, 3, 0, [1, 2, 3])
    for _ in range(12):
        token = sequence.step(command, told, never)
        assert token is not None
        assert token.token_id == expected(token_ids, sampling, 3)
        assert token.draft_s > 0
        token_ids.append(token.token_id)
        command = DraftNext(0, len(token_ids), len(token_ids) - 1, [token.token_id])


def test_a_rollback_forgets_tokens_and_cache() -> None:
    backend = RecordingDraft()
    sequence = DraftSequence(backend)
    sequence.step(DraftNext(0, 6, 0, [1, 2, 3, 4, 5, 6]), order(), never)
    token = sequence.step(DraftNext(1, 5, 4, [9]), order(), never)
    assert token is not None
    assert token.token_id == expected([1, 2, 3, 4, 9], SamplingParams(), 3)
    assert backend.length == 5


def test_a_rollback_without_new_tokens_computes_the_last_row_again() -> None:
    backend = RecordingDraft()
    sequence = DraftSequence(backend)
    sequence.step(DraftNext(0, 4, 0, [1, 2, 3, 4]), order(), never)
    token = sequence.step(DraftNext(1, 3, 3, []), order(), never)
    assert token is not None
    assert token.token_id == expected([1, 2, 3], SamplingParams(), 3)
    assert backend.evaluated[-1] == [3]


def test_the_next_turn_of_a_chat_evaluates_only_what_is_new() -> None:
    backend = RecordingDraft()
    sequence = DraftSequence(backend)
    sequence.step(DraftNext(0, 5, 0, [1, 2, 3, 4, 5]), order(), never)
    sequence.step(DraftNext(0, 7, 0, [1, 2, 3, 4, 5, 6, 7]), order(), never)
    assert backend.evaluated == [[1, 2, 3, 4, 5], [6, 7]]
    sequence.step(DraftNext(0, 4, 0, [1, 2, 9, 9]), order(), never)
    assert backend.evaluated[-1] == [9, 9]


def test_an_equal_prompt_still_evaluates_its_last_token() -> None:
    backend = RecordingDraft()
    sequence = DraftSequence(backend)
    for _ in range(2):
        sequence.step(DraftNext(0, 3, 0, [1, 2, 3]), order(), never)
    assert backend.evaluated == [[1, 2, 3], [3]]


def test_nothing_is_reused_where_the_draft_writes_the_text_itself() -> None:
    backend = RecordingDraft()
    sequence = DraftSequence(backend)
    for _ in range(2):
        sequence.step(DraftNext(0, 3, 0, [1, 2, 3]), order(reuse=False), never)
    assert backend.evaluated == [[1, 2, 3], [1, 2, 3]]


def test_text_of_one_request_never_reaches_the_next() -> None:
    """Same proposals whatever was held before; penalties, which look at history, would show a leak."""
    sampling = SamplingParams(temperature=0.7, seed=1, repetition_penalty=1.5)
    fresh, used = DraftSequence(RecordingDraft()), DraftSequence(RecordingDraft())
    used.step(DraftNext(0, 6, 0, [1, 2, 50, 51, 52, 53]), order(2, sampling=sampling), never)
    command = DraftNext(0, 4, 0, [1, 2, 3, 4])
    assert fresh.step(command, order(4, sampling=sampling), never).token_id == (  # type: ignore[union-attr]
        used.step(command, order(4, sampling=sampling), never).token_id  # type: ignore[union-attr]
    )


def test_after_a_failure_the_next_request_starts_from_nothing() -> None:
    backend = RecordingDraft()
    sequence = DraftSequence(backend)
    backend.failure = BackendError("no memory")
    with pytest.raises(BackendError):
        sequence.step(DraftNext(0, 3, 0, [1, 2, 3]), order(), never)
    with pytest.raises(BackendError, match="cannot keep 3"):
        sequence.step(DraftNext(0, 4, 3, [4]), order(), never)
    backend.failure = None
    assert sequence.step(DraftNext(0, 3, 0, [1, 2, 3]), order(), never) is not None
    assert backend.evaluated[-1] == [1, 2, 3]
    assert backend.length == 3


def test_a_long_prompt_is_let_go_of_between_pieces() -> None:
    backend = RecordingDraft(context_length=10_000)
    sequence = DraftSequence(backend)
    prompt = [index % 60 for index in range(5 * FEED_PIECE_TOKENS)]
    token = sequence.step(DraftNext(0, len(prompt), 0, prompt), order(), lambda: len(backend.evaluated) >= 2)
    assert token is None
    assert backend.length == 2 * FEED_PIECE_TOKENS
    sequence.step(DraftNext(0, len(prompt), 0, prompt), order(), never)
    assert sum(map(len, backend.evaluated)) == len(prompt)


# -- the thread ------------------------------------------------------------------------------------------------------


def run(backend: DraftBackend, work: Callable[[Drafter], object]) -> None:
    async def inside() -> None:
        drafter = Drafter(lambda: backend)
        await drafter.open()
        try:
            await work(drafter)  # type: ignore[misc]
        finally:
            await drafter.close()

    asyncio.run(inside())


def test_steps_run_on_one_thread_and_answer_on_the_loop() -> None:
    backend = RecordingDraft()

    async def work(drafter: Drafter) -> None:
        events: asyncio.Queue[TokenDrafted | DraftUnavailable] = asyncio.Queue()
        seat = await drafter.reserve(order(), lambda event: events.put_nowait(event))
        seat.draft(DraftNext(7, 3, 0, [1, 2, 3]))
        event = await events.get()
        assert isinstance(event, TokenDrafted)
        assert (event.epoch, event.position) == (7, 3)
        seat.release()

    run(backend, work)
    assert len(backend.threads) == 1
    assert threading.get_ident() not in backend.threads


def test_requests_get_the_draft_in_the_order_of_asking() -> None:
    async def work(drafter: Drafter) -> None:
        seats = [await drafter.reserve(order(), print)]
        turns: list[int] = []

        async def wait(number: int) -> None:
            seat = await drafter.reserve(order(), print)
            turns.append(number)
            await asyncio.sleep(0)
            seat.release()

        waiting = [asyncio.create_task(wait(number)) for number in range(3)]
        await asyncio.sleep(0.01)
        assert turns == []
        waiting[1].cancel()
        seats[0].release()
        seats[0].release()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert turns == [0, 2]
        (await asyncio.wait_for(drafter.reserve(order(), print), 1)).release()

    run(RecordingDraft(), work)


def test_a_released_seat_hears_nothing_more() -> None:
    backend = RecordingDraft()

    async def work(drafter: Drafter) -> None:
        heard: list[object] = []
        backend.gate.clear()
        seat = await drafter.reserve(order(), heard.append)
        seat.draft(DraftNext(0, 3, 0, [1, 2, 3]))
        await asyncio.to_thread(backend.entered.wait)
        seat.release()
        backend.gate.set()
        other: asyncio.Queue[object] = asyncio.Queue()
        seat = await drafter.reserve(order(), other.put_nowait)
        seat.draft(DraftNext(0, 2, 0, [8, 9]))
        event = await other.get()
        assert isinstance(event, TokenDrafted)
        assert event.token is not None
        assert event.token.token_id == expected([8, 9], SamplingParams(), 2)
        seat.release()
        assert heard == []

    run(backend, work)


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (BackendError("no memory"), "no memory"),
        (RuntimeError("quotes a prompt: secret"), r"\(RuntimeError\)"),
    ],
)
def test_an_engine_that_fails_is_reported_and_not_quoted(failure: Exception, reason: str) -> None:
    backend = RecordingDraft()
    backend.failure = failure

    async def work(drafter: Drafter) -> None:
        events: asyncio.Queue[TokenDrafted | DraftUnavailable] = asyncio.Queue()
        seat = await drafter.reserve(order(), events.put_nowait)
        seat.draft(DraftNext(0, 3, 0, [1, 2, 3]))
        event = await events.get()
        assert isinstance(event, DraftUnavailable)
        assert re.search(reason, event.reason)
        assert "secret" not in event.reason
        seat.release()

    run(backend, work)


def test_a_full_context_is_reported_in_words() -> None:
    async def work(drafter: Drafter) -> None:
        events: asyncio.Queue[TokenDrafted | DraftUnavailable] = asyncio.Queue()
        seat = await drafter.reserve(order(), events.put_nowait)
        seat.draft(DraftNext(0, 9, 0, list(range(9))))
        assert await events.get() == DraftUnavailable("the context of the draft model is full")
        seat.release()

    run(RecordingDraft(context_length=8), work)


def test_a_draft_that_cannot_be_opened_says_so() -> None:
    def fail() -> DraftBackend:
        raise BackendError("no such model")

    async def inside() -> None:
        with pytest.raises(BackendError, match="no such model"):
            await Drafter(fail).open()

    asyncio.run(inside())


def test_no_proposal_is_an_event_without_token() -> None:
    class Silent(RecordingDraft):
        def draft(self) -> Float32Array:
            return np.full(MODEL.settings.vocab, -np.inf, dtype=np.float32)

    assert DraftSequence(Silent()).step(DraftNext(0, 3, 0, [1, 2, 3]), order(), never) is None
