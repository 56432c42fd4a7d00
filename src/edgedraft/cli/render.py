"""What the commands print with: consoles that respect pipes and NO_COLOR, token colours, tables."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from edgedraft.types import TokenKind

TOKEN_STYLES: Mapping[TokenKind, str] = {
    TokenKind.ACCEPTED: "green",
    TokenKind.RECOVERED: "bold red",
    TokenKind.BONUS: "bold cyan",
    TokenKind.OWN: "yellow",
    TokenKind.LOCAL: "magenta",
}
TOKEN_NAMES: Mapping[TokenKind, str] = {
    TokenKind.ACCEPTED: "accepted",
    TokenKind.RECOVERED: "recovered",
    TokenKind.BONUS: "bonus",
    TokenKind.OWN: "cloud",
    TokenKind.LOCAL: "local",
}
CAPTION_TOKEN_NAMES: Mapping[TokenKind, str] = {**TOKEN_NAMES, TokenKind.RECOVERED: "corrected"}
"""Of captions: there the edge's text is what is corrected."""
PIPE_WIDTH = 500
"""Columns that a table may use where nothing limits it."""


class PipeConsole(Console):
    """A console whose reader may leave. Rich would exit from whatever thread prints, and so end an event loop alone."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def out_console() -> Console:
    """Stdout as it is now. Rich drops colours where it is no terminal or NO_COLOR is set."""
    return PipeConsole(file=sys.stdout, highlight=False, markup=False, soft_wrap=True)


def err_console() -> Console:
    """Stderr: progress, notices, errors."""
    return PipeConsole(file=sys.stderr, highlight=False, markup=False, soft_wrap=True)


def print_json(value: object) -> None:
    """One JSON value on one line of stdout, in ASCII, flushed: a reader of a pipe sees it at once."""
    print(json.dumps(value), flush=True)  # noqa: T201


def legend(kinds: Iterable[TokenKind], names: Mapping[TokenKind, str] = TOKEN_NAMES) -> Text:
    """The colours with how many tokens each stands for."""
    counts = Counter(kinds)
    parts = [Text(f"{counts[kind]} {names[kind]}", style=TOKEN_STYLES[kind]) for kind in TokenKind]
    shown = [part for part, kind in zip(parts, TokenKind, strict=True) if counts[kind]]
    return Text("tokens: ").append_text(Text(", ").join(shown))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """A plain table; the first column is left aligned, the others right."""
    grid = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        grid.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid


def print_table(grid: Table) -> None:
    """A table on stdout. A pipe has no width, so nothing is folded there."""
    console = Console(file=sys.stdout, highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(file=sys.stdout, highlight=False, markup=False, width=PIPE_WIDTH)
    console.print(grid)


def progress_bar(*, in_bytes: bool) -> Progress:
    """A progress bar on stderr, silent (`disable`) where stderr is no terminal."""
    console = err_console()
    columns = [TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()]
    return Progress(
        *columns,
        *([DownloadColumn()] if in_bytes else []),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
