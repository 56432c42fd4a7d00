"""PyTorch models: the published suites and what the engine's caches need, on tiny random models made here."""

from __future__ import annotations

import dataclasses
import importlib.util
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgedraft.backends.base import BackendOptions, ScoreRequest
from edgedraft.backends.transformers import EXACT_BLOCK_TOKENS, TransformersFamily, TransformersTarget
from edgedraft.backends.transformers_engine import TextCache
from edgedraft.errors import (
    BackendError,
    InvalidRequestError,
    ModelFileError,
    UnsupportedError,
)
from edgedraft.testing.suites import DraftBackendSuite, OpenDraft, OpenTarget, TargetBackendSuite, sample_ids
from edgedraft.types import Float32Array

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")), reason="needs the extra torch"
)  # looked for and not imported, which takes seconds even where no test of this file runs

Folders = Callable[[str], Path]
FAMILY = TransformersFamily()
NUM_IDS, NUM_ROWS, CONTEXT_TOKENS = 259, 272, 512
DRAFT = BackendOptions(threads=1)
SHARED = BackendOptions(threads=1, max_sessions=4, prefill_chunk_tokens=64)
EXACT = dataclasses.replace(SHARED, deterministic=True)

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": CONTEXT_TOKENS}
RECURRENT = {"num_hidden_layers": 2, "hidden_size": 32}
MAMBA2 = {**RECURRENT, "head_dim": 16, "num_heads": 4, "n_groups": 1, "state_size": 8}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", SIZES),
    "qwen2": ("Qwen2Config", {key: value for key, value in SIZES.items() if key != "head_dim"}),
    "window": ("MistralConfig", {**SIZES, "sliding_window": 8}),
    "learned positions": ("GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT_TOKENS}),
    "experts": ("MixtralConfig", {**SIZES, "num_local_experts": 4}),
    "long rope": ("Phi3Config", {**SIZES, "original_max_position_embeddings": 100}),
    "state space": ("Mamba2Config", MAMBA2),
    "no cache": ("RwkvConfig", {**RECURRENT, "attention_hidden_size": 32}),
    "mixed": ("Lfm2Config", {**SIZES, "layer_types": ["conv", "full_attention"]}),
}


