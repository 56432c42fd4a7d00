"""`edgedraft bench`: what the machinery costs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from edgedraft.bench.overhead import DEFAULT_ROUNDS, Figure, measure
from edgedraft.cli import options
from edgedraft.cli.render import err_console, print_json, print_table, table

app = typer.Typer(
    help="Measure what the machinery costs beside the models.",
    no_args_is_help=True,
    epilog=options.examples("edgedraft bench overhead", "edgedraft bench overhead --json"),
)


@app.callback()
def _bench() -> None:
    """Keeps `overhead` a command of its own while it is the only one."""


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
