"""The tokenizer of the captioner models: byte-level byte-pair encoding, in a few lines of Python.

Ids: the three control tokens, the 256 bytes, then one id for each merge, in the order in which merges were learnt
(Sennrich et al. 2016). Words, with the space before them, and Chinese characters are encoded one at a time.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Sequence

from edgedraft.backends.contract_checks import check_ids
from edgedraft.errors import InvalidRequestError

LANGUAGES = ("en", "zh")
SPECIAL_TEXTS = ("<en>", "<zh>", "<eos>")
EOS_ID = 2
FIRST_BYTE_ID = len(SPECIAL_TEXTS)
FIRST_MERGED_ID = FIRST_BYTE_ID + 256

PIECE_PATTERN = " ?[A-Za-z]+|[\u4e00-\u9fff]|[^A-Za-z\u4e00-\u9fff]"
_PIECE = re.compile(PIECE_PATTERN, re.DOTALL)
_SPECIAL = re.compile("(" + "|".join(map(re.escape, SPECIAL_TEXTS)) + ")")


class CaptionerTokenizer:
    """`CaptionTokenizer`. `merges`: pairs of ids that become one, the first the most urgent.

    Raises `InvalidRequestError` for a merge of ids that do not exist yet.
    """

    languages: tuple[str, ...] = LANGUAGES
    bos_id: int | None = None
    add_bos = False
    eos_ids: tuple[int, ...] = (EOS_ID,)

    def __init__(self, merges: Sequence[tuple[int, int]]) -> None:
        self._bytes = [b""] * FIRST_BYTE_ID + [bytes([value]) for value in range(256)]
        self._rank: dict[tuple[int, int], int] = {}
        for left, right in merges:
            if not FIRST_BYTE_ID <= min(left, right) <= max(left, right) < len(self._bytes):
                raise InvalidRequestError(
                    f"merge is {left} and {right}; legal: {FIRST_BYTE_ID} to {len(self._bytes) - 1}.", field="merges"
                )
            self._rank[left, right] = len(self._bytes)
            self._bytes.append(self._bytes[left] + self._bytes[right])
        self.num_ids = len(self._bytes)
        self._encode_piece = functools.lru_cache(maxsize=4096)(self._merged)

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """Ids of `text`. Every text can be encoded."""
        token_ids: list[int] = []
        for part in _SPECIAL.split(text) if parse_special else [text]:
            if parse_special and part in SPECIAL_TEXTS:
                token_ids.append(SPECIAL_TEXTS.index(part))
            else:
                for piece in _PIECE.findall(part):
                    token_ids.extend(self._encode_piece(piece))
        return token_ids

    def _merged(self, piece: str) -> tuple[int, ...]:
        ids = [FIRST_BYTE_ID + value for value in piece.encode("utf-8")]
        while len(ids) > 1:
            pairs = list(itertools.pairwise(ids))
            merged_id, place = min((self._rank.get(pair, self.num_ids), place) for place, pair in enumerate(pairs))
            if merged_id == self.num_ids:
                break
            ids[place : place + 2] = [merged_id]
        return tuple(ids)

    def token_bytes(self, token_id: int) -> bytes:
        """Raises `InvalidRequestError` for an id that is no token."""
        check_ids([token_id], self.num_ids)
        return self._bytes[token_id]

    def identity(self, token_id: int) -> bytes:
        """The kind of token and its text, and for a merge which one it is: two may have the same bytes."""
        check_ids([token_id], self.num_ids)
        if token_id < FIRST_BYTE_ID:
            return b"control:" + SPECIAL_TEXTS[token_id].encode()
        if token_id < FIRST_MERGED_ID:
            return b"byte:" + self._bytes[token_id]
        return f"merge {token_id}:".encode() + self._bytes[token_id]

    def caption_prompt(self, language: str) -> list[int]:
        """The language's control token. Raises `InvalidRequestError` for another language than `languages`."""
        if language not in self.languages:
            raise InvalidRequestError(
                f"language is '{language}'; this model captions in: {', '.join(self.languages)}.", field="language"
            )
        return [LANGUAGES.index(language)]