def write_tokenizer(folder: Path) -> None:
    """A byte-level BPE vocabulary of 256 bytes and three control tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={character: index for index, character in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(
        [AddedToken(text, special=True, normalized=False) for text in ("<|im_start|>", "<|im_end|>", "<|endoftext|>")]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """The folder of a tiny model of one of `KINDS`, whose weights are random but lively; made once."""

    import torch
    import transformers

    def make(kind: str) -> Path:
        folder = tmp_path_factory.getbasetemp() / f"transformers {kind}"
        if not folder.exists():
            name, sizes = KINDS[kind]
            ids = {"bos_token_id": 258, "eos_token_id": 257, "pad_token_id": 258}
            extra = {"rope_parameters": LONG_ROPE} if kind == "long rope" else {}
            config = getattr(transformers, name)(
                vocab_size=NUM_ROWS, initializer_range=0.3, tie_word_embeddings=False, **ids, **sizes, **extra
            )
            torch.manual_seed(5)
            transformers.logging.disable_progress_bar()
            transformers.logging.set_verbosity_error()
            transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
            write_tokenizer(folder)
        return folder

    return make


LONG_ROPE = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
LONG_ROPE["original_max_position_embeddings"] = 100


def opener(open_role: Callable[[str, BackendOptions], Any], rest: str, options: BackendOptions) -> Callable[[], Any]:
    return partial(open_role, rest, options)


def start(target: TransformersTarget, session_id: bytes, prompt: Sequence[int], committed: Sequence[int] = ()) -> None:
    target.open(session_id, prompt, committed)
    while target.prefill(session_id):
        pass


def score(
    target: TransformersTarget, session_id: bytes, length: int, committed: Sequence[int], drafted: Sequence[int] = ()
) -> Float32Array:
    return np.array(target.score([ScoreRequest(session_id, length, committed, drafted)])[0])


class TestLlamaDraft(DraftBackendSuite):
    @pytest.fixture
    def open_draft(self, folders: Folders) -> OpenDraft:
        return opener(FAMILY.open_draft, str(folders("llama")), DRAFT)


class TestQwenBf16Draft(DraftBackendSuite):
    tolerance = 0.5  # of logits between -30 and 30

    @pytest.fixture
    def open_draft(self, folders: Folders) -> OpenDraft:
        return opener(FAMILY.open_draft, f"{folders('qwen2')},dtype=bf16", DRAFT)


class TestSharedLlamaTarget(TargetBackendSuite):
    @pytest.fixture
    def open_target(self, folders: Folders) -> OpenTarget:
        return opener(FAMILY.open_target, str(folders("llama")), SHARED)


class TestSharedQwenBf16Target(TargetBackendSuite):
    tolerance = 0.5

    @pytest.fixture
    def open_target(self, folders: Folders) -> OpenTarget:
        return opener(FAMILY.open_target, f"{folders('qwen2')},dtype=bf16", SHARED)


class TestExactLlamaTarget(TargetBackendSuite):
    """Rows are compared bit for bit, since `info.deterministic` is true."""

    @pytest.fixture
    def open_target(self, folders: Folders) -> OpenTarget:
        return opener(FAMILY.open_target, str(folders("llama")), EXACT)


class TestExactQwenBf16Target(TargetBackendSuite):
    @pytest.fixture
    def open_target(self, folders: Folders) -> OpenTarget:
        return opener(FAMILY.open_target, f"{folders('qwen2')},dtype=bf16", EXACT)


@pytest.fixture(params=["llama", "qwen2,dtype=bf16", "window", "learned positions"])
def exact_target(request: pytest.FixtureRequest, folders: Folders) -> Iterator[TransformersTarget]:
    kind, comma, settings = str(request.param).partition(",")
    target = FAMILY.open_target(f"{folders(kind)}{comma}{settings}", EXACT)
    assert target.info.deterministic, target.info.exactness_note
    yield target
    target.shutdown()


@pytest.mark.parametrize("num_prompt_tokens", [1, 100, 300])
def test_blocks_with_wrong_branches_equal_stepping(exact_target: TransformersTarget, num_prompt_tokens: int) -> None:
    """Drafts of 1 to 16, each after a wrong branch, and one of 30: the rows of one id a pass, bit for bit."""
    prompt, ids, wrong = (
        sample_ids(exact_target.info, count, salt) for salt, count in enumerate((num_prompt_tokens, 61, 40))
    )
    start(exact_target, b"stepped", prompt)
    stepped = [score(exact_target, b"stepped", len(prompt), [])]
    stepped += [score(exact_target, b"stepped", len(prompt) + index, [each]) for index, each in enumerate(ids)]
    expected = np.concatenate(stepped)
    start(exact_target, b"blocks", prompt)
    position = 0
    for block in (1, 2, 4, 8, 16, 30):
        committed = ids[position - 1 : position] if position else []
        begin = len(prompt) + max(position - 1, 0)
        score(exact_target, b"blocks", begin, committed, wrong[: block + 7])
        rows = score(exact_target, b"blocks", begin, committed, ids[position : position + block])
        assert np.array_equal(rows, expected[position : position + block + 1]), f"draft of {block}"
        position += block


@pytest.mark.parametrize(("old", "new"), [(300, 200), (200, 260), (128, 129), (129, 128)])
def test_another_prompt_with_a_common_prefix_equals_a_fresh_one(
    exact_target: TransformersTarget, old: int, new: int
) -> None:
    ids = sample_ids(exact_target.info, 310)
    start(exact_target, b"fresh", ids[:new])
    expected = score(exact_target, b"fresh", new, [], ids[new : new + 3])
    start(exact_target, b"kept", ids[:old], ids[old : old + 4])
    start(exact_target, b"kept", ids[:new])
    assert np.array_equal(score(exact_target, b"kept", new, [], ids[new : new + 3]), expected)


def test_a_draft_up_to_the_end_of_the_context_is_exact(exact_target: TransformersTarget) -> None:
    """The last block is narrower, since padding must not run past the last position."""
    ids = sample_ids(exact_target.info, CONTEXT_TOKENS)
    start(exact_target, b"one", ids[:-21])
    start(exact_target, b"two", ids[:-21], ids[-21:-2])
    at_once = score(exact_target, b"one", CONTEXT_TOKENS - 21, [], ids[-21:])
    assert np.array_equal(score(exact_target, b"two", CONTEXT_TOKENS - 2, [], ids[-2:]), at_once[-3:])


@pytest.mark.parametrize("kind", ["llama", "window", "learned positions", "experts"])
def test_a_shared_pass_equals_each_alone(folders: Folders, kind: str) -> None:
    """Texts and drafts of quite different lengths, one without a draft, one up to the end of the context."""
    target = FAMILY.open_target(str(folders(kind)), SHARED)
    prompts = [sample_ids(target.info, count, salt=count) for count in (3, 77, 200, CONTEXT_TOKENS - 2)]
    drafts = [sample_ids(target.info, count, salt=count + 1) for count in (12, 0, 5, 1)]
    committed = [[], [9] * 30, [], [9]]
    requests = []
    for number, (prompt, drafted) in enumerate(zip(prompts, drafts, strict=True)):
        start(target, bytes([number]), prompt)
        requests.append(ScoreRequest(bytes([number]), len(prompt), committed[number], drafted))
    together = [rows.copy() for rows in target.score(requests)]
    again = [rows.copy() for rows in target.score(requests[1:3] + requests[:1])]
    for request, rows in zip(requests, together, strict=True):
        np.testing.assert_allclose(rows, target.score([request])[0], rtol=0.0, atol=1e-3)
    for rows, repeated in zip(together[1:3] + together[:1], again, strict=True):
        np.testing.assert_allclose(repeated, rows, rtol=0.0, atol=1e-3)


def test_a_window_is_rolled_back_exactly(folders: Folders) -> None:
    """Ids that a rollback brings back into the window are still there."""
    draft = FAMILY.open_draft(str(folders("window")), DRAFT)
    prompt = sample_ids(draft.info, 200)
    draft.append(prompt[:60])
    expected = draft.draft().copy()
    draft.append(prompt[60:])
    draft.rollback(60)
    np.testing.assert_allclose(draft.draft(), expected, rtol=0.0, atol=1e-3)


@pytest.mark.parametrize("options", [SHARED, EXACT])
def test_a_failed_pass_leaves_the_sessions_as_they_were(
    folders: Folders, options: BackendOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails in the second layer, when the first one has taken the new ids."""
    target = FAMILY.open_target(str(folders("llama")), options)
    requests = [ScoreRequest(bytes([number]), 40, [5], [7, 8, 9]) for number in range(target.max_batch_sessions)]
    for request in requests:
        start(target, request.session_id, sample_ids(target.info, 40, salt=request.session_id[0]))
    expected = [rows.copy() for rows in target.score(requests)]
    layer = target._model._model.model.layers[1]

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("out of memory\nwith a long story")

    with monkeypatch.context() as patch:
        patch.setattr(layer, "forward", fail)
        with pytest.raises(BackendError, match=r"in a pass over \d+ ids: RuntimeError: out of memory\.$"):
            target.score(requests)
    for rows, before in zip(target.score(requests), expected, strict=True):
        np.testing.assert_allclose(rows, before, rtol=0.0, atol=1e-3)


