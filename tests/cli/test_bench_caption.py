"""`edgedraft bench caption`: from a dataset to results and report."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.backends.captioner_pair import write_dataset, write_pair
from tests.bench.caption_made import made_clips, made_results

from edgedraft.bench import caption_live, caption_report
from edgedraft.bench.caption_arm_runs import ArmRuns
from edgedraft.bench.caption_results import CaptionResults, ClipRecord, LiveRun, read_clips, read_results
from edgedraft.bench.caption_runs import CaptionPlan
from edgedraft.bench.caption_steps import Steps
from edgedraft.bench.caption_virtual import VirtualCaptions
from edgedraft.cli import bench_caption

QUICK = ("--arm", "ugsd-sparse", "--sweeps", "none", "--max-tokens", "12")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("captions") / "data")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    draft, target = write_pair(tmp_path_factory.mktemp("models"))
    return "--draft", draft, "--target", target


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Results without a run; the plans that were to be run. What they are captioned live with is real."""
    plans: list[Any] = []

    def run(
        test: object, dev: object, plan: object, progress: object, steps: Steps
    ) -> tuple[CaptionResults, list[ClipRecord]]:
        plans.append((test, dev, plan))
        steps.begin({})
        return made_results(), made_clips()

    monkeypatch.setattr(bench_caption, "run_caption_bench", run)
    return plans


