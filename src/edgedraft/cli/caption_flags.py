"""The options of `edgedraft caption`, and what they stand for."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from edgedraft.caption.excerpts import MIN_WINDOW_S
from edgedraft.caption.gate_choice import GateChoice
from edgedraft.cli import options
from edgedraft.core.block_length import MAX_BLOCK_TOKENS, BlockLengths
from edgedraft.core.forced import ForcedRule
from edgedraft.core.gate import Measure, Nothing, SendUnit, Threshold
from edgedraft.core.strategy import Strategy
from edgedraft.errors import InvalidRequestError, UnsupportedError
from edgedraft.schedule.caption_catalogue import CAPTION_STRATEGIES
from edgedraft.speech_features import (
    LOGMEL_128,
    MAX_SECONDS,
    POOLED_12,
    POOLED_25,
    PROSODY_12,
    PROSODY_25,
    FeatureDtype,
    FeatureSpec,
)
from edgedraft.types import OnLinkLoss

AUTO, DYNAMIC = "auto", "dynamic"
GATE, PRIVACY, SHOWN = "When the cloud is asked", "What may leave this device", "What is shown"
DRAFT_FORMS = "captioner:edge, captioner:PATH.npz, qwen-omni:PATH"
FEATURES = {
    "logmel": LOGMEL_128,
    "pooled-25": POOLED_25,
    "pooled-12": POOLED_12,
    "prosody-25": PROSODY_25,
    "prosody-12": PROSODY_12,
}

# Plain names: a path that typer knows it checks as well, and then one that may not be read stops all the others.
Files = Annotated[
    list[str] | None, typer.Argument(metavar="FILE", help="Recordings, of any usual kind. Stdin is not read.")
]
Mic = Annotated[
    float | None, typer.Option("--mic", metavar="SECONDS", help="Record so long from the microphone instead.")
]
Lang = Annotated[
    str | None, typer.Option("--lang", metavar="en|zh", help="Language of the captions; default: the model's first.")
]
Draft = Annotated[
    str,
    typer.Option(
        "--draft", metavar="SPEC", help=f"Model on this device: {DRAFT_FORMS}.", rich_help_panel=options.MODELS
    ),
]
OnLoss = Annotated[
    OnLinkLoss | None,
    typer.Option(
        "--on-link-loss",
        help="When the link is lost: wait for the cloud to come back, go on locally, or fail; one that never answered "
        "is not waited for. Default: local; wait where the caption is to be the cloud's own.",
        rich_help_panel=options.CLOUD,
    ),
]
StrategyName = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        metavar="NAME",
        help=f"{', '.join(CAPTION_STRATEGIES)}; default: ugsd-sparse.",
        rich_help_panel=GATE,
    ),
]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="Every token is verified: the cloud's own caption. Short for --strategy exact.",
        rich_help_panel=GATE,
    ),
]
ThresholdText = Annotated[
    str,
    typer.Option(
        "--gamma",
        metavar="auto|X",
        help="Beyond which uncertainty a token needs a verdict; auto: the calibrated one.",
        rich_help_panel=GATE,
    ),
]
MeasureName = Annotated[
    str | None,
    typer.Option(
        "--measure",
        metavar="NAME",
        help=f"Of uncertainty: {', '.join(Measure)}; default: entropy for ugsd, else max-probability.",
        rich_help_panel=GATE,
    ),
]
RankText = Annotated[
    str,
    typer.Option(
        "--rank",
        metavar="auto|R",
        help="A token is kept where the cloud ranks it among its R first; auto: 1, for ugsd 20 of 151,936 ids.",
        rich_help_panel=GATE,
    ),
]
BlockText = Annotated[
    str | None,
    typer.Option(
        "--block",
        metavar="dynamic|N",
        help="Tokens of a block; dynamic: 3, 5 or 7. Default: 1 where only doubted tokens are verified, else dynamic.",
        rich_help_panel=GATE,
    ),
]
CountLocal = Annotated[
    bool,
    typer.Option(
        "--count-local/--no-count-local",
        help="With dynamic blocks: whether those committed without asking count towards longer ones.",
        rich_help_panel=GATE,
    ),
]
UnitName = Annotated[
    str | None,
    typer.Option(
        "--unit",
        metavar="NAME",
        help=f"What of an uncertain block is verified: {', '.join(SendUnit)}; default: block for ugsd, else tokens.",
        rich_help_panel=GATE,
    ),
]
Forced = Annotated[
    str | None,
    typer.Option(
        "--forced",
        metavar="RULES",
        help=f"Blocks to verify in any case, with commas: {', '.join(ForcedRule)}, or all. Made for --strategy ugsd: "
        "where blocks are of one token, they find much more.",
        rich_help_panel=GATE,
    ),
]
Bonus = Annotated[
    bool, typer.Option("--bonus", help="Take the cloud's next token after a block it kept.", rich_help_panel=GATE)
]
DraftAhead = Annotated[
    bool | None,
    typer.Option(
        "--draft-ahead/--no-draft-ahead",
        help="Draft on while a verdict is out; default: yes, except with --bonus.",
        rich_help_panel=GATE,
    ),
]
FeatureName = Annotated[
    str,
    typer.Option(
        "--features",
        metavar="NAME",
        help=f"{', '.join(FEATURES)}; auto: what the model was made to send.",
        rich_help_panel=PRIVACY,
    ),
]
Dtype = Annotated[FeatureDtype, typer.Option("--dtype", help="How a value travels.", rich_help_panel=PRIVACY)]
MaxTokens = Annotated[int, typer.Option("--max-tokens", metavar="N", help="Most tokens of a caption.")]
WindowS = Annotated[
    float | None,
    typer.Option(
        "--window-s",
        metavar="SECONDS",
        help="Longer recordings are cut at their pauses; default: what the model takes, 12 for captioner:edge.",
    ),
]
ShowTokens = Annotated[
    bool,
    typer.Option(
        "--show-tokens", help="Colour local, accepted and corrected tokens; legend on stderr.", rich_help_panel=SHOWN
    ),
]
ShowEntropy = Annotated[
    bool,
    typer.Option("--show-entropy", help="How unsure this device was of each token, as bars.", rich_help_panel=SHOWN),
]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON object a recording on stdout, and nothing else.", rich_help_panel=SHOWN)
]


def gate_choice(
    *,
    strategy: str | None = None,
    exact: bool = False,
    threshold: str = AUTO,
    measure: str | None = None,
    rank: str = AUTO,
    block: str | None = None,
    count_local: bool = True,
    unit: str | None = None,
    forced: str | None = None,
    bonus: bool = False,
    draft_ahead: bool | None = None,
) -> GateChoice:
    """The flags as one checked value. Raises `InvalidRequestError` naming the flag."""
    if exact and strategy not in (None, "exact"):
        raise InvalidRequestError(
            f"exact is given with strategy '{strategy}'; legal: one of them.",
            field="exact",
            remedy="Leave one of them out.",
        )
    choice = GateChoice(
        strategy="exact" if exact else strategy or "ugsd-sparse",
        threshold=None if threshold == AUTO else _number("gamma", threshold),
        measure=measure,
        unit=unit,
        rank=None if rank == AUTO else _whole("rank", rank, AUTO),
        lengths=_lengths(block),
        forced=_rules(forced),
        bonus=bonus,
        draft_ahead=draft_ahead,
    )
    return choice if count_local else _counting_verdicts(choice)


def _counting_verdicts(choice: GateChoice) -> GateChoice:
    lengths = choice.block_lengths
    if not choice.is_gated:
        raise UnsupportedError(
            f"count_local is set, which strategy '{choice.strategy}' has no use for.", field="count_local"
        )
    if lengths.least == lengths.most:
        raise InvalidRequestError(
            "count_local is given for blocks of one length.", field="count_local", remedy="Use it with --block dynamic."
        )
    return dataclasses.replace(choice, lengths=dataclasses.replace(lengths, counts_local=False))


def gate_values(strategy: Strategy) -> dict[str, Any]:
    """What the flags came to, for JSON; None where the strategy has no use for one."""
    names = ("measure", "threshold", "rank", "unit", "block_tokens", "count_local", "forced", "bonus", "draft_ahead")
    values: dict[str, Any] = {"strategy": strategy.name, **dict.fromkeys(names)}
    gating = strategy.gating
    if gating is None or isinstance(gating.gate, Nothing):
        return values
    if isinstance(gating.gate, Threshold):
        values |= {"measure": gating.gate.measure, "threshold": gating.gate.threshold}
    lengths = gating.lengths
    return values | {
        "rank": strategy.rank,
        "unit": gating.unit,
        "block_tokens": sorted({lengths.least, lengths.base, lengths.most}),
        "count_local": lengths.counts_local,
        "forced": sorted(gating.forced.rules) if gating.forced is not None else [],
        "bonus": gating.bonus,
        "draft_ahead": strategy.draft_ahead_tokens > 0,
    }


def check_window(window_s: float | None, max_s: float = MAX_SECONDS) -> None:
    """Raises `InvalidRequestError` for a window below 1 s or above `max_s`: what the model takes, else any model."""
    if window_s is not None and not MIN_WINDOW_S <= window_s <= max_s:
        raise InvalidRequestError(
            f"window_s is {window_s:g}; legal: {MIN_WINDOW_S:g} to {max_s:g}, the most that the model takes.",
            field="window_s",
        )


def feature_spec(name: str) -> FeatureSpec | None:
    """The features of that name; None for auto. Raises `InvalidRequestError` for another."""
    if name != AUTO and name not in FEATURES:
        legal = ", ".join((AUTO, *FEATURES))
        raise InvalidRequestError(f"features is '{name}'; legal: {legal}.", field="features")
    return FEATURES.get(name)


def _lengths(block: str | None) -> BlockLengths | None:
    if block is None:
        return None
    if block == DYNAMIC:
        return BlockLengths()
    tokens = _whole("block", block, DYNAMIC)
    if not 1 <= tokens <= MAX_BLOCK_TOKENS:
        raise InvalidRequestError(f"block is {tokens}; legal: {DYNAMIC}, or 1 to {MAX_BLOCK_TOKENS}.", field="block")
    return BlockLengths.fixed(tokens)


def _rules(forced: str | None) -> tuple[str, ...]:
    names = tuple(name.strip() for name in (forced or "").split(",") if name.strip())
    if names == ("all",):
        return tuple(map(str, ForcedRule))
    for name in names:
        if name not in set(ForcedRule):
            raise InvalidRequestError(f"forced is '{name}'; legal: {', '.join(ForcedRule)}, or all.", field="forced")
    return names


def _number(field: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidRequestError(f"{field} is '{text}'; legal: {AUTO} or a number.", field=field) from None


def _whole(field: str, text: str, word: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidRequestError(f"{field} is '{text}'; legal: {word} or a whole number.", field=field) from None
