"""Recording: the target's own text, the draft along it, and a replay that says the same again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgedraft.backends.base import BackendOptions, DraftBackend, TargetBackend, Tokenizer
from edgedraft.backends.lookup import LookupDraft
from edgedraft.backends.recording import TracePrompt, read_prompts, record
from edgedraft.backends.registry import chat_template, open_draft, open_target, open_tokenizer
from edgedraft.backends.replay import ReplayFamily
from edgedraft.backends.template import encode_chat, encode_prompt
from edgedraft.backends.toy import ToyFamily
from edgedraft.backends.toy_model import ToyModel, ToySettings
from edgedraft.backends.trace import RecordedText, TraceHeader, write_traces
from edgedraft.bench.target_only import target_only_ids
from edgedraft.errors import ContextLengthError, InvalidRequestError, UnsupportedError
from edgedraft.types import SamplingParams

TOY = "vocab=310,ids=300,seed=4,eos_every=60,context=400"
NOISY = f"{TOY},noise=0.6"
FAMILY = ToyFamily()
PROMPTS = [
    TracePrompt(prompt="first words", id="one", kind="code"),
    TracePrompt(prompt="second", id="two", kind="chat"),
]


def recorded(prompts: list[TracePrompt] = PROMPTS, max_tokens: int = 50, template: str = "") -> list[RecordedText]:
    draft, target = FAMILY.open_draft(NOISY, BackendOptions()), FAMILY.open_target(TOY, BackendOptions(max_sessions=1))
    return list(record(draft, target, FAMILY.open_tokenizer(TOY), prompts, max_tokens, chat_template=template))


def test_the_text_is_the_targets_own() -> None:
    tokenizer, target = FAMILY.open_tokenizer(TOY), FAMILY.open_target(TOY, BackendOptions())
    for text, prompt in zip(recorded(), PROMPTS, strict=True):
        prompt_ids = encode_prompt(tokenizer, prompt.prompt)
        expected = target_only_ids(
            target, prompt_ids, sampling=SamplingParams(), max_tokens=50, eos_ids=tokenizer.eos_ids
        )
        assert (text.id, text.kind, text.num_prompt_tokens) == (prompt.id, prompt.kind, len(prompt_ids))
        assert list(text.target_ids) == expected


def test_each_position_holds_what_the_models_say_there() -> None:
    """Against the toy models' exact distributions."""
    target, draft = ToyModel(ToySettings.parse(TOY)), ToyModel(ToySettings.parse(NOISY))
    context = encode_prompt(FAMILY.open_tokenizer(TOY), PROMPTS[0].prompt)
    text = recorded()[0]
    assert not all(text.right)
    for index, target_id in enumerate(text.target_ids):
        of_target, of_draft = target.probs(context), draft.probs(context)
        draft_id = int(of_draft.argmax())
        assert text.draft_ids[index] == draft_id
        assert text.target_prob[index] == pytest.approx(of_target.max(), abs=1e-6)
        assert text.draft_prob[index] == pytest.approx(of_draft[draft_id], abs=1e-6)
        seen = of_draft[of_draft > 0]
        assert text.draft_entropy[index] == pytest.approx(-(seen * np.log(seen)).sum(), abs=1e-5)
        assert text.target_rank_of_draft[index] == 1 + (of_target > of_target[draft_id]).sum()
        assert text.overlap[index] == pytest.approx(np.minimum(of_target, of_draft).sum(), abs=1e-6)
        assert list(text.draft_top5_ids[index]) == np.argsort(-of_draft, kind="stable")[:5].tolist()
        assert text.draft_top5_probs[index] == pytest.approx(np.sort(of_draft)[::-1][:5], abs=1e-6)
        context.append(target_id)


def test_a_text_ends_at_the_end_of_sequence_or_the_budget() -> None:
    eos_ids = FAMILY.open_tokenizer(TOY).eos_ids
    long = recorded(max_tokens=300)[0]
    assert long.target_ids[-1] in eos_ids
    assert not set(long.target_ids[:-1]) & set(eos_ids)
    assert recorded(max_tokens=3)[0].target_ids == long.target_ids[:3]


def test_the_context_cuts_a_text_and_refuses_a_prompt_without_room() -> None:
    long = TracePrompt(prompt="x" * 396, id="long", kind="code")  # and a BOS: room for three
    assert recorded([long])[0].num_tokens == 3
    with pytest.raises(ContextLengthError, match="prompt too-long has 401 tokens"):
        recorded([TracePrompt(prompt="x" * 400, id="too-long", kind="code")])


def test_a_prompt_without_room_is_known_before_hours_of_recording() -> None:
    draft, target = FAMILY.open_draft(NOISY, BackendOptions()), FAMILY.open_target(TOY, BackendOptions(max_sessions=1))
    prompts = [*PROMPTS, TracePrompt(prompt="x" * 400, id="too-long", kind="code")]
    with pytest.raises(ContextLengthError, match="prompt too-long"):
        next(record(draft, target, FAMILY.open_tokenizer(TOY), prompts, 3))


def test_the_chat_template_is_applied() -> None:
    template = FAMILY.chat_template(TOY)
    expected = encode_chat(FAMILY.open_tokenizer(TOY), template, [{"role": "user", "content": "second"}])
    assert recorded(PROMPTS[1:], template=template)[0].num_prompt_tokens == len(expected)


