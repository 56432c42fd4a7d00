"""The tokenizer of a model folder, from `tokenizer.json` alone, without PyTorch.

Its identities equal those of the same model's GGUF file under llama.cpp, so that a draft in one format can serve a
target in the other: kinds are numbered and told apart as there, and a piece is the bytes that the token stands for.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from edgedraft.backends.contract_checks import check_ids
from edgedraft.backends.transformers_files import TokenizerFiles, read_tokenizer_files
from edgedraft.errors import ModelFileError, UnsupportedError

# The attribute bits of llama.cpp, and what carries no text.
UNKNOWN, UNUSED, NORMAL, CONTROL, USER_DEFINED, BYTE = 1, 2, 4, 8, 16, 32
SILENT = frozenset({UNKNOWN, CONTROL})
MAX_IDS = 2**22
"""Sixteen times the largest vocabulary there is; a damaged file may hold any id."""

# Names that mark a control token even where the file does not call it special; who writes GGUF files reads them so.
_CONTROL_NAME = re.compile(r"<\|.*\|>|<\N{FULLWIDTH VERTICAL LINE}.*\N{FULLWIDTH VERTICAL LINE}>|<pad>|<mask>")
_PADDING = re.compile(r"\[PAD\d+\]")
_BYTE_NAME = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"


def load_library() -> Any:
    """The `tokenizers` library. Raises `UnsupportedError` where it is not installed."""
    try:
        import tokenizers
    except ImportError as error:
        raise UnsupportedError(
            f"tokenizers cannot be loaded: {error}.",
            field="model",
            remedy="Install it with: pip install 'edgedraft[torch]'",
        ) from error
    return tokenizers


def _byte_of_character() -> dict[str, int]:
    """The alphabet of byte-level BPE: printable bytes are themselves, the others follow from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(others)}


class TransformersTokenizer:
    """See `base.Tokenizer`. Byte-level BPE, and vocabularies in the manner of SentencePiece."""

    def __init__(self, folder: Path, files: TokenizerFiles | None = None) -> None:
        """`files`: what `read_tokenizer_files` gives, where they are found in another way."""
        definition, settings, end_ids = files or read_tokenizer_files(folder)
        added: dict[str, bool] = {}
        try:
            for entry in definition.get("added_tokens", []):
                entry["special"] = entry["special"] or bool(_CONTROL_NAME.fullmatch(entry["content"]))
                added[entry["content"]] = entry["special"]
        except (KeyError, TypeError) as error:
            raise _damaged(folder, "added_tokens are not as they should be") from error
        text = json.dumps(definition)
        self._parsing, self._plain = _engine(folder, text), _engine(folder, text)
        self._plain.encode_special_tokens = True  # their texts are encoded like any other
        ids = self._parsing.get_vocab(with_added_tokens=True)
        if not 0 <= max(ids.values(), default=-1) < MAX_IDS:
            raise _damaged(folder, f"its highest id is {max(ids.values(), default=-1)}; legal: 0 to {MAX_IDS - 1}")
        texts = [self._parsing.id_to_token(token_id) for token_id in range(max(ids.values()) + 1)]
        self._entries = _entries(definition, texts, added)
        self.num_ids = len(self._entries)
        self.bos_id: int | None = ids.get(_text(settings.get("bos_token")))
        first_ids = self._parsing.encode("a", add_special_tokens=True).ids[:1]
        self.add_bos = self.bos_id is not None and first_ids == [self.bos_id]
        own_end_id = ids.get(_text(settings.get("eos_token")))
        named = [*([] if own_end_id is None else [own_end_id]), *end_ids]
        self.eos_ids: tuple[int, ...] = tuple(dict.fromkeys(each for each in named if each < self.num_ids))

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        clean = text.encode("utf-8", errors="replace").decode("utf-8")  # lone surrogates are no text
        engine = self._parsing if parse_special else self._plain
        return list(engine.encode(clean, add_special_tokens=False).ids)

    def token_bytes(self, token_id: int) -> bytes:
        kind, piece = self._entry(token_id)
        return b"" if kind in SILENT else piece

    def identity(self, token_id: int) -> bytes:
        return b"%d:%b" % self._entry(token_id)

    def _entry(self, token_id: int) -> tuple[int, bytes]:
        check_ids([token_id], self.num_ids)
        return self._entries[token_id]


def _text(token: Any) -> str:
    """A control token's text; the settings hold it bare, or with flags."""
    return str(token.get("content", "")) if isinstance(token, dict) else str(token or "")


def _damaged(folder: Path, reason: str) -> ModelFileError:
    return ModelFileError(f"{folder / 'tokenizer.json'} cannot be read: {reason}.", remedy="Fetch the file again.")


def _engine(folder: Path, definition: str) -> Any:
    library = load_library()
    try:
        engine = library.Tokenizer.from_str(definition)
    except Exception as error:  # the library has no error class of its own
        raise _damaged(folder, str(error)) from error
    engine.no_padding()
    engine.no_truncation()
    return engine


def _entries(definition: dict[str, Any], texts: list[str | None], added: dict[str, bool]) -> list[tuple[int, bytes]]:
    """Kind and piece of every real id. `texts`: by id; `added`: those beside the model proper, and which are special.

    Ids without a text are unused; those and `[PADn]` at the end are not real.
    """
    decoders = set(re.findall(r'"type": "(\w+)"', json.dumps(definition.get("decoder"))))
    byte_level = "ByteLevel" in decoders
    if not byte_level and not decoders & {"ByteFallback", "Metaspace"}:
        raise UnsupportedError(
            f"the tokenizer's decoder is {', '.join(sorted(decoders)) or 'none'}, from which the bytes of a token "
            "cannot be told.",
            field="model",
            remedy="Use a model with byte-level BPE or a SentencePiece vocabulary.",
        )
    byte_of = _byte_of_character()
    unknown = "" if byte_level else definition["model"].get("unk_token")
    entries: list[tuple[int, bytes]] = []
    for text in texts:
        if text is None:
            entries.append((UNUSED, b""))
        elif text == unknown:
            entries.append((UNKNOWN, text.encode()))
        elif text in added:
            entries.append((CONTROL if added[text] else USER_DEFINED, text.encode()))
        elif byte_level:
            foreign = any(character not in byte_of for character in text)  # left as it is by the decoder too
            entries.append((NORMAL, text.encode() if foreign else bytes(byte_of[character] for character in text)))
        else:
            match = _BYTE_NAME.fullmatch(text)
            entries.append((BYTE, bytes.fromhex(match[1])) if match else (NORMAL, text.replace(_SPACE, " ").encode()))
    while entries and (entries[-1][0] == UNUSED or _PADDING.fullmatch(texts[len(entries) - 1] or "")):
        entries.pop()
    return entries
