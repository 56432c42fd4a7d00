"""What a bench run leaves: one row per run in `results.jsonl` as it ends, `results.json` at the end, and a manifest."""

from __future__ import annotations

import fcntl
import json
import math
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edgedraft.errors import InvalidRequestError

ROWS_FILE, ALL_ROWS_FILE, MANIFEST_FILE, TIMELINES_FILE, LOCK_FILE = (
    "results.jsonl",
    "results.json",
    "manifest.json",
    "timelines.jsonl",
    ".lock",
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
    `late_tpt_ms`: the same without each text's first 64 tokens; None where that is not known. `ttft_ms`: mean over
    texts. `bound_ms`: the linear bound (`bench.bounds`). `cloud_only_ms`: a target pass, the target's own pace, link
    apart. `target_passes_per_token`, `tokens_up_per_token`, `bytes_up_per_token`: per committed token.
    `acceptance_rate`, `rollback_rate`: None where nothing was judged. `reused`, `discarded`: draft-ahead tokens.
    `ecs_j_per_100`: cloud joules per 100 committed tokens, `energy_kind` says from where.
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
    late_tpt_ms: float | None = None
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

    def __post_init__(self) -> None:
        """Raises `ValueError` where the report's sums would have nothing to divide by."""
        if not self.scenario or not self.texts or min(self.num_tokens, *(text.num_tokens for text in self.texts)) < 1:
            raise ValueError("a row has a scenario, texts, and tokens in each of them")
        if not all(0 < ms < math.inf for ms in (self.tpt_ms, *(text.total_ms for text in self.texts))):
            raise ValueError("times are above 0 and finite")

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

    @property
    def key(self) -> tuple[str, str, bool]:
        return self.scenario, self.strategy, self.tuned


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
    where it does, where its manifest differs from ours (the field is named), and whenever it cannot be written.
    """

    def __init__(self, path: Path, manifest: Mapping[str, Any], *, resume: bool) -> None:
        self._path = path
        if os.path.lexists(path / MANIFEST_FILE):
            if not resume:
                raise InvalidRequestError(
                    f"{path} already holds a bench run.",
                    field="out",
                    remedy="Use --resume to go on with it, or another --out.",
                )
            _check_same(path, read_manifest(path), manifest)
        else:
            _check_no_rows(path)
        self.rows: dict[Key, Row] = {row.key: row for row in _read_lines(path / ROWS_FILE, Row)}
        timelines = read_timelines(path)
        with _writing(path):
            path.mkdir(parents=True, exist_ok=True)
            _write(path / MANIFEST_FILE, json.dumps(manifest, indent=2) + "\n")
            # Whole lines alone: what comes now must not be glued to one that was cut in the middle.
            _write(path / ROWS_FILE, "".join(map(_line, self.rows.values())))
            _write(path / TIMELINES_FILE, "".join(map(_line, timelines)))

    def add(self, rows: Sequence[Row], timeline: Timeline | None = None) -> None:
        """Keep what one job found. Rows last, since a job that has them is not done again."""
        with _writing(self._path):
            if timeline is not None:
                _append(self._path / TIMELINES_FILE, _line(timeline))
            for row in rows:
                _append(self._path / ROWS_FILE, _line(row))
        self.rows.update({row.key: row for row in rows})

    def finish(self) -> None:
        """Write `results.json`: all rows, those of an earlier part of the run included."""
        with _writing(self._path):
            _write(self._path / ALL_ROWS_FILE, _as_list(self.rows.values()))


@contextmanager
def exclusively(path: Path) -> Iterator[None]:
    """Make the directory, and keep other bench runs out of it. Raises `InvalidRequestError` where one is in it."""
    with _writing(path):
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / LOCK_FILE).open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with the process, however that ends
        except BlockingIOError as error:
            raise InvalidRequestError(
                f"out is {path}, which another bench run writes to.",
                field="out",
                remedy="Wait for its end, or give another --out.",
            ) from error
        except OSError:  # a file system without locks
            pass
        yield


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidRequestError(
            f"out is {path}, which cannot be written: {error.strerror}.",
            field="out",
            remedy="Make room there and go on with --resume, or give another --out.",
        ) from error


def _check_no_rows(path: Path) -> None:
    """Rows without a manifest could be of anything."""
    for name in (ROWS_FILE, TIMELINES_FILE, ALL_ROWS_FILE):
        if (path / name).exists():
            raise InvalidRequestError(
                f"{path} holds {name}, but no {MANIFEST_FILE} that says of which run.",
                field="out",
                remedy="Give another --out.",
            )


def _check_same(path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    differing = [field for field in {**before, **now} if before.get(field) != now.get(field)]
    if differing:
        field = differing[0]
        shown = f": {before.get(field)!r} there, {now.get(field)!r} now"
        if field == "cells":
            there, here = dict(before.get(field) or {}), dict(now.get(field) or {})
            cells = sorted(name for name in {**there, **here} if there.get(name) != here.get(name))
            shown = f", first cell {cells[0]}"
        raise InvalidRequestError(
            f"{path} holds a run with another '{field}'{shown}.",
            field=field,
            remedy="Repeat that run's command to resume it, or use another --out.",
        )


# -- reading ---------------------------------------------------------------------------------------------------------


def read_rows(path: Path) -> list[Row]:
    """The rows of a run directory, of one that was cut too. Raises `InvalidRequestError` where there are none."""
    if not os.path.lexists(path / MANIFEST_FILE):  # False for a name that no file can have
        raise InvalidRequestError(
            f"{path} holds no bench run.", field="directory", remedy="Make one: edgedraft bench run quick --out DIR."
        )
    rows = {row.key: row for row in _read_lines(path / ROWS_FILE, Row)}
    if not rows:
        raise InvalidRequestError(
            f"{path} holds a bench run without a finished row.", field="directory", remedy="Go on with it: --resume."
        )
    return list(rows.values())


def read_manifest(path: Path) -> dict[str, Any]:
    return _read_object(path / MANIFEST_FILE)


def read_timelines(path: Path) -> list[Timeline]:
    """What was recorded of single texts, one for each run; nothing where the file is missing."""
    found: dict[tuple[str, str, bool], Timeline] = {}
    for timeline in _read_lines(path / TIMELINES_FILE, Timeline):
        found.setdefault(timeline.key, timeline)
    return list(found.values())


Line = TypeVar("Line", bound=msgspec.Struct)


def _read_lines(path: Path, kind: type[Line]) -> list[Line]:
    """Whole lines: the last one of a run that was cut may have no end, and is not counted."""
    try:
        data = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise InvalidRequestError(f"{path} cannot be read: {error.strerror}.", field="directory") from error
    found = []
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            if line:
                found.append(msgspec.json.decode(line, type=kind))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidRequestError(
                f"{path}, line {number} is no {kind.__name__.lower()}: {error}.",
                field="directory",
                remedy="Delete the line, then resume.",
            ) from error
    return found


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