@pytest.fixture
def unpictured(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Directories that would have got a report, which takes seconds to draw."""
    drawn: list[Path] = []
    monkeypatch.setattr(caption_report, "write_caption_report", drawn.append)
    return drawn


def test_run_live_and_report(run, data: Path, models: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "out"
    live = ("--live", "2", "--edge-step-ms", "1", "--rtt-ms", "5")
    done = run("bench", "caption", str(data), "--out", str(out), *models, *QUICK, *live, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json["exact"] is True
    tables = {table["id"]: table["rows"] for table in done.json["tables"]}
    arms = [row["arm"] for row in tables["quality-en"]]
    assert arms[:4] == ["edge-only", "cloud-only", "exact", "ugsd-sparse"]
    assert [row["arm"] for row in tables["live"]] == ["edge-only", "cloud-only", "ugsd-sparse"]
    results = read_results(out)
    assert results.live[0].texts_equal is True
    assert (results.live[0].rtt_s, results.live[0].draft_step_s) == (0.005, 0.001)
    assert {clip.arm for clip in read_clips(out)} == set(arms)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Exact equals cloud-only, token for token, on all 4 clips." in page
    assert '<section id="live">' in page


def test_tables_go_to_stdout_and_progress_to_stderr(run, data: Path, models: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run("bench", "caption", str(data), "--out", str(out), *models, *QUICK, "--lang", "zh", "--limit", "1")
    assert done.code == 0
    assert "Captions in zh" in done.out
    assert "Captions in en" not in done.out
    assert "Exact equals cloud-only, token for token, on all 1 clips." in done.out
    assert "captioned" in done.err
    assert "captioned" not in done.out
    assert "There are no live figures: they take 2 clips." in done.out
    assert read_results(out).live == []


def test_not_exact_is_exit_code_1_after_everything_is_written(
    run, data: Path, tmp_path: Path, unpictured: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        bench_caption, "run_caption_bench", lambda *arguments: (made_results(differing=("en/0.wav",)), made_clips())
    )
    done = run("bench", "caption", str(data), "--out", str(tmp_path / "out"), "--live", "0")
    assert done.code == 1
    assert "EXACT DIFFERS FROM CLOUD-ONLY on 1 of 4 clips: en/0.wav." in done.out
    assert unpictured == [tmp_path / "out"]
    assert not read_results(tmp_path / "out").exact.holds


def test_options_reach_the_plan(run, data: Path, made: list[Any], unpictured: list[Path], tmp_path: Path) -> None:
    words = (
        "--gamma 0.7 --threshold ugsd=0.5 --share 0.2 --edge-step-ms 0 --rtt-ms 100 --bandwidth 64 --seed 3 --live 0"
    )
    arms = ("--arm", "ugsd, L=3", "--arm", "ugsd")
    options = ("--out", str(tmp_path / "out"), "--dev", str(data), "--limit", "1", "--sweeps", "rtt, rank", *arms)
    assert run("bench", "caption", str(data), *options, *words.split()).code == 0
    ((test, dev, plan),) = made
    assert [len(each.items) for each in (test, dev)] == [2, 2]
    assert (plan.arms, plan.sweeps) == (["ugsd, L=3", "ugsd"], ["rtt", "rank"])
    assert (plan.thresholds, plan.share) == ({"ugsd": 0.5}, 0.2)
    assert (plan.edge_step_s, plan.rtt_s, plan.bytes_per_s, plan.seed) == (None, 0.1, 64_000.0, 3)
    assert (plan.num_live, CaptionPlan().num_live) == (0, 4)


def test_what_is_tested_is_not_tuned_on(run, data: Path, models: tuple[str, ...], tmp_path: Path) -> None:
    """Also under another name and with other captions."""
    dev = tmp_path / "dev"
    dev.mkdir()
    recording = next(data.glob("**/*.wav"))
    (dev / "other.wav").write_bytes(recording.read_bytes())
    line = {"file": "other.wav", "language": "en", "captions": ["Something else."]}
    (dev / "captions.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    for place, count in ((data, "4 of 4"), (dev, "1 of 1")):
        done = run("bench", "caption", str(data), "--dev", str(place), "--out", str(tmp_path / "out"), *models)
        assert done.code == 2
        assert f"dev shares {count} recordings with the dataset, such as" in done.err


def test_a_run_that_is_interrupted_says_how_to_go_on(
    run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_caption, "run_caption_bench", interrupted)
    done = run("bench", "caption", str(data), "--out", str(tmp_path / "out"))
    assert done.code == 130
    assert "go on with the same command and --resume" in done.err


def test_the_report_is_made_again_from_the_files(
    run, data: Path, made: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with monkeypatch.context() as unpictured:
        unpictured.setattr(caption_report, "write_caption_report", lambda _: None)
        assert run("bench", "caption", str(data), "--out", str(out), "--live", "0").code == 0
    assert not (out / "report.html").exists()
    assert run("bench", "report", str(out)).out.strip() == str(out / "report.html")
    assert "edgedraft bench caption" in (out / "report.html").read_text(encoding="utf-8")
    again = run("bench", "report", str(out), "--json").json
    tables, notes = again["tables"], again["notes"]
    assert notes == list(read_results(out).notes)
    assert {"quality-en", "costs", "live"} <= {table["id"] for table in tables}


def test_results_are_never_written_over(
    run, data: Path, made: list[Any], unpictured: list[Path], tmp_path: Path
) -> None:
    out = ("--out", str(tmp_path / "out"), "--live", "0")
    assert run("bench", "caption", str(data), *out).code == 0
    again = run("bench", "caption", str(data), *out)
    assert again.code == 2
    assert "already holds a bench run. Use --resume to go on with it, or another --out." in again.err
    assert len(made) == 1


def test_a_run_that_was_cut_goes_on_with_resume(
    run, data: Path, models: tuple[str, ...], unpictured: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First Ctrl-C comes between captions, then while captions are made live."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "out"
    live = ("--live", "2", "--edge-step-ms", "1", "--rtt-ms", "5")
    command = ("bench", "caption", str(data), "--out", str(out), *models, *QUICK, *live)
    with monkeypatch.context() as cut:
        cut.setattr(ArmRuns, "run_controls", interrupt)
        assert run(*command).code == 130
    assert "with --resume where a run was cut" in run("bench", "report", str(out), "--json").err
    assert "Use --resume to go on with it" in run(*command).err
    assert "another 'seed': 0 there, 1 now" in run(*command, "--resume", "--seed", "1").err
    with monkeypatch.context() as cut:
        cut.setattr(caption_live, "measure_live", interrupt)
        assert run(*command, "--resume").code == 130
    before = read_results(out)
    assert before.live == []
    with monkeypatch.context() as known:
        known.setattr(VirtualCaptions, "record", lambda *_: pytest.fail("this was captioned before"))
        done = run(*command, "--resume", "--json")
        assert (done.code, done.err) == (0, "")
        results = read_results(out)
        assert (results.arms, results.ratios, results.setting) == (before.arms, before.ratios, before.setting)
        known.setattr(caption_live, "measure_live", lambda *_: pytest.fail("this was measured before"))
        assert run(*command, "--resume").code == 0
    assert read_results(out).live == results.live != []


def test_where_live_cannot_run_all_else_is_there(
    run, data: Path, made: list[Any], unpictured: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    out = tmp_path / "out"
    command = ("bench", "caption", str(data), "--out", str(out))
    with monkeypatch.context() as denied:
        denied.setattr(subprocess, "Popen", refuse)
        done = run(*command)
    assert done.code == 1
    assert "edge, link and cloud cannot be started: Operation not permitted." in done.err
    assert f"All but the live part is in {out}; --resume tries that again, with --live 0 it is left out." in done.err
    assert read_results(out).arms == made_results().arms
    assert unpictured == [out]
    assert run(*command, "--resume", "--live", "0").code == 0


def test_live_clips_may_be_added_to_a_run(
    run, data: Path, made: list[Any], unpictured: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And another number of them is measured anew; one that was is not."""
    asked: list[int] = []

    def live(results: object, clips: object, test: object, num_clips: int, say: object) -> LiveRun:
        asked.append(num_clips)
        return LiveRun(rtt_s=0.03, bytes_per_s=None, draft_step_s=None, arms=made_results().live[0].arms)

    monkeypatch.setattr(bench_caption, "_live", live)
    command = ("bench", "caption", str(data), "--out", str(tmp_path / "out"), "--live")
    for options in (("0",), ("2", "--resume"), ("2", "--resume"), ("3", "--resume")):
        assert run(*command, *options).code == 0
    assert asked == [2, 3]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--sweeps", "gamma"), "sweeps names 'gamma'; legal: threshold, rank"),
        (("--arm", "ugds"), "arms names 'ugds'"),
        (("--threshold", "ugsd"), "threshold is 'ugsd'; legal: ARM=NUMBER"),
        (("--threshold", "exact=1"), "no arm with one"),
        (("--gamma", "99"), "threshold of entropy is 99"),
        (("--share", "2"), "share is 2"),
        (("--live", "1"), "num_live is 1; legal: 0, or 2 or more"),
        (("--rtt-ms", "-1"), "--rtt-ms"),
        (("--rtt-ms", "inf"), "rtt_s is inf; legal: 0 to 60"),
        (("--edge-step-ms", "inf"), "edge_step_s is inf; legal: 1e-06 to 60"),
        (("--bandwidth", "inf"), "bytes_per_s is inf; legal: 100 to 1e+12"),
        (("--lang", "fr"), "language is 'fr'; legal: en, zh"),
        (("--dev", "nowhere"), "dataset 'nowhere' does not exist"),
        (("--out", "n" * 300), "cannot be written: File name too long"),
        (("--draft", "toy:seed=1"), "model"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    run, data: Path, models: tuple[str, ...], tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = run("bench", "caption", str(data), "--out", str(tmp_path / "out"), *models, *arguments)
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err
    assert {path.name for path in (tmp_path / "out").glob("*")} <= {".lock"}
