"""The run directory: rows that survive a cut, and a resumption that must fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from edgedraft.bench.results import (
    ALL_ROWS_FILE,
    ROWS_FILE,
    TIMELINES_FILE,
    Row,
    RunDirectory,
    Span,
    Timeline,
    manifest,
    read_rows,
    read_timelines,
)
from edgedraft.bench.run_folder import exclusively, read_manifest
from edgedraft.errors import InvalidRequestError

OURS = manifest(cells={"a": "1"}, strategies=["vanilla"], trace_sha256="f" * 64, live=False)
PROMISED = (
    "scenario dataset regime strategy tuned live seed tpt_ms ttft_ms bound_ms target_passes_per_token acceptance_rate "
    "rollback_rate mean_draft_tokens tokens_up_per_token bytes_up_per_token reused discarded ecs_j_per_100 energy_kind"
)


def test_a_row_has_every_field_that_is_promised(make_row: Callable[..., Row], tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run", OURS, resume=False)
    directory.add([make_row()])
    directory.finish()
    (row,) = json.loads((tmp_path / "run" / ALL_ROWS_FILE).read_text(encoding="utf-8"))
    assert set(PROMISED.split()) <= row.keys()
    assert row["energy_kind"] == "not known"


def test_rows_are_there_before_the_run_has_ended(make_row: Callable[..., Row], tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path, OURS, resume=False)
    rows = [make_row(seed=seed) for seed in (1, 0)]
    for row in rows:
        directory.add([row])
        assert read_rows(tmp_path)[-1] == row
    directory.finish()
    assert [row["seed"] for row in json.loads((tmp_path / ALL_ROWS_FILE).read_text(encoding="utf-8"))] == [0, 1]
    assert read_manifest(tmp_path) == OURS


def test_a_line_that_was_cut_is_neither_read_nor_kept(make_row: Callable[..., Row], tmp_path: Path) -> None:
    RunDirectory(tmp_path, OURS, resume=False).add([make_row()])
    whole = (tmp_path / ROWS_FILE).read_bytes()
    (tmp_path / ROWS_FILE).write_bytes(whole + whole[: len(whole) // 2])
    assert read_rows(tmp_path) == [make_row()]
    directory = RunDirectory(tmp_path, OURS, resume=True)
    directory.add([make_row(seed=1)])
    assert [row.seed for row in read_rows(tmp_path)] == [0, 1]


def test_a_directory_in_use_needs_resume(make_row: Callable[..., Row], tmp_path: Path) -> None:
    RunDirectory(tmp_path, OURS, resume=False).add([make_row()])
    with pytest.raises(InvalidRequestError, match="already holds a bench run") as error:
        RunDirectory(tmp_path, OURS, resume=False)
    assert "--resume" in error.value.remedy
    assert len(RunDirectory(tmp_path, OURS, resume=True).rows) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("cells", {"a": "2"}), ("strategies", ["hsl"]), ("trace_sha256", "0" * 64), ("live", True), ("edgedraft", "9.9")],
)
def test_another_manifest_is_not_resumed(field: str, value: object, tmp_path: Path) -> None:
    RunDirectory(tmp_path, OURS, resume=False)
    with pytest.raises(InvalidRequestError, match=f"another '{field}'") as error:
        RunDirectory(tmp_path, {**OURS, field: value}, resume=True)
    assert error.value.field == field


def test_resume_begins_where_there_is_nothing(tmp_path: Path) -> None:
    assert RunDirectory(tmp_path / "new", OURS, resume=True).rows == {}


def test_what_is_no_run_or_damaged_is_named(make_row: Callable[..., Row], tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="holds no bench run"):
        read_rows(tmp_path)
    directory = RunDirectory(tmp_path, OURS, resume=False)
    with pytest.raises(InvalidRequestError, match="without a finished row"):
        read_rows(tmp_path)
    directory.add([make_row()])
    with (tmp_path / ROWS_FILE).open("a", encoding="utf-8") as file:
        file.write('{"scenario": 3}\n')
    with pytest.raises(InvalidRequestError, match=r"results\.jsonl, line 2 is no row"):
        read_rows(tmp_path)
    (tmp_path / "manifest.json").write_text("[", encoding="utf-8")
    with pytest.raises(InvalidRequestError, match=r"manifest\.json cannot be read"):
        RunDirectory(tmp_path, OURS, resume=True)


def test_an_out_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InvalidRequestError, match="cannot be written") as error:
        RunDirectory(tmp_path / "file" / "run", OURS, resume=False)
    assert error.value.field == "out"


def test_a_timeline_that_was_cut_is_not_glued_to_the_next(make_row: Callable[..., Row], tmp_path: Path) -> None:
    span = Span(lane="draft", start_s=0.0, end_s=0.5, num_tokens=1)
    first, second = (
        Timeline(scenario="a", strategy=name, tuned=False, text_id="t", spans=[span]) for name in ("vanilla", "hsl")
    )
    RunDirectory(tmp_path, OURS, resume=False).add([make_row()], first)
    whole = (tmp_path / TIMELINES_FILE).read_bytes()
    (tmp_path / TIMELINES_FILE).write_bytes(whole + whole[: len(whole) // 2])
    RunDirectory(tmp_path, OURS, resume=True).add([make_row(seed=1)], second)
    assert read_timelines(tmp_path) == [first, second]
    (tmp_path / TIMELINES_FILE).write_bytes(whole + whole + b"{\n")
    with pytest.raises(InvalidRequestError, match=r"timelines\.jsonl, line 3 is no timeline"):
        read_timelines(tmp_path)
    (tmp_path / TIMELINES_FILE).write_bytes(whole + whole)
    assert read_timelines(tmp_path) == [first], "one of each run"


def test_rows_without_a_manifest_are_not_taken_for_ours(make_row: Callable[..., Row], tmp_path: Path) -> None:
    RunDirectory(tmp_path, OURS, resume=False).add([make_row()])
    (tmp_path / "manifest.json").unlink()
    before = sorted(tmp_path.iterdir())
    for resume in (False, True):
        with pytest.raises(InvalidRequestError, match=r"holds results\.jsonl, but no manifest\.json"):
            RunDirectory(tmp_path, OURS, resume=resume)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "changes",
    [
        {"texts": []},
        {"num_tokens": 0},
        {"tpt_ms": -1.0},
        {"scenario": ""},
        {"texts": [{"id": "t", "total_ms": 0.0, "num_tokens": 1}]},
        {"texts": [{"id": "t", "total_ms": 1.0, "num_tokens": 0}]},
    ],
)
def test_a_row_that_a_report_could_not_add_up_is_refused(
    changes: dict[str, object], make_row: Callable[..., Row], tmp_path: Path
) -> None:
    RunDirectory(tmp_path, OURS, resume=False).add([make_row()])
    row = {**json.loads((tmp_path / ROWS_FILE).read_text(encoding="utf-8")), **changes}
    (tmp_path / ROWS_FILE).write_text(json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises(InvalidRequestError, match=r"line 1 is no row"):
        read_rows(tmp_path)


def test_a_disk_without_room_says_how_to_go_on(make_row: Callable[..., Row], tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path, OURS, resume=False)
    (tmp_path / ROWS_FILE).unlink()
    (tmp_path / ROWS_FILE).symlink_to("/dev/full")
    with pytest.raises(InvalidRequestError, match="No space left") as error:
        directory.add([make_row()])
    assert "--resume" in error.value.remedy


def test_names_that_no_file_can_have_are_errors_of_ours(tmp_path: Path) -> None:
    long = tmp_path / ("n" * 300)
    with pytest.raises(InvalidRequestError, match="holds no bench run"):
        read_rows(long)
    with pytest.raises(InvalidRequestError, match="cannot be written"), exclusively(long):
        pass
    (tmp_path / ROWS_FILE).mkdir()
    (tmp_path / "manifest.json").write_text(json.dumps(OURS), encoding="utf-8")
    with pytest.raises(InvalidRequestError, match="cannot be read"):
        read_rows(tmp_path)


def test_timelines_are_kept_beside(tmp_path: Path) -> None:
    assert read_timelines(tmp_path) == []
    span = Span(lane="draft", start_s=0.0, end_s=0.5, num_tokens=1)
    timeline = Timeline(scenario="a", strategy="vanilla", tuned=False, text_id="t", spans=[span])
    RunDirectory(tmp_path, OURS, resume=False).add([], timeline)
    assert read_timelines(tmp_path) == [timeline]
