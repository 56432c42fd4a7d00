"""Links that break, clouds that restart, callers that leave: the text stays, and nothing is left behind."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import pytest

from edgedraft import AsyncEdgeClient
from edgedraft.backends.toy import ToyDraft, ToyTarget
from edgedraft.backends.toy_model import ToyModel, ToySettings
from edgedraft.backends.toy_tokenizer import CHAT_TEMPLATE, ToyTokenizer
from edgedraft.config import CloudConfig, EdgeConfig
from edgedraft.edge.answer import Answer
from edgedraft.edge.client import ALONE_NOTICE, AnswerStream
from edgedraft.errors import CloudUnreachableError, EdgedraftError, LinkLostError, VocabularyMismatchError
from edgedraft.testing.cloud import RunningCloud, running_cloud
from edgedraft.testing.link import LinkEmulator
from edgedraft.types import Exactness, FinishReason, SamplingParams, TokenKind

TargetOnly = Callable[..., list[int]]
PROMPT_IDS = list(range(20))
NUM_TOKENS = 60
LONG = 800
"""Long enough to be under way still when a cloud has stopped."""
ENDLESS = 900_000
"""Only a cancelled request ends before the test's time is over."""
FAST = EdgeConfig(silence_s=0.3, reconnect_timeout_s=10.0)


def link_to(cloud: RunningCloud) -> LinkEmulator:
    address = urlsplit(cloud.url)
    assert address.hostname is not None
    assert address.port is not None
    return LinkEmulator(address.hostname, address.port)


def url_of(link: LinkEmulator) -> str:
    return f"ws://{link.host}:{link.port}/v1/edgedraft"


async def tokens_with(stream: AnswerStream, at: dict[int, Callable[[], Awaitable[object] | object]]) -> list[int]:
    """Read a stream; when so many tokens have come, do the thing that is named for it."""
    token_ids: list[int] = []
    pending = sorted(at)
    async for piece in stream:
        token_ids += [token.token_id for token in piece.tokens]
        while pending and len(token_ids) >= pending[0]:
            done = at[pending.pop(0)]()
            if isinstance(done, Awaitable):
                await done
    return token_ids


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (what is waited for lives in other threads)
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("strategy", ["vanilla", "cloud-only"])
@pytest.mark.parametrize("seed", range(3))
def test_cuts_at_random_moments_change_nothing(
    shared_cloud: RunningCloud, draft_spec: str, target_only: TargetOnly, seed: int, strategy: str
) -> None:
    rng = random.Random(seed)

    async def work() -> None:
        async with (
            link_to(shared_cloud) as link,
            AsyncEdgeClient(url_of(link), draft=draft_spec, config=FAST) as client,
        ):
            cuts = {rng.randrange(NUM_TOKENS - 20): link.cut for _ in range(3)}
            async with client.stream(
                prompt_ids=PROMPT_IDS,
                max_tokens=NUM_TOKENS,
                ignore_eos=True,
                temperature=0.8,
                seed=seed,
                strategy=strategy,
            ) as stream:
                token_ids = await tokens_with(stream, cuts)
            sampling = SamplingParams(temperature=0.8, seed=seed)
            assert token_ids == target_only(PROMPT_IDS, NUM_TOKENS, sampling, ignore_eos=True)
            answer = stream.answer
            assert list(answer.token_ids) == token_ids
            assert answer.exact is Exactness.BITWISE
            if strategy == "vanilla":  # a cloud-only answer may be here before it is cut
                assert 1 <= answer.accounting["num_reconnects"] <= len(cuts)

    asyncio.run(work())


def test_evictions_change_nothing(own_cloud: RunningCloud, draft_spec: str, target_only: TargetOnly) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(own_cloud.url, draft=draft_spec, config=FAST) as client:
            async with client.stream(
                prompt_ids=PROMPT_IDS, max_tokens=NUM_TOKENS, ignore_eos=True, strategy="vanilla"
            ) as stream:
                token_ids = await tokens_with(stream, {5: own_cloud.evict_all, 30: own_cloud.evict_all})
            assert token_ids == target_only(PROMPT_IDS, NUM_TOKENS, ignore_eos=True)
            assert stream.answer.accounting["num_reopens"] == 2

    asyncio.run(work())


