"""Lines of a captions file: JSONL or CSV in, one mapping a recording out. Complaints are collected, not raised."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from edgedraft.errors import InvalidRequestError

Row = Mapping[str, object]
LANGUAGES = {"en": "en", "english": "en", "zh": "zh", "chinese": "zh", "mandarin": "zh"}
"""What a file may say, before a "-" or "_" ("zh-CN"), and what we call it."""
NAME_COLUMNS = ("name", "file", "audio", "path")
_CAPTION_COLUMN = re.compile(r"(english|chinese|captions?)[ _-]?\d*|reference.*")
_LEGAL_CAPTIONS = "legal columns: caption, captions, english, chinese, reference*"


def rows(source: Path) -> Iterator[tuple[str, Row | str]]:
    """Each recording's place and fields, names in lower case; in the place of fields, what is wrong with the line.

    Raises `InvalidRequestError` where the file cannot be read at all.
    """
    try:
        text = source.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidRequestError(f"{source} cannot be read: {error.strerror}.", field="dataset") from error
    except UnicodeError as error:
        raise InvalidRequestError(
            f"{source} is not UTF-8 text: {error}.", field="dataset", remedy="Save it as UTF-8."
        ) from error
    yield from _json_rows(text) if source.suffix.lower() in {".jsonl", ".json"} else _csv_rows(text)


def _json_rows(text: str) -> Iterator[tuple[str, Row | str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield f"line {number}", f"not JSON: {error}"
            continue
        if isinstance(values, dict):
            yield f"line {number}", {key.strip().lower(): value for key, value in values.items()}
        else:
            yield f"line {number}", "not a JSON object"


def _csv_rows(text: str) -> Iterator[tuple[str, Row | str]]:
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip().lower() for name in next(lines, [])]
        if wrong := _header_problem(header):
            yield "header", wrong
            return
        for values in lines:
            place = f"line {lines.line_num}"
            if len(values) > len(header):
                yield place, f"{len(values)} fields under {len(header)} columns; quote a caption that holds a comma"
            elif any(value.strip() for value in values):
                yield place, dict(zip(header, values, strict=False))
    except csv.Error as error:
        yield f"line {lines.line_num}", f"not CSV: {error}"


def _header_problem(header: list[str]) -> str:
    if not any(name in NAME_COLUMNS for name in header):
        return f"no column with the recordings' names; legal: {', '.join(NAME_COLUMNS)}"
    if not any(_CAPTION_COLUMN.fullmatch(name) for name in header):
        return f"no column with captions; {_LEGAL_CAPTIONS}"
    twice = sorted({name for name in header if name and header.count(name) > 1})
    return f"column '{twice[0]}' occurs twice; number them: {twice[0]}_1, {twice[0]}_2" if twice else ""


def name_of(row: Row, wrong: list[str]) -> str:
    """The recording's name as written, or "" with a complaint."""
    value = next((row[column] for column in NAME_COLUMNS if row.get(column) not in (None, "")), "")
    if not isinstance(value, str) or not value.strip():
        wrong.append(f"no recording is named; legal columns: {', '.join(NAME_COLUMNS)}")
        return ""
    return value.strip()


def language_of(row: Row, wrong: list[str]) -> str | None:
    """The language that the row names, if it does."""
    value = row.get("language")
    if value is None or value == "":
        return None
    known = LANGUAGES.get(re.split("[-_]", value.strip().lower())[0]) if isinstance(value, str) else None
    if known is None:
        wrong.append(f"language is {value!r}; legal: en, zh")
    return known


def captions_of(row: Row, row_language: str | None, wanted: str | None, wrong: list[str]) -> dict[str, tuple[str, ...]]:
    """References by language, one or more each; only `wanted`, if given, which is also what unmarked columns are in."""
    columns = [name for name in row if _CAPTION_COLUMN.fullmatch(name)]
    if not columns:
        wrong.append(f"no captions; {_LEGAL_CAPTIONS}")
    found: dict[str, list[str]] = {}
    for name in columns:
        marked = {"english": "en", "chinese": "zh"}.get(name[:7])
        language = marked or row_language or wanted
        if language is None and not wrong:
            wrong.append(f"'{name}' is in no language; add a column 'language' (en, zh) or name the language")
        elif language and wanted in (None, language):
            found.setdefault(language, []).extend(_texts(name, row[name], wrong))
    for language, texts in found.items():
        if not texts:
            wrong.append(f"the caption in {language} is empty")
    return {language: tuple(texts) for language, texts in found.items()}


def _texts(name: str, value: object, wrong: list[str]) -> list[str]:
    """Captions of one field. A blank field is none (another reference may be there); a blank in a list is a mistake."""
    values = value if isinstance(value, list) else [] if value in (None, "") else [value]
    texts = [each.strip() for each in values if isinstance(each, str)]
    if len(texts) < len(values):
        wrong.append(f"'{name}' holds something that is not text")
    elif isinstance(value, list) and not all(texts):
        wrong.append(f"'{name}' holds an empty caption")
    if any(re.search("[\ud800-\udfff]", text) for text in texts):
        wrong.append(f"'{name}' holds half a character (a lone surrogate)")
    return [text for text in texts if text]


def attributes_of(row: Row, wrong: list[str]) -> dict[str, object]:
    """What the voice was made to be, by attribute; none where the dataset does not say."""
    value = row.get("attributes")
    if value is None or value == "":
        return {}
    if isinstance(value, dict):
        return value
    wrong.append("'attributes' is not a JSON object")
    return {}


def affect_of(row: Row, wrong: list[str]) -> str:
    """The affect that the voice was made to have, or ""."""
    value = row.get("affect")
    if value is None or isinstance(value, str):
        return (value or "").strip()
    wrong.append("'affect' is not text")
    return ""
