"""llama.cpp: what a file must be, what is refused, what the tokenizer says. Tiny random models and the demo pair."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgedraft.backends.base import BackendOptions, ScoreRequest
from edgedraft.backends.llamacpp import LlamaCppDraft, LlamaCppFamily
from edgedraft.backends.model_store import resolve
from edgedraft.errors import (
    BackendError,
    ContextLengthError,
    InvalidRequestError,
    ModelFileError,
    UnsupportedError,
)

pytestmark = pytest.mark.model
WriteGguf = Callable[..., Path]
FAMILY = LlamaCppFamily()
ONE_THREAD = BackendOptions(threads=1)


def greedy(draft: LlamaCppDraft, prompt: list[int], num_tokens: int) -> list[int]:
    draft.rollback(0)
    draft.append(prompt)
    token_ids = []
    for _ in range(num_tokens):
        token_ids.append(int(draft.draft()[: draft.info.num_ids].argmax()))
        draft.append(token_ids[-1:])
    return token_ids


def test_padding_is_not_vocabulary(write_gguf: WriteGguf) -> None:
    """Rows are as wide as the embedding; ids behind the real vocabulary are counted by nobody and refused."""
    path = str(write_gguf(num_padding=5))
    tokenizer = FAMILY.open_tokenizer(path)
    draft = FAMILY.open_draft(path, ONE_THREAD)
    assert (draft.info.vocab_size, draft.info.num_ids, tokenizer.num_ids) == (264, 259, 259)
    draft.append([1, 2])
    assert draft.draft().shape == (264,)
    with pytest.raises(InvalidRequestError, match=r"token id 259 .* 0 to 258"):
        draft.append([259])


@pytest.mark.parametrize("add_bos", [False, True])
def test_bos_is_named_and_never_added(write_gguf: WriteGguf, add_bos: bool) -> None:
    tokenizer = FAMILY.open_tokenizer(str(write_gguf(add_bos=add_bos)))
    assert (tokenizer.bos_id, tokenizer.add_bos) == (256, add_bos)
    assert 256 not in tokenizer.encode("hello", parse_special=True)
    assert tokenizer.encode("<s>", parse_special=True) == [256]
    assert 256 not in tokenizer.encode("<s>", parse_special=False)


def test_every_end_id_is_known(write_gguf: WriteGguf) -> None:
    path = str(write_gguf())
    assert FAMILY.open_tokenizer(path).eos_ids == (257, 258)
    assert FAMILY.open_draft(path, ONE_THREAD).info.eos_ids == (257, 258)


def test_identity_tells_a_changed_kind_and_a_changed_text(write_gguf: WriteGguf) -> None:
    one = FAMILY.open_tokenizer(str(write_gguf("one.gguf")))
    kinds = [1] * 256 + [3, 4, 3]
    other = FAMILY.open_tokenizer(str(write_gguf("other.gguf", extra={"tokenizer.ggml.token_type": kinds})))
    assert [index for index in range(259) if one.identity(index) != other.identity(index)] == [257]


def test_chat_template_is_the_files(write_gguf: WriteGguf) -> None:
    assert FAMILY.chat_template(str(write_gguf(extra={"tokenizer.chat_template": "{{ x }}"}))) == "{{ x }}"
    assert FAMILY.chat_template(str(write_gguf())) == ""


def test_demo_pair_shares_one_vocabulary() -> None:
    target, draft = (FAMILY.open_tokenizer(str(resolve(f"demo:{role}"))) for role in ("target", "draft"))
    assert (target.num_ids, target.eos_ids, target.add_bos) == (49152, (0, 2, 4), False)
    assert all(target.identity(index) == draft.identity(index) for index in range(target.num_ids))
    assert "<|im_start|>" in FAMILY.chat_template(str(resolve("demo:target")))


def test_bytes_of_a_split_character_join() -> None:
    tokenizer = FAMILY.open_tokenizer(str(resolve("demo:draft")))
    token_ids = tokenizer.encode("🎉", parse_special=False)
    assert len(token_ids) > 1
    assert b"".join(map(tokenizer.token_bytes, token_ids)).decode() == "🎉"


def test_threads_that_ask_at_once_do_not_mix_up_pieces(write_gguf: WriteGguf, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is called without the interpreter lock: another may ask between its writing and our reading."""
    tokenizer = FAMILY.open_tokenizer(str(write_gguf()))
    expected = [tokenizer.token_bytes(token_id) for token_id in (40, 50)]
    ask = tokenizer._library.llama_token_to_piece
    others: list[bytes] = []

    def interrupted(*arguments: object) -> int:
        size: int = ask(*arguments)
        if not others:
            others.append(b"")
            others.append(tokenizer.token_bytes(50))
        return size

    monkeypatch.setattr(tokenizer._library, "llama_token_to_piece", interrupted)
    assert [tokenizer.token_bytes(40), others[1]] == expected


