"""`edgedraft bench`: compare strategies on links and devices, report, and measure what the machinery costs."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from os import cpu_count
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from edgedraft.bench.baselines import ENTRIES
from edgedraft.bench.html_page import shown
from edgedraft.bench.overhead import DEFAULT_ROUNDS, Figure, measure
from edgedraft.bench.report import read_run, recorded_texts, tables_of, write_report
from edgedraft.bench.results import Row
from edgedraft.bench.run_folder import exclusively
from edgedraft.bench.runner import JobResult, RunOptions, run_cells
from edgedraft.bench.scenario import Scenario, built_in_names, load_cells
from edgedraft.bench.searches import search_rows, write_searches
from edgedraft.cli import bench_caption, options
from edgedraft.cli.render import err_console, out_console, print_json, print_table, progress_bar, table
from edgedraft.errors import InvalidRequestError

app = typer.Typer(
    help="Compare strategies on links and devices; measure what the machinery costs.",
    no_args_is_help=True,
    epilog=options.examples(
        "edgedraft bench run quick --out runs/quick",
        "edgedraft bench report runs/quick --open",
        "edgedraft bench caption data/test --dev data/dev --out runs/captions",
        "edgedraft bench overhead",
    ),
)
app.command("caption", epilog=bench_caption.EXAMPLES)(bench_caption.caption)

Traces = Annotated[
    Path | None,
    typer.Option("--traces", metavar="FILE", help="Recorded texts; default: those that come with edgedraft."),
]
Scenarios = Annotated[
    list[str], typer.Argument(metavar="SCENARIO...", help="Names from `bench list`, or TOML files.", show_default=False)
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="FIELD=VALUE", help="Only cells like this (dataset=code); may be repeated."),
]
MAX_SHOWN_ROWS = 60


# -- list ------------------------------------------------------------------------------------------------------------


@app.command("list", epilog=options.examples("edgedraft bench list", "edgedraft bench list --json"))
def list_command(as_json: options.Json = False) -> None:
    """List the scenarios that come with edgedraft, and the strategies that a scenario may name."""
    cells = {name: load_cells([name]) for name in built_in_names()}
    if as_json:
        print_json({"scenarios": [_as_dict(name, each) for name, each in cells.items()], "strategies": list(ENTRIES)})
        return
    rows = [(name, each[0].title, str(len(each)), ", ".join(each[0].strategies)) for name, each in cells.items()]
    print_table(table("Scenarios", ("name", "what", "cells", "strategies"), rows))
    out_console().print(f"strategies: {', '.join(ENTRIES)}")


def _as_dict(name: str, cells: list[Scenario]) -> dict[str, object]:
    return {"name": name, "title": cells[0].title, "cells": [cell.name for cell in cells]}


# -- run -------------------------------------------------------------------------------------------------------------


@app.command(
    epilog=options.examples(
        "edgedraft bench run quick",
        "edgedraft bench run s1 s2 s3 s4 --only regime=paper --out runs/paper",
        "edgedraft bench run live --live --out runs/live",
        "edgedraft bench run my-link.toml --strategies pipesd,flow --out runs/mine --resume",
    )
)
def run(
    scenarios: Scenarios,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where rows and manifest go.")] = Path("bench-run"),
    strategies: Annotated[
        str | None, typer.Option("--strategies", metavar="A,B", help="Instead of the scenarios' own.")
    ] = None,
    only: Only = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", metavar="N", min=1, help="Seeds per run, instead of the scenarios' own.")
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Also in real time, over sockets and an emulated link.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run that DIR holds.")] = False,
    jobs: Annotated[
        int, typer.Option("--jobs", metavar="N", min=1, help="Processes; default: one per processor.")
    ] = cpu_count() or 1,
    traces: Traces = None,
    as_json: options.Json = False,
) -> None:
    """Run scenarios under several strategies: texts replayed, models and links modelled, the machinery our own.

    Strategies with numbers of their own run with the paper's, and tuned on the very texts. A run that was cut keeps its
    finished rows.
    """
    cells = load_cells(scenarios, _chosen(only or []))
    if seeds is not None:
        cells = [msgspec.structs.replace(cell, seeds=seeds) for cell in cells]
    chosen = RunOptions(
        out=out,
        strategies=[name.strip() for name in strategies.split(",")] if strategies else (),
        live=live,
        resume=resume,
        num_processes=jobs,
        traces=traces,
    )
    with _progress(as_json=as_json) as on_result:
        rows = run_cells(cells, chosen, on_result=on_result)
    if as_json:
        print_json({"out": str(out), "rows": [msgspec.to_builtins(row) for row in rows]})
        return
    if len(rows) <= MAX_SHOWN_ROWS:
        print_table(table("Milliseconds per token", _COLUMNS, map(_row_of_run, rows)))
    out_console().print(f"{len(rows)} rows in {out}; see them with: edgedraft bench report {out}")


def _chosen(only: list[str]) -> dict[str, str]:
    chosen = {}
    for each in only:
        field, equals, value = each.partition("=")
        if not equals:
            raise InvalidRequestError(
                f"only is '{each}'; legal: FIELD=VALUE.", field="only", remedy="Such as --only dataset=code."
            )
        chosen[field.strip()] = value.strip()
    return chosen


@contextmanager
def _progress(*, as_json: bool) -> Iterator[Callable[[int, int, JobResult], None]]:
    """A bar on a terminal, a line for each job elsewhere, nothing with --json."""
    bar = progress_bar(in_bytes=False)
    if as_json:
        yield lambda done, total, result: None
        return
    with bar:
        task = bar.add_task("running", total=None)

        def on_result(done: int, total: int, result: JobResult) -> None:
            row = result.rows[0]
            what = f"{row.scenario} {row.strategy}{' live' if row.live else ''}"
            bar.update(task, completed=done, total=total, description=what)
            if bar.disable:
                err_console().print(f"[{done}/{total}] {what}: {row.tpt_ms:.1f} ms per token")

        yield on_result


_COLUMNS = ("cell", "strategy", "numbers", "run", "ms", "95 %", "bound", "passes", "acceptance")


def _row_of_run(row: Row) -> tuple[str, ...]:
    return (
        row.scenario,
        row.strategy,
        "-" if not row.numbers else "tuned" if row.tuned else "paper",
        "live" if row.live else f"seed {row.seed}",
        f"{row.tpt_ms:.1f}",
        f"{row.tpt_low_ms:.1f} to {row.tpt_high_ms:.1f}",
        f"{row.bound_ms:.1f}",
        f"{row.target_passes_per_token:.2f}",
        shown(row.acceptance_rate),
    )


# -- searches --------------------------------------------------------------------------------------------------------


@app.command(
    epilog=options.examples(
        "edgedraft bench searches s1 --only regime=paper --out runs/paper", "edgedraft bench searches s1 --json"
    )
)
def searches(
    scenarios: Scenarios,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="A run's directory, whose report then has the table.")
    ] = None,
    only: Only = None,
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", min=1, help="How often each search is tried.")] = 10,
    traces: Traces = None,
    as_json: options.Json = False,
) -> None:
    """Compare how well the tuner, grid and random search find PipeSD's thresholds, 16 candidates of 20 tokens each."""
    cells = load_cells(scenarios, _chosen(only or []))
    with nullcontext() if out is None else exclusively(out):  # an out that cannot be written is known beforehand
        rows = list(search_rows(cells, num_seeds=seeds, traces=traces))
        if out is not None:
            write_searches(out, rows)
    if as_json:
        print_json({"searches": rows})
    else:
        print_table(table("Searches", list(rows[0]), ([shown(entry) for entry in row.values()] for row in rows)))


