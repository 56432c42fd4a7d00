"""Options that several commands share, each with its one name, help text and meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgedraft.config import DEFAULT_URL, read_environment
from edgedraft.edge.client import DEFAULT_DRAFT
from edgedraft.edge.request import DEFAULT_MAX_TOKENS
from edgedraft.schedule.catalogue import STRATEGY_NAMES
from edgedraft.types import OnLinkLoss

__all__ = ["DEFAULT_DRAFT", "DEFAULT_MAX_TOKENS"]

NO_DRAFT = "none"
MODELS, CLOUD, SAMPLING = "Models", "Cloud", "Sampling"
CAPTION_TARGET_FORMS = "captioner:cloud, captioner:PATH.npz, qwen-omni:PATH"
TARGET_FORMS = "demo:target, llamacpp:PATH.gguf, hub:ORG/NAME/FILE.gguf, transformers:PATH, replay:TRACE, toy:seed=N"
DRAFT_FORMS = "demo:draft, llamacpp:PATH.gguf, hub:ORG/NAME/FILE.gguf, lookup, transformers:PATH, replay:TRACE, toy:..."


def examples(*lines: str) -> str:
    """An epilog with one example a line."""
    return "\n\n".join(("Examples:", *lines))


Draft = Annotated[
    str,
    typer.Option(
        "--draft",
        metavar="SPEC",
        help=f"Draft model: {DRAFT_FORMS}; '{NO_DRAFT}' for no draft.",
        rich_help_panel=MODELS,
    ),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        metavar="SPEC",
        help="Whose tokenizer to use; default: the draft's, else demo:target.",
        rich_help_panel=MODELS,
    ),
]
DraftThreads = Annotated[
    int | None,
    typer.Option(
        "--draft-threads",
        metavar="N",
        min=1,
        help="Threads of the draft's engine; default: half of the processors.",
        rich_help_panel=MODELS,
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help=f"Where the cloud is; default: EDGEDRAFT_URL, else {DEFAULT_URL}.",
        rich_help_panel=CLOUD,
    ),
]
Token = Annotated[
    str | None,
    typer.Option("--token", help="Access token; default: EDGEDRAFT_TOKEN.", rich_help_panel=CLOUD),
]
TlsCa = Annotated[
    Path | None,
    typer.Option(
        "--tls-ca", metavar="FILE", help="Certificate authority to trust for wss:// (PEM).", rich_help_panel=CLOUD
    ),
]
OnLoss = Annotated[
    OnLinkLoss,
    typer.Option(
        "--on-link-loss", help="When the link is lost: wait for it, go on locally, or fail.", rich_help_panel=CLOUD
    ),
]
StrategyName = Annotated[
    str | None,
    typer.Option(
        "--strategy", metavar="NAME", help=f"{', '.join(STRATEGY_NAMES)}; default: auto, cloud-only without a draft."
    ),
]
Objective = Annotated[
    str,
    typer.Option(
        "--objective",
        metavar="WHAT",
        help="What strategies auto and flow save: latency, cost (target passes), or the seconds a saved pass is worth.",
    ),
]
DraftLength = Annotated[
    int | None, typer.Option("--draft-length", metavar="N", help="Draft tokens per round (strategy vanilla).")
]
MaxTokens = Annotated[int, typer.Option("--max-tokens", metavar="N", help="Most tokens of the answer.")]
Temperature = Annotated[
    float,
    typer.Option("--temperature", help="0 is greedy.", rich_help_panel=SAMPLING),
]
TopP = Annotated[float, typer.Option("--top-p", help="1 is off.", rich_help_panel=SAMPLING)]
TopK = Annotated[int, typer.Option("--top-k", help="0 is off.", rich_help_panel=SAMPLING)]
MinP = Annotated[float, typer.Option("--min-p", help="0 is off.", rich_help_panel=SAMPLING)]
Seed = Annotated[
    int | None,
    typer.Option("--seed", help="Same seed, same text; default: drawn and reported.", rich_help_panel=SAMPLING),
]
Stop = Annotated[
    list[str] | None, typer.Option("--stop", metavar="TEXT", help="End the answer before this text; may be repeated.")
]
System = Annotated[str | None, typer.Option("--system", metavar="TEXT", help="System message.")]
ShowTokens = Annotated[
    bool,
    typer.Option("--show-tokens", help="Colour accepted, recovered, bonus, cloud and local tokens; legend on stderr."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else.")]


def objective_value(objective: str) -> str | float:
    """A number where it is one; else the name, which the request judges."""
    try:
        return float(objective)
    except ValueError:
        return objective


def url_or_default(url: str | None) -> str:
    """The flag, else the environment, else the default."""
    return url or read_environment().url or DEFAULT_URL


def token_or_default(token: str | None) -> str | None:
    """The flag, else the environment."""
    return token or read_environment().token
