"""What the recorded models say: the draft's tokens and the target's verdicts, by position.

The draft was recorded along the target's text. After a wrong token a real draft goes on from its own text, which no
recording holds: the ids and confidences recorded for those positions stand in for these doomed tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgedraft.backends.trace import RecordedText
from edgedraft.core.events import RunPass
from edgedraft.core.sequence import common_prefix_length
from edgedraft.core.strategy import Strategy
from edgedraft.core.verify import Verdict
from edgedraft.errors import EdgedraftError
from edgedraft.protocol.messages import CommitKind
from edgedraft.types import DraftToken

PROMPT_ID = 1_000
"""Prompts were recorded by their length only; this id travels in as many bytes as most ids of a large vocabulary."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One text as both models see it; `TextModels`. `eos_ids`: which ids end a text."""

    text: RecordedText
    eos_ids: frozenset[int]
    features: None = None

    @property
    def id(self) -> str:
        return self.text.id

    @property
    def num_prompt(self) -> int:
        return self.text.num_prompt_tokens

    @property
    def prompt_ids(self) -> list[int]:
        return [PROMPT_ID] * self.num_prompt

    @property
    def max_tokens(self) -> int | None:
        """How many tokens a request may ask for at the most; None where the text was recorded to its own end."""
        return None if self.text.target_ids[-1] in self.eos_ids else self.text.num_tokens

    def draft_token(self, position: int, held: Sequence[int], took_s: float) -> DraftToken:
        """What the draft proposes at `position`; past the recorded end what it proposed last."""
        text = self.text
        index = min(position - self.num_prompt, text.num_tokens - 1)
        second_id, second_confidence = text.second(index)
        return DraftToken(
            text.draft_ids[index],
            text.draft_prob[index],
            text.draft_entropy[index],
            took_s,
            second_id=second_id,
            second_confidence=second_confidence,
        )

    def verdict(self, log: Sequence[int], command: RunPass) -> Verdict:
        """Rule *match* at temperature 0."""
        choices, draft_ids = self.text.target_ids, command.draft_ids
        start = command.position - self.num_prompt
        num_accepted = common_prefix_length(draft_ids, choices[start : start + len(draft_ids)])
        next_index = start + num_accepted
        next_id = choices[next_index] if next_index < len(choices) else choices[-1]
        if not draft_ids:
            return Verdict(0, next_id, CommitKind.OWN)
        is_whole = num_accepted == len(draft_ids)
        return Verdict(num_accepted, next_id, CommitKind.BONUS if is_whole else CommitKind.RECOVERED)

    def check(self, token_ids: Sequence[int], strategy: Strategy) -> None:
        """A verified answer is the target's own text, and one without a cloud the draft's."""
        choices = self.text.target_ids if strategy.uses_cloud else self.text.draft_ids
        if tuple(token_ids) != choices[: len(token_ids)]:
            raise EdgedraftError(f"text {self.text.id}: the simulated answer is not the recorded one.")
