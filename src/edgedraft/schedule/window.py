"""How many tokens ahead the uploads are planned."""

from __future__ import annotations

from collections import deque

from edgedraft.errors import InvalidRequestError

FIRST_WINDOW_TOKENS = 20
WINDOW_ROUNDS = 100


class DraftWindow:
    """Moving average of the last `num_rounds` draft lengths (PipeSD section 4); `first_tokens` before the first."""

    def __init__(self, first_tokens: int = FIRST_WINDOW_TOKENS, num_rounds: int = WINDOW_ROUNDS) -> None:
        for field, value in (("first_tokens", first_tokens), ("num_rounds", num_rounds)):
            if value < 1:
                raise InvalidRequestError(f"{field} is {value}; legal: 1 or more.", field=field)
        self._first_tokens = first_tokens
        self._lengths: deque[int] = deque(maxlen=num_rounds)

    def add(self, num_draft_tokens: int) -> None:
        """A draft of that length was judged. One without tokens, a bare question, is not counted."""
        if num_draft_tokens > 0:
            self._lengths.append(num_draft_tokens)

    @property
    def num_tokens(self) -> int:
        """The average, rounded half up; at least 1."""
        if not self._lengths:
            return self._first_tokens
        # In whole numbers: floats would round some halves down.
        return (2 * sum(self._lengths) + len(self._lengths)) // (2 * len(self._lengths))
