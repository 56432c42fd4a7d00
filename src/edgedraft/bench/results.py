"""What a bench run leaves: one row per run in `results.jsonl` as it ends, `results.json` at the end, and a manifest."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from edgedraft.errors import InvalidRequestError

ROWS_FILE, ALL_ROWS_FILE, MANIFEST_FILE, TIMELINES_FILE = (
    "results.jsonl",
    "results.json",
    "manifest.json",
    "timelines.jsonl",
)
FORMAT_VERSION = 1

Key = tuple[str, str, bool, bool, int]


class TextFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One text of a run: how long it took and how many tokens it has."""

    id: str
    total_ms: float
    num_tokens: int


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run: a cell, a strategy with its numbers, a seed. Times in milliseconds, sums over texts before dividing.

    `tpt_ms`: total time over committed tokens, `tpt_low_ms` to `tpt_high_ms` its 95 % interval over the texts.
    `ttft_ms`: mean over texts. `bound_ms`: the linear bound (`bench.bounds`). `cloud_only_ms`: a target pass, what the
    target alone takes for a token, link apart. `target_passes_per_token`, `tokens_up_per_token`, `bytes_up_per_token`:
    over committed tokens. `acceptance_rate`, `rollback_rate`: None where nothing was judged. `reused`, `discarded`:
    draft-ahead tokens. `ecs_j_per_100`: cloud joules per 100 committed tokens, `energy_kind` says from where.
    `numbers`: the strategy's own. `controls`: what steering did. `texts`: what the intervals are drawn over.
    """

    scenario: str
    dataset: str
    regime: str
    strategy: str
    tuned: bool
    live: bool
    seed: int
    tpt_ms: float
    tpt_low_ms: float
    tpt_high_ms: float
    ttft_ms: float | None
    bound_ms: float
    cloud_only_ms: float
    target_passes_per_token: float
    acceptance_rate: float | None
    rollback_rate: float | None
    mean_draft_tokens: float | None
    tokens_up_per_token: float
    bytes_up_per_token: float
    reused: int
    discarded: int
    ecs_j_per_100: float | None
    energy_kind: str
    num_tokens: int
    rtt_ms: float
    draft_ms: float
    edges: int
    numbers: dict[str, float]
    controls: dict[str, Any]
    texts: list[TextFigure]

    @property
    def key(self) -> Key:
        """What tells one row from another."""
        return self.scenario, self.strategy, self.tuned, self.live, self.seed


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of one lane (draft, upload, verify, download) of a timeline; seconds from the text's start."""

    lane: str
    start_s: float
    end_s: float
    num_tokens: int


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """How one text of a run went, for the report's picture."""

    scenario: str
    strategy: str
    tuned: bool
    text_id: str
    spans: list[Span]


# -- the manifest ----------------------------------------------------------------------------------------------------


def manifest(*, cells: Mapping[str, str], strategies: Sequence[str], trace_sha256: str, live: bool) -> dict[str, Any]:
    """What a run depends on. `cells`: name and digest of each. Two equal manifests make the same simulated rows."""
    return {
        "format": FORMAT_VERSION,
        "edgedraft": version("edgedraft"),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "trace_sha256": trace_sha256,
        "strategies": list(strategies),
        "live": live,
        "cells": dict(cells),
    }


class RunDirectory:
    """The directory of one bench run. Rows are appended as they come, so that a cut run leaves those it finished.

    `resume`: go on with a run that was cut; without it the directory must hold none. Raises `InvalidRequestError`
    where it does, or where its manifest differs from ours (the field is named).
    """

    def __init__(self, path: Path, manifest: Mapping[str, Any], *, resume: bool) -> None:
        self._path = path
        existing = path / MANIFEST_FILE
        if existing.exists() and not resume:
            raise InvalidRequestError(
                f"{path} already holds a bench run.",
                field="out",
                remedy="Use --resume to go on with it, or another --out.",
            )
        if existing.exists():
            _check_same(path, _read_object(existing), manifest)
        try:
            path.mkdir(parents=True, exist_ok=True)
            _write(existing, json.dumps(manifest, indent=2) + "\n")
        except OSError as error:
            raise InvalidRequestError(f"out is {path}, which cannot be written: {error}.", field="out") from error
        self.rows: dict[Key, Row] = {row.key: row for row in _rows_in(path / ROWS_FILE)}
        if resume:  # drops a line that was cut in the middle
            _write(path / ROWS_FILE, "".join(_line(row) for row in self.rows.values()))

    def add(self, row: Row) -> None:
        self.rows[row.key] = row
        _append(self._path / ROWS_FILE, _line(row))

    def add_timeline(self, timeline: Timeline) -> None:
        _append(self._path / TIMELINES_FILE, _line(timeline))

    def finish(self) -> None:
        """Write `results.json`: all rows, those of an earlier part of the run included."""
        _write(self._path / ALL_ROWS_FILE, _as_list(self.rows.values()))


def _check_same(path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    differing = [field for field in {**before, **now} if before.get(field) != now.get(field)]
    if differing:
        field = differing[0]
        shown = "" if field == "cells" else f": {before.get(field)!r} there, {now.get(field)!r} now"
        raise InvalidRequestError(
            f"{path} holds a run with another '{field}'{shown}.",
            field=field,
            remedy="Repeat that run's command to resume it, or use another --out.",
        )


# -- reading ---------------------------------------------------------------------------------------------------------


def read_rows(path: Path) -> list[Row]:
    """The rows of a run directory, of one that was cut too. Raises `InvalidRequestError` where there are none."""
    if not (path / MANIFEST_FILE).exists():
        raise InvalidRequestError(
            f"{path} holds no bench run.", field="directory", remedy="Make one: edgedraft bench run quick --out DIR."
        )
    rows = {row.key: row for row in _rows_in(path / ROWS_FILE)}
    if not rows:
        raise InvalidRequestError(
            f"{path} holds a bench run without a finished row.", field="directory", remedy="Go on with it: --resume."
        )
    return list(rows.values())


def read_manifest(path: Path) -> dict[str, Any]:
    return _read_object(path / MANIFEST_FILE)


def read_timelines(path: Path) -> list[Timeline]:
    """What was recorded of single texts; nothing where the file is missing."""
    return [msgspec.json.decode(line, type=Timeline) for line in _whole_lines(path / TIMELINES_FILE)]


def _rows_in(path: Path) -> list[Row]:
    rows = []
    for number, line in enumerate(_whole_lines(path), 1):
        try:
            rows.append(msgspec.json.decode(line, type=Row))
        except msgspec.DecodeError as error:
            raise InvalidRequestError(
                f"{path}, line {number} is no row: {error}.", field="directory", remedy="Delete the line, then resume."
            ) from error
    return rows


def _whole_lines(path: Path) -> list[bytes]:
    """Lines that end: the last one of a run that was cut may not, and is not counted."""
    data = path.read_bytes() if path.exists() else b""
    return [line for line in data.split(b"\n")[:-1] if line]


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidRequestError(f"{path} cannot be read: {error}.", field="directory") from error
    if not isinstance(value, dict):
        raise InvalidRequestError(f"{path} holds no manifest.", field="directory")
    return value


# -- writing ---------------------------------------------------------------------------------------------------------


def _line(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode() + "\n"


def _as_list(rows: Iterable[Row]) -> str:
    lines = (msgspec.json.encode(row).decode() for row in sorted(rows, key=lambda row: row.key))
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    draft = path.with_suffix(path.suffix + ".tmp")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)
