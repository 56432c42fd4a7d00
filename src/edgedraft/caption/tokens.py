"""What counts as a word when captions are scored. Scores of different tokenisations must not be compared."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable

from edgedraft.caption.libraries import library
from edgedraft.errors import InvalidRequestError


class Tokenisation(enum.StrEnum):
    """How a caption is cut; letters are lower-cased first, and punctuation counts as tokens of its own.

    `en_13a`: words of mteval-v13a, as sacrebleu cuts English. `zh_words`: Chinese words by jieba.
    `zh_characters`: every Chinese character, as sacrebleu's "zh" cuts.
    """

    EN_13A = "en_13a"
    ZH_WORDS = "zh_words"
    ZH_CHARACTERS = "zh_characters"

    @property
    def language(self) -> str:
        return self.value[:2]


def tokenisations(language: str) -> tuple[Tokenisation, ...]:
    """Those a language is scored by, the one to quote first. Raises `InvalidRequestError` for a language without."""
    found = tuple(each for each in Tokenisation if each.language == language)
    if not found:
        raise InvalidRequestError(f"language is '{language}'; legal: en, zh.", field="language")
    return found


def tokenise(text: str, tokenisation: Tokenisation) -> list[str]:
    """Tokens of one caption; none where it holds only blanks. Raises `UnsupportedError` without the library."""
    return _cutter(tokenisation)(text.lower())


@functools.cache
def _cutter(tokenisation: Tokenisation) -> Callable[[str], list[str]]:
    if tokenisation is Tokenisation.ZH_WORDS:
        return _jieba_words()
    package = "sacrebleu.tokenizers.tokenizer_"
    if tokenisation is Tokenisation.ZH_CHARACTERS:
        cut = library(f"{package}zh", purpose="cuts captions into tokens").TokenizerZh()
    else:
        cut = library(f"{package}13a", purpose="cuts captions into tokens").Tokenizer13a()
    return lambda text: str(cut(text)).split()


def _jieba_words() -> Callable[[str], list[str]]:
    cut = library("jieba", purpose="cuts Chinese into words").Tokenizer()
    # Filled by hand: jieba's own way reports on stderr and trusts a cache that anyone may have left in the temp folder.
    cut.FREQ, cut.total = cut.gen_pfdict(cut.get_dict_file())
    cut.initialized = True
    return lambda text: [word for word in cut.lcut(text) if word.strip()]
