"""The header check: what a file is, and every way in which it can be wrong."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from edgedraft.backends.gguf import NO_ROLLBACK_ARCHITECTURES, check_supported, read_header
from edgedraft.errors import ModelFileError, UnsupportedError

WriteGguf = Callable[..., Path]


def test_header_is_read(write_gguf: WriteGguf) -> None:
    path = write_gguf(num_padding=5, extra={"tokenizer.chat_template": "{{ messages }}", "general.file_type": 7})
    header = read_header(path)
    assert (header.version, header.architecture, header.name) == (3, "llama", "tiny")
    assert (header.num_tokens, header.context_length, header.quantisation) == (264, 256, "Q8_0")
    assert header.chat_template == "{{ messages }}"
    assert header.matrix_types == {"F32"}
    assert len(header.tensors) == 20
    assert header.needed_bytes == header.size_bytes == path.stat().st_size


def test_a_file_without_name_is_called_by_its_own(write_gguf: WriteGguf) -> None:
    header = read_header(write_gguf("my-model.gguf", without=["general.name", "general.file_type"]))
    assert header.name == "my-model"
    assert header.quantisation == ""
    assert header.chat_template == ""


def test_version_2_is_read(write_gguf: WriteGguf) -> None:
    assert read_header(write_gguf(version=2)).version == 2


def test_a_missing_file_a_directory_and_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    for path, words in (
        (tmp_path / "absent.gguf", "does not exist"),
        (tmp_path, "is a directory"),
        (tmp_path / "empty.gguf", "is empty"),
    ):
        with pytest.raises(ModelFileError, match=words) as caught:
            read_header(path)
        assert str(path) in str(caught.value)
        assert caught.value.remedy


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:12", "Git LFS pointer"),
        (b"PK\x03\x04 and more", "zip archive or PyTorch"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b'{"model": 1}', "JSON"),
        (b"\x10\x01\x00\x00\x00\x00\x00\x00{'weights'", "safetensors"),
        (b"tjgg and more", "old GGML"),
        (b"garbage", "starts with 67 61 72 62"),
    ],
)
def test_another_format_is_named(tmp_path: Path, start: bytes, words: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(start)
    with pytest.raises(ModelFileError, match="is not a GGUF file") as caught:
        read_header(path)
    assert words in str(caught.value)


def test_every_truncation_is_found(write_gguf: WriteGguf, tmp_path: Path) -> None:
    """Cut anywhere, in the header or in the weights, and the message says how many bytes are missing."""
    whole = write_gguf().read_bytes()
    path = tmp_path / "cut.gguf"
    for size in [5, 8, 20, 24, 31, 60, *range(100, len(whole), 997), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(ModelFileError, match=f"it has {size} bytes and needs at least"):
            read_header(path)


def test_a_header_with_absurd_lengths_is_refused(write_gguf: WriteGguf, tmp_path: Path) -> None:
    """Flip each of the first bytes in turn: an error or a header, never a crash, a hang or another exception."""
    whole = write_gguf().read_bytes()
    path = tmp_path / "flipped.gguf"
    refused = 0
    for index in range(4, 400):
        path.write_bytes(whole[:index] + bytes([whole[index] ^ 0xFF]) + whole[index + 1 :])
        with contextlib.suppress(ModelFileError):
            read_header(path)
            continue
        refused += 1
    assert refused > 100


def test_a_token_that_comes_twice_is_refused(write_gguf: WriteGguf) -> None:
    """The engine would abort the process."""
    path = write_gguf(extra={"tokenizer.ggml.tokens": ["a", "b", "", "", "b"]})
    with pytest.raises(ModelFileError, match="the same text for token 4 and an earlier one"):
        read_header(path)


def test_another_version_is_refused(write_gguf: WriteGguf) -> None:
    with pytest.raises(ModelFileError, match="GGUF version 1,"):
        read_header(write_gguf(version=1))


def test_what_is_no_language_model_is_refused(write_gguf: WriteGguf) -> None:
    check_supported(read_header(write_gguf()))
    with pytest.raises(ModelFileError, match="'adapter', not a language model"):
        check_supported(read_header(write_gguf(extra={"general.type": "adapter"})))
    with pytest.raises(ModelFileError, match="'clip', not a language model"):
        check_supported(read_header(write_gguf(architecture="clip")))
    with pytest.raises(ModelFileError, match="holds no tokenizer"):
        check_supported(read_header(write_gguf(without=["tokenizer.ggml.tokens"])))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.block_count", 0),
        ("llama.block_count", 2**32 - 1),
        ("llama.block_count", "many"),
        ("llama.attention.layer_norm_rms_epsilon", -1.0),
        ("llama.attention.layer_norm_rms_epsilon", float("nan")),
        ("llama.rope.freq_base", float("inf")),
    ],
)
def test_numbers_on_which_the_engine_would_abort_are_refused(write_gguf: WriteGguf, key: str, value: object) -> None:
    with pytest.raises(ModelFileError, match=f"{key} is "):
        check_supported(read_header(write_gguf(architecture="llama", extra={key: value})))


@pytest.mark.parametrize("architecture", sorted(NO_ROLLBACK_ARCHITECTURES))
def test_a_state_that_cannot_be_rolled_back_is_refused(write_gguf: WriteGguf, architecture: str) -> None:
    header = read_header(write_gguf(architecture=architecture))
    with pytest.raises(UnsupportedError, match="cannot be rolled back") as caught:
        check_supported(header)
    assert f"'{architecture}'" in str(caught.value)
