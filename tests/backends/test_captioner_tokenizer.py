"""The captioner's byte-pair encoding."""

from __future__ import annotations

from typing import ClassVar

import pytest

from edgedraft.backends.base import CaptionTokenizer
from edgedraft.backends.captioner_tokenizer import FIRST_BYTE_ID, CaptionerTokenizer
from edgedraft.errors import InvalidRequestError
from edgedraft.testing.suites import TokenizerSuite


def byte_id(text: str) -> int:
    return FIRST_BYTE_ID + ord(text)


MERGES = [
    (byte_id("l"), byte_id("l")),  # 259: ll
    (byte_id("h"), byte_id("e")),  # 260: he
    (260, 259),  # 261: hell
    (byte_id(" "), byte_id("a")),  # 262
]


class TestCaptionerTokenizer(TokenizerSuite):
    special_text: ClassVar[str | None] = "<eos>"

    @pytest.fixture
    def tokenizer(self) -> CaptionerTokenizer:
        return CaptionerTokenizer(MERGES)


def test_merges_are_applied_by_rank_and_within_a_word() -> None:
    tokenizer = CaptionerTokenizer(MERGES)
    assert tokenizer.encode("hello", parse_special=False) == [261, byte_id("o")]
    assert tokenizer.encode("he llama", parse_special=False) == [260, byte_id(" "), 259, *map(byte_id, "ama")]
    assert tokenizer.encode("x a", parse_special=False) == [byte_id("x"), 262]
    assert tokenizer.encode("lll", parse_special=False) == [259, byte_id("l")]


def test_is_asked_by_the_control_token_of_the_language() -> None:
    tokenizer = CaptionerTokenizer([])
    assert isinstance(tokenizer, CaptionTokenizer)
    assert tokenizer.languages[0] == "en"
    assert [tokenizer.caption_prompt(language) for language in tokenizer.languages] == [[0], [1]]
    with pytest.raises(InvalidRequestError, match="language is 'fr'; this model captions in: en, zh"):
        tokenizer.caption_prompt("fr")


@pytest.mark.parametrize("merge", [(0, 5), (5, 259), (-1, 5)])
def test_merges_of_what_does_not_exist_are_refused(merge: tuple[int, int]) -> None:
    with pytest.raises(InvalidRequestError, match="merge is"):
        CaptionerTokenizer([merge])