# -- report ----------------------------------------------------------------------------------------------------------


@app.command(
    epilog=options.examples("edgedraft bench report runs/quick --open", "edgedraft bench report runs/quick --json")
)
def report(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="What `bench run` or `bench caption` wrote.", show_default=False)
    ],
    open_it: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    traces: Traces = None,
    as_json: options.Json = False,
) -> None:
    """Write DIR/report.html: tables with published figures beside, pictures. --json prints the tables instead."""
    from edgedraft.bench.caption_report import is_caption_run, write_caption_report
    from edgedraft.bench.caption_results import read_results
    from edgedraft.bench.caption_tables import caption_tables

    of_captions = is_caption_run(directory)
    if as_json:
        results = read_results(directory) if of_captions else None
        made = tables_of(read_run(directory)) if results is None else caption_tables(results)
        notes = {} if results is None else {"notes": list(results.notes)}
        print_json({**notes, "tables": [each.to_dict() for each in made]})
        return
    path = write_caption_report(directory) if of_captions else _write_report(directory, traces)
    out_console().print(str(path))
    if open_it:
        webbrowser.open(path.resolve().as_uri())


def _write_report(directory: Path, traces: Path | None) -> Path:
    texts = recorded_texts(read_run(directory), traces)
    if not texts:
        err_console().print("The run replayed a file of its own; for the curve of acceptance give it with --traces.")
    return write_report(directory, texts)


# -- overhead --------------------------------------------------------------------------------------------------------


@app.command(epilog=options.examples("edgedraft bench overhead", "edgedraft bench overhead --rounds 500 --json"))
def overhead(
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="N", min=10, help="Rounds to take the median over.")
    ] = DEFAULT_ROUNDS,
    as_json: options.Json = False,
) -> None:
    """Cost of core, sampling, protocol and server, with toy models over real sockets on this machine.

    Ends with exit code 1 where a figure is above its limit.
    """

    def say(step: str) -> None:
        if not as_json:
            err_console().print(f"measuring {step} ...", style="dim")

    figures = list(measure(rounds, on_step=say))
    ok = all(figure.ok for figure in figures)
    if as_json:
        print_json({"ok": ok, "figures": [{**asdict(figure), "ok": figure.ok} for figure in figures]})
    else:
        print_table(table("Overhead", ("figure", "measured", "limit", "unit", "ok"), map(_row, figures)))
    if not ok:
        raise typer.Exit(1)


def _row(figure: Figure) -> tuple[str | Text, ...]:
    verdict = Text("-") if figure.limit is None else Text("yes", "green") if figure.ok else Text("no", "bold red")
    limit = "-" if figure.limit is None else f"{figure.limit:g}"
    measured = f"{figure.value:,.0f}" if figure.value >= 1_000 else f"{figure.value:.3g}"
    return figure.name, measured, limit, figure.unit, verdict
