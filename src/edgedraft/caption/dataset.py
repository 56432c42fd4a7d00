"""A folder of recordings with reference captions. Everything wrong with it is told at once, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from edgedraft.caption.dataset_rows import (
    LANGUAGES,
    Row,
    affect_of,
    attributes_of,
    captions_of,
    language_of,
    name_of,
    rows,
)
from edgedraft.caption.recording_files import RecordingFiles
from edgedraft.errors import EdgedraftError, InvalidRequestError

T = TypeVar("T")

LAYOUTS = """Understood are, beside the recordings or above their folders:
  captions.jsonl, a line each: {"file": "a.wav", "language": "en", "captions": ["A calm voice.", "She is calm."]}
  a CSV file with a header: name,english,chinese or file,language,caption or file,language,reference1,reference2"""
CAPTION_FILES = ("captions.jsonl", "captions.csv")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetItem:
    """One recording to caption in one language. `path` was there when the dataset was loaded; it was not decoded.

    `name`: as the captions file says. `captions`: one or more references. `attributes`, `affect`: what the voice was
    made to be, where the dataset is synthetic.
    """

    name: str
    path: Path
    language: str
    captions: tuple[str, ...]
    attributes: Mapping[str, object] = field(default_factory=dict)
    affect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Recordings in the order of the captions file `source`; one with captions in two languages is two items."""

    source: Path
    items: tuple[DatasetItem, ...]

    @property
    def languages(self) -> tuple[str, ...]:
        return tuple(sorted({item.language for item in self.items}))

    def of(self, language: str) -> tuple[DatasetItem, ...]:
        return tuple(item for item in self.items if item.language == language)


def load_dataset(path: Path, language: str | None = None, limit: int | None = None) -> Dataset:
    """The recordings of a folder, or of the captions file `path`.

    `language` ("en" or "zh"): only these; it is also what captions are in where the file does not say. `limit`: at most
    so many recordings of each language, the first ones.

    Raises `InvalidRequestError` that lists all that is wrong: lines that cannot be read, files that are missing,
    outside the folder or named twice, empty captions, unknown languages; `dataset_problems` gives them one by one.
    """
    if limit is not None and limit < 1:
        raise InvalidRequestError(f"limit is {limit}; legal: 1 or more.", field="limit")
    source = _captions_file(path)
    items, problems = _read(source, _known_language(language))
    if problems:
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        raise InvalidRequestError("\n  ".join([f"{source} has {count}:", *problems]), field="dataset")
    return Dataset(source=source, items=tuple(_first(items, limit)))


def of_each(dataset: Dataset, take: Callable[[DatasetItem], T], known: Sequence[str] = ()) -> list[T]:
    """What `take` makes of each recording. Raises `InvalidRequestError` listing all that it refused, after what is
    `known` to be wrong.
    """
    found: list[T] = []
    problems = list(known)
    for item in dataset.items:
        try:
            found.append(take(item))
        except EdgedraftError as error:
            problems.append(f"{item.name}: {error}")
    if problems:
        raise InvalidRequestError(
            "\n  ".join([f"{dataset.source} has recordings that cannot be used:", *problems]),
            field="dataset",
            remedy="Leave them out, or cut long ones at their pauses.",
        )
    return found


def dataset_problems(path: Path, language: str | None = None) -> tuple[str, ...]:
    """What `load_dataset` would complain about, a line each. Raises where there is no captions file to look at."""
    return tuple(_read(_captions_file(path), _known_language(language))[1])


def _known_language(language: str | None) -> str | None:
    if language is not None and language not in LANGUAGES.values():
        raise InvalidRequestError(f"language is '{language}'; legal: en, zh.", field="language")
    return language


def _captions_file(path: Path) -> Path:
    """The file itself, or the one of the folder that must be meant."""
    try:
        if path.is_file():
            return path
        if not path.is_dir():
            raise InvalidRequestError(f"dataset '{path}' does not exist.", field="dataset", remedy=LAYOUTS)
        named = [path / name for name in CAPTION_FILES if (path / name).is_file()]
        found = named[:1] or sorted(each for each in path.iterdir() if each.suffix.lower() in {".csv", ".jsonl"})
    except OSError as error:
        raise InvalidRequestError(f"dataset '{path}' cannot be read: {error.strerror}.", field="dataset") from error
    if not found:
        raise InvalidRequestError(f"dataset '{path}' has no captions file.", field="dataset", remedy=LAYOUTS)
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        raise InvalidRequestError(
            f"dataset '{path}' has several captions files: {names}.", field="dataset", remedy="Name the one you mean."
        )
    return found[0]


def _read(source: Path, language: str | None) -> tuple[list[DatasetItem], list[str]]:
    files = RecordingFiles(source.parent)
    items: list[DatasetItem] = []
    problems: list[str] = []
    places: dict[tuple[Path, str], str] = {}
    for place, row in rows(source):
        wrong = [row] if isinstance(row, str) else []
        for item in [] if isinstance(row, str) else _items(row, language, files, wrong):
            first = places.setdefault((item.path, item.language), place)
            if first != place:
                wrong.append(f"'{item.name}' has captions in {item.language} already, in {first}")
            items.append(item)
        problems += [f"{place}: {complaint}" for complaint in wrong]
    if not items and not problems:
        problems.append(f"no recording with captions{f' in {language}' if language else ''}")
    return items, problems


def _items(row: Row, language: str | None, files: RecordingFiles, wrong: list[str]) -> list[DatasetItem]:
    """What a row holds in the languages that are wanted; complaints go to `wrong`."""
    row_language = language_of(row, wrong)
    captions = captions_of(row, row_language, language, wrong)
    if not captions and not wrong:
        return []  # of another language
    name = name_of(row, wrong)
    path = files.find(name, wrong) if name else None
    attributes, affect = attributes_of(row, wrong), affect_of(row, wrong)
    if path is None:
        return []
    return [
        DatasetItem(name=name, path=path, language=each, captions=texts, attributes=attributes, affect=affect)
        for each, texts in captions.items()
    ]


def _first(items: Sequence[DatasetItem], limit: int | None) -> Iterator[DatasetItem]:
    counts = dict.fromkeys(LANGUAGES.values(), 0)
    for item in items:
        counts[item.language] += 1
        if limit is None or counts[item.language] <= limit:
            yield item