def test_a_cloud_restarted_in_between_goes_on_where_it_was(
    own_cloud: RunningCloud, draft_spec: str, target_only: TargetOnly
) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(own_cloud.url, draft=draft_spec, config=FAST) as client:
            async with client.stream(prompt_ids=PROMPT_IDS, max_tokens=LONG, ignore_eos=True) as stream:
                restart = {20: lambda: asyncio.to_thread(own_cloud.restart)}
                token_ids = await tokens_with(stream, restart)
            assert token_ids == target_only(PROMPT_IDS, LONG, ignore_eos=True)
            accounting = stream.answer.accounting
            assert (accounting["num_reconnects"], accounting["num_reopens"]) == (1, 1)

    asyncio.run(work())


def test_a_silent_stall_is_waited_out(shared_cloud: RunningCloud, draft_spec: str, target_only: TargetOnly) -> None:
    async def work() -> None:
        async with (
            link_to(shared_cloud) as link,
            AsyncEdgeClient(url_of(link), draft=draft_spec, config=FAST) as client,
        ):
            async with client.stream(prompt_ids=PROMPT_IDS, max_tokens=NUM_TOKENS, ignore_eos=True) as stream:
                token_ids = await tokens_with(stream, {20: lambda: link.stall(1.0)})
            assert token_ids == target_only(PROMPT_IDS, NUM_TOKENS, ignore_eos=True)
            assert stream.answer.accounting["num_resumes"] >= 1

    asyncio.run(work())


def test_a_dead_link_is_found_by_its_silence_and_replaced(
    shared_cloud: RunningCloud, draft_spec: str, target_only: TargetOnly
) -> None:
    """Nothing is closed and nothing flows: only pings find that out."""
    config = EdgeConfig(silence_s=0.3, ping_interval_s=0.2, ping_timeout_s=0.2)

    async def work() -> None:
        async with (
            link_to(shared_cloud) as link,
            AsyncEdgeClient(url_of(link), draft=draft_spec, config=config) as client,
        ):

            async def revive() -> None:
                link.stall(2.0)
                await asyncio.sleep(0)

            async with client.stream(prompt_ids=PROMPT_IDS, max_tokens=NUM_TOKENS, ignore_eos=True) as stream:
                token_ids = await tokens_with(stream, {20: revive})
            assert token_ids == target_only(PROMPT_IDS, NUM_TOKENS, ignore_eos=True)
            assert stream.answer.accounting["num_reconnects"] >= 1

    asyncio.run(work())


# -- what the request says about a lost link -------------------------------------------------------------------------


def test_on_link_loss_fail_ends_with_a_clear_error(shared_cloud: RunningCloud, draft_spec: str) -> None:
    async def work() -> None:
        async with link_to(shared_cloud) as link, AsyncEdgeClient(url_of(link), draft=draft_spec) as client:
            with pytest.raises(LinkLostError):
                async with client.stream(prompt_ids=PROMPT_IDS, max_tokens=NUM_TOKENS, on_link_loss="fail") as stream:
                    await tokens_with(stream, {10: link.cut})
            again = await client.generate(prompt_ids=PROMPT_IDS, max_tokens=5)
            assert len(again.token_ids) == 5

    asyncio.run(work())


def test_on_link_loss_local_goes_on_alone_and_says_so(
    own_cloud: RunningCloud, draft_spec: str, target_only: TargetOnly
) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(own_cloud.url, draft=draft_spec, config=FAST) as client:
            async with client.stream(
                prompt_ids=PROMPT_IDS, max_tokens=LONG, on_link_loss="local", ignore_eos=True
            ) as stream:
                token_ids = await tokens_with(stream, {20: lambda: asyncio.to_thread(own_cloud.stop)})
            answer = stream.answer
            first_local = next(index for index, token in enumerate(answer.tokens) if token.kind is TokenKind.LOCAL)
            assert first_local >= 20
            assert token_ids[:first_local] == target_only(PROMPT_IDS, first_local, ignore_eos=True)
            assert all(token.kind is TokenKind.LOCAL for token in answer.tokens[first_local:])
            assert len(token_ids) == LONG
            assert answer.exact is Exactness.LOSSY
            assert len(answer.notices) == 1

    asyncio.run(work())


