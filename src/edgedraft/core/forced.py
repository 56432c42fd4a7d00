"""Blocks that look broken go to the cloud whatever the gate says of them (the precursor of UGSD; off by default)."""

from __future__ import annotations

import enum
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgedraft.types import DraftToken

MAX_PUNCTUATION_TOKENS = 0.4
MAX_ONE_CHARACTER = 0.5
MAX_PUNCTUATION_CHARACTERS = 0.5
CYCLE_TOKENS = 4


class ForcedRule(enum.StrEnum):
    """What counts as broken.

    `punctuation-tokens`: more than 40 % of the tokens are punctuation alone. `one-character`: one character makes more
    than half of the content. `language`: no letter of the language asked for, but letters of the other script.
    `punctuation-density`: more than half of the characters are punctuation. `no-entropy`: every entropy is 0.
    `cycle`: the last four tokens repeat the four before them.
    """

    PUNCTUATION_TOKENS = "punctuation-tokens"
    ONE_CHARACTER = "one-character"
    LANGUAGE = "language"
    PUNCTUATION_DENSITY = "punctuation-density"
    NO_ENTROPY = "no-entropy"
    CYCLE = "cycle"


@dataclass(frozen=True, slots=True)
class ForcedEscalation:
    """`rules` that are on, for captions in `language` (ISO 639-1). `text_of`: the text of some ids; a pure function."""

    rules: frozenset[ForcedRule]
    language: str
    text_of: Callable[[Sequence[int]], str]

    def finds(self, block: Sequence[DraftToken], before: Sequence[int]) -> ForcedRule | None:
        """The first rule that the block breaks; `before`: the ids of the caption before it."""
        return next((rule for rule in ForcedRule if rule in self.rules and self._breaks(rule, block, before)), None)

    def _breaks(self, rule: ForcedRule, block: Sequence[DraftToken], before: Sequence[int]) -> bool:
        ids = [token.token_id for token in block]
        if rule is ForcedRule.NO_ENTROPY:
            return all(token.entropy == 0.0 for token in block)
        if rule is ForcedRule.CYCLE:
            newest = [*before, *ids][-2 * CYCLE_TOKENS :]
            return len(newest) == 2 * CYCLE_TOKENS and newest[:CYCLE_TOKENS] == newest[CYCLE_TOKENS:]
        if rule is ForcedRule.PUNCTUATION_TOKENS:
            texts = [self.text_of([token_id]).strip() for token_id in ids]
            num_marks = sum(bool(text) and all(_is_mark(sign) for sign in text) for text in texts)
            return num_marks > MAX_PUNCTUATION_TOKENS * len(ids)
        return self._text_breaks(rule, "".join(self.text_of(ids).split()))

    def _text_breaks(self, rule: ForcedRule, text: str) -> bool:
        content = [sign for sign in text if not _is_mark(sign)]
        if rule is ForcedRule.PUNCTUATION_DENSITY:
            return len(text) - len(content) > MAX_PUNCTUATION_CHARACTERS * len(text)
        if rule is ForcedRule.ONE_CHARACTER:
            counts = Counter(content)
            return len(content) > 2 and max(counts.values()) > MAX_ONE_CHARACTER * len(content)
        is_han = [_is_han(sign) for sign in content if sign.isalpha()]
        wants_han = self.language == "zh"
        return bool(is_han) and all(han is not wants_han for han in is_han)


def _is_mark(sign: str) -> bool:
    return unicodedata.category(sign).startswith("P")


def _is_han(sign: str) -> bool:
    return "\u3400" <= sign <= "\u9fff" or "\uf900" <= sign <= "\ufaff"
