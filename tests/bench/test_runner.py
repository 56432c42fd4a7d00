"""Runs: which rows there are, what a cut leaves, and that processes change nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgedraft.backends.trace import TraceHeader, read_traces, write_traces
from edgedraft.bench import runner
from edgedraft.bench.results import Row, read_rows, read_timelines
from edgedraft.bench.runner import RunOptions, run_cells
from edgedraft.bench.scenario import Regime, Scenario, Settings, load_cells
from edgedraft.errors import EdgedraftError, InvalidRequestError, UnsupportedError

Options = Callable[..., RunOptions]


@pytest.fixture
def cells(scenario_file: Path) -> list[Scenario]:
    return load_cells([str(scenario_file)])


@pytest.fixture
def options(trace_file: Path, tmp_path: Path) -> Options:
    def make(**changes: object) -> RunOptions:
        return RunOptions(**{"out": tmp_path / "run", "traces": trace_file, **changes})  # type: ignore[arg-type]

    return make


def keys(rows: list[Row]) -> set[tuple[str, str, bool, int]]:
    return {(row.scenario, row.strategy, row.tuned, row.seed) for row in rows}


def test_a_row_for_each_cell_strategy_settings_and_seed(cells: list[Scenario], options: Options) -> None:
    rows = run_cells([msgspec.structs.replace(cell, seeds=2) for cell in cells], options())
    per_cell = {("cloud-only", False)} | {(name, tuned) for name in ("vanilla", "hsl") for tuned in (False, True)}
    assert keys(rows) == {(cell.name, *each, seed) for cell in cells for each in per_cell for seed in (0, 1)}
    assert rows == sorted(read_rows(options().out), key=lambda row: row.key)


def test_figures_are_those_of_the_texts(cells: list[Scenario], options: Options) -> None:
    rows = {(row.strategy, row.tuned): row for row in run_cells(cells[:1], options())}
    for row in rows.values():
        assert row.num_tokens == sum(text.num_tokens for text in row.texts) == 24 + 28 + 32
        assert row.tpt_ms == pytest.approx(sum(text.total_ms for text in row.texts) / row.num_tokens)
        assert row.tpt_low_ms <= row.tpt_ms <= row.tpt_high_ms
        assert (row.draft_ms, row.rtt_ms, row.cloud_only_ms) == (20.0, 60.0, 30.0)
    vanilla, alone = rows["vanilla", False], rows["cloud-only", False]
    assert vanilla.numbers == {"draft_length": 6}
    assert alone.numbers == {}
    assert (alone.acceptance_rate, alone.rollback_rate, alone.mean_draft_tokens) == (None, None, None)
    assert 0 < (vanilla.acceptance_rate or 0) < 1
    assert 0 < (vanilla.rollback_rate or 0) <= 1
    assert 5 < (vanilla.mean_draft_tokens or 0) <= 6
    assert alone.energy_kind == "modelled"
    assert alone.ecs_j_per_100 == pytest.approx(100 * 0.030 * 175, rel=0.05), "a pass a token, idle time left out"
    assert (vanilla.ecs_j_per_100 or 0) < alone.ecs_j_per_100
    assert rows["vanilla", True].tpt_ms <= vanilla.tpt_ms
    assert vanilla.bound_ms == alone.bound_ms < vanilla.tpt_ms


def test_a_cut_run_leaves_its_rows_and_resume_runs_the_others_alone(
    cells: list[Scenario], options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_cells(cells, options())

    class Cut(Exception):
        pass

    def cut(done: int, total: int, result: object) -> None:
        if done == 4:
            raise Cut

    with pytest.raises(Cut):
        run_cells(cells, options(out=tmp_path / "cut"), on_result=cut)
    before = read_rows(tmp_path / "cut")
    assert len(before) == 4
    ran: list[runner.Job] = []
    monkeypatch.setattr(runner, "run_job", lambda job: ran.append(job) or _run_job(job))
    assert run_cells(cells, options(out=tmp_path / "cut", resume=True)) == whole
    assert len(ran) == len(whole) - 4
    assert not {(job.scenario.name, job.label, job.tuned, 0) for job in ran} & keys(before)


_run_job = runner.run_job
_tuned = runner.tuned


def test_numbers_that_were_tuned_are_not_tuned_again(
    cells: list[Scenario], options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_seeds = [msgspec.structs.replace(cells[0], seeds=2, strategies=("vanilla",))]
    run_cells(two_seeds, options())
    rows_file = options().out / "results.jsonl"
    kept = [line for line in rows_file.read_text(encoding="utf-8").splitlines(keepends=True) if '"seed":0' in line]
    rows_file.write_text("".join(kept), encoding="utf-8")
    monkeypatch.setattr(runner, "tuned", lambda *_: pytest.fail("tuned again"))
    assert len(run_cells(two_seeds, options(resume=True))) == 4


def test_processes_change_nothing(cells: list[Scenario], options: Options, tmp_path: Path) -> None:
    alone = run_cells(cells, options())
    assert run_cells(cells, options(out=tmp_path / "two", num_processes=2)) == alone


def test_an_error_in_another_process_is_the_same_error(
    cells: list[Scenario], options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "run_job", _refused)
    with pytest.raises(UnsupportedError, match="cell small/code cannot be run") as error:
        run_cells(cells[:1], options(num_processes=2))
    assert (error.value.field, error.value.remedy) == ("link", "Use another.")


def _refused(job: runner.Job) -> runner.JobResult:
    raise UnsupportedError(f"cell {job.scenario.name} cannot be run.", field="link", remedy="Use another.")


def _killed(job: runner.Job) -> runner.JobResult:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError(job)


def test_a_process_that_is_killed_is_an_error_that_says_how_to_go_on(
    cells: list[Scenario], options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "run_job", _killed)
    with pytest.raises(EdgedraftError, match="ended from outside") as error:
        run_cells(cells, options(num_processes=2))
    assert "--resume" in error.value.remedy


def _follower(connection: Connection) -> None:
    """A parent, to be killed, of a process that follows it; says which that is."""
    child = multiprocessing.get_context("spawn").Process(target=_following)
    child.start()
    connection.send(child.pid)
    child.join()


def _following() -> None:
    runner._follow_parent()
    threading.Event().wait()


def test_processes_end_with_a_run_that_was_killed() -> None:
    ours, theirs = multiprocessing.Pipe()
    parent = multiprocessing.get_context("spawn").Process(target=_follower, args=(theirs,))
    parent.start()
    child_pid = ours.recv()
    parent.kill()
    parent.join()
    for _ in range(300):
        if not _is_running(child_pid):
            return
        threading.Event().wait(0.1)
    os.kill(child_pid, signal.SIGKILL)
    pytest.fail("a process is left behind")


def _is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"edges": 4}, "cell small/code has edges 4, but 3 texts"),
        ({"dataset": "chat", "settings": (Settings.TUNED,)}, "has: code, maths"),
    ],
)
def test_what_the_texts_cannot_give_leaves_no_run_behind(
    cells: list[Scenario], options: Options, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    texts = [text for text in read_traces(options().traces or "") if text.kind != "chat"]
    write_traces(tmp_path / "two.jsonl", TraceHeader(target="made", draft="made"), texts)
    with pytest.raises(InvalidRequestError, match=said):
        run_cells([msgspec.structs.replace(cells[0], **changes)], options(traces=tmp_path / "two.jsonl"))
    assert not options().out.exists()


def test_two_runs_do_not_share_a_directory(cells: list[Scenario], options: Options) -> None:
    def start_another(done: int, total: int, result: runner.JobResult) -> None:
        with pytest.raises(InvalidRequestError, match="another bench run writes to"):
            run_cells(cells, options(resume=True))

    rows = run_cells(cells[:1], options(), on_result=start_another)
    assert len(read_rows(options().out)) == len(rows) == 5


def test_the_texts_are_shared_out_over_the_edges(cells: list[Scenario], options: Options) -> None:
    shared = msgspec.structs.replace(cells[0], edges=3, strategies=("vanilla",), settings=cells[0].settings[:1])
    (row,) = run_cells([shared], options())
    assert (row.edges, len(row.texts), row.num_tokens) == (3, 3, 84)
    (alone,) = run_cells([msgspec.structs.replace(shared, edges=1)], options(out=options().out / "alone"))
    assert row.tpt_ms > alone.tpt_ms, "edges wait for each other"


def test_only_the_first_texts_are_used(cells: list[Scenario], options: Options) -> None:
    rows = run_cells([msgspec.structs.replace(cells[0], max_texts=2, max_tokens=10)], options())
    assert {tuple(text.id for text in row.texts) for row in rows} == {("code/0", "code/1")}
    assert {row.num_tokens for row in rows} == {20}


def test_each_run_has_the_timeline_of_its_first_text(cells: list[Scenario], options: Options) -> None:
    rows = run_cells(cells[:1], options())
    timelines = read_timelines(options().out)
    assert {(each.strategy, each.tuned) for each in timelines} == {(row.strategy, row.tuned) for row in rows}
    lanes = {span.lane for each in timelines if each.strategy == "vanilla" for span in each.spans}
    assert lanes == {"draft", "upload", "verify", "download"}


def test_what_cannot_be_run_is_refused_before_anything_is_written(cells: list[Scenario], options: Options) -> None:
    with pytest.raises(InvalidRequestError, match="none of the bench's"):
        run_cells(cells, options(strategies=["vanilla", "nonsense"]))
    with pytest.raises(InvalidRequestError, match="cannot be read"):
        run_cells(cells, options(traces=options().out / "none.jsonl"))
    paper = [msgspec.structs.replace(cell, regime=Regime.PAPER) for cell in cells]
    with pytest.raises(UnsupportedError, match="cannot run live: regime is paper"):
        run_cells(paper, options(live=True))
    with pytest.raises(UnsupportedError, match="cannot run live: edges is 2"):
        run_cells([msgspec.structs.replace(cells[0], edges=2)], options(live=True))
    assert not options().out.exists()


def test_a_live_row_follows_its_simulated_twin_with_the_same_numbers(
    cells: list[Scenario], options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The live run itself has a test of its own; here it is the simulator under another name."""
    told = []

    def live(scenario: Scenario, entry: object, numbers: dict[str, float], trace: str, texts: object) -> object:
        told.append(numbers)
        return runner.simulate_cell(scenario, entry, numbers, texts, seed=0)  # type: ignore[arg-type]

    searched = []
    monkeypatch.setattr(runner, "run_live", live)
    monkeypatch.setattr(runner, "tuned", lambda *given: searched.append(given[0]) or _tuned(*given))
    rows = run_cells(cells[:1], options(live=True, strategies=["vanilla"]))
    pairs = {(row.tuned, row.live): row for row in rows}
    assert len(pairs) == 4
    assert told == [pairs[False, False].numbers, pairs[True, False].numbers]
    assert len(searched) == 1, "not tuned again for the live run"