def test_a_failed_pass_leaves_the_draft_as_it_was(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = FAMILY.open_draft(str(folders("llama")), DRAFT)
    draft.append([1, 2, 3])
    draft.append([4])
    expected = draft.draft().copy()
    draft.rollback(3)
    with monkeypatch.context() as patch:
        patch.setattr(draft._model._model.model.layers[1], "forward", lambda *_, **__: 1 / 0)
        with pytest.raises(BackendError, match="ZeroDivisionError"):
            draft.append([7, 8])
    assert draft.length == 3
    draft.append([4])
    np.testing.assert_allclose(draft.draft(), expected, rtol=0.0, atol=1e-3)


def test_the_row_held_since_prefill_goes_with_its_ids(folders: Folders) -> None:
    """Once other ids stand in its place it is not given for them."""
    target = FAMILY.open_target(str(folders("llama")), SHARED)
    start(target, b"one", [1, 2, 3], [4, 5])
    held = score(target, b"one", 5, [])
    assert np.array_equal(score(target, b"one", 5, [], [9, 9])[:1], held)
    score(target, b"one", 4, [6])
    with pytest.raises(BackendError, match="No row is held"):
        score(target, b"one", 5, [])


def test_padded_rows_are_no_vocabulary(folders: Folders) -> None:
    draft = FAMILY.open_draft(str(folders("llama")), DRAFT)
    assert (draft.info.vocab_size, draft.info.num_ids, draft.info.eos_ids) == (NUM_ROWS, NUM_IDS, (257,))
    draft.append([1, 2])
    assert draft.draft().shape == (NUM_ROWS,)
    with pytest.raises(InvalidRequestError, match=f"token id {NUM_IDS} .* 0 to {NUM_IDS - 1}"):
        draft.append([NUM_IDS])


def test_positions_that_depend_on_the_length_of_a_pass_bound_the_context(folders: Folders) -> None:
    target = FAMILY.open_target(str(folders("long rope")), SHARED)
    assert target.info.context_length == 100
    with pytest.raises(InvalidRequestError, match="context_length is 101; legal: 1 to 100"):
        FAMILY.open_target(str(folders("long rope")), dataclasses.replace(SHARED, context_length=101))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("state space", "LinearAttentionLayer"), ("mixed", "LinearAttentionLayer"), ("no cache", "no cache at all")],
)
def test_a_state_that_cannot_be_cut_is_refused(folders: Folders, kind: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=f"cannot be cut back to a length .*{reason}"):
        FAMILY.open_draft(str(folders(kind)), DRAFT)


