"""`edgedraft caption calibrate`: the threshold at which a wished share of the draft is verified, for one model."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from edgedraft.backends.listening import open_caption_tokenizer
from edgedraft.bench.cloud_process import cloud_process
from edgedraft.caption.audio import load
from edgedraft.caption.calibrating import RANKS, RankTrade, draft_chain, listening_model, rank_trade
from edgedraft.caption.calibration import DEFAULT_SHARE, Calibration, Chain, calibrate
from edgedraft.caption.calibration_file import CalibrationFile
from edgedraft.caption.captioner import DEFAULT_DRAFT, AsyncCaptioner
from edgedraft.caption.dataset import Dataset, DatasetItem, load_dataset, of_each
from edgedraft.caption.gate_choice import GATED, GateChoice
from edgedraft.caption.request import DEFAULT_MAX_TOKENS, CaptionRequest
from edgedraft.cli import caption_flags, options
from edgedraft.cli.render import err_console, out_console, print_json, print_table, progress_bar, table
from edgedraft.config import EdgeConfig, read_environment
from edgedraft.errors import InvalidRequestError, UnsupportedError
from edgedraft.types import ModelInfo

DEFAULT_TRADE_CLIPS = 20

DatasetPath = Annotated[
    Path, typer.Argument(metavar="DATASET", help="Folder of recordings with a captions file, or that file.")
]
Share = Annotated[
    float, typer.Option("--share", metavar="X", help="Share of the drafted tokens that is to be verified, 0 to 1.")
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="SPEC",
        help=f"Start a cloud with this model, and show what ranks cost and give: {options.CAPTION_TARGET_FORMS}.",
        rich_help_panel=options.MODELS,
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="A cloud that runs, for the same purpose.", rich_help_panel=options.CLOUD
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", help="Only the first N recordings a language.")]
TradeClips = Annotated[
    int, typer.Option("--trade-clips", metavar="N", min=1, help="Recordings a language that ranks are tried on.")
]
Lang = Annotated[
    str | None, typer.Option("--lang", metavar="en|zh", help="Only this language; default: one threshold for all.")
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Save there; default: where `edgedraft caption` looks.")
]
Note = Annotated[str, typer.Option("--note", metavar="TEXT", help="Kept with the calibration.")]


def calibrate_command(
    dataset: DatasetPath,
    share: Share = DEFAULT_SHARE,
    strategy: caption_flags.StrategyName = None,
    measure: caption_flags.MeasureName = None,
    block: caption_flags.BlockText = None,
    count_local: caption_flags.CountLocal = True,
    unit: caption_flags.UnitName = None,
    draft: caption_flags.Draft = DEFAULT_DRAFT,
    target: Target = None,
    url: Url = None,
    token: options.Token = None,
    tls_ca: options.TlsCa = None,
    lang: Lang = None,
    limit: Limit = None,
    trade_clips: TradeClips = DEFAULT_TRADE_CLIPS,
    max_tokens: caption_flags.MaxTokens = DEFAULT_MAX_TOKENS,
    out: Out = None,
    note: Note = "",
    as_json: options.Json = False,
) -> None:
    """Set the threshold of the gate by what the draft itself shows on recordings, and save it for this draft.

    It is the one at which the wished share of what the draft writes alone needs a verdict. With --target or --url also
    shows what ranks cost and give: how much is verified, kept and corrected, and BLEU-1 against the references.
    """
    choice = caption_flags.gate_choice(
        strategy=strategy, measure=measure, block=block, count_local=count_local, unit=unit
    )
    _check(choice, share, target, url)
    CaptionRequest(max_tokens=max_tokens)
    items = load_dataset(dataset, lang, limit)
    info, chains = _chains(draft, items, max_tokens)
    wanted = choice.gate_rank(info.num_ids)
    found = calibrate(chains, choice, share, draft=info.identity, rank=wanted, language=lang or "", note=note)
    file = CalibrationFile(out) if out is not None else CalibrationFile.of_user(read_environment().cache_dir)
    file.put(found)
    trades: Sequence[RankTrade] = ()
    if not as_json:
        _show(found, file)
    if target is not None or url is not None:
        few = load_dataset(dataset, lang, min(trade_clips, limit or trade_clips))
        with _cloud(target, url) as address:
            captioner = AsyncCaptioner(address, draft=draft, token=token, tls_ca=tls_ca)
            trades, verifier = _trades(captioner, few, choice, found.threshold, max_tokens)
        found = msgspec.structs.replace(found, target=verifier)
        file.put(found)
    if as_json:
        print_json(_as_dict(found, file, trades))
    elif trades:
        _show_trades(trades)


def _check(choice: GateChoice, share: float, target: str | None, url: str | None) -> None:
    if not choice.is_gated:
        raise UnsupportedError(
            f"strategy '{choice.strategy}' has no threshold.", field="strategy", remedy=f"Use {' or '.join(GATED)}."
        )
    if not 0.0 < share < 1.0:
        raise InvalidRequestError(f"share is {share:g}; legal: above 0, below 1.", field="share")
    if target is not None and url is not None:
        raise InvalidRequestError("target and url are both given; legal: one of them.", field="target")
    if url is not None:
        EdgeConfig(url=url)
    if target is not None:
        open_caption_tokenizer(target)


def _chains(spec: str, dataset: Dataset, max_tokens: int) -> tuple[ModelInfo, list[Chain]]:
    """The draft, and what it writes alone for each recording."""
    with listening_model(spec) as (draft, tokenizer), progress_bar(in_bytes=False) as progress:
        task = progress.add_task("drafting", total=len(dataset.items))

        def chain(item: DatasetItem) -> Chain:
            progress.advance(task)
            return draft_chain(draft, tokenizer, load(item.path), item.language, max_tokens)

        return draft.info, of_each(dataset, chain)


@contextlib.contextmanager
def _cloud(target: str | None, url: str | None) -> Iterator[str]:
    if target is None:
        yield url or ""
        return
    with cloud_process(target, ("--threads", "1")) as process:
        yield process.url


def _trades(
    captioner: AsyncCaptioner, dataset: Dataset, choice: GateChoice, threshold: float, max_tokens: int
) -> tuple[list[RankTrade], str]:
    """What ranks cost and give, and the name of the target that verified; empty where nothing was asked."""

    async def run() -> tuple[list[RankTrade], str]:
        async with captioner:
            trades = await rank_trade(
                captioner,
                dataset.items,
                choice,
                threshold,
                max_tokens=max_tokens,
                done=lambda: progress.advance(task),
            )
            return trades, "" if captioner.welcome is None else captioner.welcome.model

    with progress_bar(in_bytes=False) as progress:
        task = progress.add_task("ranks", total=len(RANKS) * len(dataset.items))
        return asyncio.run(run())


def _as_dict(found: Calibration, file: CalibrationFile, trades: Sequence[RankTrade]) -> dict[str, Any]:
    return {"saved_in": str(file.path), **msgspec.to_builtins(found), "ranks": [asdict(trade) for trade in trades]}


def _show(found: Calibration, file: CalibrationFile) -> None:
    key = found.key
    rows = [(f"{100 * row.wished:g} %", f"{row.threshold:.4g}", f"{100 * row.share:.1f} %") for row in found.table]
    print_table(table("Shares and thresholds", ("wished", "threshold", "verified"), rows))
    out_console().print(f"{key.draft}, {key.strategy}: {key.measure}, blocks of {key.block}, unit {key.unit}")
    out_console().print(f"gamma is {found.threshold:.4g} for {100 * found.share:.1f} % verified")
    err_console().print(
        f"{found.num_tokens} tokens of {found.num_clips} recordings, the draft alone; saved in {file.path}", style="dim"
    )


def _show_trades(trades: Sequence[RankTrade]) -> None:
    languages = list(trades[0].bleu_1)
    columns = ("rank", "verified", "kept", "corrections", "cloud calls", *(f"BLEU-1 {name}" for name in languages))
    rows = [
        (
            str(trade.rank),
            _percent(trade.verified_share),
            _percent(trade.accepted_share),
            f"{trade.corrections_per_caption:.2f}",
            f"{trade.cloud_calls_per_caption:.2f}",
            *(f"{trade.bleu_1[name]:.1f}" for name in languages),
        )
        for trade in trades
    ]
    print_table(table("What ranks cost and give, a caption", columns, rows))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def register(app: typer.Typer) -> None:
    app.command(
        "calibrate",
        epilog=options.examples(
            "edgedraft caption calibrate dev --share 0.15",
            "edgedraft caption calibrate dev --strategy ugsd --target captioner:cloud",
            "edgedraft caption calibrate dev --lang zh --out calibration.json --json",
        ),
    )(calibrate_command)
