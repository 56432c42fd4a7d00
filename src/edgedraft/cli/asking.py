"""One question put to the cloud from the command line: the client, the stream on the screen, the account after it."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from edgedraft.backends.base import BackendOptions, Tokenizer
from edgedraft.backends.registry import parse_spec
from edgedraft.cli.options import NO_DRAFT
from edgedraft.cli.render import TOKEN_STYLES, err_console, escaped, legend, out_console
from edgedraft.edge.answer import Answer, Piece
from edgedraft.edge.blocking import BlockingAnswerStream, EdgeClient
from edgedraft.edge.text import TextStream
from edgedraft.errors import InvalidRequestError
from edgedraft.types import TokenKind


def edge_client(
    *,
    url: str | None,
    token: str | None,
    tls_ca: Path | None,
    draft: str,
    draft_threads: int | None,
    tokenizer: str | None,
    strategy: str | None,
) -> EdgeClient:
    """A client, not yet open. Strategy 'cloud-only' loads no draft, only the tokenizer of the one that is named."""
    model: str | None = draft
    if draft == NO_DRAFT:
        model = None
    elif strategy == "cloud-only":
        model = None
        tokenizer = tokenizer or (None if parse_spec(draft).family == "lookup" else draft)
    return EdgeClient(
        url,
        draft=model,
        tokenizer=tokenizer,
        token=token,
        tls_ca=tls_ca,
        draft_options=BackendOptions(threads=draft_threads),
    )


def prompt_text(prompt: str) -> str:
    """The prompt as given, or all of stdin where it is '-'. Raises `InvalidRequestError` where it is empty."""
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        where = "what stdin held" if prompt == "-" else "the prompt"
        raise InvalidRequestError(
            f"prompt: {where} is empty.", field="prompt", remedy='Give one: edgedraft generate "Why is the sky blue?"'
        )
    return text


class TokenPainter:
    """Cuts the text of pieces into the parts that single tokens brought, each in the colour of its kind.

    A piece's text may lag behind its tokens (a character or stop string that is not complete), so what each token
    will add waits here until the text catches up.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoded = TextStream()
        self._waiting: deque[tuple[int, str]] = deque()

    def paint(self, piece: Piece) -> Text:
        for token in piece.tokens:
            added = self._decoded.push(self._tokenizer.token_bytes(token.token_id))
            if added:
                self._waiting.append((len(added), TOKEN_STYLES[token.kind]))
        painted, rest = Text(end=""), piece.text
        while rest and self._waiting:
            size, style = self._waiting.popleft()
            painted.append(rest[:size], style=style)
            if size > len(rest):
                self._waiting.appendleft((size - len(rest), style))
            rest = rest[size:]
        return painted.append(rest)


def stream_to(
    console: Console, stream: BlockingAnswerStream, painter: TokenPainter | None = None, *, ctrl_c_stops: bool = False
) -> Answer:
    """Show an answer while it is written, with a line end after it, also where an error or Ctrl-C breaks it off.

    `ctrl_c_stops`: Ctrl-C ends the answer, which is then what there is of it; else it is raised as usual.
    """
    shown: list[str] = []
    try:
        _show(console, stream, painter, shown)
    except KeyboardInterrupt:
        if not ctrl_c_stops:
            raise
        stream.cancel()
        _show(console, stream, painter, shown)
    finally:
        if shown and not shown[-1].endswith("\n"):
            console.print()
    answer = stream.answer
    if not answer.text:
        console.print()
    return answer


def _show(console: Console, stream: BlockingAnswerStream, painter: TokenPainter | None, shown: list[str]) -> None:
    for piece in stream:
        if not console.is_terminal:
            console.file.write(piece.text)  # as it is: rich would make spaces of tabs and drop returns
        elif painter is None:
            console.file.write(escaped(piece.text))
        else:
            console.print(painter.paint(piece), end="")
        console.file.flush()
        if piece.text:
            shown.append(piece.text)


def ask(
    client: EdgeClient, request: Mapping[str, Any], *, show_tokens: bool = False, ctrl_c_stops: bool = False
) -> Answer:
    """Stream an answer to stdout, and what there is to say about it to stderr."""
    painter = TokenPainter(client.tokenizer) if show_tokens else None
    with client.stream(**request) as stream:
        answer = stream_to(out_console(), stream, painter, ctrl_c_stops=ctrl_c_stops)
    console = err_console()
    if show_tokens:
        console.print(legend(token.kind for token in answer.tokens))
    say_account(answer, console)
    return answer


def say_account(answer: Answer, console: Console) -> None:
    """Notices, then one line: how much, how exact, how fast, how costly."""
    for notice in answer.notices:
        console.print(Text.assemble(("note: ", "yellow"), notice))
    console.print(account_line(answer), style="dim")


def account_line(answer: Answer) -> str:
    figures = answer.accounting
    parts = [f"{answer.usage.completion_tokens} tokens in {figures['total_s']:.2f} s"]
    if figures["tpt_s"] is not None:
        parts.append(f"{figures['tpt_s'] * 1e3:.0f} ms a token")
    all_from_cloud = all(token.kind is not TokenKind.LOCAL for token in answer.tokens)
    if figures["tokens_per_target_pass"] is not None and all_from_cloud:
        parts.append(f"{figures['tokens_per_target_pass']:.2f} tokens per target pass")
    if figures["acceptance_rate"] is not None:
        parts.append(f"acceptance {figures['acceptance_rate']:.2f}")
    parts.append(f"{figures['bytes_up']} bytes up, {figures['bytes_down']} down")
    chosen = (figures.get("choice") or {}).get("choice", answer.strategy)
    strategy = answer.strategy if chosen == answer.strategy else f"{answer.strategy} ({chosen})"
    parts.append(f"{strategy}, exact: {answer.exact}")
    parts.append(f"finish: {answer.finish_reason}")
    return " · ".join(parts)
