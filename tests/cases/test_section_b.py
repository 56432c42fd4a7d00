"""Section B of the cases: stop conditions, counting, streaming. The number in a name is the case's."""

from __future__ import annotations

import random
from typing import Any

import pytest

from edgedraft import Answer, EdgeClient
from edgedraft.backends.base import Tokenizer
from edgedraft.backends.toy_tokenizer import ToyTokenizer
from edgedraft.errors import LinkLostError
from edgedraft.protocol.messages import Close, Commit, Opened
from edgedraft.testing.cloud import running_cloud
from edgedraft.testing.wire import draft_message, open_message, wire_client
from edgedraft.types import FinishReason

from .conftest import PROMPT, Alone, OpenScripted, ScriptedModel, WatchedTarget

TOKENIZER = ToyTokenizer(300)
EOS = TOKENIZER.special_ids["</s>"]
"""Ids below 256 are bytes, so a script of one-byte characters is a text."""


def streamed(client: EdgeClient, **options: Any) -> tuple[list[str], Answer]:
    """The pieces' texts, and the answer, whose text they make."""
    with client.stream(prompt_ids=PROMPT, **options) as stream:
        texts, num_tokens = [], 0
        for piece in stream:
            texts.append(piece.text)
            num_tokens += piece.num_tokens
    answer = stream.answer
    assert "".join(texts) == answer.text
    assert num_tokens == len(answer.token_ids) == answer.usage.completion_tokens
    return texts, answer


def test_case_21_a_stop_string_at_every_offset_of_an_accepted_run_and_over_rounds(
    open_scripted: OpenScripted,
) -> None:
    """Rounds are of 16 accepted tokens and a bonus; stops of 1 to 4 tokens begin at each place of the first two."""
    text = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    client = open_scripted(list(text.encode()))
    for offset in range(34):
        for size in range(1, 5):
            stop = text[offset : offset + size]
            _, answer = streamed(client, max_tokens=50, draft_length=16, stop=stop)
            assert (answer.text, answer.finish_reason) == (text[:offset], FinishReason.STOP), stop
            assert answer.usage.completion_tokens == offset + size
    assert answer.accounting["num_accepted"] >= 32


@pytest.mark.parametrize("how", ["end of sequence", "stop id", "stop string"])
def test_case_22_a_stop_comes_before_the_token_budget(open_scripted: OpenScripted, how: str) -> None:
    stop_id = EOS if how == "end of sequence" else ord("s")
    client = open_scripted([10, 11, stop_id, 20, 21, 22])
    stops = {"stop id": {"stop_ids": [stop_id]}, "stop string": {"stop": "s"}}.get(how, {})
    _, answer = streamed(client, max_tokens=5, draft_length=8, **stops)
    assert list(answer.token_ids) == [10, 11, stop_id]
    assert (answer.text, answer.finish_reason) == ("\n\x0b", FinishReason.STOP)


def test_case_24_streamed_text_is_the_whole_text_for_500_random_stops(toy_edge: EdgeClient, toy_alone: Alone) -> None:
    full_ids = toy_alone(PROMPT, 24)
    full = b"".join(map(TOKENIZER.token_bytes, full_ids)).decode("utf-8", "replace")
    rng = random.Random(24)
    for number in range(500):
        start = rng.randrange(len(full))
        stop = full[start : start + rng.randint(1, 6)].rstrip("\ufffd") or "\ufffd\ufffd"
        cut = full.find(stop)
        options = {"stop": [stop, "not in it"], "draft_length": 1 + number % 9}
        _, answer = streamed(toy_edge, max_tokens=24, ignore_eos=True, **options)
        if stop != "\ufffd\ufffd":
            assert answer.text == full[:cut], (number, stop)


