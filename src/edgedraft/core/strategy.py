"""A strategy is data: a trigger, an upload policy, an acceptance rule and numbers. Ablations are other data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from edgedraft.core.gating import Gating
from edgedraft.core.hedging import Hedging
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

    def after_verdict(self, judged: Sequence[DraftToken], num_accepted: int) -> Trigger:
        """The trigger after a verdict on `judged`, of which `num_accepted` were right; itself unless it adapts."""


@dataclass(frozen=True, slots=True)
class UploadState:
    """What an upload policy is told.

    `num_unsent`: draft tokens that have not left. `num_messages`: messages with draft tokens that have left since a
    verdict was last asked for; a plan starts at 0. `last_message_tokens`, `since_last_s`: what the newest message
    carried and how long ago it left; 0 and infinity before the first.
    """

    num_unsent: int
    num_messages: int = 0
    last_message_tokens: int = 0
    since_last_s: float = math.inf


class UploadPolicy(Protocol):
    """Decides how many unsent draft tokens leave now, when no verdict is asked for (then all leave). Pure."""

    def num_to_send(self, state: UploadState) -> int: ...

    def wait_s(self, state: UploadState) -> float | None:
        """Where nothing leaves now: how long until it would without another token; None where only tokens help."""


@dataclass(frozen=True, slots=True)
class UploadWhole:
    """Nothing leaves before the verdict is asked for."""

    def num_to_send(self, state: UploadState) -> int:
        return 0

    def wait_s(self, state: UploadState) -> float | None:
        return None


@dataclass(frozen=True, slots=True)
class UploadImmediately:
    """Every token leaves as soon as it is drafted."""

    def num_to_send(self, state: UploadState) -> int:
        return state.num_unsent

    def wait_s(self, state: UploadState) -> float | None:
        return None


DEFAULT_DRAFT_LENGTH_TOKENS = 5
DEFAULT_TRIGGER: Trigger = FixedLength(DEFAULT_DRAFT_LENGTH_TOKENS)
NOTHING_EARLY: UploadPolicy = UploadWhole()


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """How one request is decoded.

    `uses_draft`, `uses_cloud`: who takes part. `draft_ahead_tokens`: how many tokens may be drafted past the one a
    verdict is out for. `max_verdicts_out`: how many verdicts may be asked for before the first is there; nothing is
    drafted past the second. `max_in_flight_tokens`: unjudged ids at which a verdict is asked for in any case.
    `eager`: the cloud verifies what has arrived unasked. `assist`: when the target writes by itself. `hedging`: how the
    draft's other choices are put to use; None not to. `gating`: what the edge commits by itself, in a log that it then
    owns (rule *rank*); None where the cloud has the last word on all of it.
    """

    name: str
    uses_draft: bool = True
    uses_cloud: bool = True
    trigger: Trigger = DEFAULT_TRIGGER
    upload: UploadPolicy = NOTHING_EARLY
    draft_ahead_tokens: int = 0
    max_verdicts_out: int = 1
    max_in_flight_tokens: int = 32
    rule: Rule = Rule.MATCH
    rank: int = 1
    assist: Assist = Assist.NONE
    eager: bool = False
    hedging: Hedging | None = None
    gating: Gating | None = None

    def __post_init__(self) -> None:
        check_rule(self.rule, self.assist, eager=self.eager)
        if self.hedging is not None and not self.eager:
            raise UnsupportedError(
                "hedging is set, which needs a cloud that verifies unasked (eager).", field="hedging"
            )
        self._check_gating()
        for field, least in (("draft_ahead_tokens", 0), ("max_verdicts_out", 1), ("max_in_flight_tokens", 1)):
            if getattr(self, field) < least:
                raise InvalidRequestError(f"{field} is {getattr(self, field)}; legal: {least} or more.", field=field)
        if not self.uses_draft and not self.uses_cloud:
            raise InvalidRequestError("strategy uses neither draft nor cloud.", field="strategy")

    def _check_gating(self) -> None:
        if (self.gating is not None) is not (self.rule is Rule.RANK):
            raise UnsupportedError(
                f"rule is '{self.rule}' {'with' if self.gating else 'without'} gating; it goes with rule 'rank' only.",
                field="rule",
            )
        if self.gating is None:
            return
        if not self.uses_draft or not self.uses_cloud or self.eager or self.assist is not Assist.NONE:
            raise UnsupportedError(
                "gating is set, which needs a draft and a cloud that waits to be asked.", field="gating"
            )
        if self.gating.bonus and self.draft_ahead_tokens:
            raise UnsupportedError(
                "bonus is set together with draft_ahead_tokens: what is drafted ahead would start one token too early.",
                field="bonus",
                remedy="Set draft_ahead_tokens to 0.",
            )
        if self.rank < 1:
            raise InvalidRequestError(f"rank is {self.rank}; legal: 1 or more.", field="rank")

    @property
    def terms(self) -> tuple[Assist, bool]:
        """What of it the cloud is told when a session opens, and holds to until it is opened anew."""
        return self.assist, self.eager

    def check_follows(self, before: Strategy) -> None:
        """Raises `InvalidRequestError` where a running request cannot go on with this in place of `before`."""
        if (self.rule, self.rank, self.uses_cloud) != (before.rule, before.rank, before.uses_cloud):
            raise InvalidRequestError(
                f"rule is '{self.rule}', rank {self.rank}; a request keeps what it began with ('{before.rule}').",
                field="strategy",
            )


def check_rule(rule: Rule, assist: Assist, *, eager: bool) -> None:
    """Raises `UnsupportedError` where the target could draw before it is settled which ids rule *ratio* tests."""
    if rule is Rule.RATIO and (assist is not Assist.NONE or eager):
        raise UnsupportedError(
            "rule is 'ratio' together with assist or eager verification, which changes the distribution.",
            field="rule",
            remedy="Use rule 'match', or set assist to 'none' and eager to false.",
        )
