"""The tokenizer of the toy models: bytes where the vocabulary has room for them, else letters."""

from __future__ import annotations

import re
import string

from edgedraft.backends.contract_checks import check_ids
from edgedraft.backends.toy_model import NUM_SPECIAL

NUM_BYTES = 256
SPECIAL_TEXTS = ("<s>", "</s>", "<|im_start|>", "<|im_end|>")
_SPECIAL_PATTERN = re.compile("(" + "|".join(map(re.escape, SPECIAL_TEXTS)) + ")")
_COMMON = " " + string.ascii_lowercase + ".,\n" + string.ascii_uppercase + string.digits
_LETTERS = _COMMON + "".join(mark for mark in string.punctuation if mark not in _COMMON)

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _letter(number: int) -> str:
    return _LETTERS[number] if number < len(_LETTERS) else chr(0x100 + number - len(_LETTERS))


class ToyTokenizer:
    """`num_ids` real ids, of which the last four are bos, eos, im_start and im_end.

    From 260 ids on, ids 0 to 255 are the bytes, so that characters are split over tokens, and what is between them and
    the control tokens is made-up words. Below, an id is a letter, and a character that has none shares another's id.
    """

    def __init__(self, num_ids: int) -> None:
        self.num_ids = num_ids
        self.num_plain = num_ids - NUM_SPECIAL
        self.bytewise = self.num_plain >= NUM_BYTES
        self.special_ids = dict(zip(SPECIAL_TEXTS, range(self.num_plain, num_ids), strict=True))
        self.bos_id: int | None = self.special_ids["<s>"]
        self.add_bos = True
        self.eos_ids: tuple[int, ...] = (self.special_ids["</s>"], self.special_ids["<|im_end|>"])
        self._id_of_letter = {} if self.bytewise else {_letter(number): number for number in range(self.num_plain)}

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """Ids of `text`, without BOS."""
        parts = _SPECIAL_PATTERN.split(text) if parse_special else [text]
        token_ids: list[int] = []
        for part in parts:
            special_id = self.special_ids.get(part) if parse_special else None
            token_ids.extend(self._encode_plain(part) if special_id is None else [special_id])
        return token_ids

    def _encode_plain(self, text: str) -> list[int]:
        if self.bytewise:
            return list(text.encode("utf-8"))
        return [self._id_of_letter.get(character, ord(character) % self.num_plain) for character in text]

    def token_bytes(self, token_id: int) -> bytes:
        """Raises `InvalidRequestError` for an id that is no token."""
        check_ids([token_id], self.num_ids)
        if token_id >= self.num_plain:
            return b""
        if not self.bytewise:
            return _letter(token_id).encode("utf-8")
        return bytes([token_id]) if token_id < NUM_BYTES else f" w{token_id}".encode()

    def identity(self, token_id: int) -> bytes:
        """The kind of token, then its text."""
        text = self.token_bytes(token_id)
        if token_id >= self.num_plain:
            return b"control:" + SPECIAL_TEXTS[token_id - self.num_plain].encode()
        return b"plain:" + text
