"""How long the next block is: a small state machine (UGSD, section on dynamic block length)."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from edgedraft.errors import InvalidRequestError

MAX_BLOCK_TOKENS = 32


class BlockOutcome(enum.StrEnum):
    """What became of a block: committed without asking, kept whole by the cloud, or changed by it."""

    LOCAL = "local"
    ACCEPTED = "accepted"
    CORRECTED = "corrected"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLengths:
    """The controller between two blocks: `tokens` is the length of the next one.

    It starts at `base`. A corrected block makes it `least`; `long_after` blocks in a row that were kept make it `most`
    until the next correction; in between it is `base`. `counts_local`: whether a block that was committed without
    asking counts as kept (our reading of the paper, which does not say). `streak`: blocks kept since the last
    correction, as far as they count. `least == base == most` gives blocks of a fixed length.
    """

    least: int = 3
    base: int = 5
    most: int = 7
    long_after: int = 2
    counts_local: bool = True
    streak: int = 0
    corrected: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.base <= self.most <= MAX_BLOCK_TOKENS:
            raise InvalidRequestError(
                f"block lengths are {self.least}, {self.base}, {self.most}; legal: rising, 1 to {MAX_BLOCK_TOKENS}.",
                field="block_length",
            )
        if self.long_after < 1:
            raise InvalidRequestError(f"long_after is {self.long_after}; legal: 1 or more.", field="long_after")

    @classmethod
    def fixed(cls, tokens: int) -> BlockLengths:
        return cls(least=tokens, base=tokens, most=tokens)

    @property
    def tokens(self) -> int:
        if self.corrected:
            return self.least
        return self.most if self.streak >= self.long_after else self.base

    def after(self, outcome: BlockOutcome) -> BlockLengths:
        """The controller after a block with that outcome."""
        if outcome is BlockOutcome.CORRECTED:
            return replace(self, streak=0, corrected=True)
        counts = outcome is BlockOutcome.ACCEPTED or self.counts_local
        return replace(self, streak=min(self.streak + counts, self.long_after), corrected=False)
