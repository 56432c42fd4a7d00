"""Runs scenarios: one job per cell, strategy and settings, over several processes; rows leave as they are finished."""

from __future__ import annotations

import concurrent.futures
import concurrent.futures.process
import contextlib
import functools
import hashlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import msgspec

from edgedraft.backends.trace import RecordedText, read_traces
from edgedraft.bench.baselines import Entry, Numbers, entry_named, tuned
from edgedraft.bench.live import check_live, run_live
from edgedraft.bench.measured import CellRun, RowName, row_of
from edgedraft.bench.results import Key, Row, RunDirectory, Timeline, manifest
from edgedraft.bench.run_folder import exclusively
from edgedraft.bench.scenario import BUILT_IN, Scenario, Settings
from edgedraft.bench.simulated import check_shares, simulate_cell
from edgedraft.errors import EdgedraftError, InvalidRequestError

TRACE_NAME = "qwen25-coder-0.5b-to-1.5b.jsonl.gz"
TIMELINE_SPANS = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A cell under one strategy, all its seeds. `numbers`: None where they are still to be tuned."""

    scenario: Scenario
    label: str
    tuned: bool
    live: bool
    seeds: tuple[int, ...]
    numbers: Numbers | None
    trace: str


@dataclass(frozen=True, slots=True)
class JobResult:
    rows: Sequence[Row]
    timeline: Timeline | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What `bench run` may be told. `strategies`: instead of the scenarios' own. `traces`: other recorded texts."""

    out: Path
    strategies: Sequence[str] = ()
    live: bool = False
    resume: bool = False
    num_processes: int = 1
    traces: Path | None = None


OnResult = Callable[[int, int, JobResult], None]


def run_cells(cells: Sequence[Scenario], options: RunOptions, *, on_result: OnResult = lambda *_: None) -> list[Row]:
    """Run what the directory does not have yet, and write it there. All rows, in the order of their keys.

    Live jobs come last, one after another, so that nothing disturbs their clock. `on_result(done, total, result)` is
    called as jobs end. Raises `InvalidRequestError` before any work where something cannot be run.
    """
    cells = [_with_strategies(cell, options.strategies) for cell in cells]
    with trace_path(options.traces) as trace:
        jobs = [job for cell in cells for job in _jobs_of(cell, str(trace), live=options.live)]
        labels = sorted({job.label for job in jobs})
        digests = {cell.name: cell.digest for cell in cells}
        described = manifest(cells=digests, strategies=labels, trace_sha256=sha256_of(trace), live=options.live)
        for cell in cells:
            check_shares(cell, _texts_of(cell, str(trace)))
        with exclusively(options.out):
            directory = RunDirectory(options.out, described, resume=options.resume)
            _run_left(jobs, directory, options.num_processes, on_result)
            directory.finish()
    return [directory.rows[key] for key in sorted(directory.rows)]


def _run_left(jobs: Sequence[Job], directory: RunDirectory, num_processes: int, on_result: OnResult) -> None:
    total, done = sum(1 for _ in _left(jobs, directory.rows)), 0
    for live in (False, True):
        left = list(_left([job for job in jobs if job.live is live], directory.rows))
        for result in _results(left, 1 if live else num_processes):
            directory.add(result.rows, result.timeline)
            done += 1
            on_result(done, total, result)


def _with_strategies(cell: Scenario, labels: Sequence[str]) -> Scenario:
    """The cell with those strategies instead of its own, where there are any. Raises where one is unknown."""
    cell = msgspec.structs.replace(cell, strategies=tuple(labels)) if labels else cell
    for label in cell.strategies:
        entry_named(label)
    return cell


@contextlib.contextmanager
def trace_path(given: Path | None) -> Iterator[Path]:
    """The recorded texts of a run: those that come with the package, or a file of the user's."""
    if given is not None:
        yield given
        return
    with resources.as_file(resources.files(BUILT_IN) / "traces" / TRACE_NAME) as path:
        yield path


