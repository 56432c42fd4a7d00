"""How far the draft may go before a verdict has to be asked for."""

from __future__ import annotations

from edgedraft.core.draft_tail import DraftTail
from edgedraft.core.edge_settings import EdgeSessionSettings
from edgedraft.core.strategy import Strategy

MAX_RUN_TOKENS = 16
"""An edge that works alone drafts so many in a row, so that it hears of a cancel soon."""


class DraftReach:
    """The bounds of one request: the token budget, the in-flight cap, the draft's context, the end of the text.

    `length` is always the committed length, prompt included; `tail` follows it.
    """

    def __init__(self, settings: EdgeSessionSettings) -> None:
        self._end_ids = settings.end_ids
        self._max_length = len(settings.prompt_ids) + settings.max_tokens
        self._max_pending_tokens = settings.max_pending_tokens
        self._context_length = settings.draft_context_length

    def is_full(self, length: int) -> bool:
        """Whether the draft's context has no room for a token at `length`."""
        return self._context_length is not None and length >= self._context_length

    def has_room_behind_hedge(self, length: int, tail: DraftTail, strategy: Strategy) -> bool:
        """Whether the second way, on which the draft is, may get another token."""
        assert tail.hedge is not None, "the draft is on the second way"
        end = length + len(tail.line(length))
        is_short = len(tail.hedge.tokens) < self._max_tail_tokens(strategy)
        return is_short and end < self._max_length - 1 and not self.is_full(end)

    def must_ask(self, length: int, tail: DraftTail, strategy: Strategy) -> bool:
        """Rule 2: at the end of sequence, the length budget, the in-flight cap, and where nothing can be proposed."""
        end = length + len(tail)
        return (
            tail.no_proposal
            or (bool(tail.tokens) and tail.tokens[-1].token_id in self._end_ids)
            or end >= self._max_length - 1
            or len(tail) >= self._max_tail_tokens(strategy)
            or self.is_full(end)
        )

    def _max_tail_tokens(self, strategy: Strategy) -> int:
        return min(strategy.max_in_flight_tokens, self._max_pending_tokens)

    def run_length(self, length: int, tail: DraftTail, strategy: Strategy, *, ahead: bool) -> int:
        """How many tokens can be drafted in a row before anything has to be decided.

        `ahead`: a verdict is out, so that they are draft-ahead tokens.
        """
        end = length + len(tail)
        bounds = [
            strategy.trigger.num_before_firing(tail.pending(verdict_is_out=ahead)),
            self._max_length - 1 - end,
            self._max_tail_tokens(strategy) - len(tail),
        ]
        if self._context_length is not None:
            bounds.append(self._context_length - end)
        if ahead:
            bounds.append(strategy.draft_ahead_tokens - tail.num_ahead)
        return max(1, min(bounds))

    def run_length_alone(self, length: int) -> int:
        """The same for an edge that commits by itself."""
        return min(MAX_RUN_TOKENS, self._max_length - length)