def test_sessions_are_closed_when_the_reader_leaves() -> None:
    target = FAMILY.open_target(TOY, BackendOptions(max_sessions=1))
    draft = FAMILY.open_draft(NOISY, BackendOptions())
    texts: Iterator[RecordedText] = record(draft, target, FAMILY.open_tokenizer(TOY), PROMPTS, 3)
    next(texts)
    assert target.num_sessions == 0


def test_what_cannot_be_recorded_is_refused() -> None:
    tokenizer, target = FAMILY.open_tokenizer(TOY), FAMILY.open_target(TOY, BackendOptions())
    with pytest.raises(UnsupportedError, match="the draft proposes nothing"):
        list(record(LookupDraft(), target, tokenizer, PROMPTS, 3))
    assert target.num_sessions == 0
    with pytest.raises(InvalidRequestError, match="max_tokens is 0"):
        recorded(max_tokens=0)


def test_replay_says_what_was_recorded(tmp_path: Path) -> None:
    """A recording of the replay is the recording, but for ids, which are packed, and rounding."""
    texts = recorded()
    path = tmp_path / "toy.jsonl.gz"
    write_traces(path, TraceHeader(target="toy", draft="toy", eos_ids=FAMILY.open_tokenizer(TOY).eos_ids), texts)
    family = ReplayFamily()
    tokenizer = family.open_tokenizer(str(path))
    again = record(
        family.open_draft(str(path), BackendOptions()),
        family.open_target(str(path), BackendOptions()),
        tokenizer,
        [TracePrompt(prompt=text.id, id=text.id, kind=text.kind) for text in texts],
        50,
    )
    for text, replayed in zip(texts, again, strict=True):
        assert replayed.num_prompt_tokens == text.num_prompt_tokens
        size = text.num_tokens
        for name in ("target_ids", "draft_ids"):
            assert list(map(tokenizer.packed, getattr(text, name))) == list(getattr(replayed, name)[:size])
        assert replayed.draft_prob[:size] == pytest.approx(text.draft_prob, abs=1e-3)
        assert replayed.target_rank_of_draft[:size] == text.target_rank_of_draft
        assert np.mean(np.abs(np.subtract(replayed.draft_entropy[:size], text.draft_entropy))) < 0.2


def test_prompts_of_a_text_file(tmp_path: Path) -> None:
    (tmp_path / "ask.txt").write_text("first\n\n  second\n")
    prompts = read_prompts(tmp_path / "ask.txt", "chat")
    assert [(prompt.id, prompt.kind, prompt.prompt) for prompt in prompts] == [
        ("ask-1", "chat", "first"),
        ("ask-3", "chat", "  second"),
    ]


def test_prompts_of_a_json_file(tmp_path: Path) -> None:
    (tmp_path / "ask.jsonl").write_text('{"prompt": "a", "id": "x", "kind": "code"}\n{"prompt": "b\\nc"}\n')
    prompts = read_prompts(tmp_path / "ask.jsonl")
    assert [(prompt.id, prompt.kind, prompt.prompt) for prompt in prompts] == [
        ("x", "code", "a"),
        ("ask-2", "text", "b\nc"),
    ]


def test_a_prompt_may_hold_any_separator_but_a_line_feed(tmp_path: Path) -> None:
    (tmp_path / "ask.jsonl").write_bytes(b'\xef\xbb\xbf{"prompt": "a\xe2\x80\xa8b", "id": " x "}\r\n{"prompt": "c"}')
    assert [(prompt.id, prompt.prompt) for prompt in read_prompts(tmp_path / "ask.jsonl")] == [
        ("x", "a\u2028b"),
        ("ask-2", "c"),
    ]
    (tmp_path / "ask.txt").write_bytes(b"a\r\nb\r\n")
    assert [prompt.prompt for prompt in read_prompts(tmp_path / "ask.txt")] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("a.txt", b"", "holds no prompt"),
        ("a.txt", b"\xff", "is not UTF-8"),
        ("a.jsonl", b"{", "line 1"),
        ("a.jsonl", b'{"text": "x"}', "line 1"),
        ("a.jsonl", b'{"prompt": "x", "colour": "red"}', "colour"),
        ("a.jsonl", b'{"prompt": ""}', "line 1: prompt is empty"),
        ("a.jsonl", b'{"prompt": "x", "id": "1"}\n{"prompt": "y", "id": "1"}', "line 2: the id '1' is taken"),
    ],
)
def test_bad_prompt_files_are_named(tmp_path: Path, name: str, content: bytes, named: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidRequestError, match=named):
        read_prompts(tmp_path / name)


def test_a_missing_prompt_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"none\.txt cannot be read"):
        read_prompts(tmp_path / "none.txt")


@pytest.mark.model
def test_the_demo_pair_is_recorded() -> None:
    tokenizer: Tokenizer = open_tokenizer("demo:target")
    target: TargetBackend = open_target("demo:target", BackendOptions(max_sessions=1, context_length=128))
    draft: DraftBackend = open_draft("demo:draft", BackendOptions(context_length=128))
    try:
        prompt = TracePrompt(prompt="Name three colours.", id="colours", kind="chat")
        (text,) = record(draft, target, tokenizer, [prompt], 6, chat_template=chat_template("demo:target"))
    finally:
        draft.close()
        target.shutdown()
    assert text.num_tokens == 6
    assert sum(text.right) >= 2, "the two are the same weights"
    for index in range(6):
        assert text.draft_top5_ids[index][0] == text.draft_ids[index]
        assert (text.target_rank_of_draft[index] == 1) == text.right[index]
        assert 0.0 < text.overlap[index] <= 1.0
        assert 0.0 <= text.draft_entropy[index] < math.log(tokenizer.num_ids)
