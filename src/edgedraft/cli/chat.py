"""`edgedraft chat`: a conversation, one question a line."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from edgedraft.cli import options
from edgedraft.cli.asking import account_line, ask, edge_client
from edgedraft.cli.render import err_console, print_json
from edgedraft.cli.report import print_error
from edgedraft.edge.answer import Answer
from edgedraft.edge.blocking import EdgeClient
from edgedraft.edge.request import Request
from edgedraft.errors import EdgedraftError
from edgedraft.metrics.derive import tpt_s
from edgedraft.types import OnLinkLoss

HELP = "/reset forgets the conversation, /stats shows figures, /exit or Ctrl-D leaves; Ctrl-C stops an answer."


@dataclass(slots=True)
class Conversation:
    """The messages so far and the answers they got. `system` stays over a reset."""

    system: str | None = None
    messages: list[dict[str, str]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.messages = [{"role": "system", "content": self.system}] if self.system else []

    def with_question(self, question: str) -> list[dict[str, str]]:
        return [*self.messages, {"role": "user", "content": question}]

    def add(self, question: str, answer: Answer) -> None:
        """An answer that was cut short stays, since the user has seen it."""
        self.messages = [*self.with_question(question), {"role": "assistant", "content": answer.text}]
        self.answers.append(answer)

    def stats(self) -> list[str]:
        """Lines about the last answer and about all of them."""
        if not self.answers:
            return ["no answer yet"]
        records = [answer.record for answer in self.answers]
        num_tokens = sum(answer.usage.completion_tokens for answer in self.answers)
        bytes_up = sum(record.bytes_up for record in records)
        bytes_down = sum(record.bytes_down for record in records)
        lines = [f"last: {account_line(self.answers[-1])}"]
        time_per_token_s = tpt_s(*records)
        pace = "" if time_per_token_s is None else f", {time_per_token_s * 1e3:.0f} ms a token"
        num_answers = f"{len(records)} answer{'s' if len(records) > 1 else ''}"
        lines.append(f"all: {num_answers}, {num_tokens} tokens{pace}, {bytes_up} bytes up, {bytes_down} down")
        return lines


def chat(
    draft: options.Draft = options.DEFAULT_DRAFT,
    draft_threads: options.DraftThreads = None,
    tokenizer: options.Tokenizer = None,
    url: options.Url = None,
    token: options.Token = None,
    tls_ca: options.TlsCa = None,
    on_link_loss: options.OnLoss = OnLinkLoss.WAIT,
    strategy: options.StrategyName = None,
    objective: options.Objective = "latency",
    draft_length: options.DraftLength = None,
    max_tokens: options.MaxTokens = options.DEFAULT_MAX_TOKENS,
    temperature: options.Temperature = 0.0,
    top_p: options.TopP = 1.0,
    top_k: options.TopK = 0,
    min_p: options.MinP = 0.0,
    seed: options.Seed = None,
    stop: options.Stop = None,
    system: options.System = None,
    show_tokens: options.ShowTokens = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per answer on stdout.")] = False,
) -> None:
    """Talk with the target. Each line is a question; questions may also come from a pipe.

    /reset forgets the conversation, /stats shows figures, /exit or Ctrl-D leaves; Ctrl-C stops an answer.
    """
    request: dict[str, Any] = {
        "strategy": strategy,
        "objective": options.objective_value(objective),
        "draft_length": draft_length,
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "seed": seed,
        "stop": tuple(stop or ()),
        "on_link_loss": on_link_loss,
    }
    Request.of("checks every field before a model is loaded", request)
    client = edge_client(
        url=url,
        token=token,
        tls_ca=tls_ca,
        draft=draft,
        draft_threads=draft_threads,
        tokenizer=tokenizer,
        strategy=strategy,
    )
    with client:
        Repl(client, request, Conversation(system), show_tokens=show_tokens, as_json=as_json).run()


@dataclass(slots=True)
class Repl:
    """Reads questions and shows answers until the input ends."""

    client: EdgeClient
    request: dict[str, Any]
    conversation: Conversation
    show_tokens: bool
    as_json: bool

    def run(self) -> None:
        if sys.stdin.isatty():
            self.client.connect()  # a cloud that is not there should show before the first question is typed
            err_console().print(HELP, style="dim")
        for line in _lines():
            if line in ("/exit", "/quit"):
                return
            self._take(line)

    def _take(self, line: str) -> None:
        if not line:
            return
        if line == "/reset":
            self.conversation.reset()
            err_console().print("the conversation is forgotten", style="dim")
        elif line == "/stats":
            for stats_line in self.conversation.stats():
                err_console().print(stats_line, style="dim")
        elif line.startswith("/"):
            err_console().print(f"no such command: {line.split()[0]}. {HELP}", style="yellow")
        else:
            self._answer(line)

    def _answer(self, question: str) -> None:
        request = {**self.request, "messages": self.conversation.with_question(question)}
        try:
            if self.as_json:
                answer = self.client.generate(**request)
                print_json(answer.to_dict())
            else:
                answer = ask(self.client, request, show_tokens=self.show_tokens, ctrl_c_stops=True)
        except EdgedraftError as error:
            if not sys.stdin.isatty():
                raise
            print_error(error.code, error.message, error.remedy, as_json=self.as_json)
        else:
            self.conversation.add(question, answer)


def _lines() -> Iterator[str]:
    """Stripped lines from a terminal or a pipe. Ctrl-C at the prompt drops the line, not the chat."""
    at_terminal = sys.stdin.isatty()
    if at_terminal:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - its import gives `input` line editing and history
    while True:
        try:
            yield input("> " if at_terminal else "").strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            if not at_terminal:
                raise
            err_console().print()


def register(app: typer.Typer) -> None:
    app.command(
        epilog=options.examples(
            "edgedraft chat --draft demo:draft",
            'edgedraft chat --system "Answer in one sentence." --show-tokens',
            'printf "Hello\\nAnd again\\n" | edgedraft chat --json',
        )
    )(chat)
