"""Whatever the draft, its length, the sampling and the company: the text is the target's own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from edgedraft import AsyncEdgeClient
from edgedraft.backends.toy_model import ToyModel, ToySettings
from edgedraft.core.strategy import Strategy, UploadImmediately
from edgedraft.core.triggers import FixedLength
from edgedraft.testing.cloud import RunningCloud
from edgedraft.types import Assist, Exactness, Rule, SamplingParams, TokenKind

TargetOnly = Callable[..., list[int]]
PROMPTS = [[5, 9, 2], list(range(40)), [250, 251, 252, 253]]


def prompts(seed: int, count: int) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(290) for _ in range(rng.randrange(1, 30))] for _ in range(count)]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_text_equals_target_only_for_every_draft_length(
    shared_cloud: RunningCloud, draft_spec: str, target_only: TargetOnly, temperature: float
) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            for draft_length in range(1, 9):
                for seed, prompt_ids in enumerate(prompts(draft_length, 3)):
                    answer = await client.generate(
                        prompt_ids=prompt_ids,
                        max_tokens=40,
                        draft_length=draft_length,
                        temperature=temperature,
                        seed=seed,
                    )
                    sampling = SamplingParams(temperature=temperature, seed=seed)
                    assert list(answer.token_ids) == target_only(prompt_ids, 40, sampling)
                    assert answer.exact is Exactness.BITWISE
                    assert answer.accounting["num_reopens"] == 0

    asyncio.run(work())


@pytest.mark.parametrize(
    "draft", ["toy:vocab=300,seed=3", "toy:vocab=300,seed=99", "toy:vocab=300,seed=3,noise=1", "lookup"]
)
def test_the_draft_never_shows_in_the_text(
    shared_cloud: RunningCloud, target_spec: str, target_only: TargetOnly, draft: str
) -> None:
    """A perfect draft, one that is nearly always wrong, a middling one, and one that often has no proposal."""

    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft, tokenizer=target_spec) as client:
            for prompt_ids in PROMPTS:
                answer = await client.generate(prompt_ids=prompt_ids, max_tokens=30, temperature=0.7, seed=4)
                assert list(answer.token_ids) == target_only(prompt_ids, 30, SamplingParams(temperature=0.7, seed=4))

    asyncio.run(work())


def test_penalties_and_bias_are_obeyed_at_every_position(
    shared_cloud: RunningCloud, draft_spec: str, target_only: TargetOnly
) -> None:
    sampling = SamplingParams(
        temperature=0.9,
        seed=3,
        top_k=40,
        top_p=0.95,
        min_p=0.01,
        repetition_penalty=1.3,
        presence_penalty=0.5,
        frequency_penalty=-0.4,
        logit_bias={7: -100.0, 8: 3.0},
    )

    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            answer = await client.generate(
                prompt_ids=PROMPTS[1],
                max_tokens=50,
                temperature=0.9,
                seed=3,
                top_k=40,
                top_p=0.95,
                min_p=0.01,
                repetition_penalty=1.3,
                presence_penalty=0.5,
                frequency_penalty=-0.4,
                logit_bias={7: -100, 8: 3},
            )
            assert list(answer.token_ids) == target_only(PROMPTS[1], 50, sampling)
            assert 7 not in answer.token_ids

    asyncio.run(work())


def test_cloud_only_streams_the_targets_own_tokens(
    shared_cloud: RunningCloud, target_spec: str, target_only: TargetOnly
) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=None, tokenizer=target_spec) as client:
            answer = await client.generate(prompt_ids=PROMPTS[0], max_tokens=150, ignore_eos=True)
            assert list(answer.token_ids) == target_only(PROMPTS[0], 150, ignore_eos=True)
            assert {token.kind for token in answer.tokens} == {TokenKind.OWN}
            assert answer.strategy == "cloud-only"
            assert answer.accounting["num_target_passes"] == 150

    asyncio.run(work())


def test_other_strategies_as_data_write_the_same_text(
    shared_cloud: RunningCloud, draft_spec: str, target_only: TargetOnly
) -> None:
    strategies = [
        Strategy(name="ahead", trigger=FixedLength(3), draft_ahead_tokens=4),
        Strategy(name="streamed", trigger=FixedLength(4), upload=UploadImmediately(), draft_ahead_tokens=8),
        Strategy(name="eager", upload=UploadImmediately(), draft_ahead_tokens=8, eager=True, assist=Assist.BUBBLE),
        Strategy(name="always", upload=UploadImmediately(), draft_ahead_tokens=8, eager=True, assist=Assist.ALWAYS),
    ]

    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            for strategy in strategies:
                answer = await client.generate(prompt_ids=PROMPTS[2], max_tokens=60, strategy=strategy, ignore_eos=True)
                assert list(answer.token_ids) == target_only(PROMPTS[2], 60, ignore_eos=True), strategy.name

    asyncio.run(work())


def test_same_seed_same_text_alone_and_in_company(shared_cloud: RunningCloud, draft_spec: str) -> None:
    """Cloud-only requests run beside the one that holds the draft; another seed gives another text."""

    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:

            async def ask(seed: int, strategy: str = "vanilla") -> tuple[int, ...]:
                answer = await client.generate(
                    prompt_ids=PROMPTS[1], max_tokens=30, temperature=0.9, seed=seed, strategy=strategy
                )
                return tuple(answer.token_ids)

            alone = await ask(1)
            together = await asyncio.gather(ask(1), ask(2), ask(1), *(ask(seed, "cloud-only") for seed in (1, 3, 4)))
            assert together[0] == together[2] == together[3] == alone
            assert len({together[0], together[1], together[4], together[5]}) == 4

    asyncio.run(work())


def test_the_second_request_behaves_like_the_first(shared_cloud: RunningCloud, draft_spec: str) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            one, two = [
                await client.generate(prompt_ids=PROMPTS[1], max_tokens=30, seed=1, strategy="vanilla")
                for _ in range(2)
            ]
            assert one.token_ids == two.token_ids
            for name in ("num_rounds", "num_drafted", "num_accepted", "num_target_passes", "tokens_up"):
                assert one.accounting[name] == two.accounting[name]
            assert one.accounting["num_accepted"] > 0

    asyncio.run(work())


def test_an_absent_seed_is_drawn_and_reported(shared_cloud: RunningCloud, draft_spec: str) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            first = await client.generate(prompt_ids=PROMPTS[0], max_tokens=20, temperature=1.0)
            again = await client.generate(prompt_ids=PROMPTS[0], max_tokens=20, temperature=1.0, seed=first.seed)
            other = await client.generate(prompt_ids=PROMPTS[0], max_tokens=20, temperature=1.0)
            assert first.token_ids == again.token_ids
            assert other.seed != first.seed

    asyncio.run(work())


def test_every_token_of_a_round_is_counted_once(shared_cloud: RunningCloud, draft_spec: str) -> None:
    """Tokens of a round are accepted ones and one next token (none is thrown away)."""

    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            answer = await client.generate(prompt_ids=PROMPTS[0], max_tokens=50, ignore_eos=True)
            assert sum(record.num_committed for record in answer.record.rounds) == 50
            for record in answer.record.rounds[:-1]:
                assert record.num_committed == record.num_accepted + 1
            kinds = [token.kind for token in answer.tokens]
            assert kinds.count(TokenKind.ACCEPTED) == answer.accounting["num_accepted"]

    asyncio.run(work())


def test_the_ratio_rule_is_exact_in_distribution_and_says_so(shared_cloud: RunningCloud, draft_spec: str) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            strategy = Strategy(name="ratio", rule=Rule.RATIO)
            answer = await client.generate(
                prompt_ids=PROMPTS[0], max_tokens=40, strategy=strategy, temperature=0.8, top_k=20, ignore_eos=True
            )
            assert answer.exact is Exactness.DISTRIBUTION
            assert len(answer.token_ids) == 40
            assert answer.accounting["num_accepted"] > 0

    asyncio.run(work())


def test_padded_vocabularies_work_and_padding_is_never_written(
    shared_cloud: RunningCloud, target_spec: str, target_only: TargetOnly
) -> None:
    padded = "toy:vocab=333,ids=300,seed=3,agree=0.8"

    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=padded) as client:
            answer = await client.generate(
                prompt_ids=PROMPTS[0], max_tokens=60, temperature=1.0, seed=2, strategy="vanilla"
            )
            assert list(answer.token_ids) == target_only(PROMPTS[0], 60, SamplingParams(temperature=1.0, seed=2))
            assert answer.accounting["num_accepted"] > 0

    asyncio.run(work())


def test_edge_only_is_the_drafts_own_text_and_needs_no_network(draft_spec: str, target_only: TargetOnly) -> None:
    async def work() -> None:
        async with AsyncEdgeClient("ws://127.0.0.1:1/v1/edgedraft", draft=draft_spec) as client:
            prompt_ids = client.tokenizer.encode("x", parse_special=False)
            answers = [
                await client.generate(prompt_ids=prompt_ids, max_tokens=40, strategy="edge-only") for _ in range(2)
            ]
            for answer in answers:
                assert list(answer.token_ids) == target_only(prompt_ids, 40, spec=draft_spec)
                assert answer.exact is Exactness.LOSSY
                assert (answer.accounting["bytes_up"], answer.accounting["bytes_down"]) == (0, 0)
                assert {token.kind for token in answer.tokens} == {TokenKind.LOCAL}
            chat = await client.generate("hello", max_tokens=3, strategy="edge-only")
            assert chat.usage.prompt_tokens > len("hello")

    asyncio.run(work())


def test_the_toy_pair_is_what_these_tests_assume(draft_spec: str) -> None:
    """Some drafts are accepted and some are not, or nothing above would be tested."""
    target, draft = (
        ToyModel(ToySettings.parse(spec.partition(":")[2])) for spec in ("toy:vocab=300,seed=3", draft_spec)
    )
    same = [
        int(target.logits([one, two])[:300].argmax()) == int(draft.logits([one, two])[:300].argmax())
        for one in range(20)
        for two in range(20)
    ]
    assert 0.5 < sum(same) / len(same) < 0.95
