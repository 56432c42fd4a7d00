"""One self-contained HTML page of a bench run: what was run, tables, pictures. It loads nothing."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from edgedraft.backends.trace import RecordedText, read_traces
from edgedraft.bench.aggregate import CellResults, cells_of
from edgedraft.bench.figures import Picture, all_pictures
from edgedraft.bench.results import Row, Timeline, read_manifest, read_rows, read_timelines
from edgedraft.bench.runner import sha256_of, trace_path
from edgedraft.bench.scenario import BUILT_IN
from edgedraft.bench.simulated import POWER
from edgedraft.bench.tables import Entry, Table, all_tables
from edgedraft.errors import InvalidRequestError
from edgedraft.metrics.energy import EnergyKind

REPORT_FILE = "report.html"
SEARCHES_FILE = "searches.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRun:
    """What a run directory holds. `searches`: rows of a comparison of tuners, where one was made there."""

    manifest: Mapping[str, Any]
    rows: Sequence[Row]
    timelines: Sequence[Timeline]
    searches: Sequence[Mapping[str, Entry]]

    @property
    def cells(self) -> list[CellResults]:
        return cells_of(self.rows)


def read_run(directory: Path) -> BenchRun:
    """Read a directory that `bench run` wrote, whether or not it was cut. Raises `InvalidRequestError`."""
    rows = read_rows(directory)
    searches = directory / SEARCHES_FILE
    try:
        found = msgspec.json.decode(searches.read_bytes(), type=list[dict[str, Entry]]) if searches.exists() else []
    except (OSError, ValueError) as error:
        raise InvalidRequestError(
            f"{searches} cannot be read: {error}.", field="directory", remedy="Make it again: edgedraft bench searches."
        ) from error
    return BenchRun(manifest=read_manifest(directory), rows=rows, timelines=read_timelines(directory), searches=found)


def recorded_texts(run: BenchRun, traces: Path | None = None) -> list[RecordedText]:
    """The texts that the run replayed: in that file, or among those that come with edgedraft; else none.

    Raises `InvalidRequestError` where `traces` holds others.
    """
    with trace_path(traces) as path:
        if sha256_of(path) == run.manifest.get("trace_sha256"):
            return read_traces(path)
    if traces is None:
        return []
    raise InvalidRequestError(
        f"traces is {traces}, which is not the file that the run replayed.",
        field="traces",
        remedy="Give the one that `bench run` was given.",
    )


def tables_of(run: BenchRun) -> list[Table]:
    return all_tables(run.cells, run.searches)


_REPLAYED = (
    "Texts are replayed: a target and a draft model were recorded once along the target's own greedy text. After a "
    "wrong token a real draft goes on from its own text, which a recording does not hold; the ids and confidences of "
    "the following positions stand in for these doomed tokens."
)
_SIMULATED = (
    "Times of models and links are modelled, as each scenario says. The session machines, the strategies and the "
    "messages with their sizes are the product's own, in virtual time."
)
_LIVE = (
    "Live rows ran in real time through an edge process, a cloud process, sockets and an emulated link; their models "
    "replay the same recording and take the modelled time."
)
_TUNED = "Tuned numbers were searched on the very texts they are compared on, which favours the baselines."
_BOUND = (
    "The linear bound is the least time without the target writing by itself: for each right draft token a draft step, "
    "or an asking round trip (a message up with its start-up, a target pass, a message down) where that is quicker; "
    "for each wrong token, and for the last, such a round trip. Queueing, jitter, prefill and opening are left out, "
    "and so are the distributions that regime paper sends."
)


def origins(run: BenchRun) -> list[str]:
    """Sentences that say what was replayed, modelled, simulated and measured; a report never goes without them."""
    sentences = [_REPLAYED, _SIMULATED]
    if any(row.live for row in run.rows):
        sentences.append(_LIVE)
    if any(row.tuned for row in run.rows):
        sentences.append(_TUNED)
    kinds = sorted({row.energy_kind for row in run.rows if row.ecs_j_per_100 is not None})
    return [*sentences, *map(_energy, kinds), _BOUND]


def _energy(kind: str) -> str:
    if kind != EnergyKind.MODELLED:
        return f"Energy is {kind}."
    return f"Energy is modelled: {POWER.active_w:g} W while the target computes ({POWER.name}), nothing while it waits."


def write_report(directory: Path, texts: Sequence[RecordedText] = ()) -> Path:
    """Write `report.html` into the run directory and return its path. `texts`: for the acceptance curve.

    Raises `InvalidRequestError`, and `UnsupportedError` where matplotlib is not installed.
    """
    run = read_run(directory)
    pictures = all_pictures(run.cells, run.timelines, texts)
    path = directory / REPORT_FILE
    try:
        path.write_text(page(run, tables_of(run), pictures), encoding="utf-8")
    except OSError as error:
        raise InvalidRequestError(f"{path} cannot be written: {error.strerror}.", field="directory") from error
    return path


# -- HTML ------------------------------------------------------------------------------------------------------------


def page(run: BenchRun, tables: Sequence[Table], pictures: Sequence[Picture]) -> str:
    """The whole page."""
    style = (resources.files(BUILT_IN) / "report.css").read_text(encoding="utf-8")
    sections = [*map(_picture, pictures), *map(_table, tables)]
    titles = [(each.id, each.title) for each in pictures] + [(each.id, each.title) for each in tables]
    links = "".join(f'<a href="#{_quoted(id_)}">{_quoted(title)}</a>' for id_, title in titles)
    facts = "".join(f"<li>{_quoted(sentence)}</li>" for sentence in origins(run))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>edgedraft bench</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"<header><h1>edgedraft bench</h1><p>{_quoted(_summary(run))}</p></header>\n<nav>{links}</nav>\n"
        f"<section><h2>What was replayed, modelled, measured</h2><ul>{facts}</ul></section>\n"
        + "\n".join(sections)
        + f"\n{_manifest(run.manifest)}\n</body>\n</html>\n"
    )


def _summary(run: BenchRun) -> str:
    tokens = sum(row.num_tokens for row in run.rows)
    return f"{len(run.cells)} cells, {len(run.rows)} runs, {tokens:,} tokens."


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


def shown(entry: Entry) -> str:
    """A table's entry as people read it: about four digits."""
    if entry is None:
        return "-"
    if isinstance(entry, str):
        return entry
    if isinstance(entry, int) or abs(entry) >= 1_000:
        return f"{entry:,.0f}"
    return f"{entry:.1f}" if abs(entry) >= 100 else f"{entry:.2f}" if abs(entry) >= 10 else f"{entry:.3f}"


def _manifest(manifest: Mapping[str, Any]) -> str:
    body = _quoted(json.dumps(manifest, indent=2))
    return f"<section><details><summary>Manifest</summary><pre>{body}</pre></details></section>"


def _quoted(text: str) -> str:
    return html.escape(text, quote=True)
