"""`edgedraft bench`: list, run, report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgedraft.bench.scenario import built_in_names

QUICK = ("bench", "run", "quick", "--jobs", "1", "--strategies", "cloud-only,vanilla", "--only", "dataset=code")


def test_list_names_scenarios_and_strategies(run) -> None:
    found = run("bench", "list", "--json").json
    assert [each["name"] for each in found["scenarios"]] == built_in_names()
    assert "pipesd/no-pipeline" in found["strategies"]
    assert "grid" in run("bench", "list").out


def test_run_then_report(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    out = tmp_path / "run"
    done = run(*QUICK, "--out", str(out), "--json")
    assert (done.code, done.err) == (0, "")
    rows = done.json["rows"]
    assert [(row["strategy"], row["seed"]) for row in rows] == [("cloud-only", 0), ("vanilla", 0)]
    assert rows == json.loads((out / "results.json").read_text(encoding="utf-8"))
    tables = {table["id"]: table for table in run("bench", "report", str(out), "--json").json["tables"]}
    assert [row["strategy"] for row in tables["runs"]["rows"]] == ["cloud-only", "vanilla (tuned)"]
    assert not (out / "report.html").exists()
    reported = run("bench", "report", str(out), "--open")
    assert opened == [(out / "report.html").resolve().as_uri()]
    assert Path(reported.out.strip()) == out / "report.html"
    assert "<svg" in (out / "report.html").read_text(encoding="utf-8")


def test_progress_goes_to_stderr_and_the_table_to_stdout(run, tmp_path: Path) -> None:
    done = run(*QUICK, "--out", str(tmp_path / "run"), "--seeds", "2")
    assert done.code == 0
    assert "[2/2] quick/code" in done.err
    assert "Milliseconds per token" in done.out
    assert done.out.count("quick/code") == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("bench", "run", "qiuck"), "There are: quick."),
        (("bench", "run", "quick", "--only", "dataset"), "legal: FIELD=VALUE"),
        (("bench", "run", "quick", "--only", "link.rtt=60"), "Did you mean rtt_ms?"),
        (("bench", "run", "quick", "--strategies", "vanila"), "none of the bench's"),
        (("bench", "run", "s1", "--live"), "cannot run live: regime is paper"),
        (("bench", "run", "quick", "--traces", "none.jsonl"), "cannot be read"),
        (("bench", "report", "nowhere"), "holds no bench run"),
        (("bench", "report", "n" * 300), "holds no bench run"),
        (("bench", "run", "quick", "--out", "n" * 300), "cannot be written: File name too long"),
        (("bench", "searches", "s1", "--out", "n" * 300), "cannot be written: File name too long"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_remedy(
    run, arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = run(*arguments)
    assert outcome.code == 2
    assert said in outcome.err
    assert "Traceback" not in outcome.err
    assert list(tmp_path.iterdir()) == []
