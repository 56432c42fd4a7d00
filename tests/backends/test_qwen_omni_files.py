"""What a `qwen-omni:` spec names: folders as published, a hub stood in for, and what is refused."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgedraft.backends.base import BackendOptions, CaptionTokenizer
from edgedraft.backends.qwen_omni import QwenOmniFamily
from edgedraft.backends.qwen_omni_files import model_name, open_source
from edgedraft.backends.qwen_omni_prompts import DETAILED, QWEN2_5_OMNI, QWEN3_OMNI, REQUESTS
from edgedraft.errors import InvalidRequestError, ModelFileError, UnsupportedError
from edgedraft.protocol.fingerprint import compare, fingerprint
from edgedraft.testing.suites import TokenizerSuite

from .qwen_omni_fixtures import MARKS_2_5, TinyPair, logmel, write_pair, write_qwen2_5, write_qwen3, write_tokenizer

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")), reason="needs the extra torch"
)

FAMILY = QwenOmniFamily()
OPTIONS = BackendOptions(threads=1)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    return write_pair(tmp_path_factory.mktemp("qwen omni"))


@pytest.fixture
def copy(pair: TinyPair, tmp_path: Path) -> Path:
    """The edge's folder, to be damaged."""
    return Path(shutil.copytree(pair.edge_folder, tmp_path / "copy"))


class TestTokenizerFromOneFile(TokenizerSuite):
    @pytest.fixture
    def tokenizer(self, pair: TinyPair) -> CaptionTokenizer:
        return FAMILY.open_tokenizer(str(pair.edge_folder))


class TestTokenizerFromParts(TokenizerSuite):
    @pytest.fixture
    def tokenizer(self, pair: TinyPair) -> CaptionTokenizer:
        return FAMILY.open_tokenizer(str(pair.cloud_folder))


def test_both_lines_number_the_shared_ids_alike(pair: TinyPair) -> None:
    """Though one has `tokenizer.json` and the other its parts, and their marks behind `<|im_end|>` differ."""
    edge, cloud = (FAMILY.open_tokenizer(str(folder)) for folder in (pair.edge_folder, pair.cloud_folder))
    assert isinstance(edge, CaptionTokenizer)
    assert compare(fingerprint(edge), fingerprint(cloud)) is None
    assert edge.num_ids == edge.eos_ids[0] + 1 == edge.silent_ids[-1] + 2
    assert edge.encode("<|audio_bos|>", parse_special=True) != cloud.encode("<|audio_bos|>", parse_special=True)
    for language in ("en", "zh"):
        prompt = edge.caption_prompt(language)
        assert prompt == cloud.caption_prompt(language)
        assert prompt.index(edge.eos_ids[0]) == len(prompt) - 1
        assert b"".join(map(edge.token_bytes, prompt)).decode() == REQUESTS[DETAILED][language]
    assert edge.languages == ("en", "zh")
    with pytest.raises(InvalidRequestError, match="language is 'fr'; legal: en, zh"):
        edge.caption_prompt("fr")


@pytest.mark.parametrize("style", REQUESTS)
def test_what_is_asked_for_has_a_style(pair: TinyPair, style: str) -> None:
    tokenizer = FAMILY.open_tokenizer(f"{pair.edge_folder},style={style}")
    assert isinstance(tokenizer, CaptionTokenizer)
    for language in tokenizer.languages:
        asked = b"".join(map(tokenizer.token_bytes, tokenizer.caption_prompt(language))).decode()
        assert asked == REQUESTS[style][language]


def test_a_folder_may_have_a_style_in_its_name(copy: Path) -> None:
    named = copy.rename(copy.with_name("m,style=line,v2"))
    assert [open_source(str(named) + more)[2] for more in ("", ",style=concise")] == ["detailed", "concise"]
    assert open_source(str(named))[0].path == named