def test_on_link_loss_local_starts_alone_where_there_is_no_cloud(draft_spec: str) -> None:
    async def work() -> None:
        async with AsyncEdgeClient("ws://127.0.0.1:1/v1/edgedraft", draft=draft_spec) as client:
            answer = await client.generate("hello", max_tokens=5, on_link_loss="local")
            assert answer.exact is Exactness.LOSSY
            assert answer.notices == (ALONE_NOTICE,)

    asyncio.run(work())


def test_a_link_that_stays_away_fails_the_request_in_time(own_cloud: RunningCloud, draft_spec: str) -> None:
    config = EdgeConfig(reconnect_timeout_s=0.5)

    async def work() -> None:
        async with AsyncEdgeClient(own_cloud.url, draft=draft_spec, config=config) as client:
            with pytest.raises(LinkLostError, match=r"within 0\.5 s"):
                async with client.stream(prompt_ids=PROMPT_IDS, max_tokens=LONG, ignore_eos=True) as stream:
                    await tokens_with(stream, {10: lambda: asyncio.to_thread(own_cloud.stop)})

    asyncio.run(work())


@pytest.mark.parametrize(
    ("spec", "error"),
    [("toy:vocab=300,seed=4", LinkLostError), ("toy:vocab=310,seed=3", VocabularyMismatchError)],
)
def test_another_model_after_a_reconnection_does_not_finish_the_text(
    own_cloud: RunningCloud, draft_spec: str, spec: str, error: type[Exception]
) -> None:
    async def work() -> None:
        async with link_to(own_cloud) as link, AsyncEdgeClient(url_of(link), draft=draft_spec, config=FAST) as client:
            model = ToyModel(ToySettings.parse(spec.partition(":")[2]))
            with running_cloud(ToyTarget(model), ToyTokenizer(model.num_ids), CHAT_TEMPLATE) as other:

                def swap() -> None:
                    link._upstream = (link._upstream[0], urlsplit(other.url).port or 0)
                    link.cut()

                with pytest.raises(error):
                    async with client.stream(prompt_ids=PROMPT_IDS, max_tokens=NUM_TOKENS, ignore_eos=True) as stream:
                        await tokens_with(stream, {10: swap})

    asyncio.run(work())


class OtherNumerics(ToyTarget):
    """The same weights in another quantisation: the same name and tokenizer, other logits."""

    def __init__(self, model: ToyModel) -> None:
        super().__init__(model)
        self.info = dataclasses.replace(self.info, exactness_note="weights Q4_0 instead of Q8_0")


def test_the_same_model_computed_otherwise_does_not_finish_the_text(
    own_cloud: RunningCloud, target_spec: str, draft_spec: str
) -> None:
    """Neither a text that it did not begin, nor one that was planned for the other and waited for the draft."""

    async def work() -> None:
        model = ToyModel(ToySettings.parse(target_spec.partition(":")[2]))
        async with link_to(own_cloud) as link, AsyncEdgeClient(url_of(link), draft=draft_spec, config=FAST) as client:
            with running_cloud(OtherNumerics(model), ToyTokenizer(model.num_ids), CHAT_TEMPLATE) as other:
                waiting: list[asyncio.Task[Answer]] = []

                def ask_and_swap() -> None:
                    waiting.append(asyncio.create_task(client.generate(prompt_ids=[1], max_tokens=5)))
                    asyncio.get_running_loop().call_later(0.1, swap)

                def swap() -> None:
                    link._upstream = (link._upstream[0], urlsplit(other.url).port or 0)
                    link.cut()

                with pytest.raises(LinkLostError, match="Q4_0"):
                    async with client.stream(prompt_ids=PROMPT_IDS, max_tokens=LONG, ignore_eos=True) as stream:
                        await tokens_with(stream, {10: ask_and_swap})
                with pytest.raises(LinkLostError, match="Q4_0"):
                    await waiting[0]
                assert (await client.generate(prompt_ids=[1], max_tokens=5)).token_ids, "a new request is planned anew"

    asyncio.run(work())


