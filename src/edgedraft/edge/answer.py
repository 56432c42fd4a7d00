"""What a request gives back: pieces while it runs, one answer at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgedraft.metrics.records import RequestRecord
from edgedraft.types import CommittedToken, Exactness, FinishReason, Usage


@dataclass(frozen=True, slots=True)
class Piece:
    """What became final at once. `text` never splits a character, so it may lag behind `tokens`, or be empty.

    The texts of all pieces, joined, are the answer's text; their tokens, joined, are the answer's tokens.
    """

    text: str
    tokens: Sequence[CommittedToken]

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A finished request.

    `text` ends before the stop string that ended it and never holds an end-of-sequence token. `token_ids` and `tokens`
    go up to the end: the end-of-sequence id, or the token that completed the stop string, is their last. `seed` is the
    one used, drawn here where the request had none. `notices`: what the user should know, in words. `accounting`: the
    derived figures of `record`; `exactness_note` says what `exact` depends on. `logprobs`: where asked for, one for
    each of `token_ids`; None for a token that the draft model wrote alone because the cloud was out of reach.
    """

    text: str
    token_ids: Sequence[int]
    tokens: Sequence[CommittedToken]
    finish_reason: FinishReason
    usage: Usage
    strategy: str
    exact: Exactness
    exactness_note: str
    seed: int
    notices: Sequence[str]
    accounting: Mapping[str, Any]
    record: RequestRecord = field(repr=False)
    logprobs: Sequence[float | None] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON, always in this order; `logprobs`, last, only where it was asked for."""
        values = {
            "text": self.text,
            "token_ids": list(self.token_ids),
            "finish_reason": str(self.finish_reason),
            "usage": dict(self.usage.to_dict()),
            "strategy": self.strategy,
            "exact": str(self.exact),
            "accounting": dict(self.accounting),
            "exactness_note": self.exactness_note,
            "seed": self.seed,
            "notices": list(self.notices),
        }
        return values if self.logprobs is None else {**values, "logprobs": list(self.logprobs)}
