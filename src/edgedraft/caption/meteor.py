"""METEOR (Lavie and Agarwal 2007), as nltk computes it. METEOR 1.5 of COCO, in Java, gives about half as much."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgedraft.caption.libraries import library
from edgedraft.caption.wordnet import WordNet, system_wordnet

Tokens = Sequence[str]


class Meteor:
    """One way to match words. `matching` names it, since figures of two ways must not be compared.

    English: equal, same stem (Porter), synonyms where there is a WordNet; nltk looks synonyms up by the stem, so it
    finds them only for words that are their own stem. Other languages: equal words only.
    """

    def __init__(self, *, english: bool, wordnet: WordNet | None) -> None:
        stem = library("nltk.stem.porter", purpose="computes METEOR").PorterStemmer().stem if english else str
        self._words = _Words(stem=stem, synonyms=wordnet.synonyms if wordnet else lambda word: frozenset())
        self._score = library("nltk.translate.meteor_score", purpose="computes METEOR").meteor_score
        self.matching = "equal words"
        if english:
            self.matching += f", stems, synonyms of WordNet {wordnet.version}" if wordnet else ", stems"

    def __call__(self, caption: Tokens, references: Sequence[Tokens]) -> float:
        """Score of one caption against its best reference, 0 to 1."""
        return float(self._score(references, caption, stemmer=self._words, wordnet=self._words))


@dataclass(frozen=True, slots=True)
class _Lemma:
    text: str

    def name(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class _Synset:
    members: tuple[_Lemma, ...]

    def lemmas(self) -> tuple[_Lemma, ...]:
        return self.members


class _Words:
    """Stemmer and WordNet in the shapes that nltk asks for. Captions repeat their words, so answers are kept."""

    def __init__(self, *, stem: Callable[[str], str], synonyms: Callable[[str], frozenset[str]]) -> None:
        self._synonyms = synonyms
        self.stem = functools.cache(stem)
        self.synsets = functools.cache(self._synsets)

    def _synsets(self, word: str) -> tuple[_Synset]:
        return (_Synset(tuple(_Lemma(synonym) for synonym in self._synonyms(word))),)


@functools.cache
def system_meteor(language: str) -> Meteor:
    """The richest way to match that this system has for a language."""
    english = language == "en"
    return Meteor(english=english, wordnet=system_wordnet() if english else None)