def test_a_saturated_cloud_is_asked_again_when_it_says(draft_spec: str, target_only: TargetOnly) -> None:
    model = ToyModel(ToySettings.parse("vocab=300,seed=3,eos_every=200"))
    with running_cloud(
        ToyTarget(model), ToyTokenizer(model.num_ids), CHAT_TEMPLATE, CloudConfig(port=0, max_sessions=1)
    ) as cloud:

        async def work() -> None:
            async with (
                AsyncEdgeClient(cloud.url, draft=draft_spec) as one,
                AsyncEdgeClient(cloud.url, draft=draft_spec) as two,
            ):
                async with one.stream(prompt_ids=PROMPT_IDS, max_tokens=4000, ignore_eos=True) as stream:
                    await anext(aiter(stream))
                    waiting = asyncio.create_task(two.generate(prompt_ids=PROMPT_IDS, max_tokens=20))
                    await asyncio.sleep(0.3)
                    assert not waiting.done()
                answer = await waiting
                assert list(answer.token_ids) == target_only(PROMPT_IDS, 20)

        asyncio.run(work())


# -- callers that leave ----------------------------------------------------------------------------------------------


def test_leaving_a_stream_frees_the_cloud_session_and_the_draft(own_cloud: RunningCloud, draft_spec: str) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(own_cloud.url, draft=draft_spec) as client:
            for _ in range(3):
                async with client.stream(prompt_ids=PROMPT_IDS, max_tokens=ENDLESS, ignore_eos=True) as stream:
                    await anext(aiter(stream))
                    assert len(own_cloud.sessions) == 1
                await until(lambda: len(own_cloud.sessions) == 0)
            answer = await client.generate(prompt_ids=PROMPT_IDS, max_tokens=5, ignore_eos=True)
            assert len(answer.token_ids) == 5

    asyncio.run(work())


def test_a_cancelled_task_frees_the_cloud_session_and_the_draft(own_cloud: RunningCloud, draft_spec: str) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(own_cloud.url, draft=draft_spec) as client:
            asking = asyncio.create_task(client.generate(prompt_ids=PROMPT_IDS, max_tokens=ENDLESS, ignore_eos=True))
            await until(lambda: len(own_cloud.sessions) == 1)
            queued = asyncio.create_task(client.generate(prompt_ids=PROMPT_IDS, max_tokens=ENDLESS, ignore_eos=True))
            await asyncio.sleep(0.02)
            queued.cancel()
            asking.cancel()
            for task in (queued, asking):
                with pytest.raises(asyncio.CancelledError):
                    await task
            await until(lambda: len(own_cloud.sessions) == 0)
            answer = await client.generate(prompt_ids=PROMPT_IDS, max_tokens=5, ignore_eos=True)
            assert len(answer.token_ids) == 5

    asyncio.run(work())


def test_cancel_ends_the_stream_with_what_there_is(
    own_cloud: RunningCloud, draft_spec: str, target_only: TargetOnly
) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(own_cloud.url, draft=draft_spec) as client:
            async with client.stream(prompt_ids=PROMPT_IDS, max_tokens=ENDLESS, ignore_eos=True) as stream:
                token_ids = await tokens_with(stream, {30: stream.cancel})
            answer = stream.answer
            assert answer.finish_reason is FinishReason.CANCELLED
            assert list(answer.token_ids) == token_ids == target_only(PROMPT_IDS, len(token_ids), ignore_eos=True)
            await until(lambda: len(own_cloud.sessions) == 0)

    asyncio.run(work())


def test_closing_the_client_ends_its_requests(own_cloud: RunningCloud, draft_spec: str) -> None:
    async def work() -> None:
        client = AsyncEdgeClient(own_cloud.url, draft=draft_spec)
        await client.open()
        asking = asyncio.create_task(client.generate(prompt_ids=PROMPT_IDS, max_tokens=ENDLESS, ignore_eos=True))
        await until(lambda: len(own_cloud.sessions) == 1)
        queued = asyncio.create_task(client.generate(prompt_ids=PROMPT_IDS, max_tokens=5))
        alone = asyncio.create_task(client.generate(prompt_ids=PROMPT_IDS, max_tokens=ENDLESS, strategy="cloud-only"))
        await until(lambda: len(own_cloud.sessions) == 2)
        await client.close()
        for task in (asking, alone, queued):
            with pytest.raises(EdgedraftError, match="closed"):
                await task
        await until(lambda: len(own_cloud.sessions) == 0)

    asyncio.run(work())


