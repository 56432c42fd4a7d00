"""Which draft tokens are too uncertain to commit without the cloud. Pure: told everything, keeps nothing."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from edgedraft.core.noise import keyed_uniform
from edgedraft.errors import InvalidRequestError
from edgedraft.types import DraftToken

PURPOSE_GATE = b"gate"


class Gate(Protocol):
    """Judges tokens one by one; the block they stand in is escalated where any of them is doubted."""

    def doubts(self, token: DraftToken, position: int) -> bool:
        """Whether `token`, drafted for `position`, should not be committed without a verdict."""


class Measure(enum.StrEnum):
    """How uncertainty is measured.

    `entropy`: nats, of the raw distribution (UGSD). `max-probability`: of the drafted token. `margin`: natural log of
    the ratio of the two highest probabilities. `log-probability`: natural log, of the drafted token.
    """

    ENTROPY = "entropy"
    MAX_PROBABILITY = "max-probability"
    MARGIN = "margin"
    LOG_PROBABILITY = "log-probability"

    @property
    def rises(self) -> bool:
        """Whether more of it means more doubt."""
        return self is Measure.ENTROPY

    def of(self, token: DraftToken) -> float:
        match self:
            case Measure.ENTROPY:
                return token.entropy
            case Measure.MAX_PROBABILITY:
                return token.confidence
            case Measure.MARGIN:
                return _log(token.confidence) - _log(token.second_confidence)
            case Measure.LOG_PROBABILITY:
                return _log(token.confidence)


def _log(probability: float) -> float:
    return math.log(probability) if probability > 0.0 else -math.inf


@dataclass(frozen=True, slots=True)
class Threshold:
    """Doubts a token whose measure is strictly beyond `threshold`: above it for entropy, below it for the others."""

    measure: Measure
    threshold: float

    def __post_init__(self) -> None:
        if math.isnan(self.threshold):
            raise InvalidRequestError(f"threshold is {self.threshold}; legal: a number.", field="threshold")

    def doubts(self, token: DraftToken, position: int) -> bool:
        value = self.measure.of(token)
        return value > self.threshold if self.measure.rises else value < self.threshold


@dataclass(frozen=True, slots=True)
class Everything:
    """Doubts every token: with rank 1 the answer is the target's own, token for token."""

    def doubts(self, token: DraftToken, position: int) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Nothing:
    """Doubts no token: nothing leaves the device."""

    def doubts(self, token: DraftToken, position: int) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Chance:
    """Doubts a `share` of all tokens by chance: what a gate has to be better than. The same for a seed and position."""

    share: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise InvalidRequestError(f"share is {self.share}; legal: 0 to 1.", field="share")

    def doubts(self, token: DraftToken, position: int) -> bool:
        return keyed_uniform(self.seed, 0, position, PURPOSE_GATE) < self.share


class SendUnit(enum.StrEnum):
    """Which tokens of a doubted block are judged: all, those from the first doubted one on, or the doubted ones."""

    BLOCK = "block"
    FROM_FIRST = "from-first"
    TOKENS = "tokens"

    def judged(self, doubted: Sequence[int], num_tokens: int) -> Sequence[int]:
        """Offsets up for judgement in a block of `num_tokens`; `doubted` are some of its offsets, ascending."""
        match self:
            case SendUnit.BLOCK:
                return range(num_tokens)
            case SendUnit.FROM_FIRST:
                return range(doubted[0], num_tokens)
            case SendUnit.TOKENS:
                return doubted
