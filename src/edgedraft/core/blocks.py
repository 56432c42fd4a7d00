"""The blocks of a gated draft: what is drafted, what of it needs a verdict, how long the next one is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgedraft.core.block_length import BlockLengths, BlockOutcome
from edgedraft.core.draft_tail import DraftTail
from edgedraft.core.gating import Gating
from edgedraft.types import DraftToken


@dataclass(slots=True)
class Block:
    """`num_tokens` tokens from position `start` on. `lengths`: the controller that it began with.

    `judged`: positions that still need a verdict, ascending; None as long as it is being drafted. `asked_s`: when the
    verdict that is out was asked for. `num_judged`: how many needed one at first.
    """

    start: int
    lengths: BlockLengths
    num_tokens: int = 0
    judged: Sequence[int] | None = None
    asked_s: float | None = None
    num_judged: int = 0

    @property
    def end(self) -> int:
        return self.start + self.num_tokens

    @property
    def asked(self) -> bool:
        return self.asked_s is not None

    @property
    def waits(self) -> bool:
        return bool(self.judged)


class BlockTail:
    """Blocks after the committed text, the oldest first; the last one may be incomplete.

    `next_lengths`: the controller for the next block, under the assumption that all that is drafted is kept. Blocks
    hold positions; their tokens are those of `tail`, the first of which stands at the committed length.
    """

    def __init__(self, gating: Gating, tail: DraftTail) -> None:
        self.blocks: list[Block] = []
        self.next_lengths = gating.lengths
        self._gating = gating
        self._tail = tail

    @property
    def is_between_blocks(self) -> bool:
        """Whether the next draft token begins a block."""
        return not self.blocks or self.blocks[-1].judged is not None

    @property
    def num_ahead(self) -> int:
        """Tokens drafted past the oldest block that waits for a verdict."""
        return sum(block.num_tokens for block in self.blocks[1:])

    @property
    def num_left(self) -> int:
        """How many tokens the block that is being drafted, or would be next, has still room for."""
        if self.is_between_blocks:
            return self.next_lengths.tokens
        return self.blocks[-1].lengths.tokens - self.blocks[-1].num_tokens

    def add(self, token: DraftToken, position: int, log: Sequence[int], *, ends: bool) -> None:
        """A further token. `log`: the committed text. `ends`: nothing can follow it, so it ends its block."""
        if self.is_between_blocks:
            self.blocks.append(Block(position, self.next_lengths))
        self._tail.tokens.append(token)
        block = self.blocks[-1]
        block.num_tokens += 1
        if ends or block.num_tokens == block.lengths.tokens:
            self.complete(log)

    def complete(self, log: Sequence[int]) -> None:
        """The newest block is whole: judge it, and move the controller on as if it were kept."""
        block = self.blocks[-1]
        first = block.start - len(log)
        before = [*log, *(token.token_id for token in self._tail.tokens[: max(0, first)])]
        block.judged = self._gating.judged(self._tail.tokens[first : first + block.num_tokens], block.start, before)
        block.num_judged = len(block.judged)
        self.next_lengths = block.lengths.after(BlockOutcome.ACCEPTED if block.judged else BlockOutcome.LOCAL)

    def settle(self, length: int) -> None:
        """A verdict has brought the text to `length`: what stands before that needs none any more."""
        for block in self.blocks:
            if block.asked and block.judged is not None:
                block.judged = [position for position in block.judged if position >= length]
                block.asked_s = block.asked_s if block.waits else None

    def correct(self) -> Block:
        """The cloud changed the oldest block: it ends there, and all behind it is void. The block, as it was."""
        block = self.blocks[0]
        self.blocks.clear()
        self.next_lengths = block.lengths.after(BlockOutcome.CORRECTED)
        return block