def test_lone_surrogates_and_zero_bytes_are_encoded() -> None:
    tokenizer = FAMILY.open_tokenizer(str(resolve("demo:draft")))
    assert tokenizer.encode("a\ud800b", parse_special=False) == tokenizer.encode("a?b", parse_special=False)
    token_ids = tokenizer.encode("a\x00b", parse_special=False)
    assert b"".join(map(tokenizer.token_bytes, token_ids)) == b"a\x00b"


@pytest.mark.parametrize("opener", ["open_draft", "open_target", "open_tokenizer"])
def test_broken_files_are_refused_before_the_engine_maps_them(
    write_gguf: WriteGguf, tmp_path: Path, opener: str
) -> None:
    whole = write_gguf().read_bytes()
    broken = tmp_path / "broken.gguf"
    arguments = [] if opener == "open_tokenizer" else [ONE_THREAD]
    for content, words in ((whole[:-1000], "truncated"), (b"garbage" * 99, "not a GGUF"), (b"", "is empty")):
        broken.write_bytes(content)
        with pytest.raises(ModelFileError, match=words):
            getattr(FAMILY, opener)(str(broken), *arguments)
    for path in (tmp_path, tmp_path / "absent.gguf"):
        with pytest.raises(ModelFileError, match=r"directory|does not exist"):
            getattr(FAMILY, opener)(str(path), *arguments)


def test_what_the_engine_refuses_is_said_in_its_words(write_gguf: WriteGguf, capfd: pytest.CaptureFixture[str]) -> None:
    """An unknown architecture and a missing tensor: one clear error, and nothing on the terminal."""
    with pytest.raises(ModelFileError, match="unknown model architecture: 'wonder'"):
        FAMILY.open_draft(str(write_gguf("a.gguf", architecture="wonder")), ONE_THREAD)
    with pytest.raises(ModelFileError, match="output_norm"):
        FAMILY.open_draft(str(write_gguf("b.gguf", without=["output_norm.weight"])), ONE_THREAD)
    assert capfd.readouterr() == ("", "")


def test_the_engine_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    draft = FAMILY.open_draft(str(resolve("demo:draft")), BackendOptions(threads=1, context_length=256))
    greedy(draft, [5, 6], 2)
    draft.close()
    draft.close()
    assert capfd.readouterr() == ("", "")


def test_a_closed_model_is_an_error_not_a_crash(write_gguf: WriteGguf) -> None:
    draft = FAMILY.open_draft(str(write_gguf()), ONE_THREAD)
    draft.append([1, 2, 3])
    draft.close()
    for use in (lambda: draft.append([4]), lambda: draft.rollback(1)):
        with pytest.raises(BackendError, match="The model is closed"):
            use()


def test_a_recurrent_model_is_refused(write_gguf: WriteGguf) -> None:
    path = str(write_gguf(architecture="mamba"))
    for open_it in (FAMILY.open_tokenizer, lambda rest: FAMILY.open_target(rest, ONE_THREAD)):
        with pytest.raises(UnsupportedError, match="cannot be rolled back"):
            open_it(path)


def test_a_sliding_window_is_rolled_back_exactly(write_gguf: WriteGguf) -> None:
    """Past the window, tokens that a rollback brings back into it are still there."""
    extra = {"gemma3.attention.sliding_window": 8, "gemma3.attention.key_length": 16}
    extra |= {"gemma3.attention.value_length": 16, "gemma3.context_length": 2048}
    path = str(write_gguf(architecture="gemma3", extra=extra))
    draft = FAMILY.open_draft(path, ONE_THREAD)
    prompt = [1 + index * 7 % 200 for index in range(1900)]
    draft.append(prompt[:400])
    expected = draft.draft().copy()
    draft.append(prompt[400:])
    draft.rollback(400)
    np.testing.assert_allclose(draft.draft(), expected, rtol=0.0, atol=0.02)  # one id or a block, in F32


