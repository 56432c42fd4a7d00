"""The conformance suite of tokenizers; see `suites`."""
# ruff: noqa: S101 - asserts are what a suite is made of

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from edgedraft.backends.base import Tokenizer
from edgedraft.errors import EdgedraftError


class TokenizerSuite:
    """What the edge relies on for text. Needs a fixture `tokenizer`.

    `texts`: what must survive a round trip. `special_text`: the text of a control token, None where there is none.
    """

    texts: ClassVar[Sequence[str]] = (
        "plain words",
        "naïve café, 12%",
        "数据 и данные",
        "👩‍💻👍🏽 done\n\ttab",
        "a  b   c",
    )
    special_text: ClassVar[str | None] = "<|im_end|>"

    def test_is_a_tokenizer(self, tokenizer: Tokenizer) -> None:
        assert isinstance(tokenizer, Tokenizer)
        assert tokenizer.num_ids > 0
        assert tokenizer.bos_id is not None or not tokenizer.add_bos
        assert all(0 <= token_id < tokenizer.num_ids for token_id in tokenizer.eos_ids)

    def test_text_survives(self, tokenizer: Tokenizer) -> None:
        """Bytes are equal, but for one leading space that some tokenizers add."""
        for text in self.texts:
            token_ids = tokenizer.encode(text, parse_special=False)
            assert all(0 <= token_id < tokenizer.num_ids for token_id in token_ids)
            joined = b"".join(tokenizer.token_bytes(token_id) for token_id in token_ids)
            assert joined.removeprefix(b" ") == text.encode()

    def test_no_bos_is_added(self, tokenizer: Tokenizer) -> None:
        for text in self.texts:
            for parse_special in (False, True):
                assert tokenizer.bos_id not in tokenizer.encode(text, parse_special=parse_special)

    def test_empty_text_is_no_ids(self, tokenizer: Tokenizer) -> None:
        assert tokenizer.encode("", parse_special=True) == []

    def test_special_text_is_one_id_only_where_asked_for(self, tokenizer: Tokenizer) -> None:
        if self.special_text is None:
            pytest.skip("this tokenizer has no control tokens with a text")
        (control_id,) = tokenizer.encode(self.special_text, parse_special=True)
        assert tokenizer.token_bytes(control_id) == b""
        plain_ids = tokenizer.encode(self.special_text, parse_special=False)
        assert control_id not in plain_ids
        assert b"".join(map(tokenizer.token_bytes, plain_ids)).removeprefix(b" ") == self.special_text.encode()

    def test_control_tokens_add_no_text(self, tokenizer: Tokenizer) -> None:
        for token_id in tokenizer.eos_ids:
            assert tokenizer.token_bytes(token_id) == b""
        if tokenizer.bos_id is not None:
            assert tokenizer.token_bytes(tokenizer.bos_id) == b""

    def test_identity_tells_ids_apart(self, tokenizer: Tokenizer) -> None:
        token_ids = [*range(min(tokenizer.num_ids, 300)), *tokenizer.eos_ids]
        identities = {token_id: tokenizer.identity(token_id) for token_id in token_ids}
        assert all(isinstance(identity, bytes) for identity in identities.values())
        assert len(set(identities.values())) == len(identities)

    def test_ids_outside_the_vocabulary_are_refused(self, tokenizer: Tokenizer) -> None:
        for token_id in (-1, tokenizer.num_ids):
            with pytest.raises(EdgedraftError):
                tokenizer.token_bytes(token_id)
            with pytest.raises(EdgedraftError):
                tokenizer.identity(token_id)
