"""`edgedraft demo`: an edge process and a cloud process write answers together, and the text is proved exact.

At the end they caption two recordings, of which no waveform leaves the edge.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.text import Text

from edgedraft.backends import model_store
from edgedraft.backends.base import BackendOptions
from edgedraft.backends.registry import chat_template, open_target, open_tokenizer, parse_spec
from edgedraft.backends.spec import STORED
from edgedraft.backends.template import encode_chat
from edgedraft.bench.cloud_process import cloud_process
from edgedraft.bench.target_only import target_only_ids
from edgedraft.cli import options
from edgedraft.cli.asking import TokenPainter, account_line, stream_to
from edgedraft.cli.demo_captions import CAPTION_DRAFT, CAPTION_TARGET, ClipCaption, caption_clips
from edgedraft.cli.render import err_console, legend, out_console, print_json, print_table, table
from edgedraft.config import DEFAULT_URL
from edgedraft.edge.answer import Answer
from edgedraft.edge.blocking import EdgeClient
from edgedraft.errors import InvalidRequestError
from edgedraft.metrics import derive
from edgedraft.metrics.records import Counters, RequestRecord
from edgedraft.testing import LinkProfile, running_link
from edgedraft.types import SamplingParams

DEFAULT_MAX_TOKENS = 48
# One thread each: the figures then depend less on who else uses the machine.
CLOUD_OPTIONS = ("--deterministic", "--threads", "1", "--context-length", "2048")
ONE_CPU = (
    "On one CPU this shows the mechanism, not a speed-up: both models share the processor, which checks k tokens "
    "nearly k times as slowly as it writes one. What falls with a draft is the number of target passes."
)
PROMPTS = (
    ("code", "Write a Python function that returns the sum of the squares of a list of numbers."),
    ("question", "Why is the sky blue? Answer in two sentences."),
    (
        "rewrite",
        "Write this function again with the name add_numbers:\n\ndef f(a, b):\n    result = a + b\n    return result",
    ),
)


@dataclass(frozen=True, slots=True)
class Way:
    """One row of the table: how the answers are written. `draft` is None where there is none."""

    name: str
    strategy: str
    draft: str | None


@dataclass(frozen=True, slots=True)
class Row:
    """Figures over all prompts: sums divided by sums."""

    strategy: str
    equal: bool
    num_tokens: int
    tokens_per_target_pass: float | None
    acceptance_rate: float | None
    tpt_s: float | None
    bytes_up_per_token: float | None
    bytes_down_per_token: float | None


WAY_NAMES = ("vanilla", "pipesd", "flow", "auto", "lookup", "cloud-only")
ALL_WAYS = ",".join(WAY_NAMES)

RttMs = Annotated[
    float,
    typer.Option("--rtt-ms", metavar="MS", min=0, help="Round trip of an emulated link between the two; 0: none."),
]
MaxTokens = Annotated[int, typer.Option("--max-tokens", metavar="N", min=1, help="Most tokens of each answer.")]
Strategies = Annotated[
    str, typer.Option("--strategies", metavar="NAMES", help=f"Rows to write, of {', '.join(WAY_NAMES)}.")
]
Captions = Annotated[
    bool, typer.Option("--captions/--no-captions", help="Caption two recordings of speech at the end.")
]
Target = Annotated[str, typer.Option("--target", metavar="SPEC", help="Target model.", rich_help_panel=options.MODELS)]
DraftSpec = Annotated[str, typer.Option("--draft", metavar="SPEC", help="Draft model.", rich_help_panel=options.MODELS)]


def demo(
    rtt_ms: RttMs = 0.0,
    max_tokens: MaxTokens = DEFAULT_MAX_TOKENS,
    strategies: Strategies = ALL_WAYS,
    target: Target = "demo:target",
    draft: DraftSpec = options.DEFAULT_DRAFT,
    captions: Captions = True,
    as_json: options.Json = False,
) -> None:
    """Write three answers with an edge process and a cloud process, and compare them with the target alone.

    Then caption two recordings of synthetic speech the same way. Ends with exit code 1 where a text differs from what
    the target writes alone.
    """
    console = err_console() if as_json else out_console()
    ways = _ways(strategies, draft)
    _prepare(console, (target, draft))
    wanted = _target_only(console, target, max_tokens)
    with _cloud_url(console, target, rtt_ms) as url:
        run = _Run(console, url, target, max_tokens, wanted)
        rows = [run.write(way, colours=index == 0) for index, way in enumerate(ways)]
    if not as_json:
        console.print()
        print_table(_as_table(rows, rtt_ms))
        console.print(ONE_CPU)
    clips = _captions(console, rtt_ms) if captions else []
    equal = all(row.equal for row in rows) and all(clip.equal for clip in clips)
    if as_json:
        told = {"equal": equal, "rtt_ms": rtt_ms, "rows": [asdict(row) for row in rows], "note": ONE_CPU}
        print_json({**told, "captions": [clip.to_dict() for clip in clips]})
    if not equal:
        raise typer.Exit(1)


def _captions(console: Console, rtt_ms: float) -> list[ClipCaption]:
    _step(console, f"Captions: how two voices sound; draft {CAPTION_DRAFT}, target {CAPTION_TARGET}")
    with _cloud_url(console, CAPTION_TARGET, rtt_ms) as url:
        return caption_clips(console, url)


def _ways(strategies: str, draft: str) -> list[Way]:
    ways = {
        **{name: Way(name, name, draft) for name in ("vanilla", "pipesd", "flow", "auto")},
        "lookup": Way("vanilla, lookup", "vanilla", "lookup"),
        "cloud-only": Way("cloud-only", "cloud-only", None),
    }
    names = [name.strip() for name in strategies.split(",") if name.strip()]
    unknown = next((name for name in names if name not in ways), None)
    if unknown is not None or not names:
        raise InvalidRequestError(
            f"strategies names '{unknown or ''}'; there are: {', '.join(WAY_NAMES)}.", field="strategies"
        )
    return [ways[name] for name in names]


def _step(console: Console, text: str) -> None:
    console.print(Text.assemble(("==> ", "bold blue"), (text, "bold")))


def _prepare(console: Console, specs: Sequence[str]) -> None:
    """Have the model files here before two processes ask for them."""
    _step(console, f"Models: target {specs[0]}, draft {specs[1]} (the first time, they are made: a few seconds)")
    for spec in specs:
        if parse_spec(spec).family in STORED:
            console.print(f"    {spec}: {model_store.resolve(spec)}")


def _target_only(console: Console, spec: str, max_tokens: int) -> dict[str, list[int]]:
    """What the target writes by itself for each prompt: no draft, no network, no session."""
    _step(console, "Yardstick: the target alone, token by token, in this process")
    tokenizer, template = open_tokenizer(spec), chat_template(spec)
    target = open_target(spec, BackendOptions(threads=1, context_length=2048, max_sessions=1, deterministic=True))
    try:
        texts = {}
        for name, prompt in PROMPTS:
            prompt_ids = encode_chat(tokenizer, template, [{"role": "user", "content": prompt}])
            texts[name] = target_only_ids(
                target,
                prompt_ids,
                sampling=SamplingParams(),
                max_tokens=max_tokens,
                eos_ids=(*target.info.eos_ids, *tokenizer.eos_ids),
            )
            console.print(f"    {name}: {len(texts[name])} tokens")
        return texts
    finally:
        target.shutdown()


@contextlib.contextmanager
def _cloud_url(console: Console, spec: str, rtt_ms: float) -> Iterator[str]:
    """The address of a cloud in a process of its own, behind an emulated link where one is asked for."""
    _step(console, "Cloud: a second process loads the target and listens")
    with cloud_process(spec, CLOUD_OPTIONS) as cloud:
        console.print(f"    process {cloud.pid} serves {spec} at {cloud.url} (exactness: {cloud.loaded['exactness']})")
        if not rtt_ms:
            yield cloud.url
            return
        address = urlsplit(cloud.url)
        profile = LinkProfile.symmetric(rtt_s=rtt_ms * 1e-3)
        with running_link(address.hostname or "", address.port or 0, profile) as link:
            console.print(f"    an emulated link in between adds a round trip of {rtt_ms:g} ms")
            yield f"ws://{link.host}:{link.port}{urlsplit(DEFAULT_URL).path}"


@dataclass(frozen=True, slots=True)
class _Run:
    """Writes all prompts in one way after another, and compares."""

    console: Console
    url: str
    target: str
    max_tokens: int
    wanted: dict[str, list[int]]

    def write(self, way: Way, *, colours: bool) -> Row:
        """All prompts in one way. `colours`: show the text as it is written, each token in the colour of its kind."""
        _step(self.console, f"Edge: {way.name}")
        answers: dict[str, Answer] = {}
        one_thread = BackendOptions(threads=1)
        with EdgeClient(self.url, draft=way.draft, tokenizer=self.target, draft_options=one_thread) as client:
            for name, prompt in PROMPTS:
                request: dict[str, Any] = {"prompt": prompt, "strategy": way.strategy, "max_tokens": self.max_tokens}
                answers[name] = self._show(client, name, request) if colours else client.generate(**request)
                equal = "equal" if self._equal(name, answers[name]) else "NOT EQUAL"
                self.console.print(f"    {name}: {equal} to target-only; {account_line(answers[name])}", style="dim")
        if colours:
            tokens = [token.kind for answer in answers.values() for token in answer.tokens]
            self.console.print(Text("    ").append_text(legend(tokens)))
        equal_everywhere = all(self._equal(name, answer) for name, answer in answers.items())
        return _row(way.name, equal_everywhere, [answer.record for answer in answers.values()])

    def _show(self, client: EdgeClient, name: str, request: dict[str, Any]) -> Answer:
        self.console.print(f"--- {name}: {' '.join(request['prompt'].split())}")
        with client.stream(**request) as stream:
            return stream_to(self.console, stream, TokenPainter(client.tokenizer))

    def _equal(self, name: str, answer: Answer) -> bool:
        return list(answer.token_ids) == self.wanted[name]


def _row(name: str, equal: bool, records: Sequence[RequestRecord]) -> Row:
    total = _total(records)
    return Row(
        strategy=name,
        equal=equal,
        num_tokens=total.counters.num_committed,
        tokens_per_target_pass=derive.tokens_per_target_pass(total),
        acceptance_rate=derive.acceptance_rate(total),
        tpt_s=derive.tpt_s(total),
        bytes_up_per_token=derive.bytes_up_per_token(total),
        bytes_down_per_token=derive.bytes_down_per_token(total),
    )


def _total(records: Sequence[RequestRecord]) -> RequestRecord:
    """One record with the sums of all."""
    counters = [record.counters for record in records]
    return RequestRecord(
        total_s=sum(record.total_s for record in records),
        bytes_up=sum(record.bytes_up for record in records),
        bytes_down=sum(record.bytes_down for record in records),
        counters=Counters(**{each.name: sum(getattr(c, each.name) for c in counters) for each in fields(Counters)}),
    )


def _number(value: float | None, digits: int, factor: float = 1.0) -> str:
    return "-" if value is None else f"{value * factor:.{digits}f}"


def _as_table(rows: Sequence[Row], rtt_ms: float) -> Any:
    link = f"an emulated link of {rtt_ms:g} ms" if rtt_ms else "loopback"
    # In two lines, so that the table fits a terminal of 80 columns.
    columns = ("strategy", "equal", "tokens\n/ pass", "acceptance", "ms\n/ token", "B up\n/ token", "B down\n/ token")
    lines = [
        (
            row.strategy,
            Text("yes", "green") if row.equal else Text("NO", "bold red"),
            _number(row.tokens_per_target_pass, 2),
            _number(row.acceptance_rate, 2),
            _number(row.tpt_s, 1, 1e3),
            _number(row.bytes_up_per_token, 1),
            _number(row.bytes_down_per_token, 1),
        )
        for row in rows
    ]
    return table(f"{len(PROMPTS)} answers, two processes, {link}", columns, lines)


def register(app: typer.Typer) -> None:
    app.command(
        epilog=options.examples(
            "edgedraft demo",
            "edgedraft demo --rtt-ms 100 --no-captions",
            "edgedraft demo --strategies vanilla,cloud-only --max-tokens 64 --json",
        )
    )(demo)
