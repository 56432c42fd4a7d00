"""What a spec of family `transformers` names, and what a folder must hold before an engine reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgedraft.backends import model_store
from edgedraft.backends.transformers_files import (
    ModelSource,
    check_files,
    parse_source,
    read_chat_template,
    read_tokenizer_files,
)
from edgedraft.errors import EdgedraftError, InvalidRequestError, ModelFileError

WriteFolder = Callable[..., Path]


@pytest.fixture
def write_folder(tmp_path: Path) -> WriteFolder:
    """A folder with all that is asked for, `changes` made to it; None takes a file away."""

    def write(changes: dict[str, Any] | None = None) -> Path:
        contents = {"config.json": {}, "tokenizer.json": {}, "model.safetensors": "", **(changes or {})}
        for name, content in contents.items():
            if content is not None:
                (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("a/b", ModelSource(path=Path("a/b"))),
        ("a/b, dtype=bf16", ModelSource(path=Path("a/b"), dtype="bf16")),
        ("a,b=c,device=cuda:1,dtype=fp32", None),
        ("a, b.gguf,device=cuda:1,dtype=fp32", ModelSource(path=Path("a, b.gguf"), dtype="fp32", device="cuda:1")),
    ],
)
def test_settings_stand_behind_the_path(rest: str, expected: ModelSource | None) -> None:
    if expected is None:
        with pytest.raises(InvalidRequestError, match="no setting 'b'"):
            parse_source(rest)
    else:
        assert parse_source(rest) == expected


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ("", "path is empty"),
        (",dtype=fp32", "path is empty"),
        ("a,dtype=int8", "dtype is 'int8'; legal: fp32, bf16"),
        ("a,device=tpu", "device is 'tpu'; legal: cpu, cuda"),
        ("a,speed=9", "no setting 'speed'"),
        ("a,dtype=fp32,dtype=bf16", "twice"),
        ("a,dtype=", "setting dtype is empty; legal: dtype=fp32"),
        ("a,device= ", "setting device is empty"),
    ],
)
def test_wrong_specs_are_named(rest: str, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        parse_source(rest)


def test_stored_models_come_from_the_model_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_store, "resolve", lambda spec: Path("stored") / spec.replace(":", "-"))
    assert parse_source("hub:org/name/file.gguf,dtype=bf16").path == Path("stored/hub-org/name/file.gguf")
    assert not parse_source("demo:target").is_gguf


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"config.json": None}, r"holds no config\.json"),
        ({"tokenizer.json": None}, r"holds no tokenizer\.json"),
        ({"model.safetensors": None, "model.bin": ""}, r"no \*\.safetensors; pickled weights are not read"),
    ],
)
def test_incomplete_folders_are_refused(write_folder: WriteFolder, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelFileError, match=words):
        check_files(ModelSource(path=write_folder(changes)))


def test_a_whole_folder_is_accepted(write_folder: WriteFolder) -> None:
    check_files(ModelSource(path=write_folder()))


@pytest.mark.parametrize(
    ("name", "words"), [("absent", "does not exist"), ("x.txt", "neither a folder nor a GGUF file")]
)
def test_paths_that_are_no_model_are_refused(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "x.txt").write_text("x")
    for read in (check_files, read_chat_template):
        with pytest.raises(ModelFileError, match=words):
            read(ModelSource(path=tmp_path / name))


def test_a_gguf_is_checked_as_such(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"garbage" * 9)
    with pytest.raises(ModelFileError, match="not a GGUF file"):
        check_files(ModelSource(path=path))


@pytest.mark.parametrize("content", ["{", "[]"])
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
def test_damaged_files_are_named(write_folder: WriteFolder, name: str, content: str) -> None:
    with pytest.raises(EdgedraftError, match=name):
        read_tokenizer_files(write_folder({name: content}))


def test_end_ids_are_one_or_several(write_folder: WriteFolder) -> None:
    files = {"generation_config.json": {"eos_token_id": [7, 5]}, "config.json": {"eos_token_id": 6}}
    assert read_tokenizer_files(write_folder(files))[2] == [7, 5, 6]
    assert read_tokenizer_files(write_folder({"generation_config.json": {}, "config.json": {}}))[2] == []
    assert read_tokenizer_files(write_folder({"config.json": {"eos_token_id": [-1, True, "x", 3]}}))[2] == [3]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, ""),
        ({"chat_template.jinja": "{{ a }}", "tokenizer_config.json": {"chat_template": "{{ b }}"}}, "{{ a }}"),
        ({"tokenizer_config.json": {"chat_template": "{{ b }}"}}, "{{ b }}"),
        (
            {
                "tokenizer_config.json": {
                    "chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
                }
            },
            "d",
        ),
    ],
)
def test_the_chat_template_is_the_folders(write_folder: WriteFolder, files: dict[str, Any], expected: str) -> None:
    assert read_chat_template(ModelSource(path=write_folder(files))) == expected


@pytest.mark.parametrize("template", [5, {"a": 1}, [{"name": "default", "template": 5}]])
def test_a_template_that_is_no_text_is_named(write_folder: WriteFolder, template: object) -> None:
    folder = write_folder({"tokenizer_config.json": {"chat_template": template}})
    with pytest.raises(ModelFileError, match=r"tokenizer_config\.json has a chat_template that is no text"):
        read_chat_template(ModelSource(path=folder))


def test_templates_that_are_none_are_passed_over_and_a_damaged_one_is_named(write_folder: WriteFolder) -> None:
    folder = write_folder({"tokenizer_config.json": {"chat_template": [5, "x"]}})
    assert read_chat_template(ModelSource(path=folder)) == ""
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelFileError, match=r"chat_template\.jinja cannot be read"):
        read_chat_template(ModelSource(path=folder))


def test_a_name_that_no_file_can_have_does_not_exist() -> None:
    with pytest.raises(ModelFileError, match="does not exist"):
        check_files(ModelSource(path=Path("n" * 300)))
