"""The named strategies, as data. Ablations are the same functions with other numbers."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from edgedraft.core.hedging import Hedging
from edgedraft.core.strategy import (
    DEFAULT_DRAFT_LENGTH_TOKENS,
    Strategy,
    Trigger,
    UploadImmediately,
    UploadPolicy,
    UploadWhole,
)
from edgedraft.core.triggers import (
    AdaptiveSequenceConfidence,
    DualThreshold,
    FixedLength,
    Never,
    TokenConfidence,
)
from edgedraft.errors import InvalidRequestError
from edgedraft.schedule.link import LinkCost
from edgedraft.schedule.upload_plan import plan_batches
from edgedraft.schedule.uploads import UploadPlanned, UploadWhenFree
from edgedraft.schedule.window import FIRST_WINDOW_TOKENS
from edgedraft.types import Assist, Rule

FREE_LINK = LinkCost(startup_s=0.0, per_token_s=2e-6)
"""What is assumed of a link that has not been measured: a few bytes at some megabytes a second."""
DEFAULT_DRAFT_S = 0.036
HEDGING = Hedging()
MAX_IN_FLIGHT_TOKENS = 64
MAX_DRAFT_LENGTH = 256
AHEAD_TOKENS = 64
"""No bound of its own: the trigger and the in-flight cap end a draft-ahead before."""


def vanilla(draft_length: int = DEFAULT_DRAFT_LENGTH_TOKENS, *, rule: Rule = Rule.MATCH) -> Strategy:
    """Draft a fixed number of tokens, send them whole, wait (Leviathan et al. 2023, over a link)."""
    if not isinstance(draft_length, int) or isinstance(draft_length, bool) or not 1 <= draft_length <= MAX_DRAFT_LENGTH:
        raise InvalidRequestError(
            f"draft_length is {draft_length}; legal: 1 to {MAX_DRAFT_LENGTH}.",
            field="draft_length",
            remedy="Use the strategy 'cloud-only' to draft nothing.",
        )
    return Strategy(
        name="vanilla", trigger=FixedLength(draft_length), max_in_flight_tokens=max(32, draft_length), rule=rule
    )


def hsl(*, token_threshold: float = 0.9) -> Strategy:
    """Draft until a token's confidence is low, send the draft whole, wait."""
    return Strategy(name="hsl", trigger=TokenConfidence(token_threshold), max_in_flight_tokens=MAX_IN_FLIGHT_TOKENS)


def edgellm(*, sequence_threshold: float = 0.5, factor: float = 0.5) -> Strategy:
    """Draft until the sequence confidence is below an adaptive threshold; draft on while waiting, sending nothing."""
    return Strategy(
        name="edgellm",
        trigger=AdaptiveSequenceConfidence(sequence_threshold, factor=factor),
        draft_ahead_tokens=AHEAD_TOKENS,
        max_in_flight_tokens=MAX_IN_FLIGHT_TOKENS,
    )


def pipesd(
    *,
    token_threshold: float = 0.5,
    sequence_threshold: float = 0.3,
    cost: LinkCost = FREE_LINK,
    draft_s: float = DEFAULT_DRAFT_S,
    window_tokens: int = FIRST_WINDOW_TOKENS,
    trigger: Trigger | None = None,
    upload: UploadPolicy | None = None,
    draft_ahead_tokens: int = AHEAD_TOKENS,
    name: str = "pipesd",
) -> Strategy:
    """PipeSD: dual threshold, uploads planned by dynamic programming, one level of look-ahead.

    `cost`, `draft_s`, `window_tokens`: what the first plan reckons with, until the edge has measured its own.
    `trigger`, `upload`: instead of the paper's, for ablations.
    """
    return Strategy(
        name=name,
        trigger=trigger or DualThreshold(token_threshold=token_threshold, sequence_threshold=sequence_threshold),
        upload=upload or UploadPlanned(plan_batches(window_tokens, cost, draft_s)),
        draft_ahead_tokens=draft_ahead_tokens,
        max_verdicts_out=2,
        max_in_flight_tokens=MAX_IN_FLIGHT_TOKENS,
    )


def flow(
    *, assist: Assist | str = Assist.ALWAYS, cost: LinkCost = FREE_LINK, hedging: Hedging | None = HEDGING
) -> Strategy:
    """Ours: tokens leave as soon as the link is free, the cloud verifies what is there, and writes on by itself.

    `assist`: when it does so: `none`, `bubble` (after a mismatch) or `always` (whenever nothing valid is there).
    """
    return Strategy(
        name="flow",
        trigger=Never(),
        upload=UploadWhenFree(cost),
        draft_ahead_tokens=AHEAD_TOKENS,
        max_in_flight_tokens=MAX_IN_FLIGHT_TOKENS,
        assist=_assist(assist),
        eager=True,
        hedging=hedging,
    )


