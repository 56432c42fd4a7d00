"""The consoles that commands print to."""

from __future__ import annotations

import io
import sys

import pytest
from rich.text import Text

from edgedraft.cli.render import err_console, out_console, print_table, progress_bar, table

COMMANDS = "clear \x1b[2J, title \x1b]0;x\x07, back \x08\r, 8 bit \x9b5m, [/bold] :cat:"
SHOWN = r"clear \x1b[2J, title \x1b]0;x\x07, back \x08\x0d, 8 bit \x9b5m, [/bold] :cat:"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stdout and stderr count as terminals, without colours."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.usefixtures("terminal")
def test_a_terminal_is_shown_what_it_would_obey(capsys: pytest.CaptureFixture[str]) -> None:
    out_console().print(COMMANDS)
    err_console().print(Text(COMMANDS))
    captured = capsys.readouterr()
    assert captured.out == SHOWN + "\n"
    assert captured.err == SHOWN.replace(r"\x07", "").replace(r"\x08\x0d", "") + "\n", "rich itself drops these three"
    print_table(table("Models", ("spec", "file"), [("a\x1b[31m", "1"), ("b", "2")]))
    lines = capsys.readouterr().out.splitlines()
    assert r"│ a\x1b[31m │    1 │" in lines
    assert "│ b         │    2 │" in lines


@pytest.mark.usefixtures("terminal")
def test_a_text_keeps_its_lines_and_columns(capsys: pytest.CaptureFixture[str]) -> None:
    out_console().print(Text("one\n\ttwo ä 中"))
    assert capsys.readouterr().out == "one\n        two ä 中\n"


@pytest.mark.usefixtures("terminal")
def test_a_progress_bar_takes_its_words_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(in_bytes=False) as bar:
        bar.add_task("fetching [/bold]", total=1)
    assert "fetching [/bold]" in capsys.readouterr().err


def test_a_pipe_gets_an_answer_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    out_console().print(Text("red \x1b[31m"))
    assert capsys.readouterr().out == "red \x1b[31m\n"


def test_a_reader_that_has_left_is_told_as_such_on_any_thread() -> None:
    """Rich would raise SystemExit, which ends the event loop of another thread while its caller waits for ever."""

    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    for make, name in ((out_console, "stdout"), (err_console, "stderr")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, name, Gone())
            console = make()
        with pytest.raises(BrokenPipeError):
            console.print("a caption")
