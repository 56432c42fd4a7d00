"""One request's own machinery: its end, its faults, its account."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from edgedraft import AsyncEdgeClient
from edgedraft.backends.toy_model import ToyModel, ToySettings
from edgedraft.backends.toy_tokenizer import ToyTokenizer
from edgedraft.core.events import EdgeCommand, EdgeEvent, SetTimer, Start, TimerFired
from edgedraft.core.strategy import Strategy
from edgedraft.edge.planning import TextModel, plan_request
from edgedraft.edge.request import Request
from edgedraft.edge.runtime import RequestPlan, RequestRun
from edgedraft.errors import EdgedraftError
from edgedraft.metrics.derive import check_round
from edgedraft.schedule.catalogue import edge_only, vanilla
from edgedraft.testing.cloud import RunningCloud

TargetOnly = Callable[..., list[int]]
PROMPT_IDS = list(range(20))


class BrokenTokenizer(ToyTokenizer):
    """Knows no bytes of the one token."""

    broken_id = -1

    def token_bytes(self, token_id: int) -> bytes:
        if token_id == self.broken_id:
            raise RuntimeError("secret")
        return super().token_bytes(token_id)


def test_a_request_that_breaks_down_frees_everything_and_harms_nobody(
    own_cloud: RunningCloud, draft_spec: str, target_only: TargetOnly
) -> None:
    tokenizer = BrokenTokenizer(300)

    async def work() -> None:
        async with AsyncEdgeClient(own_cloud.url, draft=draft_spec, tokenizer=tokenizer) as client:
            broken_id = target_only(PROMPT_IDS, 10)[7]
            async with client.stream(
                prompt_ids=[1, 2], max_tokens=300, strategy="cloud-only", ignore_eos=True
            ) as other:
                await anext(aiter(other))
                tokenizer.broken_id = broken_id
                with pytest.raises(EdgedraftError, match="RuntimeError") as caught:
                    await client.generate(prompt_ids=PROMPT_IDS, max_tokens=30)
                tokenizer.broken_id = -1
                assert "secret" not in str(caught.value)
                assert isinstance(caught.value.__cause__, RuntimeError)
                async for _ in other:
                    pass
            assert other.answer.usage.completion_tokens == 300
            while len(own_cloud.sessions):  # noqa: ASYNC110 (the table lives in another thread)
                await asyncio.sleep(0.01)
            assert len((await client.generate(prompt_ids=PROMPT_IDS, max_tokens=5)).token_ids) == 5

    asyncio.run(work())


def plan(strategy: Strategy) -> RequestPlan:
    tokenizer = ToyTokenizer(300)
    info = ToyModel(ToySettings(vocab=300)).info(None)
    model = TextModel.of_draft(info, tokenizer, "")
    return plan_request(Request(prompt_ids=[1]), strategy, model, tokenizer, info, silence_s=1.0)


def test_only_the_last_timer_fires() -> None:
    """A session sets its one timer anew at every event."""

    class Scripted:
        """Asks for a timer twice, then notes what comes."""

        def __init__(self) -> None:
            self.events: list[EdgeEvent] = []
            self.strategy = edge_only()

        def handle(self, event: EdgeEvent, now_s: float) -> list[EdgeCommand]:
            self.events.append(event)
            return [SetTimer(now_s + 0.01), SetTimer(now_s + 0.02)] if isinstance(event, Start) else []

    async def work() -> None:
        run = RequestRun(plan(edge_only()), ToyTokenizer(300))
        session = Scripted()
        run.session = session  # type: ignore[assignment]
        await run.start(None, None)
        await asyncio.sleep(0.1)
        assert [type(event) for event in session.events] == [Start, TimerFired]

    asyncio.run(work())


def test_only_a_draft_that_works_alone_starts_from_nothing() -> None:
    """What is reused may move logits by rounding, which shows only where the draft writes the text."""
    for strategy, reuse in ((edge_only(), False), (vanilla(), True)):
        order = plan(strategy).order
        assert order is not None
        assert order.reuse is reuse


def test_there_is_no_answer_before_the_end(shared_cloud: RunningCloud, draft_spec: str) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            stream = client.stream(prompt_ids=PROMPT_IDS)
            with pytest.raises(EdgedraftError, match="async with"):
                _ = stream.answer
            async with stream:
                with pytest.raises(EdgedraftError, match="no answer yet"):
                    _ = stream.answer
                async for _ in stream:
                    pass
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            assert stream.answer.tokens

    asyncio.run(work())


def test_an_error_stays_the_end_of_its_stream(draft_spec: str, own_cloud: RunningCloud) -> None:
    async def work() -> None:
        async with (
            AsyncEdgeClient(own_cloud.url, draft=draft_spec) as client,
            client.stream(prompt_ids=PROMPT_IDS, max_tokens=4000, on_link_loss="fail", ignore_eos=True) as stream,
        ):
            await anext(stream)
            await asyncio.to_thread(own_cloud.stop)
            for _ in range(2):
                with pytest.raises(EdgedraftError):
                    async for _ in stream:
                        pass

    asyncio.run(work())


def test_rounds_add_up_and_the_first_token_comes_before_the_last(shared_cloud: RunningCloud, draft_spec: str) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            answer = await client.generate(prompt_ids=PROMPT_IDS, max_tokens=40, ignore_eos=True, strategy="vanilla")
            record = answer.record
            assert len(record.rounds) == answer.accounting["num_rounds"] > 1
            for round_ in record.rounds:
                check_round(round_)
            assert record.first_token_s is not None
            assert 0 < record.first_token_s < record.total_s
            assert record.rounds[-1].started_s + record.rounds[-1].round_s <= record.total_s

    asyncio.run(work())


def test_waiting_for_the_draft_is_told(
    shared_cloud: RunningCloud, draft_spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgedraft.edge.runtime.NOTABLE_WAIT_S", 0.0)

    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            answers = await asyncio.gather(*(client.generate(prompt_ids=PROMPT_IDS, max_tokens=20) for _ in range(2)))
            assert any("Waited" in notice for notice in answers[1].notices)

    asyncio.run(work())
