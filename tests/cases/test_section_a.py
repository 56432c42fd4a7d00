"""Section A of the cases: correctness of the verified output. The number in a name is the case's."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy import stats

from edgedraft import Answer, EdgeClient, Strategy
from edgedraft.backends import registry
from edgedraft.backends.base import BackendOptions, ScoreRequest, TargetBackend, Tokenizer
from edgedraft.backends.toy import ToyTarget
from edgedraft.backends.toy_tokenizer import ToyTokenizer
from edgedraft.bench.target_only import target_only_ids
from edgedraft.cloud.auth import hash_token
from edgedraft.config import CloudConfig
from edgedraft.core.sampling import process
from edgedraft.errors import UnsupportedError, VocabularyMismatchError
from edgedraft.protocol.messages import Error, Opened
from edgedraft.testing.cloud import RunningCloud, running_cloud
from edgedraft.testing.wire import draft_message, open_message, wire_client
from edgedraft.types import Assist, Exactness, Rule, SamplingParams, TokenKind

from .conftest import PROMPT, TARGET, Alone, toy_model

QUESTION = "Why is the sky blue?"


# -- vocabularies ----------------------------------------------------------------------------------------------------


@pytest.mark.model
def test_case_01_a_draft_of_another_vocabulary_is_refused_naming_the_first_id(demo_cloud: RunningCloud) -> None:
    with (
        EdgeClient(demo_cloud.url, draft="toy:vocab=300") as client,
        pytest.raises(VocabularyMismatchError, match=r"id 0 is the first .*300 ids.* 49152 ids") as refused,
    ):
        client.generate(QUESTION)
    assert refused.value.first_id == 0
    assert "same tokenizer" in refused.value.remedy
    demo_cloud.until(lambda sessions: len(sessions) == 0)


def test_case_02_equal_tokenizers_of_other_padded_widths_work_and_padding_is_never_used(toy_alone: Alone) -> None:
    """Padding has the highest logits of all in both models."""
    target = ToyTarget(toy_model("toy:vocab=333,ids=300,seed=3,eos_every=200"))
    with (
        running_cloud(target, ToyTokenizer(300)) as cloud,
        EdgeClient(cloud.url, draft="toy:vocab=310,ids=300,seed=3,eos_every=200,agree=0.8") as client,
    ):
        for temperature in (0.0, 1.0):
            answer = client.generate(
                prompt_ids=PROMPT, max_tokens=60, temperature=temperature, seed=2, ignore_eos=True, strategy="vanilla"
            )
            assert list(answer.token_ids) == toy_alone(PROMPT, 60, temperature=temperature, seed=2)
            assert answer.accounting["num_accepted"] > 0


def test_case_02_a_drafted_id_of_the_padding_is_refused() -> None:
    target = ToyTarget(toy_model("toy:vocab=333,ids=300"))
    with running_cloud(target, ToyTokenizer(300)) as cloud, wire_client(cloud.url) as wire:
        wire.send(open_message(b"A" * 16, PROMPT))
        wire.send(draft_message(3, [299, 300]))
        assert isinstance(wire.receive(), Opened)
        refused = wire.receive()
        assert isinstance(refused, Error)
        assert (refused.code, "300" in refused.message) == ("invalid_request", True)
        cloud.until(lambda sessions: len(sessions) == 0 and target.num_sessions == 0)


class OneTokenChanged(ToyTokenizer):
    """As the 139th id of one published family."""

    def identity(self, token_id: int) -> bytes:
        return b"plain:changed" if token_id == 139 else super().identity(token_id)


def test_case_03_one_changed_token_is_named_and_so_is_that_there_is_no_override(toy_cloud: RunningCloud) -> None:
    with (
        EdgeClient(toy_cloud.url, draft=TARGET, tokenizer=OneTokenChanged(300)) as client,
        pytest.raises(VocabularyMismatchError, match=r"id 139 is the first that differs.*no override"),
    ):
        client.generate("hello")


@pytest.mark.model
def test_case_18_the_prompt_has_one_bos_and_the_cloud_gets_the_edges_ids(
    demo_edge: EdgeClient,
    demo_target: TargetBackend,
    demo_tokenizer: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also case 41. The demo tokenizer's BOS is the template's own first token."""
    opened: list[list[int]] = []
    real_open = demo_target.open

    def spy(session_id: bytes, prompt_ids: Sequence[int], committed_ids: Sequence[int]) -> None:
        opened.append(list(prompt_ids))
        real_open(session_id, prompt_ids, committed_ids)

    monkeypatch.setattr(demo_target, "open", spy)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    answer = demo_edge.generate(messages=messages, max_tokens=4)
    (prompt_ids,) = opened
    assert answer.usage.prompt_tokens == len(prompt_ids)
    rendered = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert prompt_ids == demo_tokenizer.encode(rendered, parse_special=True)
    assert prompt_ids[:2].count(demo_tokenizer.bos_id or -1) == 1


