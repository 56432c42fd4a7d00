"""A strategy is data: a trigger, an upload policy, an acceptance rule and numbers. Ablations are other data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from edgedraft.core.triggers import FixedLength
from edgedraft.errors import InvalidRequestError, UnsupportedError
from edgedraft.types import Assist, DraftToken, Rule


class Trigger(Protocol):
    """Decides, after each drafted token, whether to ask for a verdict. Pure: told everything, keeps nothing."""

    def fires(self, pending: Sequence[DraftToken]) -> bool:
        """`pending`: tokens drafted since the last verdict was asked for, the newest last; never empty."""

    def num_before_firing(self, pending: Sequence[DraftToken]) -> int:
        """How many more tokens there will be at the least when it fires; 1 where any token may do it.

        So many are drafted in a row, without asking in between. `pending` may be empty.
        """


class UploadPolicy(Protocol):
    """Decides how many unsent draft tokens leave now, when no verdict is asked for (then all leave)."""

    def num_to_send(self, num_unsent: int) -> int: ...


@dataclass(frozen=True, slots=True)
class UploadWhole:
    """Nothing leaves before the verdict is asked for."""

    def num_to_send(self, num_unsent: int) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class UploadImmediately:
    """Every token leaves as soon as it is drafted."""

    def num_to_send(self, num_unsent: int) -> int:
        return num_unsent


DEFAULT_DRAFT_LENGTH_TOKENS = 5
DEFAULT_TRIGGER: Trigger = FixedLength(DEFAULT_DRAFT_LENGTH_TOKENS)
NOTHING_EARLY: UploadPolicy = UploadWhole()


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """How one request is decoded.

    `uses_draft`, `uses_cloud`: who takes part. `draft_ahead_tokens`: how many tokens may be drafted past the one a
    verdict is out for. `max_in_flight_tokens`: sent and unjudged ids at which a verdict is asked for in any case.
    `eager`: the cloud verifies what has arrived unasked. `assist`: when the target writes by itself.
    """

    name: str
    uses_draft: bool = True
    uses_cloud: bool = True
    trigger: Trigger = DEFAULT_TRIGGER
    upload: UploadPolicy = NOTHING_EARLY
    draft_ahead_tokens: int = 0
    max_in_flight_tokens: int = 32
    rule: Rule = Rule.MATCH
    rank: int = 1
    assist: Assist = Assist.NONE
    eager: bool = False

    def __post_init__(self) -> None:
        check_rule(self.rule, self.assist, eager=self.eager)
        if not self.uses_draft and not self.uses_cloud:
            raise InvalidRequestError("strategy uses neither draft nor cloud.", field="strategy")


def check_rule(rule: Rule, assist: Assist, *, eager: bool) -> None:
    """Raises `UnsupportedError` where the target could draw before it is settled which ids rule *ratio* tests."""
    if rule is Rule.RATIO and (assist is not Assist.NONE or eager):
        raise UnsupportedError(
            "rule is 'ratio' together with assist or eager verification, which changes the distribution.",
            field="rule",
            remedy="Use rule 'match', or set assist to 'none' and eager to false.",
        )


def vanilla(draft_length_tokens: int = DEFAULT_DRAFT_LENGTH_TOKENS) -> Strategy:
    """Draft a fixed number of tokens, send them whole, wait (Leviathan et al. 2023, over a link)."""
    if draft_length_tokens < 1:
        raise InvalidRequestError(
            f"draft_length is {draft_length_tokens}; legal: 1 or more.",
            field="draft_length",
            remedy="Use the strategy 'cloud-only' to draft nothing.",
        )
    return Strategy(
        name="vanilla", trigger=FixedLength(draft_length_tokens), max_in_flight_tokens=max(32, draft_length_tokens)
    )


def cloud_only() -> Strategy:
    """No draft: the cloud appends its own tokens and streams them."""
    return Strategy(name="cloud-only", uses_draft=False, assist=Assist.ALWAYS)


def edge_only() -> Strategy:
    """No cloud: the draft model's own text, labelled lossy."""
    return Strategy(name="edge-only", uses_cloud=False)


STRATEGY_NAMES = ("vanilla", "cloud-only", "edge-only")


def strategy_named(name: str, *, draft_length_tokens: int | None = None) -> Strategy:
    """The strategy of that name. Raises `InvalidRequestError` with the names there are."""
    if name == "vanilla":
        return vanilla(DEFAULT_DRAFT_LENGTH_TOKENS if draft_length_tokens is None else draft_length_tokens)
    if draft_length_tokens is not None:
        raise InvalidRequestError(
            f"draft_length is {draft_length_tokens}, but strategy '{name}' has no draft length.", field="draft_length"
        )
    if name == "cloud-only":
        return cloud_only()
    if name == "edge-only":
        return edge_only()
    raise InvalidRequestError(f"strategy is '{name}'; there are: {', '.join(STRATEGY_NAMES)}.", field="strategy")
