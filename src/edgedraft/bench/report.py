"""One self-contained HTML page of a bench run: what was run, tables, pictures. It loads nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from edgedraft.backends.trace import RecordedText, read_traces
from edgedraft.bench.aggregate import CellResults, cells_of
from edgedraft.bench.drawing import Picture
from edgedraft.bench.figures import all_pictures
from edgedraft.bench.html_page import html_page
from edgedraft.bench.results import Row, Timeline, read_rows, read_timelines
from edgedraft.bench.run_folder import read_manifest
from edgedraft.bench.runner import sha256_of, trace_path
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


def page(run: BenchRun, tables: Sequence[Table], pictures: Sequence[Picture]) -> str:
    """The whole page."""
    tokens = sum(row.num_tokens for row in run.rows)
    return html_page(
        title="edgedraft bench",
        summary=f"{len(run.cells)} cells, {len(run.rows)} runs, {tokens:,} tokens.",
        facts={"What was replayed, modelled, measured": origins(run)},
        pictures=pictures,
        tables=tables,
        manifest=run.manifest,
    )