# -- exactness on real models ------------------------------------------------------------------------------------------


@pytest.mark.model
@pytest.mark.parametrize(("draft_length", "temperature"), [(3, 0.0), (7, 0.8), (16, 1.2)])
def test_case_05_and_19_the_text_is_the_targets_and_no_next_token_is_lost(
    demo_edge: EdgeClient, demo_target: TargetBackend, demo_tokenizer: Tokenizer, draft_length: int, temperature: float
) -> None:
    prompt_ids = demo_tokenizer.encode("The first three planets of our solar system are", parse_special=False)
    sampling = {"temperature": temperature, "seed": 5}
    answer = demo_edge.generate(
        prompt_ids=prompt_ids, max_tokens=20, draft_length=draft_length, ignore_eos=True, **sampling
    )
    expected = target_only_ids(
        demo_target, prompt_ids, sampling=SamplingParams(temperature=temperature, seed=5), max_tokens=20
    )
    assert list(answer.token_ids) == expected
    assert answer.exact is Exactness.BITWISE
    for record in answer.record.rounds[:-1]:
        assert record.num_committed == record.num_accepted + 1


@pytest.fixture(scope="module")
def batching_target() -> Iterator[TargetBackend]:
    target = registry.open_target("demo:target", BackendOptions(threads=1, context_length=256, max_sessions=4))
    yield target
    target.shutdown()


