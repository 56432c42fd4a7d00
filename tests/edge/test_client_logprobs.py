"""Log-probabilities through links that break and clouds that forget, and where there are none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import pytest
from scipy.special import log_softmax

from edgedraft import AsyncEdgeClient
from edgedraft.backends.toy_model import ToyModel, ToySettings
from edgedraft.config import EdgeConfig
from edgedraft.core.strategy import Strategy, UploadImmediately
from edgedraft.core.triggers import FixedLength
from edgedraft.errors import InvalidRequestError, UnsupportedError
from edgedraft.schedule.catalogue import edge_only
from edgedraft.testing.cloud import RunningCloud
from edgedraft.testing.link import LinkEmulator
from edgedraft.types import Assist, Exactness, OnLinkLoss, Rule, TokenKind

PROMPT_IDS = list(range(20))
NUM_TOKENS = 60
FAST = EdgeConfig(silence_s=0.3, reconnect_timeout_s=10.0)
STRATEGIES: Sequence[str | Strategy] = (
    "cloud-only",
    "vanilla",
    Strategy(
        name="all at once",
        trigger=FixedLength(5),
        draft_ahead_tokens=6,
        upload=UploadImmediately(),
        assist=Assist.BUBBLE,
        eager=True,
    ),
    Strategy(name="ratio", rule=Rule.RATIO),
)


def logprobs_of(spec: str, token_ids: Sequence[int]) -> list[float]:
    """Straight from the toy's rows."""
    model = ToyModel(ToySettings.parse(spec.partition(":")[2]))
    text = [*PROMPT_IDS, *token_ids]
    places = range(len(PROMPT_IDS), len(text))
    return [float(log_softmax(model.logits(text[:at]).astype("f8")[: model.num_ids])[text[at]]) for at in places]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda each: getattr(each, "name", each))
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_each_token_keeps_its_own_through_cuts_and_evictions(
    own_cloud: RunningCloud, draft_spec: str, target_spec: str, strategy: str | Strategy, temperature: float
) -> None:
    address = urlsplit(own_cloud.url)

    async def work() -> None:
        async with (
            LinkEmulator(str(address.hostname), int(address.port or 0)) as link,
            AsyncEdgeClient(f"ws://{link.host}:{link.port}/v1/edgedraft", draft=draft_spec, config=FAST) as client,
        ):
            faults: dict[int, Callable[[], None]] = {5: link.cut, 20: own_cloud.evict_all, 35: link.cut}
            streamed = []
            async with client.stream(
                prompt_ids=PROMPT_IDS,
                max_tokens=NUM_TOKENS,
                ignore_eos=True,
                temperature=temperature,
                seed=1,
                strategy=strategy,
                logprobs=True,
            ) as stream:
                async for piece in stream:
                    streamed += [token.logprob for token in piece.tokens]
                    for due in [at for at in faults if at <= len(streamed)]:
                        faults.pop(due)()
            answer = stream.answer
            assert len(answer.token_ids) == NUM_TOKENS
            assert answer.logprobs == tuple(streamed)
            assert streamed == pytest.approx(logprobs_of(target_spec, answer.token_ids), abs=1e-6)

    asyncio.run(work())


def test_an_answer_that_ends_early_has_one_for_each_of_its_tokens(shared_cloud: RunningCloud, draft_spec: str) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            plain = await client.generate(prompt_ids=PROMPT_IDS, max_tokens=30, ignore_eos=True)
            for ending in ({"stop": plain.text[6:9]}, {"stop_ids": [plain.token_ids[10]]}, {"max_tokens": 1}):
                answer = await client.generate(
                    prompt_ids=PROMPT_IDS,
                    ignore_eos=True,
                    logprobs=True,
                    draft_length=8,
                    **ending,  # type: ignore[arg-type]
                )
                assert answer.logprobs is not None
                assert len(answer.logprobs) == len(answer.token_ids) < 30
                assert all(isinstance(logprob, float) for logprob in answer.logprobs)

    asyncio.run(work())


def test_tokens_of_the_draft_alone_have_none(draft_spec: str) -> None:
    async def work() -> None:
        async with AsyncEdgeClient("ws://127.0.0.1:1/v1/edgedraft", draft=draft_spec) as client:
            answer = await client.generate(
                prompt_ids=PROMPT_IDS, max_tokens=4, ignore_eos=True, logprobs=True, on_link_loss=OnLinkLoss.LOCAL
            )
            assert answer.exact is Exactness.LOSSY
            assert {token.kind for token in answer.tokens} == {TokenKind.LOCAL}
            assert answer.to_dict()["logprobs"] == [None] * 4

    asyncio.run(work())


def test_they_are_refused_where_there_is_no_target(draft_spec: str) -> None:
    client = AsyncEdgeClient("ws://127.0.0.1:1/v1/edgedraft", draft=draft_spec)
    for strategy in ("edge-only", edge_only()):
        with pytest.raises(UnsupportedError, match=r"logprobs are the target's.*'edge-only'") as refused:
            client.stream(prompt_ids=PROMPT_IDS, strategy=strategy, logprobs=True)
        assert refused.value.field == "logprobs"
    with pytest.raises(InvalidRequestError, match="logprobs is int; legal: true or false") as wrong:
        client.stream(prompt_ids=PROMPT_IDS, logprobs=5)  # type: ignore[typeddict-item]
    assert wrong.value.field == "logprobs"
