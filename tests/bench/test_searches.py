"""The comparison of searches, as rows for a report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgedraft.bench import searches
from edgedraft.bench.scenario import load_cells
from edgedraft.bench.searches import search_rows, write_searches
from edgedraft.bench.tuning import SearchOutcome, TuningCase
from edgedraft.errors import InvalidRequestError


def test_each_cell_is_a_case_of_its_own(trace_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[TuningCase, int]] = []

    def compare(case: TuningCase, *, seeds: range) -> list[SearchOutcome]:
        asked.append((case, len(seeds)))
        return [SearchOutcome("measured", 0.05, 1.02, 1.1), SearchOutcome("foresight", 0.04, 1.0, 1.0)]

    monkeypatch.setattr(searches, "compare_searches", compare)
    rows = list(search_rows(load_cells(["s1"]), num_seeds=3, traces=trace_file))
    assert [(case.target.step_s, case.edge.profile.draft_s, seeds) for case, seeds in asked] == [(0.065, 0.036, 3)] * 4
    assert [{text.kind for text in case.edge.texts} for case, _ in asked] == [{"code"}, {"maths"}] * 2
    assert [case.edge.payload.name for case, _ in asked] == ["paper", "paper", "ids", "ids"]
    assert [row["published ms"] for row in rows] == [129, None, 145, None, None, None, None, None]
    assert rows[0]["ms per token"] == pytest.approx(50.0)


def test_several_edges_are_refused(trace_file: Path) -> None:
    with pytest.raises(InvalidRequestError, match="has 2 edges"):
        list(search_rows(load_cells(["edges"], {"edges": "2"}), num_seeds=1, traces=trace_file))


def test_rows_are_written_where_the_report_looks(tmp_path: Path) -> None:
    path = write_searches(tmp_path / "run", [{"search": "grid", "ms per token": 4.0}])
    assert json.loads(path.read_text(encoding="utf-8")) == [{"search": "grid", "ms per token": 4.0}]
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequestError, match="cannot be written"):
        write_searches(tmp_path / "file", [])
