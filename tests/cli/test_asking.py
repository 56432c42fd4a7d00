"""Text on the screen: each token in its colour, whole characters, no colours where nobody sees them."""

from __future__ import annotations

import io
import types
from collections.abc import Iterator

import pytest
from rich.console import Console

from edgedraft.backends.toy_tokenizer import ToyTokenizer
from edgedraft.cli.asking import TokenPainter, account_line, stream_to
from edgedraft.cli.render import TOKEN_STYLES, SafeConsole, legend, out_console, progress_bar
from edgedraft.edge.answer import Answer, Piece
from edgedraft.errors import LinkLostError
from edgedraft.metrics.derive import accounting
from edgedraft.metrics.records import Counters, RequestRecord
from edgedraft.types import CommittedToken, Exactness, FinishReason, TokenKind, Usage

ACCEPTED, RECOVERED, BONUS = TokenKind.ACCEPTED, TokenKind.RECOVERED, TokenKind.BONUS


def _tokens(text: str, *kinds: TokenKind) -> list[CommittedToken]:
    """One token a byte, with these kinds in turn."""
    return [CommittedToken(byte, index, kinds[index % len(kinds)]) for index, byte in enumerate(text.encode())]


def _parts(painted) -> list[tuple[str, str]]:
    return [(painted.plain[span.start : span.end], str(span.style)) for span in painted.spans]


def test_each_token_has_the_colour_of_its_kind() -> None:
    painter = TokenPainter(ToyTokenizer(300))
    painted = painter.paint(Piece("abc", _tokens("abc", ACCEPTED, RECOVERED, BONUS)))
    assert painted.plain == "abc"
    assert _parts(painted) == [
        ("a", TOKEN_STYLES[ACCEPTED]),
        ("b", TOKEN_STYLES[RECOVERED]),
        ("c", TOKEN_STYLES[BONUS]),
    ]


def test_text_that_lags_behind_its_tokens_keeps_their_colours() -> None:
    """A held back beginning of a stop string comes with a later piece, a split character with its last byte."""
    painter = TokenPainter(ToyTokenizer(300))
    first = painter.paint(Piece("a", _tokens("ab", ACCEPTED, RECOVERED)))
    second = painter.paint(Piece("bé", _tokens("é", ACCEPTED, BONUS)))
    assert _parts(first) == [("a", TOKEN_STYLES[ACCEPTED])]
    assert _parts(second) == [("b", TOKEN_STYLES[RECOVERED]), ("é", TOKEN_STYLES[BONUS])]


def test_a_token_whose_text_comes_in_two_pieces_keeps_its_colour() -> None:
    tokenizer = ToyTokenizer(300)
    painter, word = TokenPainter(tokenizer), tokenizer.token_bytes(280).decode()
    first = painter.paint(Piece(word[:2], [CommittedToken(280, 0, RECOVERED)]))
    second = painter.paint(Piece(word[2:] + "a", _tokens("a", ACCEPTED)))
    assert _parts(first) == [(word[:2], TOKEN_STYLES[RECOVERED])]
    assert _parts(second) == [(word[2:], TOKEN_STYLES[RECOVERED]), ("a", TOKEN_STYLES[ACCEPTED])]


def test_no_text_is_lost_where_colours_run_out() -> None:
    assert TokenPainter(ToyTokenizer(300)).paint(Piece("abc", ())).plain == "abc"


def test_the_legend_counts_and_leaves_out_what_is_not_there() -> None:
    assert legend([ACCEPTED, BONUS, ACCEPTED]).plain == "tokens: 2 accepted, 1 bonus"


def test_kinds_can_be_told_apart() -> None:
    assert len({TOKEN_STYLES[kind] for kind in TokenKind}) == len(TokenKind)


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_no_color_is_obeyed_on_a_terminal(no_color: str, coloured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm-256color")
    file = io.StringIO()
    console = Console(file=file, force_terminal=True)
    console.print(legend([RECOVERED]))
    assert ("\x1b[1;31m" in file.getvalue()) is coloured


def test_a_pipe_gets_neither_colours_nor_bars(capsys: pytest.CaptureFixture[str]) -> None:
    out_console().print(legend([ACCEPTED]))
    with progress_bar(in_bytes=True) as bar:
        bar.update(bar.add_task("fetching", total=10), completed=5)
    captured = capsys.readouterr()
    assert captured.out == "tokens: 1 accepted\n"
    assert captured.err == ""


@pytest.mark.parametrize("error", [LinkLostError("gone"), KeyboardInterrupt()], ids=["link", "ctrl-c"])
@pytest.mark.parametrize(("text", "shown"), [("", ""), ("half a", "half a\n"), ("a line\n", "a line\n")])
def test_text_that_breaks_off_gets_its_line_end(text: str, shown: str, error: BaseException) -> None:
    def pieces():
        yield Piece(text, ())
        raise error

    file = io.StringIO()
    with pytest.raises(type(error)):
        stream_to(Console(file=file), pieces())
    assert file.getvalue() == shown


MAKEFILE = "all:\r\n\tcc x.c\f\x1b[31m[/bold] :cat:\n"


@pytest.mark.parametrize(
    ("painter", "is_terminal", "shown"),
    [
        (None, False, MAKEFILE),
        (TokenPainter(ToyTokenizer(300)), False, MAKEFILE),
        (None, True, "all:\r\n\tcc x.c\\x0c\\x1b[31m[/bold] :cat:\n"),
    ],
)
def test_a_pipe_gets_the_text_as_it_is_and_a_terminal_nothing_to_obey(
    painter: TokenPainter | None, is_terminal: bool, shown: str
) -> None:
    class Stream:
        answer = types.SimpleNamespace(text=MAKEFILE)

        def __iter__(self) -> Iterator[Piece]:
            yield Piece(MAKEFILE[:6], ())
            yield Piece(MAKEFILE[6:], ())

    file = io.StringIO()
    stream_to(SafeConsole(file=file, force_terminal=is_terminal), Stream(), painter)
    assert file.getvalue() == shown


@pytest.mark.parametrize(("kinds", "told"), [((ACCEPTED, BONUS), True), ((ACCEPTED, TokenKind.LOCAL), False)])
def test_tokens_per_target_pass_is_told_only_of_the_targets_own_text(kinds: tuple[TokenKind, ...], told: bool) -> None:
    record = RequestRecord(total_s=1.0, counters=Counters(num_committed=2, num_target_passes=1))
    answer = Answer(
        text="ab",
        token_ids=[97, 98],
        tokens=_tokens("ab", *kinds),
        finish_reason=FinishReason.LENGTH,
        usage=Usage(1, 2),
        strategy="vanilla",
        exact=Exactness.BITWISE,
        exactness_note="",
        seed=0,
        notices=(),
        accounting=accounting(record),
        record=record,
    )
    assert ("2.00 tokens per target pass" in account_line(answer)) is told