def test_a_cache_that_says_it_was_cut_and_was_not_is_refused(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    def forget_nothing(text: TextCache, length: int) -> None:
        text.length = length

    monkeypatch.setattr(TextCache, "rollback", forget_nothing)
    with pytest.raises(UnsupportedError, match="a branch that was cut off still shows"):
        FAMILY.open_draft(str(folders("llama")), DRAFT)


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("llama", SHARED, "sessions share passes"),
        ("llama", dataclasses.replace(EXACT, threads=2), "promised for one thread only"),
        ("experts", EXACT, "a mixture of experts"),
        ("llama", dataclasses.replace(EXACT, context_length=EXACT_BLOCK_TOKENS), "no longer than a block"),
    ],
)
def test_no_promise_where_rows_may_differ(folders: Folders, kind: str, options: BackendOptions, words: str) -> None:
    info = FAMILY.open_target(str(folders(kind)), options).info
    assert not info.deterministic
    assert words in info.exactness_note


def test_no_promise_where_a_look_at_the_model_finds_differing_rows(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact_rows = TransformersTarget._exact_rows

    def neighbourly(target: TransformersTarget, session: Any, begin: int, end: int) -> Float32Array:
        return exact_rows(target, session, begin, end) + np.float32(end)

    monkeypatch.setattr(TransformersTarget, "_exact_rows", neighbourly)
    info = FAMILY.open_target(str(folders("llama")), EXACT).info
    assert not info.deterministic
    assert "depend on what stands behind them" in info.exactness_note


def test_info_says_what_exactness_depends_on(folders: Folders) -> None:
    info = FAMILY.open_target(str(folders("llama")), EXACT).info
    for words in ("torch ", "transformers ", "CPU ", "F32", "1 thread;", "sdpa attention", "chunks of 64"):
        assert words in info.exactness_note
    assert info.quantisation == "F32"
    assert FAMILY.open_target(f"{folders('llama')},dtype=bf16", SHARED).info.quantisation == "BF16"


def test_an_absent_device_is_named(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UnsupportedError, match=r"device is 'cuda'.*sees none"):
        FAMILY.open_draft(f"{folders('llama')},device=cuda", DRAFT)


def test_a_device_that_cannot_take_the_model_is_named(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    with pytest.raises(BackendError, match=r"device cuda:99 cannot take the model.*dtype=bf16"):
        FAMILY.open_draft(f"{folders('llama')},device=cuda:99", DRAFT)


def test_a_folders_own_code_is_neither_run_nor_asked_for(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = copied(folders("llama"), tmp_path / "foreign")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "wonder", "auto_map": {"AutoConfig": "own.OwnConfig"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'was run')!r}, 'w')\nclass OwnConfig: pass\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(ModelFileError, match="cannot be loaded"):
        FAMILY.open_draft(str(folder), DRAFT)
    assert not (tmp_path / "was run").exists()
    assert capfd.readouterr() == ("", "")


def copied(folder: Path, destination: Path) -> Path:
    destination.mkdir()
    for file in folder.iterdir():
        (destination / file.name).write_bytes(file.read_bytes())
    return destination


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("tokenizer.json", None, "holds no tokenizer.json"),
        ("model.safetensors", b"garbage", "cannot be loaded: SafetensorError"),
        ("config.json", b'{"model_type": "wonder"}', "cannot be loaded: ValueError"),
        ("config.json", b"context", "has a context of -5 tokens"),
    ],
)
def test_broken_folders_are_refused(
    folders: Folders, tmp_path: Path, file: str, content: bytes | None, words: str
) -> None:
    folder = copied(folders("llama"), tmp_path / "broken")
    if content == b"context":
        config = json.loads((folder / file).read_text())
        content = json.dumps({**config, "max_position_embeddings": -5}).encode()
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    with pytest.raises(ModelFileError, match=words):
        FAMILY.open_target(str(folder), SHARED)