def test_another_vocabulary_is_told_apart(pair: TinyPair, copy: Path) -> None:
    definition = json.loads((copy / "tokenizer.json").read_text())
    vocabulary = definition["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    (copy / "tokenizer.json").write_text(json.dumps(definition))
    edge, changed = (FAMILY.open_tokenizer(str(folder)) for folder in (pair.edge_folder, copy))
    assert compare(fingerprint(edge), fingerprint(changed)) is not None


@pytest.mark.parametrize(("write", "line"), [(write_qwen2_5, QWEN2_5_OMNI), (write_qwen3, QWEN3_OMNI)])
def test_of_a_whole_model_the_thinker_is_read(tmp_path: Path, write: Any, line: object) -> None:
    """As published: a configuration of several parts, and weights that begin with `thinker.`; rows are the same."""
    rows = []
    for whole in (False, True):
        folder = write(tmp_path / f"whole {whole}", whole=whole)
        assert open_source(str(folder))[1] is line
        draft = FAMILY.open_draft(str(folder), OPTIONS)
        draft.listen(logmel(0.5))
        draft.append([1, 2, 3])
        rows.append(draft.draft().copy())
        assert not hasattr(draft._thinker._model.model, "visual")
        draft.close()
    np.testing.assert_allclose(rows[0], rows[1], rtol=0, atol=1e-5)  # where weights lie in memory shows in last bits


def test_other_weights_of_the_same_name_are_another_model(copy: Path) -> None:
    """So that what was calibrated for one is not used for the other."""
    before = FAMILY.open_draft(str(copy), OPTIONS)
    (weights,) = copy.glob("*.safetensors")
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(changed)
    after, again = (FAMILY.open_draft(str(copy), OPTIONS) for _ in range(2))
    assert before.info.name == after.info.name
    assert before.info.identity != after.info.identity == again.info.identity
    for draft in (before, after, again):
        draft.close()


def test_a_model_of_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    for open_role in (FAMILY.open_tokenizer, FAMILY.chat_template, lambda rest: FAMILY.open_draft(rest, OPTIONS)):
        with pytest.raises(UnsupportedError, match=r"type 'qwen2', which .* hear .* transformers:FOLDER"):
            open_role(str(tmp_path))


def test_no_chat_template_is_shown(pair: TinyPair) -> None:
    assert FAMILY.chat_template(pair.draft_spec.partition(":")[2]) == ""


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("", "path is empty; legal: qwen-omni:FOLDER"),
        ("/no/such/folder", "does not exist"),
        ("../up/here", "does not exist"),
        ("{folder},colour=red", "model 'qwen-omni' has no setting 'colour'.*there are: dtype, device, style"),
        ("{folder},style=short", "style is 'short'; legal: detailed, concise, line"),
        ("{folder},style=line,style=line", "no setting 'style', or has it twice"),
        ("{folder},dtype=int4", "dtype is 'int4'"),
        ("{folder},device=cuda:9", "sees none"),
        ("{folder}/config.json", "holds no config.json"),
    ],
)
def test_specs_that_name_nothing(pair: TinyPair, rest: str, message: str) -> None:
    with pytest.raises((InvalidRequestError, ModelFileError), match=message):
        FAMILY.open_draft(rest.format(folder=pair.edge_folder), OPTIONS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (BackendOptions(threads=0), "threads is 0"),
        (BackendOptions(context_length=2048), "context_length is 2048; legal: 1 to "),
        (BackendOptions(max_sessions=0), "max_sessions is 0"),
        (BackendOptions(prefill_chunk_tokens=0), "prefill_chunk_tokens is 0"),
    ],
)
def test_options_out_of_range(pair: TinyPair, options: BackendOptions, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        FAMILY.open_target(str(pair.edge_folder), options)


@pytest.mark.parametrize(
    ("absent", "message"),
    [
        ("model.safetensors", "holds no \\*.safetensors"),
        ("tokenizer.json", "neither tokenizer.json nor vocab.json and merges.txt"),
        ("config.json", "holds no config.json"),
    ],
)
def test_missing_files(copy: Path, absent: str, message: str) -> None:
    (copy / absent).unlink()
    with pytest.raises(ModelFileError, match=message):
        FAMILY.open_draft(str(copy), OPTIONS)


def test_damaged_files(copy: Path, pair: TinyPair, tmp_path: Path) -> None:
    parts = Path(shutil.copytree(pair.cloud_folder, tmp_path / "parts"))
    (parts / "vocab.json").write_text("{")
    with pytest.raises(ModelFileError, match=r"tokenizer in .* cannot be read"):
        FAMILY.open_tokenizer(str(parts))
    weights = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(ModelFileError, match="cannot be loaded"):
        FAMILY.open_draft(str(copy), OPTIONS)


def test_a_folder_that_lacks_weights_is_refused(copy: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(copy / "model.safetensors")
    del tensors["audio_tower.proj.weight"]
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelFileError, match=r"lacks 1 weights .*audio_tower.proj.weight"):
        FAMILY.open_draft(str(copy), OPTIONS)


def test_the_tokenizer_of_another_line_is_refused(copy: Path, pair: TinyPair, tmp_path: Path) -> None:
    """Marks of the same name under another id, marks of another name, and no marks at all."""
    write_tokenizer(tmp_path / "shifted", [MARKS_2_5[0], "<|more|>", *MARKS_2_5[1:]], in_parts=False)
    write_tokenizer(tmp_path / "other", ["<|audio_start|>", "<|audio_end|>"], in_parts=False)
    for folder in ("shifted", "other"):
        shutil.copy(tmp_path / folder / "tokenizer.json", copy)
        with pytest.raises(ModelFileError, match=r"marks a recording with id \d+, its tokenizer writes <\|audio_bos"):
            FAMILY.open_draft(str(copy), OPTIONS)
    definition = json.loads((copy / "tokenizer.json").read_text())
    definition["added_tokens"] = []
    (copy / "tokenizer.json").write_text(json.dumps(definition))
    with pytest.raises(ModelFileError, match=r"does not know <\|im_end\|>"):
        FAMILY.open_tokenizer(str(copy))


def test_names(pair: TinyPair) -> None:
    assert model_name(pair.edge_folder) == "edge"
    assert model_name(Path("hub/models--Qwen--Qwen2.5-Omni-3B/snapshots/0123abcd")) == "Qwen/Qwen2.5-Omni-3B"


class StandInHub:
    """In place of the hub's library: a cache of one folder, and a note of what was fetched."""

    def __init__(self, folder: Path, *, cached: bool, error: Exception | None = None) -> None:
        self.folder, self.cached, self.error = folder, cached, error
        self.fetched: list[tuple[str, str | None, Sequence[str]]] = []

    def __call__(
        self, repo_id: str, revision: str | None, allow_patterns: Sequence[str], local_files_only: bool = False
    ) -> str:
        from huggingface_hub.errors import LocalEntryNotFoundError

        if local_files_only and not self.cached:
            raise LocalEntryNotFoundError("not here")
        if not local_files_only:
            if self.error is not None:
                raise self.error
            self.fetched.append((repo_id, revision, allow_patterns))
        return str(self.folder)


def stand_in(monkeypatch: pytest.MonkeyPatch, folder: Path, **keywords: Any) -> StandInHub:
    hub = StandInHub(folder, **keywords)
    monkeypatch.setattr("huggingface_hub.snapshot_download", hub)
    return hub


def test_a_model_of_the_hub_is_taken_from_its_cache(pair: TinyPair, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = stand_in(monkeypatch, pair.edge_folder, cached=True)
    source, line, style = open_source("Qwen/Qwen2.5-Omni-3B,style=line,dtype=bf16")
    assert (source.path, source.dtype, line, style) == (pair.edge_folder, "bf16", QWEN2_5_OMNI, "line")
    assert hub.fetched == []


def test_a_model_of_the_hub_is_fetched(pair: TinyPair, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = stand_in(monkeypatch, pair.edge_folder, cached=False)
    assert open_source("Qwen/Qwen2.5-Omni-3B@main")[0].path == pair.edge_folder
    ((repo, revision, patterns),) = hub.fetched
    assert (repo, revision) == ("Qwen/Qwen2.5-Omni-3B", "main")
    assert "*.safetensors" in patterns
    assert not any(pattern.endswith((".pt", ".bin", ".py")) for pattern in patterns)  # they can run code


def test_an_interrupted_download_goes_on(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    hub = stand_in(monkeypatch, copy, cached=True)
    open_source("Qwen/Qwen2.5-Omni-3B")
    assert len(hub.fetched) == 1


def test_a_hub_that_does_not_deliver(pair: TinyPair, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, pair.edge_folder, cached=False, error=OSError("no route"))
    with pytest.raises(ModelFileError, match=r"could not be reached or did not deliver it \(OSError\)"):
        open_source("Qwen/Qwen2.5-Omni-3B")
