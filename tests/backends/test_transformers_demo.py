"""The demo pair on PyTorch: its GGUF files, its vocabulary in both formats, and a draft from another engine."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgedraft.backends.base import BackendOptions, ScoreRequest
from edgedraft.backends.llamacpp import LlamaCppFamily
from edgedraft.backends.model_store import resolve
from edgedraft.backends.template import encode_chat
from edgedraft.backends.transformers import TransformersFamily, TransformersTarget
from edgedraft.backends.transformers_engine import DEFAULT_CONTEXT_TOKENS
from edgedraft.backends.transformers_tokenizer import TransformersTokenizer
from edgedraft.bench.target_only import target_only_ids
from edgedraft.config import CloudConfig, EdgeConfig
from edgedraft.edge.blocking import EdgeClient
from edgedraft.errors import ModelFileError, UnsupportedError
from edgedraft.protocol.fingerprint import compare, fingerprint
from edgedraft.testing.cloud import running_cloud
from edgedraft.types import Exactness, SamplingParams

pytestmark = [
    pytest.mark.model,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "gguf")),
        reason="needs the extra torch",
    ),
]
needs_accelerate = pytest.mark.skipif(
    importlib.util.find_spec("accelerate") is None, reason="transformers reads GGUF weights only beside accelerate"
)

FAMILY, LLAMACPP = TransformersFamily(), LlamaCppFamily()
PROMPTS = ("Name three colours.", "Why is the sky blue?")
MAX_TOKENS = 12
TEXTS = ("plain words 2026", "naïve café\n\n  数据 🎉", "<|im_start|>user\nhi<|im_end|>", "a\ud800b\x00c")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model's tokenizer as a folder, as its authors publish it."""
    import transformers

    path = resolve("demo:target")
    destination = tmp_path_factory.mktemp("demo")
    transformers.AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name).save_pretrained(destination)
    (destination / "config.json").write_text('{"eos_token_id": [2, 0]}')
    return destination


@pytest.fixture(scope="module")
def target() -> Iterator[TransformersTarget]:
    options = BackendOptions(context_length=512, max_sessions=3, deterministic=True)
    backend = FAMILY.open_target("demo:target", options)
    yield backend
    backend.shutdown()


def test_folder_and_gguf_number_the_same_tokens(folder: Path) -> None:
    of_folder, of_gguf = TransformersTokenizer(folder), LLAMACPP.open_tokenizer(str(resolve("demo:draft")))
    assert compare(fingerprint(of_folder), fingerprint(of_gguf)) is None
    assert (of_folder.bos_id, of_folder.add_bos) == (of_gguf.bos_id, of_gguf.add_bos)
    assert of_folder.eos_ids == (2, 0)
    for text in TEXTS:
        for parse_special in (False, True):
            ids = of_folder.encode(text, parse_special=parse_special)
            assert ids == of_gguf.encode(text, parse_special=parse_special), text
    for token_id in range(0, of_gguf.num_ids, 7):
        assert of_folder.token_bytes(token_id) == of_gguf.token_bytes(token_id)


def test_folder_and_gguf_give_the_same_prompt(folder: Path) -> None:
    messages = [{"role": "user", "content": PROMPTS[0]}]
    prompts = [
        encode_chat(FAMILY.open_tokenizer(rest), FAMILY.chat_template(rest), messages)
        for rest in (str(folder), str(resolve("demo:target")), "demo:draft")
    ]
    assert prompts[0] == prompts[1] == prompts[2]


@needs_accelerate
def test_rows_are_those_of_the_other_engine(target: TransformersTarget) -> None:
    """The same weights, dequantised here and multiplied as they are there."""
    other = LLAMACPP.open_target(str(resolve("demo:target")), BackendOptions(threads=1, context_length=256))
    prompt, drafted = target_prompt(PROMPTS[0]), [504, 3575, 282, 260, 905]
    rows = []
    for backend in (target, other):
        backend.open(b"same", prompt, [])
        while backend.prefill(b"same"):
            pass
        rows.append(np.array(backend.score([ScoreRequest(b"same", len(prompt), [], drafted)])[0]))
        backend.close(b"same")
    assert list(rows[0].argmax(1)) == list(rows[1].argmax(1))
    assert np.corrcoef(rows[0].ravel(), rows[1].ravel())[0, 1] > 0.999


@needs_accelerate
def test_info_of_a_gguf(target: TransformersTarget) -> None:
    assert target.info.deterministic
    assert target.info.quantisation == "Q8_0 as F32"
    assert (target.info.vocab_size, target.info.num_ids) == (49152, 49152)
    assert set(target.info.eos_ids) >= {0, 2}
    assert target.info.context_length == 512 < DEFAULT_CONTEXT_TOKENS


def target_prompt(text: str) -> list[int]:
    tokenizer, template = LLAMACPP.open_tokenizer(str(resolve("demo:target"))), FAMILY.chat_template("demo:target")
    return encode_chat(tokenizer, template, [{"role": "user", "content": text}])


@needs_accelerate
def test_a_llamacpp_draft_serves_a_pytorch_target(target: TransformersTarget) -> None:
    """Token for token what the target writes alone; the draft is of the same weights, so much of it is accepted."""
    tokenizer, template = FAMILY.open_tokenizer("demo:target"), FAMILY.chat_template("demo:target")
    greedy = SamplingParams()
    with (
        running_cloud(target, tokenizer, template, CloudConfig(port=0, max_sessions=2)) as cloud,
        EdgeClient(
            cloud.url,
            draft="demo:draft",
            config=EdgeConfig(silence_s=30.0),
            draft_options=BackendOptions(threads=1, context_length=512),
        ) as client,
    ):
        answers = [client.generate(prompt, max_tokens=MAX_TOKENS, draft_length=6) for prompt in PROMPTS]
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        alone = target_only_ids(
            target, target_prompt(prompt), sampling=greedy, max_tokens=MAX_TOKENS, eos_ids=tokenizer.eos_ids
        )
        assert list(answer.token_ids) == alone
        assert answer.exact is Exactness.BITWISE
        assert answer.accounting["num_accepted"] > 0


def test_broken_files_are_refused_before_the_engine_reads_them(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(resolve("demo:draft").read_bytes()[:-1000])
    with pytest.raises(ModelFileError, match="truncated"):
        FAMILY.open_target(str(broken), BackendOptions())


def test_a_missing_package_for_gguf_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgedraft.backends import transformers_engine

    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        transformers_engine.importlib.util, "find_spec", lambda name: None if name == "gguf" else find_spec(name)
    )
    with pytest.raises(UnsupportedError, match=r"needs the package gguf\. .*edgedraft\[torch\]"):
        FAMILY.open_target("demo:target", BackendOptions(threads=1))
