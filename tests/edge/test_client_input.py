"""Bad input: one clear error that names the field, before any work; the client stays usable."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from edgedraft import AsyncEdgeClient
from edgedraft.backends.toy import ToyDraft
from edgedraft.backends.toy_model import ToyModel, ToySettings
from edgedraft.edge.request import Request, RequestOptions
from edgedraft.errors import (
    ContextLengthError,
    EdgedraftError,
    InvalidRequestError,
    UnsupportedError,
    VocabularyMismatchError,
)
from edgedraft.schedule.caption_catalogue import ugsd
from edgedraft.schedule.catalogue import vanilla
from edgedraft.testing.cloud import RunningCloud

BAD = [
    ("prompt", {"prompt": ""}),
    ("prompt", {"prompt": None}),
    ("prompt", {"prompt": 3}),
    ("prompt", {"prompt": "hi", "messages": [{"role": "user", "content": "hi"}]}),
    ("prompt", {"prompt": "half a \udcff character"}),
    ("messages", {"prompt": None, "messages": []}),
    ("messages", {"prompt": None, "messages": "hi"}),
    ("messages", {"prompt": None, "messages": 5}),
    ("messages", {"prompt": None, "messages": ["hi"]}),
    ("messages", {"prompt": None, "messages": [{"role": "user", "content": "\ud83d"}]}),
    ("prompt_ids", {"prompt": None, "prompt_ids": 5}),
    ("prompt_ids", {"prompt": None, "prompt_ids": [True]}),
    ("prompt_ids", {"prompt": None, "prompt_ids": []}),
    ("prompt_ids", {"prompt": None, "prompt_ids": [1, -1]}),
    ("max_tokens", {"max_tokens": 0}),
    ("max_tokens", {"max_tokens": -5}),
    ("max_tokens", {"max_tokens": 2.5}),
    ("max_tokens", {"max_tokens": True}),
    ("strategy", {"strategy": "fastest"}),
    ("strategy", {"strategy": 5}),
    ("raw", {"raw": "yes"}),
    ("ignore_eos", {"ignore_eos": 1}),
    ("draft_length", {"draft_length": 0}),
    ("draft_length", {"draft_length": 4, "strategy": "cloud-only"}),
    ("draft_length", {"draft_length": 4, "strategy": vanilla()}),
    ("temperature", {"temperature": -1}),
    ("temperature", {"temperature": float("nan")}),
    ("temperature", {"temperature": "hot"}),
    ("temperature", {"temperature": 10**400}),
    ("top_p", {"top_p": 0}),
    ("top_k", {"top_k": -1}),
    ("min_p", {"min_p": 2}),
    ("seed", {"seed": -1}),
    ("seed", {"seed": "x"}),
    ("seed", {"seed": 10**400}),
    ("n", {"n": 2}),
    ("logit_bias", {"logit_bias": {"x": 1}}),
    ("logit_bias[3]", {"logit_bias": {3: 1000}}),
    ("logit_bias", {"logit_bias": {3: 10**400}}),
    ("logit_bias", {"logit_bias": [3]}),
    ("stop", {"stop": [""]}),
    ("stop", {"stop": None}),
    ("stop", {"stop": 5}),
    ("stop", {"stop": ["a", 5]}),
    ("stop", {"stop": "\udcff"}),
    ("stop_ids", {"stop_ids": 5}),
    ("stop_ids", {"stop_ids": ["x"]}),
    ("stop", {"stop": ["x"] * 17}),
    ("stop_ids", {"stop_ids": list(range(257))}),
    ("on_link_loss", {"on_link_loss": "panic"}),
    ("grammar", {"grammar": "root ::= x"}),
]


@pytest.mark.parametrize(("field", "options"), BAD, ids=[f"{field}-{number}" for number, (field, _) in enumerate(BAD)])
def test_a_bad_field_is_named_before_any_work(field: str, options: dict[str, Any]) -> None:
    """`stream` itself refuses: no client is open, no cloud is there."""
    client = AsyncEdgeClient("ws://127.0.0.1:1/v1/edgedraft", draft=None)
    with pytest.raises(InvalidRequestError) as caught:
        client.stream(**{"prompt": "hi", **options})
    assert caught.value.field == field
    assert field.partition("[")[0] in str(caught.value)


def test_options_and_request_have_the_same_fields() -> None:
    assert set(get_type_hints(RequestOptions)) | {"prompt"} == {field.name for field in fields(Request)}


def refuse(cloud: RunningCloud, error: type[EdgedraftError], draft: Any, **options: Any) -> EdgedraftError:
    """What a request raises; afterwards the same client answers a good one."""
    caught: list[EdgedraftError] = []
    num_before = len(cloud.sessions)  # another test may have left one that expires

    async def work() -> None:
        async with AsyncEdgeClient(cloud.url, draft=draft) as client:
            with pytest.raises(error) as raised:
                await client.generate(**options)
            caught.append(raised.value)
            if not isinstance(raised.value, VocabularyMismatchError):
                assert (
                    len((await client.generate(prompt_ids=[1, 2], max_tokens=3, strategy="cloud-only")).token_ids) == 3
                )
        while len(cloud.sessions) > num_before:  # noqa: ASYNC110 (the table lives in another thread)
            await asyncio.sleep(0.01)

    asyncio.run(work())
    return caught[0]


def test_a_prompt_longer_than_the_targets_context_is_refused(shared_cloud: RunningCloud, draft_spec: str) -> None:
    error = refuse(shared_cloud, ContextLengthError, draft_spec, prompt_ids=[1] * 4096)
    assert "4096" in str(error)


def test_a_prompt_longer_than_the_drafts_context_is_refused_where_the_draft_works_alone(
    shared_cloud: RunningCloud, draft_spec: str
) -> None:
    error = refuse(
        shared_cloud, ContextLengthError, draft_spec + ",context=8", prompt_ids=[1] * 8, strategy="edge-only"
    )
    assert "draft model" in str(error)


@pytest.mark.parametrize("field", ["prompt_ids", "stop_ids"])
def test_ids_outside_the_vocabulary_are_refused(shared_cloud: RunningCloud, draft_spec: str, field: str) -> None:
    error = refuse(shared_cloud, InvalidRequestError, draft_spec, **{"prompt_ids": [1], field: [300]})
    assert error.field == field  # type: ignore[attr-defined]


def test_a_bias_outside_the_vocabulary_is_refused(shared_cloud: RunningCloud, draft_spec: str) -> None:
    error = refuse(shared_cloud, InvalidRequestError, draft_spec, prompt="hi", logit_bias={300: 1.0})
    assert error.field == "logit_bias"  # type: ignore[attr-defined]


def test_rule_rank_is_refused_for_a_text(shared_cloud: RunningCloud, draft_spec: str) -> None:
    error = refuse(
        shared_cloud,
        UnsupportedError,
        draft_spec,
        prompt="hi",
        strategy=ugsd(threshold=1.0, rank=3),
    )
    assert error.field == "rule"  # type: ignore[attr-defined]


def test_a_strategy_that_needs_a_draft_says_so(shared_cloud: RunningCloud, target_spec: str) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=None, tokenizer=target_spec) as client:
            with pytest.raises(InvalidRequestError, match="needs a draft model"):
                await client.generate("hi", strategy="vanilla")
            assert (await client.generate("hi", max_tokens=2)).strategy == "cloud-only"

    asyncio.run(work())


@pytest.mark.parametrize(
    ("draft", "first_id"),
    [("toy:vocab=310", 296), ("toy:vocab=20000", 296), ("toy:vocab=250", 0)],
)
def test_another_vocabulary_is_refused_naming_the_first_id(
    shared_cloud: RunningCloud, draft: str, first_id: int
) -> None:
    """300 ids here: 296 is the first control token, and a small toy vocabulary has letters instead of bytes."""
    error = refuse(shared_cloud, VocabularyMismatchError, draft, prompt="hi")
    assert isinstance(error, VocabularyMismatchError)
    assert error.first_id == first_id
    assert f"id {first_id} " in str(error)


def test_one_changed_token_is_found_among_all(shared_cloud: RunningCloud, target_spec: str) -> None:
    from edgedraft.backends.toy_tokenizer import ToyTokenizer

    class Changed(ToyTokenizer):
        def identity(self, token_id: int) -> bytes:
            return b"control:<unused>" if token_id == 139 else super().identity(token_id)

    async def work() -> None:
        draft = ToyDraft(ToyModel(ToySettings.parse(target_spec.partition(":")[2])))
        async with AsyncEdgeClient(shared_cloud.url, draft=draft, tokenizer=Changed(300)) as client:
            with pytest.raises(VocabularyMismatchError) as caught:
                await client.generate("hi")
            assert caught.value.first_id == 139
            assert "override" in caught.value.remedy

    asyncio.run(work())


def test_an_open_draft_needs_a_tokenizer() -> None:
    async def work() -> None:
        draft = ToyDraft(ToyModel(ToySettings()))
        with pytest.raises(InvalidRequestError) as caught:
            await AsyncEdgeClient(draft=draft).open()
        assert caught.value.field == "tokenizer"

    asyncio.run(work())


def test_a_client_that_is_not_open_says_how_to_open_it() -> None:
    async def work() -> None:
        with pytest.raises(EdgedraftError, match="async with"):
            await AsyncEdgeClient().generate("hi")

    asyncio.run(work())