def sha256_of(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InvalidRequestError(
            f"traces is {path}, which cannot be read: {error.strerror}.", field="traces"
        ) from error


# -- which jobs ------------------------------------------------------------------------------------------------------


def _jobs_of(cell: Scenario, trace: str, *, live: bool) -> Iterator[Job]:
    if live:
        check_live(cell, trace)
    for label in cell.strategies:
        entry = entry_named(label)
        for settings in cell.settings if entry.knobs else (None,):
            job = Job(
                scenario=cell,
                label=label,
                tuned=settings == Settings.TUNED,
                live=False,
                seeds=tuple(range(cell.seeds)),
                numbers=_given(entry, cell, settings),
                trace=trace,
            )
            yield job
            if live:
                yield replace(job, live=True, seeds=(0,))


def _given(entry: Entry, cell: Scenario, settings: Settings | None) -> Numbers | None:
    """The numbers that a job starts with; None where they are to be tuned."""
    if settings == Settings.TUNED:
        return None
    return dict(entry.paper[cell.dataset]) if settings == Settings.PAPER else {}


def _left(jobs: Sequence[Job], rows: Mapping[Key, Row]) -> Iterator[Job]:
    """Jobs with seeds that have no row yet. Numbers that a row shows, a simulated one for a live job, are kept."""
    numbers = {(row.scenario, row.strategy, row.tuned): dict(row.numbers) for row in rows.values()}
    for job in jobs:
        seeds = tuple(seed for seed in job.seeds if _key(job, seed) not in rows)
        if seeds:
            yield replace(job, seeds=seeds, numbers=numbers.get((job.scenario.name, job.label, job.tuned), job.numbers))


def _key(job: Job, seed: int) -> Key:
    return job.scenario.name, job.label, job.tuned, job.live, seed


# -- running them ----------------------------------------------------------------------------------------------------


def _results(jobs: Sequence[Job], num_processes: int) -> Iterator[JobResult]:
    """Results as they come."""
    if num_processes == 1 or len(jobs) <= 1:
        yield from map(run_job, jobs)
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(num_processes, context, initializer=_follow_parent) as pool:
        try:
            for future in concurrent.futures.as_completed([pool.submit(run_job, job) for job in jobs]):
                yield future.result()
        except concurrent.futures.process.BrokenProcessPool as error:
            raise EdgedraftError(
                "a process of the run was ended from outside, maybe for want of memory.",
                remedy="Go on with --resume and fewer --jobs; finished rows are kept.",
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():  # a cell in the middle of its tuning is not waited for
                child.terminate()
            raise


def _follow_parent() -> None:
    """Ctrl-C reaches every process of the terminal; the parent alone acts on it. Where that is killed, we end too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # there is nobody left to hand a result to


def run_job(job: Job) -> JobResult:
    """One job, from the recorded texts to its rows; tunes first where it has no numbers."""
    scenario, entry = job.scenario, entry_named(job.label)
    texts = _texts_of(scenario, job.trace)

    def run(numbers: Numbers, seed: int, *, spans: bool = False) -> CellRun:
        return simulate_cell(scenario, entry, numbers, texts, seed=seed, keep_spans=spans)

    numbers = job.numbers
    if numbers is None:
        numbers = tuned(entry, lambda point: run(point, 0).tpt_s)
    rows, runs = [], []
    for seed in job.seeds:
        cell_run = run_live(scenario, entry, numbers, job.trace, texts) if job.live else run(numbers, seed, spans=True)
        runs.append(cell_run)
        name = RowName(label=job.label, tuned=job.tuned, live=job.live, seed=seed, numbers=numbers)
        rows.append(row_of(scenario, texts, name, cell_run))
    return JobResult(rows, None if job.live else _timeline(job, runs[0]))


def _timeline(job: Job, run: CellRun) -> Timeline:
    """The first spans of the first text; a picture shows no more."""
    first = run.texts[0]
    return Timeline(
        scenario=job.scenario.name,
        strategy=job.label,
        tuned=job.tuned,
        text_id=first.text_id,
        spans=list(first.spans[:TIMELINE_SPANS]),
    )


def _texts_of(cell: Scenario, trace: str) -> list[RecordedText]:
    return _texts(trace, cell.dataset)[: cell.max_texts]


@functools.cache
def _texts(trace: str, dataset: str) -> list[RecordedText]:
    return read_traces(trace, [dataset])
