"""One self-contained HTML page: facts, pictures, tables, the manifest. It loads nothing."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from edgedraft.bench.drawing import Picture
from edgedraft.bench.scenario import BUILT_IN
from edgedraft.bench.tables import Entry, Table


def html_page(
    *,
    title: str,
    summary: str,
    facts: Mapping[str, Sequence[str]],
    pictures: Sequence[Picture],
    tables: Sequence[Table],
    manifest: Mapping[str, Any],
) -> str:
    """The whole page. `facts`: sentences by heading."""
    style = (resources.files(BUILT_IN) / "report.css").read_text(encoding="utf-8")
    sections = [*map(_picture, pictures), *map(_table, tables)]
    titles = [(each.id, each.title) for each in pictures] + [(each.id, each.title) for each in tables]
    links = "".join(f'<a href="#{_quoted(id_)}">{_quoted(name)}</a>' for id_, name in titles)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{_quoted(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"<header><h1>{_quoted(title)}</h1><p>{_quoted(summary)}</p></header>\n<nav>{links}</nav>\n"
        + "\n".join([*map(_facts, facts, facts.values()), *sections])
        + f"\n{_manifest(manifest)}\n</body>\n</html>\n"
    )


def shown(entry: Entry) -> str:
    """A table's entry as people read it: about four digits."""
    if entry is None:
        return "-"
    if isinstance(entry, str):
        return entry
    if isinstance(entry, int) or abs(entry) >= 1_000:
        return f"{entry:,.0f}"
    return f"{entry:.1f}" if abs(entry) >= 100 else f"{entry:.2f}" if abs(entry) >= 10 else f"{entry:.3f}"


def _facts(heading: str, sentences: Sequence[str]) -> str:
    items = "".join(f"<li>{_quoted(sentence)}</li>" for sentence in sentences)
    return f"<section><h2>{_quoted(heading)}</h2><ul>{items}</ul></section>"


def _picture(picture: Picture) -> str:
    return (
        f'<figure id="{_quoted(picture.id)}"><h2>{_quoted(picture.title)}</h2>\n{picture.svg}'
        f"<figcaption>{_quoted(picture.caption)}</figcaption></figure>"
    )


def _table(table: Table) -> str:
    head = "".join(f"<th>{_quoted(column)}</th>" for column in table.columns)
    body = "\n".join(f"<tr>{''.join(_cells(row))}</tr>" for row in table.rows)
    return (
        f'<section id="{_quoted(table.id)}"><h2>{_quoted(table.title)}</h2><p>{_quoted(table.note)}</p>\n'
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div></section>'
    )


def _cells(row: Sequence[Entry]) -> Iterator[str]:
    for entry in row:
        kind = "" if isinstance(entry, str) else ' class="number"'
        yield f"<td{kind}>{_quoted(shown(entry))}</td>"


def _manifest(manifest: Mapping[str, Any]) -> str:
    body = _quoted(json.dumps(manifest, indent=2))
    return f"<section><details><summary>Manifest</summary><pre>{body}</pre></details></section>"


def _quoted(text: str) -> str:
    return html.escape(text, quote=True)
