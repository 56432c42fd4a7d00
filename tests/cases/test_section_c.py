"""Section C of the cases, as far as a request has these fields. The number in a name is the case's."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

from edgedraft import EdgeClient
from edgedraft.backends import registry
from edgedraft.backends.base import BackendOptions, TargetBackend, Tokenizer
from edgedraft.backends.template import encode_chat
from edgedraft.bench.target_only import target_only_ids
from edgedraft.cli.app import main
from edgedraft.edge.answer import Answer
from edgedraft.errors import InvalidRequestError, UnsupportedError
from edgedraft.testing.cloud import RunningCloud, running_cloud
from edgedraft.testing.link import running_link
from edgedraft.types import SamplingParams

from .conftest import PROMPT, TARGET, WatchedTarget, scored_alone, toy_model

NOBODY = "ws://127.0.0.1:1/v1/edgedraft"
"""Nobody listens there: what is refused in spite of it was refused before any work."""


@pytest.mark.model
def test_case_33_bias_and_penalties_are_obeyed_at_every_position_of_a_real_model(
    demo_edge: EdgeClient, demo_target: TargetBackend, demo_tokenizer: Tokenizer
) -> None:
    question = "Count from one to five."
    plain = demo_edge.generate(question, max_tokens=12)
    often = max(plain.token_ids, key=list(plain.token_ids).count)
    sampling = SamplingParams(logit_bias={often: -100.0}, presence_penalty=2.0, frequency_penalty=-2.0)
    prompt_ids = encode_chat(
        demo_tokenizer, registry.chat_template("demo:target"), [{"role": "user", "content": question}]
    )
    expected = target_only_ids(
        demo_target, prompt_ids, sampling=sampling, max_tokens=12, eos_ids=demo_tokenizer.eos_ids
    )
    answer = demo_edge.generate(
        question, max_tokens=12, logit_bias={often: -100}, presence_penalty=2.0, frequency_penalty=-2.0
    )
    assert list(answer.token_ids) == expected != list(plain.token_ids)
    assert often not in answer.token_ids


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("top_logprobs", 2),
        ("json_schema", {}),  # case 36
        ("response_format", {"type": "json_object"}),
        ("grammar", "root ::= 'a'"),
        ("best_of", 2),
    ],
)
def test_cases_33_and_36_a_field_that_is_not_there_is_refused_by_name(field: str, value: Any) -> None:
    with EdgeClient(NOBODY, draft="toy:vocab=300") as client, pytest.raises(InvalidRequestError) as refused:
        client.generate("hello", **{field: value})
    assert refused.value.field == field
    assert f"'{field}' is no field of a request" in refused.value.message


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("draft_length", [1, 4, 8])
def test_case_34_log_probabilities_are_those_of_the_target_alone(
    toy_edge: EdgeClient, toy_target: TargetBackend, draft_length: int, temperature: float
) -> None:
    sampling = SamplingParams(temperature=temperature, seed=draft_length, presence_penalty=0.5, logit_bias={7: 2.0})
    expected = scored_alone(toy_target, PROMPT, sampling=sampling, max_tokens=60)
    options: dict[str, Any] = {
        "prompt_ids": PROMPT,
        "max_tokens": 60,
        "ignore_eos": True,
        "draft_length": draft_length,
        "temperature": temperature,
        "seed": draft_length,
        "presence_penalty": 0.5,
        "logit_bias": {7: 2.0},
    }
    answer = toy_edge.generate(**options, logprobs=True)
    check_logprobs(answer, expected)
    assert answer.to_dict()["logprobs"] == list(answer.logprobs or ())
    plain = toy_edge.generate(**options)
    assert plain.token_ids == answer.token_ids
    assert plain.logprobs is None
    assert "logprobs" not in plain.to_dict()
    assert {token.logprob for token in plain.tokens} == {None}


@pytest.mark.model
def test_case_34_log_probabilities_of_a_real_model_also_after_cuts_and_evictions(
    demo_cloud: RunningCloud, demo_target: TargetBackend, demo_tokenizer: Tokenizer
) -> None:
    question = "Name two colours."
    prompt_ids = encode_chat(
        demo_tokenizer, registry.chat_template("demo:target"), [{"role": "user", "content": question}]
    )
    address = urlsplit(demo_cloud.url)
    options = BackendOptions(threads=1, context_length=512)
    with (
        running_link(str(address.hostname), int(address.port or 0)) as link,
        EdgeClient(f"ws://{link.host}:{link.port}/v1/edgedraft", draft="demo:draft", draft_options=options) as client,
    ):
        for temperature in (0.0, 0.8):
            expected = scored_alone(
                demo_target,
                prompt_ids,
                sampling=SamplingParams(temperature=temperature, seed=5),
                max_tokens=16,
                eos_ids=demo_tokenizer.eos_ids,
            )
            for draft_length, faults in ((1, [link.cut]), (4, [demo_cloud.evict_all]), (8, [])):
                with client.stream(
                    question,
                    max_tokens=16,
                    draft_length=draft_length,
                    temperature=temperature,
                    seed=5,
                    logprobs=True,
                ) as stream:
                    for _ in stream:
                        if faults:
                            faults.pop()()
                check_logprobs(stream.answer, expected)


def check_logprobs(answer: Answer, expected: list[tuple[int, float]]) -> None:
    assert list(answer.token_ids) == [token_id for token_id, _ in expected]
    assert answer.logprobs == pytest.approx([logprob for _, logprob in expected], abs=1e-3)
    assert answer.logprobs == tuple(token.logprob for token in answer.tokens)


def test_case_37_several_answers_are_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with EdgeClient(NOBODY, draft="toy:vocab=300") as client, pytest.raises(UnsupportedError, match=r"n is 2.*seeds"):
        client.generate("hello", n=2)
    assert main(["generate", "hello", "--n", "2"]) == 2
    assert "--n" in capsys.readouterr().err


def test_case_39_a_round_costs_its_own_tokens_in_bytes_and_in_prefill() -> None:
    """With a prompt of 30,000 ids: it travels once, is prefilled once, and a round evaluates what is new."""
    spec = "toy:vocab=300,seed=3,context=40000"
    target = WatchedTarget(toy_model(spec))
    prompt_ids = [index % 250 for index in range(30_000)]
    with (
        running_cloud(target, registry.open_tokenizer(spec)) as cloud,
        EdgeClient(cloud.url, draft=spec + ",agree=0.8") as client,
    ):
        short = client.generate(prompt_ids=prompt_ids[:20], max_tokens=120, ignore_eos=True, draft_length=8)
        target.num_prefilled, target.passes = 0, []
        long = client.generate(prompt_ids=prompt_ids, max_tokens=120, ignore_eos=True, draft_length=8)
    assert target.num_prefilled == 30_000
    evaluated = [len(each.committed_ids) + len(each.draft_ids) for each in target.passes]
    assert len(evaluated) == long.accounting["num_rounds"] >= 14
    assert max(evaluated) <= 9
    # Ids of 128 and more take two bytes, and a position past 65,535 would take two more than a small one.
    ids_bytes = sum(1 if token_id < 128 else 2 for token_id in prompt_ids)
    rounds_bytes = 64 * long.accounting["num_rounds"]
    assert ids_bytes < long.accounting["bytes_up"] < ids_bytes + rounds_bytes + 500
    assert short.accounting["bytes_up"] < rounds_bytes + 500


def test_case_43_the_second_request_is_as_the_first_and_an_answer_says_why_it_has_no_draft(
    toy_edge: EdgeClient, toy_cloud: RunningCloud
) -> None:
    names = ("num_rounds", "num_drafted", "num_accepted", "num_target_passes", "tokens_up")
    first, second = (
        toy_edge.generate(prompt_ids=PROMPT, max_tokens=40, ignore_eos=True, strategy="vanilla") for _ in range(2)
    )
    assert first.token_ids == second.token_ids
    assert [first.accounting[name] for name in names] == [second.accounting[name] for name in names]
    assert not first.notices
    with EdgeClient(toy_cloud.url, draft=TARGET + ",context=40") as client:
        for _ in range(2):
            alone = client.generate(prompt_ids=[*range(50)], max_tokens=6, ignore_eos=True)
            assert alone.accounting["num_drafted"] == 0
            assert any("cloud-only" in notice and "context 40" in notice for notice in alone.notices)
