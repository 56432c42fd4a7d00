"""A GGUF file's own tokenizer, through llama.cpp."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

from edgedraft.backends.contract_checks import check_ids
from edgedraft.backends.llamacpp_engine import LoadedModel, load_library, load_model
from edgedraft.errors import BackendError

_NO_TOKEN = -1
_PADDING = re.compile(rb"\[PAD\d+\]")
_PIECE_BYTES = 256


class LlamaCppTokenizer:
    """See `base.Tokenizer`. Loads the vocabulary only."""

    def __init__(self, path: Path) -> None:
        self._model = load_model(path, vocab_only=True)
        self._vocab = self._model.vocab
        self._library = load_library()
        self.num_ids = real_vocabulary(self._model)
        self.eos_ids = end_ids(self._model, self.num_ids)
        bos_id = self._library.llama_vocab_bos(self._vocab)
        self.bos_id: int | None = None if bos_id == _NO_TOKEN else bos_id
        self.add_bos: bool = self.bos_id is not None and bool(self._library.llama_vocab_get_add_bos(self._vocab))

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        data = text.encode("utf-8", errors="replace")
        capacity = len(data) + 2  # a token takes at least one byte; a leading space may be added
        for _ in range(2):
            ids = (ctypes.c_int32 * capacity)()
            count = self._library.llama_tokenize(self._vocab, data, len(data), ids, capacity, False, parse_special)
            if count >= 0:
                return list(ids[:count])
            capacity = -count
        raise BackendError("The engine could not tokenize the text.")

    def token_bytes(self, token_id: int) -> bytes:
        return self._piece(token_id, special=False)

    def identity(self, token_id: int) -> bytes:
        piece = self._piece(token_id, special=True)
        return b"%d:" % self._library.llama_vocab_get_attr(self._vocab, token_id) + piece

    def close(self) -> None:
        self._model.free()

    def _piece(self, token_id: int, *, special: bool, capacity: int = _PIECE_BYTES) -> bytes:
        check_ids([token_id], self.num_ids)
        buffer = ctypes.create_string_buffer(capacity)  # one for each call: several threads may ask at once
        size = self._library.llama_token_to_piece(self._vocab, token_id, buffer, capacity, 0, special)
        if size < 0:
            return self._piece(token_id, special=special, capacity=-size)
        return buffer.raw[:size]


def real_vocabulary(model: LoadedModel) -> int:
    """How many ids mean something: those before the unused or `[PADn]` ids that end a padded vocabulary."""
    library = load_library()
    count: int = library.llama_vocab_n_tokens(model.vocab)
    while count and _is_padding(library, model.vocab, count - 1):
        count -= 1
    return count


def _is_padding(library: Any, vocab: Any, token_id: int) -> bool:
    unused = library.llama_vocab_get_attr(vocab, token_id) & library.LLAMA_TOKEN_ATTR_UNUSED
    return bool(unused) or bool(_PADDING.fullmatch(library.llama_vocab_get_text(vocab, token_id) or b""))


def end_ids(model: LoadedModel, num_ids: int) -> tuple[int, ...]:
    """Every id after which generation ends, such as `<|im_end|>` and `<|endoftext|>`; ascending."""
    library = load_library()
    return tuple(token_id for token_id in range(num_ids) if library.llama_vocab_is_eog(model.vocab, token_id))