def test_weights_that_are_absent_are_not_made_up(folders: Folders, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = copied(folders("llama"), tmp_path / "lacking")
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelFileError, match=r"lacks 1 weights .*model\.norm\.weight"):
        FAMILY.open_draft(str(folder), DRAFT)


def test_a_tokenizer_wider_than_the_rows_is_refused(folders: Folders, tmp_path: Path) -> None:
    folder = copied(folders("llama"), tmp_path / "wide")
    definition = json.loads((folder / "tokenizer.json").read_text())
    entry = {**definition["added_tokens"][-1], "id": NUM_ROWS, "content": "<|far|>"}
    definition["added_tokens"] += [{**entry, "id": each, "content": f"<|{each}|>"} for each in range(259, NUM_ROWS + 1)]
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    with pytest.raises(ModelFileError, match=f"{NUM_ROWS + 1} ids and rows of {NUM_ROWS} logits"):
        FAMILY.open_draft(str(folder), DRAFT)


def test_a_closed_draft_is_an_error(folders: Folders) -> None:
    draft = FAMILY.open_draft(str(folders("llama")), DRAFT)
    draft.append([1, 2])
    draft.close()
    with pytest.raises(BackendError, match="The model is closed"):
        draft.append([3])


def test_the_engine_is_silent(folders: Folders, capfd: pytest.CaptureFixture[str]) -> None:
    FAMILY.open_draft(str(folders("qwen2")), DRAFT).append([1, 2])
    assert capfd.readouterr() == ("", "")


def test_the_family_and_its_tokenizer_load_no_engine(folders: Folders) -> None:
    program = (
        "import sys\n"
        "from edgedraft.backends.transformers import TransformersFamily\n"
        f"tokenizer = TransformersFamily().open_tokenizer({str(folders('llama'))!r})\n"
        "assert tokenizer.encode('hi', parse_special=True)\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_a_missing_library_names_the_extra(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgedraft.backends import transformers_engine, transformers_tokenizer

    monkeypatch.setitem(sys.modules, "torch", None)
    transformers_engine.load_libraries.cache_clear()
    with pytest.raises(UnsupportedError, match=r"pip install 'edgedraft\[torch\]'"):
        FAMILY.open_draft(str(folders("llama")), DRAFT)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'edgedraft\[torch\]'"):
        transformers_tokenizer.load_library()
