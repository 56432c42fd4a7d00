"""Stop rules, counting, streaming: what the caller reads."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable

import pytest

from edgedraft import Answer, AsyncEdgeClient
from edgedraft.backends.toy_tokenizer import CHAT_TEMPLATE, ToyTokenizer
from edgedraft.testing.cloud import RunningCloud
from edgedraft.types import FinishReason, SamplingParams

TargetOnly = Callable[..., list[int]]
TOKENIZER = ToyTokenizer(300)
PROMPT_IDS = list(range(20))


def text_of(token_ids: list[int]) -> str:
    return b"".join(map(TOKENIZER.token_bytes, token_ids)).decode("utf-8", "replace")


async def streamed(client: AsyncEdgeClient, **options: object) -> tuple[str, list[int], Answer]:
    text, token_ids = "", []
    async with client.stream(**options) as stream:  # type: ignore[arg-type]
        async for piece in stream:
            text += piece.text
            token_ids += [token.token_id for token in piece.tokens]
            assert piece.num_tokens == len(piece.tokens)
    return text, token_ids, stream.answer


def test_streamed_text_is_the_answers_text_for_many_stops(
    shared_cloud: RunningCloud, draft_spec: str, target_only: TargetOnly
) -> None:
    """Stop strings cut out of the text itself: inside an accepted run, over tokens, over rounds, in characters."""
    full_ids = target_only(PROMPT_IDS, 60, ignore_eos=True)
    full = text_of(full_ids)
    rng = random.Random(1)
    # A character that is incomplete so far looks like one that is broken: such stops have no one last token.
    candidates = [full[at : at + size] for at in range(len(full) - 8) for size in range(1, 8)]
    stops = rng.sample([stop for stop in candidates if not stop.endswith("\ufffd")], 60)

    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            for number, stop in enumerate(stops):
                text, token_ids, answer = await streamed(
                    client,
                    prompt_ids=PROMPT_IDS,
                    max_tokens=60,
                    stop=[stop, "never in there"],
                    ignore_eos=True,
                    draft_length=1 + number % 8,
                )
                assert text == answer.text == full[: full.find(stop)]
                assert answer.finish_reason is FinishReason.STOP
                assert token_ids == list(answer.token_ids) == full_ids[: len(token_ids)]
                assert answer.usage.completion_tokens == len(token_ids) == answer.accounting["num_committed"]
                # The last token is the one that completed the stop string.
                assert stop in text_of(token_ids)
                assert stop not in text_of(token_ids[:-1])

    asyncio.run(work())


def test_a_stop_string_comes_before_the_token_budget_and_the_end_of_sequence(
    shared_cloud: RunningCloud, target_spec: str, target_only: TargetOnly
) -> None:
    """One round brings the stop string, more tokens and the end of the budget: the stop counts."""
    full_ids = target_only(PROMPT_IDS, 6, ignore_eos=True)
    stop = text_of(full_ids[2:3])
    assert "\ufffd" not in stop

    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=target_spec) as client:
            answer = await client.generate(
                prompt_ids=PROMPT_IDS, max_tokens=6, stop=stop, draft_length=8, ignore_eos=True
            )
            expected = next(n for n in range(1, 7) if stop in text_of(full_ids[:n]))
            assert answer.finish_reason is FinishReason.STOP
            assert list(answer.token_ids) == full_ids[:expected]
            assert answer.accounting["num_committed"] == expected

    asyncio.run(work())


@pytest.mark.parametrize("strategy", ["vanilla", "cloud-only", "edge-only"])
def test_max_tokens_is_exact(
    shared_cloud: RunningCloud, target_spec: str, target_only: TargetOnly, strategy: str
) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=target_spec) as client:
            for max_tokens in range(1, 21):
                text, token_ids, answer = await streamed(
                    client, prompt_ids=PROMPT_IDS, max_tokens=max_tokens, strategy=strategy, ignore_eos=True
                )
                assert token_ids == target_only(PROMPT_IDS, max_tokens, ignore_eos=True)
                assert answer.finish_reason is FinishReason.LENGTH
                assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (20, max_tokens)
                assert text == answer.text == text_of(token_ids)

    asyncio.run(work())


def test_end_of_sequence_ends_text_and_is_counted(
    shared_cloud: RunningCloud, draft_spec: str, target_only: TargetOnly
) -> None:
    """Both end-of-sequence ids of the target, wherever they fall in a round."""

    async def work() -> None:
        seen = set()
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            for first in range(16):
                sampling = SamplingParams(temperature=1.0, seed=first)
                expected = target_only([first, 1, 2], 400, sampling)
                answer = await client.generate(prompt_ids=[first, 1, 2], max_tokens=400, temperature=1.0, seed=first)
                assert list(answer.token_ids) == expected
                if len(expected) < 400:
                    assert answer.finish_reason is FinishReason.STOP
                    assert answer.token_ids[-1] in TOKENIZER.eos_ids
                    assert answer.text == text_of(expected[:-1])
                    seen.add(expected[-1])
        assert seen == set(TOKENIZER.eos_ids)

    asyncio.run(work())


def test_stop_ids_end_the_answer_like_an_end_of_sequence(
    shared_cloud: RunningCloud, draft_spec: str, target_only: TargetOnly
) -> None:
    full_ids = target_only(PROMPT_IDS, 30, ignore_eos=True)
    stop_id = full_ids[12]
    end = full_ids.index(stop_id) + 1

    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            answer = await client.generate(prompt_ids=PROMPT_IDS, max_tokens=30, stop_ids=[stop_id], ignore_eos=True)
            assert list(answer.token_ids) == full_ids[:end]
            assert answer.text == text_of(full_ids[: end - 1])
            assert answer.finish_reason is FinishReason.STOP

    asyncio.run(work())


def test_the_targets_template_is_applied_once_with_one_bos(shared_cloud: RunningCloud, draft_spec: str) -> None:
    """The toy tokenizer wants a BOS of its own and the template writes one: the target gets one."""
    from edgedraft.backends.template import encode_chat

    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            wanted = encode_chat(TOKENIZER, CHAT_TEMPLATE, [{"role": "user", "content": "hi"}])
            assert wanted.count(TOKENIZER.bos_id) == 1  # type: ignore[arg-type]
            answers = [
                await client.generate("hi", max_tokens=10),
                await client.generate(messages=[{"role": "user", "content": "hi"}], max_tokens=10),
                await client.generate(prompt_ids=wanted, max_tokens=10),
            ]
            assert len({answer.token_ids for answer in answers}) == 1
            assert {answer.usage.prompt_tokens for answer in answers} == {len(wanted)}
            raw = await client.generate("hi", max_tokens=10, raw=True)
            assert raw.usage.prompt_tokens == 3

    asyncio.run(work())


def test_characters_are_never_split(shared_cloud: RunningCloud, draft_spec: str) -> None:
    """A biased model writes one emoji, byte by byte; no piece holds a part of it, nor does the end."""
    emoji = "🙂".encode()

    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            async with client.stream(
                prompt_ids=PROMPT_IDS,
                max_tokens=40,
                logit_bias=dict.fromkeys(emoji, 100.0),
                ignore_eos=True,
                temperature=1.0,
                seed=1,
            ) as stream:
                parts = [piece.text async for piece in stream]
            token_ids = list(stream.answer.token_ids)
            assert set(token_ids) <= set(emoji)
            assert "".join(parts) == stream.answer.text == text_of(token_ids)

    asyncio.run(work())


def test_the_answer_as_json_has_the_promised_keys_in_order(shared_cloud: RunningCloud, draft_spec: str) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            answer = await client.generate(prompt_ids=PROMPT_IDS, max_tokens=10, seed=1)
        plain = json.loads(json.dumps(answer.to_dict()))
        assert list(plain)[:7] == ["text", "token_ids", "finish_reason", "usage", "strategy", "exact", "accounting"]
        assert (plain["strategy"], plain["exact"], plain["finish_reason"]) == ("auto", "bitwise", "length")
        assert plain["usage"]["total_tokens"] == 30
        promised = (
            "ttft_s total_s tpt_s num_rounds num_drafted num_accepted num_committed num_target_passes tokens_up "
            "bytes_up bytes_down num_discarded num_reconnects num_reused num_replans num_retunes "
            "draft_step_s verify_step_s verify_per_id_s link tuner choice"
        )
        assert set(promised.split()) <= set(plain["accounting"])

    asyncio.run(work())


def test_a_long_prompt_travels_once(shared_cloud: RunningCloud) -> None:
    """Bytes up beyond the prompt's own are those of the rounds."""
    spec = "toy:vocab=300,seed=3,eos_every=200,context=40000"

    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=spec) as client:
            prompt_ids = [index % 250 for index in range(4000)]
            short = await client.generate(prompt_ids=prompt_ids[-20:], max_tokens=40, ignore_eos=True)
            long = await client.generate(prompt_ids=prompt_ids, max_tokens=40, ignore_eos=True)
            added = long.accounting["bytes_up"] - short.accounting["bytes_up"]
            assert 4000 < added < 4000 * 2 + 200

    asyncio.run(work())


def test_an_answer_that_would_pass_the_context_is_cut_to_it_and_says_so(
    shared_cloud: RunningCloud, draft_spec: str
) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            prompt_ids = [index % 250 for index in range(4090)]
            answer = await client.generate(prompt_ids=prompt_ids, max_tokens=20, ignore_eos=True)
            assert len(answer.token_ids) == 6
            assert answer.finish_reason is FinishReason.LENGTH
            assert any("lowered from 20 to 6" in notice for notice in answer.notices)

    asyncio.run(work())


def test_sampling_of_the_reference_is_the_one_sent(target_only: TargetOnly) -> None:
    """The reference used above tells seeds apart."""
    texts = {tuple(target_only(PROMPT_IDS, 20, SamplingParams(temperature=0.8, seed=seed))) for seed in range(4)}
    assert len(texts) == 4