@pytest.mark.model
def test_case_05_sessions_that_share_passes_answer_and_say_up_to_numerics(
    batching_target: TargetBackend, demo_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `edgedraft cloud` is without --deterministic."""
    shared: list[int] = []
    real_score = batching_target.score

    def spy(requests: Sequence[ScoreRequest]) -> Any:
        shared.append(len(requests))
        return real_score(requests)

    monkeypatch.setattr(batching_target, "score", spy)
    answers: list[Answer] = []
    with (
        running_cloud(batching_target, demo_tokenizer, config=CloudConfig(port=0, max_sessions=4)) as cloud,
        EdgeClient(cloud.url, draft=None, tokenizer=demo_tokenizer) as client,
    ):

        def ask(number: int) -> None:
            answers.append(client.generate(f"{number} and {number} make", max_tokens=16, ignore_eos=True, raw=True))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert max(shared) > 1
    assert len(answers) == 4
    for answer in answers:
        assert len(answer.token_ids) == 16
        assert answer.exact is Exactness.UP_TO_NUMERICS
        assert "share passes" in answer.exactness_note


@pytest.mark.model
def test_case_13_after_each_round_the_cache_is_what_a_fresh_prefill_gives(demo_target: TargetBackend) -> None:
    """Eight sessions in turn, random accept lengths; the ninth place prefills what each has committed. To the bit."""
    rng = random.Random(13)
    prompts = [[rng.randrange(1_000, 40_000) for _ in range(rng.randint(4, 24))] for _ in range(8)]
    committed: list[list[int]] = [[] for _ in prompts]
    keys = [bytes([number]) * 16 for number in range(8)]
    fresh = b"fresh prefill..."
    with ExitStack() as stack:
        for key, prompt_ids in zip(keys, prompts, strict=True):
            demo_target.open(key, prompt_ids, ())
            stack.callback(demo_target.close, key)
            while demo_target.prefill(key):
                pass
        stack.callback(demo_target.close, fresh)
        for number in rng.sample([*range(8)] * 2, 16):
            held = len(prompts[number]) + len(committed[number])
            drafts = [rng.randrange(1_000, 40_000) for _ in range(rng.randint(1, 15))]
            length, last = (held - 1, committed[number][-1:]) if committed[number] else (held, [])
            rows = np.array(demo_target.score([ScoreRequest(keys[number], length, last, drafts)])[0])
            demo_target.close(fresh)
            demo_target.open(fresh, prompts[number], committed[number])
            while demo_target.prefill(fresh):
                pass
            expected = demo_target.score([ScoreRequest(fresh, held, (), ())])[0][0]
            assert (rows[0] == expected).all(), (number, held)
            num_accepted = rng.randint(0, len(drafts))
            committed[number] += [*drafts[:num_accepted], int(rows[num_accepted].argmax())]


@pytest.mark.model
def test_case_16_two_tenants_on_one_place_feel_nothing_of_each_other(
    demo_target: TargetBackend, demo_tokenizer: Tokenizer
) -> None:
    """Content and acceptance are the same in either order, on the target's one place and on an edge's one draft."""
    template = registry.chat_template("demo:target")
    config = CloudConfig(port=0, max_sessions=1, token_sha256=(hash_token("one"), hash_token("two")))
    prompts = {"one": "Name three colours.", "two": "Count from one to five."}
    with running_cloud(demo_target, demo_tokenizer, template, config) as cloud, ExitStack() as stack:
        options = BackendOptions(threads=1, context_length=512)
        edges = {
            token: stack.enter_context(
                EdgeClient(cloud.url, draft="demo:draft", tokenizer=demo_tokenizer, token=token, draft_options=options)
            )
            for token in prompts
        }

        def ask(token: str, prompt_of: str) -> tuple[Any, ...]:
            answer = edges[token].generate(prompts[prompt_of], max_tokens=8, strategy="vanilla")
            cloud.until(lambda sessions: len(sessions) == 0)
            return answer.text, answer.accounting["num_accepted"], answer.accounting["num_judged"]

        first = {token: ask(token, token) for token in prompts}
        assert first["one"][0] != first["two"][0]
        assert ask("two", "one") == first["one"]
        assert ask("one", "two") == first["two"]
        assert ask("one", "one") == first["one"]


# -- distributions -----------------------------------------------------------------------------------------------------

NUM_TOKENS = 1_500
SIX_IDS = "toy:vocab=10,seed=5,order=1,skew=1"
CASES_OF_DRAFT = {
    "sampled": SIX_IDS + ",noise=1",
    "hardly ever right": "toy:vocab=10,seed=77,order=1,skew=3",
    "certain of its proposals": "lookup",
}


def p_value(token_ids: Sequence[int], sampling: SamplingParams) -> float:
    """Of the chi-square test of each next id against the target's distribution after the id before it."""
    model = toy_model(SIX_IDS)
    counts = np.zeros((model.num_ids, model.num_ids))
    np.add.at(counts, (token_ids[:-1], token_ids[1:]), 1)
    statistic, num_free = 0.0, 0
    for before, row in enumerate(counts):
        if row.sum() == 0:
            continue
        processed = process(model.logits([before]), sampling, num_ids=model.num_ids)
        expected = np.zeros(model.num_ids)
        expected[processed.ids] = processed.probs() * row.sum()
        assert not row[expected == 0].any(), "an id that the target rules out"
        common = expected > 5
        if common.sum() > 1:
            scale = row[common].sum() / expected[common].sum()
            statistic += float(((row - expected * scale)[common] ** 2 / (expected * scale)[common]).sum())
            num_free += int(common.sum()) - 1
    assert num_free >= 4
    return float(stats.chi2.sf(statistic, num_free))


@pytest.mark.parametrize(
    ("rule", "draft"), [*((Rule.RATIO, draft) for draft in CASES_OF_DRAFT), (Rule.MATCH, "sampled")], ids=str
)
def test_cases_07_08_10_and_11_text_over_sockets_follows_the_targets_distribution(rule: Rule, draft: str) -> None:
    """Temperature and filters on both sides; a draft that is certain, and one that is nearly always rejected."""
    sampling = {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "seed": 11}
    with (
        running_cloud(ToyTarget(toy_model(SIX_IDS)), ToyTokenizer(10)) as cloud,
        EdgeClient(cloud.url, draft=CASES_OF_DRAFT[draft], tokenizer=SIX_IDS) as client,
    ):
        strategy = Strategy(name="over sockets", rule=rule)
        answer = client.generate(prompt_ids=[1], max_tokens=NUM_TOKENS, strategy=strategy, ignore_eos=True, **sampling)
    kinds = [token.kind for token in answer.tokens]
    assert min(kinds.count(TokenKind.ACCEPTED), kinds.count(TokenKind.RECOVERED)) > 100
    assert answer.exact is (Exactness.DISTRIBUTION if rule is Rule.RATIO else Exactness.BITWISE)
    assert p_value(answer.token_ids, SamplingParams(**sampling)) > 1e-3  # type: ignore[arg-type]


def test_cases_07_08_10_and_11_the_test_of_distribution_can_fail() -> None:
    """Greedy text, or text at another temperature, is found out."""
    model, generator = toy_model(SIX_IDS), np.random.default_rng(1)
    token_ids = [1]
    for _ in range(NUM_TOKENS):
        processed = process(model.logits(token_ids), SamplingParams(temperature=0.9, top_k=5), num_ids=model.num_ids)
        token_ids.append(int(generator.choice(processed.ids, p=processed.probs())))
    assert p_value(token_ids, SamplingParams(temperature=0.9, top_k=5)) > 1e-3
    assert p_value(token_ids, SamplingParams(temperature=0.7, top_k=5)) < 1e-4


def test_case_12_same_seed_same_text_with_seven_others_and_another_seed_another_text(
    toy_cloud: RunningCloud, toy_alone: Alone
) -> None:
    texts: dict[int, list[int]] = {}
    with EdgeClient(toy_cloud.url, draft=None, tokenizer=TARGET) as client:

        def ask(number: int) -> None:
            answer = client.generate(
                prompt_ids=PROMPT, max_tokens=30, temperature=1.0, seed=number % 7, ignore_eos=True
            )
            texts[number] = list(answer.token_ids)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert texts[0] == texts[7] == toy_alone(PROMPT, 30, temperature=1.0, seed=0)
    assert len({tuple(text) for text in texts.values()}) == 7


# -- labels ------------------------------------------------------------------------------------------------------------


def test_case_20_lossy_answers_are_labelled_and_a_lossy_rule_is_no_exact_mode(
    toy_edge: EdgeClient, toy_cloud: RunningCloud
) -> None:
    alone = toy_edge.generate(prompt_ids=PROMPT, max_tokens=5, strategy="edge-only")
    assert (alone.exact, alone.to_dict()["exact"]) == (Exactness.LOSSY, "lossy")
    with pytest.raises(UnsupportedError, match="rank"):
        toy_edge.generate(prompt_ids=PROMPT, max_tokens=5, strategy=Strategy(name="rank", rule=Rule.RANK))
    toy_cloud.until(lambda sessions: len(sessions) == 0)


REFUSED_WITH_RATIO: list[dict[str, Any]] = [{"eager": True}, {"assist": Assist.BUBBLE}, {"assist": Assist.ALWAYS}]


@pytest.mark.parametrize("wrong", REFUSED_WITH_RATIO, ids=str)
def test_case_10_ratio_with_assist_or_eager_verification_is_refused_on_both_sides(
    toy_cloud: RunningCloud, wrong: dict[str, Any]
) -> None:
    with pytest.raises(UnsupportedError, match="ratio"):
        Strategy(name="ratio", rule=Rule.RATIO, **wrong)
    with wire_client(toy_cloud.url) as wire:
        wire.send(msgspec.structs.replace(open_message(b"R" * 16, PROMPT), rule=Rule.RATIO, **wrong))
        refused = wire.receive()
        assert isinstance(refused, Error)
        assert (refused.code, "ratio" in refused.message) == ("unsupported", True)
