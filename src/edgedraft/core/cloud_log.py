"""The cloud's copy of one request's text: prompt and committed ids, and how much of them the target holds."""

from __future__ import annotations

from collections.abc import Sequence

from edgedraft.core.sequence import cut_at_end
from edgedraft.errors import GapError, MalformedFrameError
from edgedraft.protocol.fingerprint import committed_hash
from edgedraft.protocol.messages import Open, Resume
from edgedraft.types import Owner


class CloudLog:
    """Grows at its end only, except that an edge may take back ids of a log that it owns itself.

    `request`: what opened it. `ids`: prompt first. `target_length`: how many of them the target has been given; a pass
    gives it the rest, which always includes the last id of a log that has changed: it has a row to choose from then.
    Log-probabilities, where asked for, are kept of the ids that came after the opening ones.
    """

    def __init__(self, request: Open, eos_ids: frozenset[int]) -> None:
        self.request = request
        self.ids: list[int] = []
        self.target_length = 0
        self.prompt_length = request.num_prompt
        self.max_length = request.max_length
        self.edge_owns = request.owner is Owner.EDGE
        self.stop_ids: frozenset[int] = frozenset()
        if not self.edge_owns:
            self.stop_ids = frozenset(request.stop_ids) | (frozenset() if request.ignore_eos else eos_ids)
        self._opened_length = request.num_prompt + request.num_committed
        self._logprobs: list[float] = []

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def ended(self) -> bool:
        """Whether the text is complete: a stop id was written or the budget is used up. Its owner decides."""
        if self.edge_owns:
            return False
        written = len(self.ids) > self.prompt_length
        return len(self.ids) >= self.max_length or (written and self.ids[-1] in self.stop_ids)

    @property
    def is_complete(self) -> bool:
        """Whether all that the session is opened with has come."""
        return self.target_length >= self._opened_length

    def take_piece(self, token_ids: Sequence[int]) -> bool:
        """A piece of the text that the session is opened with; whether it was the last.

        The target is given all of it at once. Raises `MalformedFrameError` for more ids than were announced.
        """
        self.ids.extend(token_ids)
        if len(self.ids) > self._opened_length:
            raise MalformedFrameError(f"Open announced {self._opened_length} ids; {len(self.ids)} came.")
        if len(self.ids) < self._opened_length:
            return False
        self.target_length = self._opened_length
        return True

    def holds(self, resume: Resume) -> bool:
        """Whether the text starts with what the edge holds, and the rest can be sent with all that it asked for."""
        length = resume.committed_length
        least = self._opened_length if self.request.logprobs else self.prompt_length
        return least <= length <= len(self.ids) and committed_hash(self.ids[:length]) == resume.committed_hash

    def append_verdict(
        self, verdict: Sequence[int], num_accepted: int, logprobs: Sequence[float] | None = None
    ) -> list[int]:
        """Commit what of a verdict belongs to the text: accepted draft ids, which the target has seen, then its own."""
        start = len(self.ids)
        kept, _ = cut_at_end(verdict, length=start, max_length=self.max_length, stop_ids=self.stop_ids)
        self.ids.extend(kept)
        if logprobs is not None:
            self._logprobs.extend(logprobs[: len(kept)])
        self.target_length = min(start + num_accepted, len(self.ids) - 1)
        return kept

    def logprobs(self, position: int, num_ids: int) -> list[float] | None:
        """Those of `num_ids` ids from `position` on; None where the edge asked for none."""
        if not self.request.logprobs:
            return None
        start = position - self._opened_length
        return self._logprobs[start : start + num_ids]

    def truncate(self, length: int) -> bool:
        """Take back what the edge, which owns the text, has rolled back; whether the target has to begin again.

        So it has where the prompt alone is left: its last row is gone. Raises `GapError` where ids are missing.
        """
        if length > len(self.ids):
            raise GapError(f"Draft.position is {length}; expected {len(self.ids)}.", expected=len(self.ids))
        if length == len(self.ids):
            return False
        del self.ids[length:]
        begins_again = length == self.prompt_length
        self.target_length = length if begins_again else min(self.target_length, length - 1)
        return begins_again
