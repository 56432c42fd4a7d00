"""The tables of docs/protocol.md are made from the code; `python tests/protocol/test_protocol_doc.py` writes them."""

from __future__ import annotations

import enum
import inspect
import re
import types
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import pytest

from edgedraft import errors
from edgedraft.protocol import messages
from edgedraft.protocol.messages import CommitKind, FromCloud, FromEdge
from edgedraft.types import Assist, DraftDistribution, Exactness, Owner, Rule, SamplingParams

PAGE = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"
VALUES = [
    messages.Fingerprint,
    messages.Limits,
    messages.ExactnessStatement,
    messages.Listening,
    SamplingParams,
    DraftDistribution,
    messages.Timings,
]
ENUMS: list[type[enum.Enum]] = [Owner, Rule, Assist, Exactness, CommitKind]
POWERS = {2**31: "2^31 - 1", 2**32: "2^32 - 1"}


def one_line(cls: type) -> str:
    return " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())


def paragraphs(cls: type) -> list[str]:
    return [line for part in (inspect.getdoc(cls) or "").split("\n\n") for line in ("", " ".join(part.split()))]


# -- types in words --------------------------------------------------------------------------------------------------


def in_words(annotation: Any) -> str:
    bounds = msgspec.Meta()
    if get_origin(annotation) is Annotated:
        annotation, bounds = get_args(annotation)
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join("nil" if arg is type(None) else in_words(arg) for arg in get_args(annotation))
    if get_origin(annotation) is list:
        return f"array of {size(bounds, 'values')}: {in_words(get_args(annotation)[0])}"
    if get_origin(annotation) is dict:
        key, value = get_args(annotation)
        return f"map from {in_words(key)} to {in_words(value)}"
    if annotation in (bytes, str):
        return size(bounds, "bytes" if annotation is bytes else "characters of text")
    if annotation is int and bounds.ge is not None:
        return f"{bounds.ge} to {POWERS[bounds.lt] if bounds.lt else f'{bounds.le:,}'}"
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct | enum.Enum):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    return {int: "integer", float: "number", bool: "true or false"}[annotation]


def size(bounds: msgspec.Meta, unit: str) -> str:
    if bounds.max_length is None:
        return unit
    exact = "" if bounds.min_length == bounds.max_length else "at most "
    return f"{exact}{bounds.max_length:,} {unit}"


# -- tables ----------------------------------------------------------------------------------------------------------


def struct_table(cls: type[msgspec.Struct]) -> list[str]:
    first = 0 if cls.__struct_config__.tag is None else 1
    rows = [f"| 0 | | {cls.__struct_config__.tag}, the tag |"] if first else []
    rows += [
        f"| {index} | `{field.name}` | {in_words(field.type)} |"
        for index, field in enumerate(msgspec.structs.fields(cls), first)
    ]
    return ["", "| | field | legal |", "|---|---|---|", *rows]


def messages_table() -> str:
    lines: list[str] = []
    directions = [(cls, "edge to cloud") for cls in get_args(FromEdge)]
    directions += [(cls, "cloud to edge") for cls in get_args(FromCloud)]
    for cls, direction in sorted(directions, key=lambda pair: pair[0].__struct_config__.tag):
        lines += ["", f"### {cls.__name__}", "", f"*{direction}*", *paragraphs(cls), *struct_table(cls)]
    return "\n".join(lines).strip()


def values_table() -> str:
    lines: list[str] = []
    for cls in VALUES:
        lines += ["", f"### {cls.__name__}", *paragraphs(cls), *struct_table(cls)]
    for choice in ENUMS:
        rows = [f"| `{member.value}` | {member.name} |" for member in choice]
        lines += ["", f"### {choice.__name__}", "", one_line(choice), "", "| value | name |", "|---|---|", *rows]
    return "\n".join(lines).strip()


def limits_table() -> str:
    limits = {name: value for name, value in vars(messages).items() if re.match(r"MAX_|NUM_|PROTOCOL_", name)}
    return "\n".join(["| limit | value |", "|---|---|", *(f"| `{name}` | {limits[name]:,} |" for name in limits)])


def error_classes(cls: type[errors.EdgedraftError] = errors.EdgedraftError) -> list[type[errors.EdgedraftError]]:
    found = [cls, *(deeper for child in cls.__subclasses__() for deeper in error_classes(child))]
    return [each for each in found if each.__module__ == errors.__name__]


def errors_table() -> str:
    again = {True: "yes", False: "no"}
    rows = [
        f"| `{cls.code}` | `{cls.__name__}` | {cls.http_status} | {again[cls.retryable]} | {one_line(cls)} |"
        for cls in error_classes()
    ]
    return "\n".join(["| code | class | HTTP | retryable | |", "|---|---|---|---|---|", *rows])


TABLES = {"messages": messages_table, "values": values_table, "limits": limits_table, "errors": errors_table}


def block(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name}: made from the code -->\n\n).*?(\n\n<!-- end of {name} -->)", re.DOTALL)


@pytest.mark.parametrize("name", TABLES)
def test_table_is_what_the_code_says(name: str) -> None:
    found = block(name).search(PAGE.read_text(encoding="utf-8"))
    assert found, f"docs/protocol.md has lost its table of {name}"
    assert found[0] == found[1] + TABLES[name]() + found[2], "run: python tests/protocol/test_protocol_doc.py"


def test_tables_hold_every_message_field_and_error() -> None:
    """The tables are equal to the page (above); here that they leave nothing out."""
    table = messages_table() + "\n" + values_table()
    for cls in (*get_args(FromEdge), *get_args(FromCloud), *VALUES):
        rows = [f"| `{name}` |" for name in cls.__struct_fields__]
        section = table[table.index(f"### {cls.__name__}\n") :].split("\n### ")[0]
        places = [section.index(row) for row in rows]
        assert places == sorted(places), cls.__name__
    for _, error in inspect.getmembers(errors, inspect.isclass):
        assert not issubclass(error, errors.EdgedraftError) or f"`{error.code}`" in errors_table()


def test_every_value_that_a_message_refers_to_has_its_section() -> None:
    text = messages_table() + "\n" + values_table()
    for anchor in re.findall(r"\]\(#([a-z]+)\)", text):
        assert re.search(rf"^### {anchor}$", text, re.MULTILINE | re.IGNORECASE), anchor


def write() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        made = table()
        text = block(name).sub(lambda found, made=made: found[1] + made + found[2], text)  # type: ignore[misc]
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
