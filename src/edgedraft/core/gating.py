"""How a strategy lets the edge commit by itself what it is sure of, and asks the cloud about the rest (UGSD)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgedraft.core.block_length import BlockLengths
from edgedraft.core.forced import ForcedEscalation
from edgedraft.core.gate import Gate, SendUnit
from edgedraft.errors import InvalidRequestError
from edgedraft.types import DraftToken

DEFAULT_LENGTHS = BlockLengths()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gating:
    """`gate` doubts tokens, `unit` says which of a doubted block are judged, `lengths` how long blocks are.

    `forced`: blocks to escalate in any case; None for none. `bonus`: after a block that was kept whole, take the
    target's own next token as well.
    """

    gate: Gate
    unit: SendUnit = SendUnit.BLOCK
    lengths: BlockLengths = DEFAULT_LENGTHS
    forced: ForcedEscalation | None = None
    bonus: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.unit, SendUnit):
            raise InvalidRequestError(f"unit is '{self.unit}'; legal: {', '.join(SendUnit)}.", field="unit")

    def judged(self, block: Sequence[DraftToken], start: int, before: Sequence[int]) -> list[int]:
        """Positions of `block`, which starts at `start`, that need a verdict; none: it is committed as it is.

        `before`: the ids of the answer before the block.
        """
        doubted = [offset for offset, token in enumerate(block) if self.gate.doubts(token, start + offset)]
        if self.forced is not None and self.forced.finds(block, before) is not None:
            return [start + offset for offset in range(len(block))]
        if not doubted:
            return []
        return [start + offset for offset in self.unit.judged(doubted, len(block))]
