"""Tokenizers of model folders: kinds, bytes and identities, for byte-level BPE and in the manner of SentencePiece."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgedraft.backends.base import Tokenizer
from edgedraft.backends.transformers_tokenizer import TransformersTokenizer
from edgedraft.errors import ModelFileError, UnsupportedError
from edgedraft.testing.suites import TokenizerSuite

tokenizers = pytest.importorskip("tokenizers")
WriteFolder = Callable[..., Path]
SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")


def byte_level() -> Any:
    """256 bytes, one merge, three control tokens, one that is not special and one that only looks so."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate([*alphabet, "he"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[("h", "e")]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([tokenizers.AddedToken(text, normalized=False) for text in SPECIAL])
    tokenizer.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in ("<tool_call>", "<|fim_prefix|>")])
    return tokenizer


def sentence_pieces() -> Any:
    """Unknown, control tokens, 256 bytes and a few pieces, spaces written as in SentencePiece."""
    names = ["<unk>", "<s>", "<|im_end|>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "p", "l", "pl"]
    vocabulary = {name: index for index, name in enumerate(names)}
    model = tokenizers.models.BPE(
        vocab=vocabulary, merges=[("p", "l")], unk_token="<unk>", byte_fallback=True, fuse_unk=True
    )
    tokenizer = tokenizers.Tokenizer(model)
    normalizers, decoders = tokenizers.normalizers, tokenizers.decoders
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([tokenizers.AddedToken(text, normalized=False) for text in names[1:3]])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


@pytest.fixture
def write_folder(tmp_path: Path) -> WriteFolder:
    def write(tokenizer: Any, *, files: dict[str, Any] | None = None) -> Path:
        contents = {"tokenizer.json": tokenizer.to_str(), "config.json": {}, **(files or {})}
        for name, content in contents.items():
            (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
        return tmp_path

    return write


class TestByteLevel(TokenizerSuite):
    @pytest.fixture
    def tokenizer(self, write_folder: WriteFolder) -> Tokenizer:
        settings = {"bos_token": "<|endoftext|>", "eos_token": {"content": "<|im_end|>", "lstrip": False}}
        return TransformersTokenizer(write_folder(byte_level(), files={"tokenizer_config.json": settings}))

    def test_kinds_are_those_of_gguf(self, tokenizer: Tokenizer) -> None:
        """8 control, 16 defined by the user, 4 plain; a name like a control token's makes it one."""
        assert [tokenizer.identity(token_id) for token_id in (256, 257, 260, 261)] == [
            b"4:he",
            b"8:<|im_start|>",
            b"16:<tool_call>",
            b"8:<|fim_prefix|>",
        ]
        assert tokenizer.token_bytes(260) == b"<tool_call>"
        assert tokenizer.encode("<|fim_prefix|>", parse_special=True) == [261]
        assert 261 not in tokenizer.encode("<|fim_prefix|>", parse_special=False)

    def test_merged_and_split_characters_give_their_bytes(self, tokenizer: Tokenizer) -> None:
        token_ids = tokenizer.encode("he 🎉", parse_special=False)
        assert token_ids[0] == 256
        assert [tokenizer.token_bytes(each) for each in token_ids[1:]] == [bytes([byte]) for byte in " 🎉".encode()]

    def test_lone_surrogates_are_replaced(self, tokenizer: Tokenizer) -> None:
        assert tokenizer.encode("a\ud800", parse_special=False) == tokenizer.encode("a?", parse_special=False)

    def test_named_control_tokens(self, tokenizer: Tokenizer) -> None:
        assert (tokenizer.bos_id, tokenizer.add_bos, tokenizer.eos_ids) == (259, False, (258,))


class TestSentencePieces(TokenizerSuite):
    @pytest.fixture
    def tokenizer(self, write_folder: WriteFolder) -> Tokenizer:
        return TransformersTokenizer(
            write_folder(sentence_pieces(), files={"tokenizer_config.json": {"bos_token": "<s>"}})
        )

    def test_kinds_are_those_of_gguf(self, tokenizer: Tokenizer) -> None:
        identities = [tokenizer.identity(token_id) for token_id in (0, 1, 3 + 0x0A, 259, 262)]
        assert identities == [b"1:<unk>", b"8:<s>", b"32:\n", b"4: ", b"4:pl"]
        assert tokenizer.token_bytes(0) == b""
        assert tokenizer.token_bytes(3 + 0x0A) == b"\n"

    def test_bos_is_wanted_and_not_added(self, tokenizer: Tokenizer) -> None:
        assert (tokenizer.bos_id, tokenizer.add_bos) == (1, True)
        assert 1 not in tokenizer.encode("pl", parse_special=True)


def test_end_ids_come_from_all_files_the_tokenizers_own_first(write_folder: WriteFolder) -> None:
    files = {
        "tokenizer_config.json": {"eos_token": "<|im_end|>"},
        "generation_config.json": {"eos_token_id": [259, 258]},
        "config.json": {"eos_token_id": 257},
    }
    assert TransformersTokenizer(write_folder(byte_level(), files=files)).eos_ids == (258, 259, 257)


def test_padding_at_the_end_is_not_vocabulary_and_holes_are_unused(write_folder: WriteFolder) -> None:
    definition = json.loads(byte_level().to_str())
    definition["model"]["vocab"]["[PAD259]"] = 259
    definition["added_tokens"] = []
    engine = tokenizers.Tokenizer.from_str(json.dumps(definition))
    engine.add_tokens(["<|last|>"])
    tokenizer = TransformersTokenizer(write_folder(engine))
    assert tokenizer.num_ids == 259
    assert [tokenizer.identity(token_id) for token_id in (256, 257, 258)] == [b"4:he", b"2:", b"8:<|last|>"]


def test_what_cannot_be_turned_into_bytes_is_refused(write_folder: WriteFolder) -> None:
    tokenizer = byte_level()
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    with pytest.raises(UnsupportedError, match="decoder is WordPiece"):
        TransformersTokenizer(write_folder(tokenizer))


@pytest.mark.parametrize("entries", [None, 5, [5], [{"id": 1}]])
def test_added_tokens_that_are_none_are_named(write_folder: WriteFolder, entries: object) -> None:
    definition = {**json.loads(byte_level().to_str()), "added_tokens": entries}
    with pytest.raises(ModelFileError, match=r"tokenizer\.json cannot be read: added_tokens"):
        TransformersTokenizer(write_folder(byte_level(), files={"tokenizer.json": json.dumps(definition)}))


@pytest.mark.parametrize(("vocab", "highest"), [({}, -1), ({"a": 2**32 - 1}, 2**32 - 1)])
def test_a_vocabulary_without_end_or_ids_is_named(
    write_folder: WriteFolder, vocab: dict[str, int], highest: int
) -> None:
    definition = json.loads(byte_level().to_str())
    definition["model"] |= {"vocab": vocab, "merges": []}
    definition["added_tokens"] = []
    folder = write_folder(byte_level(), files={"tokenizer.json": json.dumps(definition)})
    with pytest.raises(ModelFileError, match=f"its highest id is {highest}; legal: 0 to"):
        TransformersTokenizer(folder)


@pytest.mark.parametrize("content", ["{", "[]", '{"model": {"type": "wonder"}}'])
def test_damaged_files_are_named(write_folder: WriteFolder, content: str) -> None:
    folder = write_folder(byte_level(), files={"tokenizer.json": content})
    with pytest.raises(ModelFileError, match=r"tokenizer\.json"):
        TransformersTokenizer(folder)