def _assist(value: Assist | str) -> Assist:
    try:
        return Assist(value)
    except ValueError:
        raise InvalidRequestError(f"assist is '{value}'; legal: {', '.join(Assist)}.", field="assist") from None


def auto() -> Strategy:
    """Begins as `flow` and goes on as what is measured to be best: `flow`, `pipesd` or without drafts."""
    return dataclasses.replace(flow(), name="auto")


def cloud_only() -> Strategy:
    """No draft: the cloud appends its own tokens and streams them."""
    return Strategy(name="cloud-only", uses_draft=False, assist=Assist.ALWAYS)


def edge_only() -> Strategy:
    """No cloud: the draft model's own text, labelled lossy."""
    return Strategy(name="edge-only", uses_cloud=False)


# -- ablations of PipeSD (its table 6 and appendix F) ----------------------------------------------------------------


def no_pipeline(*, token_threshold: float = 0.5, sequence_threshold: float = 0.3) -> Strategy:
    """The dual threshold alone: the draft is sent whole and the edge waits."""
    trigger = DualThreshold(token_threshold=token_threshold, sequence_threshold=sequence_threshold)
    return Strategy(name="pipesd/no-pipeline", trigger=trigger, max_in_flight_tokens=MAX_IN_FLIGHT_TOKENS)


def pipeline_fixed(*, draft_length: int = 6, **plan: Any) -> Strategy:
    """The pipeline with a fixed draft length."""
    return pipesd(name="pipesd/fixed", trigger=FixedLength(draft_length), **plan)


def pipeline_token(*, token_threshold: float = 0.99, **plan: Any) -> Strategy:
    """The pipeline with the token threshold alone."""
    return pipesd(name="pipesd/token", trigger=TokenConfidence(token_threshold), **plan)


def pipeline_sequence(*, sequence_threshold: float = 0.95, factor: float = 0.97, **plan: Any) -> Strategy:
    """The pipeline with an adaptive sequence threshold alone."""
    trigger = AdaptiveSequenceConfidence(sequence_threshold, factor=factor)
    return pipesd(name="pipesd/sequence", trigger=trigger, **plan)


def upload_immediate(**numbers: Any) -> Strategy:
    """PipeSD with a message for each token."""
    return pipesd(name="pipesd/immediate", upload=UploadImmediately(), **numbers)


def upload_whole(**numbers: Any) -> Strategy:
    """PipeSD without early uploads."""
    return pipesd(name="pipesd/whole", upload=UploadWhole(), **numbers)


def upload_greedy(*, cost: LinkCost = FREE_LINK, **numbers: Any) -> Strategy:
    """PipeSD that sends all it has whenever the link is free."""
    return pipesd(name="pipesd/greedy", upload=UploadWhenFree(cost), cost=cost, **numbers)


Factory = Callable[..., Strategy]

STRATEGIES: Mapping[str, Factory] = MappingProxyType(
    {
        "auto": auto,
        "vanilla": vanilla,
        "hsl": hsl,
        "edgellm": edgellm,
        "pipesd": pipesd,
        "flow": flow,
        "cloud-only": cloud_only,
        "edge-only": edge_only,
    }
)
"""What a request may name."""
ABLATIONS: Mapping[str, Factory] = MappingProxyType(
    {
        "pipesd/no-pipeline": no_pipeline,
        "pipesd/fixed": pipeline_fixed,
        "pipesd/token": pipeline_token,
        "pipesd/sequence": pipeline_sequence,
        "pipesd/immediate": upload_immediate,
        "pipesd/whole": upload_whole,
        "pipesd/greedy": upload_greedy,
    }
)
"""What a bench may name besides."""
STRATEGY_NAMES = tuple(STRATEGIES)


def strategy_named(name: str, **numbers: Any) -> Strategy:
    """The strategy, or ablation, of that name with other numbers than its own.

    Raises `InvalidRequestError` with the names there are, and for a number that the strategy does not have.
    """
    factory = STRATEGIES.get(name) or ABLATIONS.get(name)
    if factory is None:
        raise InvalidRequestError(f"strategy is '{name}'; there are: {', '.join(STRATEGY_NAMES)}.", field="strategy")
    parameters = inspect.signature(factory).parameters.values()
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        known = {parameter.name for parameter in parameters}
        for number in numbers:
            if number not in known:
                raise InvalidRequestError(
                    f"{number} is {numbers[number]}, but strategy '{name}' has no {number.replace('_', ' ')}.",
                    field=number,
                    remedy=f"It has: {', '.join(sorted(known))}." if known else "It has no numbers.",
                )
    return factory(**numbers)
