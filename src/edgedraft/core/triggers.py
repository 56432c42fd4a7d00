"""Rules that decide to ask for a verdict; one class each, pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgedraft.types import DraftToken


@dataclass(frozen=True, slots=True)
class FixedLength:
    """Fires after `num_draft_tokens` tokens."""

    num_draft_tokens: int

    def fires(self, pending: Sequence[DraftToken]) -> bool:
        return len(pending) >= self.num_draft_tokens

    def num_before_firing(self, pending: Sequence[DraftToken]) -> int:
        return max(1, self.num_draft_tokens - len(pending))
