"""What the commands print with: consoles that respect pipes and NO_COLOR, token colours, tables."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TextColumn
from rich.segment import Segment
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
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")
"""What a terminal may take for a command, line ends and tabs aside."""


def escaped(text: str) -> str:
    r"""What the terminal would obey is shown instead, as \x1b."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


class SafeConsole(Console):
    """A console whose terminal obeys nothing in names and models' texts, and whose reader may leave.

    Into a pipe they go as they are.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Escapes what a table is about to measure, and what `Text` would drop without a word."""
        return super().render_str(self._shown(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=self._shown(segment.text))

    def _shown(self, text: str) -> str:
        return escaped(text) if self.is_terminal else text

    def on_broken_pipe(self) -> None:
        """Rich would exit from whatever thread prints, and so end an event loop alone."""
        raise BrokenPipeError


def out_console() -> Console:
    """Stdout as it is now. Rich drops colours where it is no terminal or NO_COLOR is set."""
    return SafeConsole(file=sys.stdout, soft_wrap=True)


def err_console() -> Console:
    """Stderr: progress, notices, errors."""
    return SafeConsole(file=sys.stderr, soft_wrap=True)


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
    console = SafeConsole(file=sys.stdout)
    if not console.is_terminal:
        console = SafeConsole(file=sys.stdout, width=PIPE_WIDTH)
    console.print(grid)


def progress_bar(*, in_bytes: bool) -> Progress:
    """A progress bar on stderr, silent (`disable`) where stderr is no terminal."""
    console = err_console()
    columns = [TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn()]
    return Progress(
        *columns,
        *([DownloadColumn()] if in_bytes else []),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
