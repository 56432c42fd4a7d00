"""Rules that decide to ask for a verdict; one class each, pure. What adapts answers `after_verdict` with its successor.

The end of sequence, the length budget and the in-flight cap ask for a verdict whatever the trigger says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Self

from edgedraft.errors import InvalidRequestError
from edgedraft.types import DraftToken

if TYPE_CHECKING:
    from edgedraft.core.strategy import Trigger

LONGEST_RUN_TOKENS = 64
"""What `Never` answers when asked for how long it stays silent: longer than any draft in flight."""


def sequence_confidence(tokens: Sequence[DraftToken]) -> float:
    """Product of the token confidences; 1 where there is no token."""
    return math.prod([token.confidence for token in tokens])


class _Steady:
    """What holds for most triggers: any token may fire them, and no verdict changes them."""

    __slots__ = ()

    def num_before_firing(self, pending: Sequence[DraftToken]) -> int:
        return 1

    def after_verdict(self, judged: Sequence[DraftToken], num_accepted: int) -> Self:
        return self


@dataclass(frozen=True, slots=True)
class FixedLength(_Steady):
    """Fires after `num_draft_tokens` tokens."""

    num_draft_tokens: int

    def __post_init__(self) -> None:
        if self.num_draft_tokens < 1:
            raise InvalidRequestError(
                f"num_draft_tokens is {self.num_draft_tokens}; legal: 1 or more.",
                field="num_draft_tokens",
                remedy="Use the strategy 'cloud-only' to draft nothing.",
            )

    def fires(self, pending: Sequence[DraftToken]) -> bool:
        return len(pending) >= self.num_draft_tokens

    def num_before_firing(self, pending: Sequence[DraftToken]) -> int:
        return max(1, self.num_draft_tokens - len(pending))


@dataclass(frozen=True, slots=True)
class TokenConfidence(_Steady):
    """Fires when the newest token's confidence is at or below `token_threshold` (HSL; PipeSD's R2 alone)."""

    token_threshold: float

    def __post_init__(self) -> None:
        _check_threshold("token_threshold", self.token_threshold)

    def fires(self, pending: Sequence[DraftToken]) -> bool:
        return pending[-1].confidence <= self.token_threshold


@dataclass(frozen=True, slots=True)
class SequenceConfidence(_Steady):
    """Fires when the product of the pending confidences is at or below `sequence_threshold` (PipeSD's R1 alone)."""

    sequence_threshold: float

    def __post_init__(self) -> None:
        _check_threshold("sequence_threshold", self.sequence_threshold)

    def fires(self, pending: Sequence[DraftToken]) -> bool:
        return sequence_confidence(pending) <= self.sequence_threshold


@dataclass(frozen=True, slots=True)
class AdaptiveSequenceConfidence(_Steady):
    """`SequenceConfidence` whose threshold follows the verdicts (EdgeLLM; PipeSD appendix G.3, Eq. 7).

    All N judged tokens accepted: times `factor`. Otherwise: divided by C^((N - num_accepted) / N), where C is their
    sequence confidence. Kept between `floor` (ours: halving for ever would end in a trigger that never fires; never
    above `sequence_threshold`) and `cap`; at 1 or more every token fires. `adapted`: the threshold now; None before
    the first verdict.
    """

    sequence_threshold: float
    _: KW_ONLY
    factor: float = 0.5
    cap: float = 1.0
    floor: float = 1e-3
    adapted: float | None = None

    def __post_init__(self) -> None:
        _check_threshold("sequence_threshold", self.sequence_threshold)
        _check_threshold("factor", self.factor)
        if not self.sequence_threshold <= self.cap <= 2.0:
            raise InvalidRequestError(
                f"cap is {self.cap}; legal: from the threshold, {self.sequence_threshold}, to 2.", field="cap"
            )
        _check_threshold("floor", self.floor)

    @property
    def threshold_now(self) -> float:
        return self.sequence_threshold if self.adapted is None else self.adapted

    def fires(self, pending: Sequence[DraftToken]) -> bool:
        return sequence_confidence(pending) <= self.threshold_now

    def after_verdict(self, judged: Sequence[DraftToken], num_accepted: int) -> Self:
        if not judged:
            return self
        if num_accepted >= len(judged):
            adapted = self.threshold_now * self.factor
        else:
            share_rejected = (len(judged) - num_accepted) / len(judged)
            divisor = sequence_confidence(judged) ** share_rejected
            adapted = self.threshold_now / divisor if divisor > self.threshold_now / self.cap else self.cap
        floor = min(self.floor, self.sequence_threshold)
        return replace(self, adapted=min(max(adapted, floor), self.cap))


@dataclass(frozen=True, slots=True, kw_only=True)
class DualThreshold(_Steady):
    """Fires when token confidence or sequence confidence is at or below its threshold (PipeSD section 3.3).

    The token that fires belongs to the draft that is judged; the product starts anew after every question.
    """

    token_threshold: float
    sequence_threshold: float

    def __post_init__(self) -> None:
        _check_threshold("token_threshold", self.token_threshold)
        _check_threshold("sequence_threshold", self.sequence_threshold)

    def fires(self, pending: Sequence[DraftToken]) -> bool:
        newest = pending[-1].confidence
        return newest <= self.token_threshold or sequence_confidence(pending) <= self.sequence_threshold


@dataclass(frozen=True, slots=True)
class Entropy(_Steady):
    """Fires when the newest token's entropy is above `threshold_nats`."""

    threshold_nats: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.threshold_nats < math.inf:
            raise InvalidRequestError(
                f"threshold_nats is {self.threshold_nats}; legal: 0 or more, finite.", field="threshold_nats"
            )

    def fires(self, pending: Sequence[DraftToken]) -> bool:
        return pending[-1].entropy > self.threshold_nats


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Fires when any of its triggers does; each adapts by itself."""

    triggers: tuple[Trigger, ...]

    def __post_init__(self) -> None:
        if not self.triggers:
            raise InvalidRequestError(
                "triggers is empty; legal: at least one trigger.", field="triggers", remedy="Use Never()."
            )

    def fires(self, pending: Sequence[DraftToken]) -> bool:
        return any(trigger.fires(pending) for trigger in self.triggers)

    def num_before_firing(self, pending: Sequence[DraftToken]) -> int:
        return min(trigger.num_before_firing(pending) for trigger in self.triggers)

    def after_verdict(self, judged: Sequence[DraftToken], num_accepted: int) -> AnyOf:
        adapted = tuple(trigger.after_verdict(judged, num_accepted) for trigger in self.triggers)
        return self if adapted == self.triggers else AnyOf(adapted)


@dataclass(frozen=True, slots=True)
class Never(_Steady):
    """Asks for nothing by itself: the cloud verifies unasked (`flow`)."""

    def fires(self, pending: Sequence[DraftToken]) -> bool:
        return False

    def num_before_firing(self, pending: Sequence[DraftToken]) -> int:
        return LONGEST_RUN_TOKENS


def _check_threshold(field: str, value: float) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0.0 < value < 1.0:  # which no NaN fulfils
        raise InvalidRequestError(
            f"{field} is {value}; legal: above 0 and below 1.",
            field=field,
            remedy="Nearer to 1 asks more often, nearer to 0 less often.",
        )