def test_case_25_an_end_of_sequence_inside_a_draft_ends_text_log_and_cache() -> None:
    target = WatchedTarget(ScriptedModel([10, EOS, 12, 13]))
    with running_cloud(target, TOKENIZER) as cloud, wire_client(cloud.url) as wire:
        wire.send(open_message(b"A" * 16, PROMPT))
        wire.send(draft_message(3, [10, EOS, 12, 13]))
        assert isinstance(wire.receive(), Opened)
        verdict = wire.receive()
        assert isinstance(verdict, Commit)
        assert (verdict.position, verdict.token_ids, verdict.num_accepted) == (3, [10, EOS], 2)
        wire.send(draft_message(5, [12, 13], epoch=1))
        more = wire.receive()
        assert isinstance(more, Commit)
        assert (more.position, more.token_ids) == (5, [])
        assert len(target.passes) == 1
        assert cloud.call(cloud.sessions.stats).num_tokens == 5
        wire.send(Close(channel=1, incarnation=1))
        cloud.until(lambda sessions: len(sessions) == 0 and target.num_sessions == 0)
        with pytest.raises((TimeoutError, LinkLostError)):
            wire.receive(timeout_s=0.1)


def test_case_27_usage_counts_the_tokens_of_the_text(open_scripted: OpenScripted) -> None:
    client = open_scripted(list(b"abcdefghijklmnopqrstuvwxyz"))
    for max_tokens in range(1, 21):
        _, answer = streamed(client, max_tokens=max_tokens, draft_length=6)
        assert answer.usage.completion_tokens == max_tokens == len(TOKENIZER.encode(answer.text, parse_special=False))
        assert answer.usage.prompt_tokens == len(PROMPT)
        assert answer.accounting["num_committed"] == max_tokens


@pytest.mark.model
def test_case_27_usage_of_a_real_model_is_its_text_tokenized_again(
    demo_edge: EdgeClient, demo_tokenizer: Tokenizer
) -> None:
    for max_tokens in (1, 2, 5, 12):
        answer = demo_edge.generate("Name three colours.", max_tokens=max_tokens)
        again = demo_tokenizer.encode(answer.text, parse_special=False)
        assert answer.usage.completion_tokens == len(again) == max_tokens
        assert list(answer.token_ids) == again


@pytest.mark.parametrize("strategy", ["vanilla", "cloud-only", "edge-only"])
def test_case_28_a_model_that_writes_only_line_ends_stops_at_max_tokens(
    open_scripted: OpenScripted, strategy: str
) -> None:
    _, answer = streamed(open_scripted([10]), max_tokens=37, strategy=strategy)
    assert (answer.text, answer.finish_reason) == ("\n" * 37, FinishReason.LENGTH)


MARKS = "👩\u200d👩\u200d👧 漢字 é 🙂"


@pytest.mark.parametrize("draft_length", [1, 3, 16])
def test_case_29_characters_are_whole_in_every_piece(open_scripted: OpenScripted, draft_length: int) -> None:
    script = [*MARKS.encode(), EOS]
    texts, answer = streamed(open_scripted(script), max_tokens=100, draft_length=draft_length)
    assert answer.text == MARKS
    assert not any("\ufffd" in text for text in texts)


def test_case_29_only_bytes_that_are_no_text_are_replaced_and_the_end_is_flushed(open_scripted: OpenScripted) -> None:
    client = open_scripted([*b"a\xff", *"🙂".encode()])
    _, answer = streamed(client, max_tokens=5)
    assert answer.text == "a\ufffd\ufffd"  # a byte that is no text; three bytes of a character that stays incomplete
    _, answer = streamed(client, max_tokens=6)
    assert answer.text == "a\ufffd🙂"


def test_case_30_markers_that_come_in_one_delta_are_both_delivered(open_scripted: OpenScripted) -> None:
    text = 'so be it</think><tool_call>{"a": 1}</tool_call>'
    texts, answer = streamed(open_scripted([*text.encode(), EOS]), max_tokens=100, draft_length=31)
    assert answer.text == text
    assert any("</think><tool_call>" in piece for piece in texts)


def test_case_32_pieces_say_how_many_tokens_they_hold(toy_edge: EdgeClient) -> None:
    texts, answer = streamed(toy_edge, max_tokens=40, ignore_eos=True, strategy="vanilla")
    assert len(texts) < answer.usage.completion_tokens == 40
