"""Captions from attributes and back."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from edgedraft.caption.attributes import caption, paraphrases, read_attributes
from edgedraft.caption.phrases import LANGUAGES, LEVELS, PHRASES
from edgedraft.errors import InvalidRequestError

MIDDLE = {attribute: levels[0] for attribute, levels in LEVELS.items()}


def random_attributes(generator: np.random.Generator) -> dict[str, str]:
    return {attribute: str(generator.choice(levels)) for attribute, levels in LEVELS.items()}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_pair_of_levels_is_read_back(language: str) -> None:
    for first, second in itertools.combinations(LEVELS, 2):
        for pair in itertools.product(LEVELS[first], LEVELS[second]):
            attributes = {**MIDDLE, first: pair[0], second: pair[1]}
            assert read_attributes(caption(attributes, language), language) == attributes


@pytest.mark.parametrize("language", LANGUAGES)
def test_paraphrases_are_read_back_and_differ(language: str) -> None:
    generator = np.random.default_rng(3)
    for _ in range(300):
        attributes = random_attributes(generator)
        canonical = caption(attributes, language)
        for text in paraphrases(attributes, language, 4, generator):
            assert text != canonical
            assert read_attributes(text, language) == attributes


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_level_has_phrasings_with_a_marker(language: str) -> None:
    assert set(PHRASES[language]) == set(LEVELS)
    for attribute, levels in LEVELS.items():
        assert tuple(PHRASES[language][attribute]) == levels
        for phrasings in PHRASES[language][attribute].values():
            assert all(phrase.count("[") == phrase.count("]") == 1 for phrase in phrasings)


@pytest.mark.parametrize("language", LANGUAGES)
def test_one_character_or_word_tells_canonical_levels_apart(language: str) -> None:
    for attribute in LEVELS:
        canonical = [phrasings[0].replace("[", "") for phrasings in PHRASES[language][attribute].values()]
        firsts = [phrase.split()[0] if language == "en" else phrase[0] for phrase in canonical]
        assert len(set(firsts)) == len(firsts)


def test_contradictions_and_omissions_are_not_read() -> None:
    assert "rate" not in read_attributes("He speaks slowly, then quickly, with one word chasing the next.", "en")
    assert read_attributes("Nothing of the kind.", "en") == {}
    assert read_attributes("A woman speaks.", "en") == {"voice": "woman"}
    assert read_attributes("A man speaks.", "en") == {"voice": "man"}


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="language is 'fr'"):
        caption(MIDDLE, "fr")
    with pytest.raises(InvalidRequestError, match="language is 'fr'"):
        read_attributes("", "fr")
    with pytest.raises(InvalidRequestError, match="rate is 'brisk'"):
        caption({**MIDDLE, "rate": "brisk"}, "en")
