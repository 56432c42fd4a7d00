"""`edgedraft bench caption`: captions of a dataset by every arm, scored, priced and timed; a few live as well."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.text import Text

from edgedraft.bench.caption_arms import UGSD
from edgedraft.bench.caption_clips import MIN_LIVE_CLIPS, Progress
from edgedraft.bench.caption_results import CaptionResults, ClipRecord, LiveRun, write_results
from edgedraft.bench.caption_runs import (
    DEFAULT_EDGE_STEP_S,
    DEFAULT_LIVE_CLIPS,
    DEFAULT_RTT_S,
    CaptionPlan,
    run_caption_bench,
)
from edgedraft.bench.caption_steps import KeptSteps
from edgedraft.bench.caption_sweeps import SweepName
from edgedraft.bench.caption_tuning import FALLBACK_SHARE
from edgedraft.bench.drawing import report_style
from edgedraft.bench.html_page import shown
from edgedraft.bench.run_folder import exclusively
from edgedraft.bench.tables import Table
from edgedraft.caption.captioner import DEFAULT_DRAFT, DEFAULT_TARGET
from edgedraft.caption.dataset import Dataset, load_dataset
from edgedraft.caption.request import DEFAULT_MAX_TOKENS
from edgedraft.cli import options
from edgedraft.cli.render import PIPE_WIDTH, err_console, out_console, print_json, print_table, table
from edgedraft.errors import EdgedraftError, InvalidRequestError

if TYPE_CHECKING:
    from edgedraft.bench.caption_live import LiveCaption

NO_SWEEPS = "none"
Live = Annotated[
    int,
    typer.Option(
        "--live",
        metavar="N",
        min=0,
        help="N clips also in real time, over sockets; 0: none. Takes about as long as 4 N captions of the edge: "
        "at 100 ms a token some two minutes for 4.",
    ),
]
EXAMPLES = options.examples(
    "edgedraft bench caption data/test --dev data/dev --out runs/captions",
    "edgedraft bench caption data/test --out runs/few --limit 20 --sweeps none --live 0",
    "edgedraft bench report runs/captions --open",
)


def caption(
    dataset: Annotated[
        Path, typer.Argument(metavar="DATASET", help="A folder of recordings with captions.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where results and report go.")] = Path("captions"),
    dev: Annotated[
        Path | None, typer.Option("--dev", metavar="DATASET", help="Where thresholds are tuned; never on DATASET.")
    ] = None,
    language: Annotated[str | None, typer.Option("--lang", metavar="en|zh", help="Only this language.")] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="At most so many recordings of each language.")
    ] = None,
    draft: Annotated[str, typer.Option("--draft", metavar="SPEC", help="The edge's captioner.")] = DEFAULT_DRAFT,
    target: Annotated[str, typer.Option("--target", metavar="SPEC", help="The cloud's captioner.")] = DEFAULT_TARGET,
    arms: Annotated[
        list[str] | None,
        typer.Option("--arm", metavar="NAME", help="Only this arm, beside the two ends and exact; may be repeated."),
    ] = None,
    sweeps: Annotated[
        str, typer.Option("--sweeps", metavar="A,B", help=f"Which of {', '.join(SweepName)}; or {NO_SWEEPS}.")
    ] = ",".join(SweepName),
    threshold_nats: Annotated[
        float | None, typer.Option("--gamma", metavar="NATS", help="Entropy threshold of arm ugsd, in place of tuning.")
    ] = None,
    thresholds: Annotated[
        list[str] | None,
        typer.Option("--threshold", metavar="ARM=X", help="The same of any arm that has one; may be repeated."),
    ] = None,
    share: Annotated[
        float, typer.Option("--share", help="Of the edge's own tokens, what untuned thresholds doubt.")
    ] = FALLBACK_SHARE,
    edge_step_ms: Annotated[
        float, typer.Option("--edge-step-ms", min=0, help="What a draft token takes; 0: what it takes here.")
    ] = 1e3 * DEFAULT_EDGE_STEP_S,
    rtt_ms: Annotated[float, typer.Option("--rtt-ms", min=0, help="The link's round trip.")] = 1e3 * DEFAULT_RTT_S,
    bandwidth: Annotated[
        float | None, typer.Option("--bandwidth", metavar="KB", min=0.1, help="kB/s either way; default: unlimited.")
    ] = None,
    live: Live = DEFAULT_LIVE_CLIPS,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run that DIR holds.")] = False,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", metavar="N", help="Most tokens of a caption.")
    ] = DEFAULT_MAX_TOKENS,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of chance, intervals and links.")] = 0,
    as_json: options.Json = False,
) -> None:
    """Caption a dataset by every arm; write DIR/results.json, DIR/clips.jsonl and DIR/report.html.

    A run that was cut keeps what it has found, and --resume goes on with it; --live may be another then.

    Ends with exit code 1 where judging everything does not give the target's own captions, token for token.
    """
    plan = CaptionPlan(
        draft=draft,
        target=target,
        arms=arms,
        sweeps=() if sweeps == NO_SWEEPS else [name.strip() for name in sweeps.split(",")],
        thresholds=_thresholds(threshold_nats, thresholds or []),
        share=share,
        max_tokens=max_tokens,
        edge_step_s=edge_step_ms / 1e3 or None,
        rtt_s=rtt_ms / 1e3,
        bytes_per_s=None if bandwidth is None else 1e3 * bandwidth,
        num_live=live,
        seed=seed,
        command=shlex.join(["edgedraft", *sys.argv[1:]]),
    )
    test = load_dataset(dataset, language, limit)
    tuning = None if dev is None else load_dataset(dev, language, limit)
    results = _run(plan, test, tuning, out, resume, _quiet if as_json else _say)
    _print(results, out, as_json=as_json)
    if not results.exact.holds:
        raise typer.Exit(1)


def _thresholds(threshold_nats: float | None, pairs: Sequence[str]) -> Mapping[str, float]:
    found = {} if threshold_nats is None else {UGSD: threshold_nats}
    for pair in pairs:
        name, _, value = pair.rpartition("=")  # names of arms may hold the sign
        try:
            found[name] = float(value)
        except ValueError:
            raise InvalidRequestError(
                f"threshold is '{pair}'; legal: ARM=NUMBER.", field="threshold", remedy="Such as --threshold ugsd=0.7."
            ) from None
    return found


def _run(
    plan: CaptionPlan, test: Dataset, dev: Dataset | None, out: Path, resume: bool, say: Progress
) -> CaptionResults:
    """Run, write, and only then measure live: results and report are there whatever happens then."""
    from edgedraft.bench.caption_report import write_caption_report

    with report_style():  # a library that is missing, or an out that cannot be written, is known beforehand
        pass
    with exclusively(out), _told_where_cut():
        steps = KeptSteps(out, resume=resume)
        results, clips = run_caption_bench(test, dev, plan, say, steps)
        write_results(out, results, clips)
        if plan.num_live and len(test.items) >= MIN_LIVE_CLIPS:
            measure = partial(_live, results, clips, test, plan.num_live, say)
            try:
                run = steps.once(f"live, {plan.num_live} clips", LiveRun, measure)
            except EdgedraftError as error:
                write_caption_report(out)
                error.remedy = f"{error.remedy} {_WITHOUT_LIVE.format(out)}".strip()
                raise
            results = msgspec.structs.replace(results, live=[run])
            write_results(out, results)
        write_caption_report(out)
    return results


@contextlib.contextmanager
def _told_where_cut() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        _say("what was found is kept: go on with the same command and --resume")
        raise


_WITHOUT_LIVE = "All but the live part is in {}; --resume tries that again, with --live 0 it is left out."


def _live(
    results: CaptionResults, clips: Sequence[ClipRecord], test: Dataset, num_clips: int, say: Progress
) -> LiveRun:
    from edgedraft.bench.caption_live import live_plan, measure_live
    from edgedraft.bench.caption_live_figures import live_run

    plan = live_plan(results, test, num_clips)

    def on_caption(done: int, total: int, caption: LiveCaption) -> None:
        say(f"live [{done}/{total}] {caption.arm}, {caption.clip}: {1e3 * caption.total_s:.0f} ms")

    return live_run(plan, measure_live(plan, on_caption), clips)


def _say(text: str) -> None:
    err_console().print(text, style="dim")


def _quiet(text: str) -> None:
    """With --json nothing is said but errors."""


# -- what is printed ---------------------------------------------------------------------------------------------------


def _print(results: CaptionResults, out: Path, *, as_json: bool) -> None:
    from edgedraft.bench.caption_report import exactness
    from edgedraft.bench.caption_tables import caption_tables, live_tables, quality_table

    if as_json:
        tables = [each.to_dict() for each in caption_tables(results)]
        print_json({"out": str(out), "exact": results.exact.holds, "notes": list(results.notes), "tables": tables})
        return
    width = out_console().width if out_console().is_terminal else PIPE_WIDTH
    for made in [quality_table(results, each, width=width) for each in sorted(results.manifest.num_clips)]:
        _print_table(made)
    for made in live_tables(results, width=width):
        _print_table(made)
        out_console().print(made.note)
    style = "green" if results.exact.holds else "bold red"
    for line in (Text(exactness(results), style), *map(Text, results.notes)):
        out_console().print(line)
    out_console().print(f"Results and report in {out}; see it with: edgedraft bench report {out} --open")


def _print_table(made: Table) -> None:
    print_table(table(made.title, made.columns, ([shown(entry) for entry in row] for row in made.rows)))
