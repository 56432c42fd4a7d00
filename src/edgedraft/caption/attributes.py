"""Captions of synthetic recordings from their attributes, and the attributes back from a caption."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

import numpy as np

from edgedraft.caption.phrases import FRAMES, LANGUAGES, LEVELS, PHRASES, PRONOUNS
from edgedraft.errors import InvalidRequestError

Attributes = Mapping[str, str]
"""Attribute to level, both as in `phrases.LEVELS`."""

_MARKER = re.compile(r"\[(.+?)\]")


def check_language(language: str) -> None:
    """Raises `InvalidRequestError` for a language without a grammar."""
    if language not in LANGUAGES:
        raise InvalidRequestError(f"language is '{language}'; legal: {', '.join(LANGUAGES)}.", field="language")


def _check_attributes(attributes: Attributes) -> None:
    for attribute, levels in LEVELS.items():
        if attributes.get(attribute) not in levels:
            raise InvalidRequestError(
                f"{attribute} is '{attributes.get(attribute)}'; legal: {', '.join(levels)}.", field="attributes"
            )


def _assembled(attributes: Attributes, language: str, frame: str, phrasings: Mapping[str, int]) -> str:
    parts = {}
    for attribute in LEVELS:
        choices = PHRASES[language][attribute][attributes[attribute]]
        parts[attribute] = _MARKER.sub(r"\1", choices[phrasings[attribute] % len(choices)])
    return frame.format(**parts, **PRONOUNS[language][attributes["voice"]])


def caption(attributes: Attributes, language: str) -> str:
    """The canonical caption. Raises `InvalidRequestError` for an unknown attribute level or language."""
    check_language(language)
    _check_attributes(attributes)
    return _assembled(attributes, language, FRAMES[language][0], dict.fromkeys(LEVELS, 0))


def paraphrases(attributes: Attributes, language: str, count: int, generator: np.random.Generator) -> list[str]:
    """`count` other wordings of the canonical caption, drawn with `generator`: no phrase in it is canonical where
    there is another.

    Raises as `caption`.
    """
    check_language(language)
    _check_attributes(attributes)
    frames = FRAMES[language]
    found = []
    for number in range(count):
        phrasings = {attribute: int(generator.integers(1, 3)) for attribute in LEVELS}
        found.append(_assembled(attributes, language, frames[(number + 1) % len(frames)], phrasings))
    return found


@functools.cache
def _patterns(language: str, attribute: str) -> Mapping[str, re.Pattern[str]]:
    edge = r"\b" if language == "en" else ""
    patterns = {}
    for level, phrasings in PHRASES[language][attribute].items():
        markers = [re.escape(match[1]) for phrase in phrasings if (match := _MARKER.search(phrase))]
        patterns[level] = re.compile(f"{edge}(?:{'|'.join(markers)}){edge}")
    return patterns


def read_attributes(text: str, language: str) -> dict[str, str]:
    """The levels that `text` states. An attribute of which it states none, or several, is left out.

    Raises `InvalidRequestError` for a language without a grammar.
    """
    check_language(language)
    found = {}
    for attribute in LEVELS:
        stated = [level for level, pattern in _patterns(language, attribute).items() if pattern.search(text)]
        if len(stated) == 1:
            found[attribute] = stated[0]
    return found
