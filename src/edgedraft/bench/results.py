"""What a bench run leaves: one row per run in `results.jsonl` as it ends, `results.json` at the end, and a manifest."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from edgedraft.bench.run_folder import (
    append_lines,
    check_is_same,
    check_may_begin,
    holds_run,
    read_lines,
    write_lines,
    write_manifest,
    write_whole,
    writing,
)
from edgedraft.errors import InvalidRequestError

ROWS_FILE, ALL_ROWS_FILE, TIMELINES_FILE = "results.jsonl", "results.json", "timelines.jsonl"
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
        check_may_begin(path, (ROWS_FILE, TIMELINES_FILE, ALL_ROWS_FILE), resume=resume)
        check_is_same(path, manifest)
        self.rows: dict[Key, Row] = {row.key: row for row in read_lines(path / ROWS_FILE, Row)}
        timelines = read_timelines(path)
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            write_manifest(path, manifest)
            write_lines(path / ROWS_FILE, self.rows.values())
            write_lines(path / TIMELINES_FILE, timelines)

    def add(self, rows: Sequence[Row], timeline: Timeline | None = None) -> None:
        """Keep what one job found. Rows last, since a job that has them is not done again."""
        with writing(self._path):
            if timeline is not None:
                append_lines(self._path / TIMELINES_FILE, [timeline])
            append_lines(self._path / ROWS_FILE, rows)
        self.rows.update({row.key: row for row in rows})

    def finish(self) -> None:
        """Write `results.json`: all rows, those of an earlier part of the run included."""
        with writing(self._path):
            write_whole(self._path / ALL_ROWS_FILE, _as_list(self.rows.values()))


# -- reading ---------------------------------------------------------------------------------------------------------


def read_rows(path: Path) -> list[Row]:
    """The rows of a run directory, of one that was cut too. Raises `InvalidRequestError` where there are none."""
    if not holds_run(path):
        raise InvalidRequestError(
            f"{path} holds no bench run.", field="directory", remedy="Make one: edgedraft bench run quick --out DIR."
        )
    rows = {row.key: row for row in read_lines(path / ROWS_FILE, Row)}
    if not rows:
        raise InvalidRequestError(
            f"{path} holds a bench run without a finished row.", field="directory", remedy="Go on with it: --resume."
        )
    return list(rows.values())


def read_timelines(path: Path) -> list[Timeline]:
    """What was recorded of single texts, one for each run; nothing where the file is missing."""
    found: dict[tuple[str, str, bool], Timeline] = {}
    for timeline in read_lines(path / TIMELINES_FILE, Timeline):
        found.setdefault(timeline.key, timeline)
    return list(found.values())


# -- writing ---------------------------------------------------------------------------------------------------------


def _as_list(rows: Iterable[Row]) -> str:
    lines = (msgspec.json.encode(row).decode() for row in sorted(rows, key=lambda row: row.key))
    return "[\n" + ",\n".join(lines) + "\n]\n"