@pytest.mark.parametrize("context_length", [0, -1, 257])
def test_a_context_that_the_model_has_not_is_refused(write_gguf: WriteGguf, context_length: int) -> None:
    with pytest.raises(InvalidRequestError, match=r"context_length is .*legal.*1 to 256"):
        FAMILY.open_draft(str(write_gguf()), BackendOptions(context_length=context_length))


def test_options_out_of_range_are_refused(write_gguf: WriteGguf) -> None:
    path = str(write_gguf())
    for options, words in (
        (BackendOptions(threads=0), "threads is 0"),
        (BackendOptions(max_sessions=0), "max_sessions is 0"),
        (BackendOptions(max_sessions=257), "max_sessions is 257"),
        (BackendOptions(prefill_chunk_tokens=0), "prefill_chunk_tokens is 0"),
    ):
        with pytest.raises(InvalidRequestError, match=words):
            FAMILY.open_target(path, options)


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"legal: llamacpp:PATH\.gguf"):
        FAMILY.open_tokenizer("")


def test_a_context_filled_to_the_last_token_still_drafts(write_gguf: WriteGguf) -> None:
    draft = FAMILY.open_draft(str(write_gguf()), BackendOptions(threads=1, context_length=200))
    draft.append([3] * 200)
    assert np.isfinite(draft.draft()).all()
    with pytest.raises(ContextLengthError, match="201 tokens do not fit"):
        draft.append([3])
    draft.rollback(199)
    draft.append([4])
    assert draft.length == 200


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (BackendOptions(deterministic=True), "rows of F32 weights depend"),
        (BackendOptions(deterministic=True, threads=2), "for one thread only"),
        (BackendOptions(threads=1), "sessions share passes"),
    ],
)
def test_determinism_is_claimed_only_where_it_was_measured(
    write_gguf: WriteGguf, options: BackendOptions, words: str
) -> None:
    info = FAMILY.open_target(str(write_gguf()), options).info
    assert not info.deterministic
    assert words in info.exactness_note


def test_a_failed_pass_leaves_the_session_as_it_was(write_gguf: WriteGguf, monkeypatch: pytest.MonkeyPatch) -> None:
    target = FAMILY.open_target(str(write_gguf()), BackendOptions(deterministic=True, max_sessions=1))
    prompt, drafted = list(range(1, 20)), [7, 8, 9]
    target.open(b"one", prompt, [])
    assert target.prefill(b"one") == 0
    expected = np.array(target.score([ScoreRequest(b"one", 19, [5], drafted)])[0])
    decode = target._context._library.llama_decode
    with monkeypatch.context() as patch:
        patch.setattr(target._context._library, "llama_decode", lambda context, batch: decode(context, batch) or -3)
        with pytest.raises(BackendError, match="status -3"):
            target.score([ScoreRequest(b"one", 19, [5], drafted)])
    assert np.array_equal(target.score([ScoreRequest(b"one", 19, [5], drafted)])[0], expected)


def test_a_shared_pass_longer_than_a_batch_is_cut(write_gguf: WriteGguf) -> None:
    """Eight sessions with long drafts: more ids than one batch holds, each row still in its place."""
    path = str(write_gguf())
    options = BackendOptions(threads=1, max_sessions=8, prefill_chunk_tokens=16)
    shared, alone = FAMILY.open_target(path, options), FAMILY.open_target(path, options)
    requests = []
    for number in range(8):
        session_id, prompt = bytes([number]), [1 + number * 9 + index for index in range(20 + number)]
        for target in (shared, alone):
            target.open(session_id, prompt, [])
            while target.prefill(session_id):
                pass
        committed = [3] * (number % 2)
        requests.append(ScoreRequest(session_id, len(prompt), committed, [9 + number] * (25 * number)))
    together = shared.score(requests)
    for request, rows in zip(requests, together, strict=True):
        assert rows.shape == (len(request.draft_ids) + 1, 259)
        np.testing.assert_allclose(rows, alone.score([request])[0], atol=1e-2)


def test_two_models_in_two_threads(write_gguf: WriteGguf) -> None:
    path = str(write_gguf())
    prompt = list(range(1, 30))
    expected = greedy(FAMILY.open_draft(path, ONE_THREAD), prompt, 20)
    answers: dict[int, list[int]] = {}

    def work(number: int) -> None:
        answers[number] = greedy(FAMILY.open_draft(path, ONE_THREAD), prompt, 20)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == dict.fromkeys(range(4), expected)
