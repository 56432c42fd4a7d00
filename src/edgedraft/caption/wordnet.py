"""English synonyms from the files of WordNet (wndb(5), morphy(7)), where the system has them. Nothing is downloaded."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

from edgedraft.errors import ModelFileError

FOLDERS = (
    "/usr/share/wordnet",  # Debian and Ubuntu: apt install wordnet-base
    "/usr/share/wordnet/dict",
    "/usr/share/wordnet-3.0/dict",
    "/usr/local/WordNet-3.0/dict",
    "/opt/homebrew/opt/wordnet/dict",
)
_RULES = {
    "adj": "er- est- er-e est-e",
    "adv": "",
    "noun": "s- ses-s ves-f xes-x zes-z ches-ch shes-sh men-man ies-y",
    "verb": "s- ies-y es-e es- ed-e ed- ing-e ing-",
}
"""Endings to take off a word that stands in no index, and what to put in their place."""


class WordNet:
    """Synonyms of a word. `folder` holds `index.*`, `data.*` and `*.exc` for the four parts of speech."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self._index = {part: _first_words(folder / f"index.{part}") for part in _RULES}
            self._exceptions = {part: _first_words(folder / f"{part}.exc") for part in _RULES}
            with (folder / "data.noun").open(encoding="utf-8") as lines:
                notice = "".join(line for _, line in zip(range(29), lines, strict=False))
        except (OSError, UnicodeError) as error:
            raise ModelFileError(f"{folder} does not hold WordNet: {error}", remedy="Install wordnet-base.") from error
        found = re.search(r"WordNet (\d[\d.]*\d)", notice)
        self.version = found[1] if found else "of unknown version"

    def synonyms(self, word: str) -> frozenset[str]:
        """Single words that share a meaning with `word` or with its base forms, in any part of speech.

        The word itself is among them if it is in WordNet; without it, there are none.
        """
        return frozenset(synonym for synonym in self._members(word.lower()) if "_" not in synonym)

    def _members(self, word: str) -> Iterator[str]:
        for part in _RULES:
            index = self._index[part]
            offsets = [offset for form in self._forms(word, part) if form in index for offset in _offsets(index[form])]
            if offsets:
                with (self._folder / f"data.{part}").open("rb") as data:
                    for offset in offsets:
                        data.seek(offset)
                        yield from _words(data.readline().decode())

    def _forms(self, word: str, part: str) -> list[str]:
        """The word and what it may be a form of: a listed exception, else one ending taken off."""
        exceptions = self._exceptions[part]
        if word in exceptions:
            return list(dict.fromkeys([word, *exceptions[word].split()]))
        rules = [rule.split("-") for rule in _RULES[part].split()]
        bases = [word.removesuffix(ending) + instead for ending, instead in rules if word.endswith(ending)]
        return list(dict.fromkeys([word, *bases]))


@functools.cache
def system_wordnet() -> WordNet | None:
    """WordNet as the system installed it, or nothing."""
    return next((WordNet(Path(folder)) for folder in FOLDERS if Path(folder, "index.noun").is_file()), None)


def _first_words(path: Path) -> dict[str, str]:
    """Lines of a file by their first word; the licence's lines begin with a blank."""
    with path.open(encoding="utf-8") as lines:
        pairs = (line.partition(" ") for line in lines if not line.startswith(" "))
        return {word: rest for word, _, rest in pairs}


def _offsets(index_line: str) -> list[int]:
    """Places of the synsets: the last fields, as many as the second one says."""
    fields = index_line.split()
    return [int(field) for field in fields[-int(fields[1]) :]]


def _words(data_line: str) -> list[str]:
    """offset, file, part, number of words in hexadecimal, then word and id in turn; "(a)" after a word is grammar."""
    fields = data_line.split()
    words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
    return [word.partition("(")[0] for word in words]