def test_finished_requests_leave_no_session(own_cloud: RunningCloud, draft_spec: str) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(own_cloud.url, draft=draft_spec) as client:
            for strategy in ("vanilla", "cloud-only"):
                await client.generate("hello", max_tokens=20, strategy=strategy)
                await until(lambda: len(own_cloud.sessions) == 0)

    asyncio.run(work())


# -- a draft that fails ----------------------------------------------------------------------------------------------


class FailingDraft(ToyDraft):
    """Fails at its tenth draft token."""

    def __init__(self, model: ToyModel) -> None:
        super().__init__(model)
        self.num_left = 10

    def draft(self):  # type: ignore[no-untyped-def]
        self.num_left -= 1
        if self.num_left < 0:
            raise RuntimeError("secret")
        return super().draft()


def test_a_draft_that_fails_hands_over_to_the_cloud(
    shared_cloud: RunningCloud, draft_spec: str, target_only: TargetOnly
) -> None:
    model = ToyModel(ToySettings.parse(draft_spec.partition(":")[2]))

    async def work() -> None:
        async with AsyncEdgeClient(
            shared_cloud.url, draft=FailingDraft(model), tokenizer=ToyTokenizer(model.num_ids)
        ) as client:
            answer = await client.generate(prompt_ids=PROMPT_IDS, max_tokens=NUM_TOKENS, ignore_eos=True)
            assert list(answer.token_ids) == target_only(PROMPT_IDS, NUM_TOKENS, ignore_eos=True)
            assert answer.exact is Exactness.BITWISE
            (notice,) = answer.notices
            assert "cloud-only" in notice
            assert "secret" not in notice

    asyncio.run(work())


@pytest.mark.parametrize("draft_context", [10, 20, 21, 40])
def test_a_short_draft_context_hands_over_to_the_cloud(
    shared_cloud: RunningCloud, draft_spec: str, target_only: TargetOnly, draft_context: int
) -> None:
    """Whether the prompt alone is too long for it, or the answer grows past it."""

    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=f"{draft_spec},context={draft_context}") as client:
            answer = await client.generate(prompt_ids=PROMPT_IDS, max_tokens=NUM_TOKENS, ignore_eos=True)
            assert list(answer.token_ids) == target_only(PROMPT_IDS, NUM_TOKENS, ignore_eos=True)
            (notice,) = answer.notices
            assert "cloud-only" in notice
            assert f"{draft_context}" in notice

    asyncio.run(work())


def test_no_cloud_fails_at_once_and_names_url_and_remedy(draft_spec: str) -> None:
    async def work() -> None:
        async with AsyncEdgeClient("ws://127.0.0.1:1/v1/edgedraft", draft=draft_spec) as client:
            started_s = time.perf_counter()
            with pytest.raises(CloudUnreachableError, match=r"ws://127\.0\.0\.1:1/v1/edgedraft") as caught:
                await client.generate("hello")
            assert "edgedraft cloud" in caught.value.remedy
            assert time.perf_counter() - started_s < client.config.connect_timeout_s

    asyncio.run(work())


def test_a_request_cancelled_while_it_waits_for_the_draft_never_begins(
    shared_cloud: RunningCloud, draft_spec: str
) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            async with client.stream("one", max_tokens=200, ignore_eos=True) as first:
                await anext(first)
                second = client.stream("two", max_tokens=5)
                entering = asyncio.create_task(second.__aenter__())
                while second._run is None:  # noqa: ASYNC110 (nothing tells that it waits)
                    await asyncio.sleep(0.001)
                second.cancel()
            await entering
            assert [piece async for piece in second] == []
            assert second.answer.finish_reason is FinishReason.CANCELLED
            assert (await client.generate("three", max_tokens=5)).usage.completion_tokens == 5

    asyncio.run(work())
