"""When the next commit is likely to come, and whether to wait for it rather than begin a draft step.

A draft step that has begun is not broken off. Where a commit that is due before its end will probably contradict what
the step goes on from, the edge loses less by waiting for that commit than by finishing the step first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from edgedraft.core.hedging import SURE, Hedge, second_is_right
from edgedraft.protocol.messages import Commit
from edgedraft.types import DraftToken

LEAST_SLACK_S = 2e-4
SLACK_SHARE = 0.02
"""A commit may be so much later than expected, in draft steps, before the edge gives up waiting."""
MISS_KEEPS, HIT_ADDS = 0.7, 0.1


class Expectation:
    """Learns from every token and commit of one request. Times in seconds of the edge's clock."""

    def __init__(self) -> None:
        self._draft_s = 0.0
        self._verify_s = 0.0
        self._due_s: float | None = None
        self._waits = False
        self._trust = 1.0
        self._sent: deque[tuple[float, int]] = deque(maxlen=64)

    def drafted(self, draft_s: float) -> None:
        """A step took so long."""
        self._draft_s = draft_s if self._draft_s == 0.0 else 0.8 * self._draft_s + 0.2 * draft_s

    def sent(self, now_s: float, end_position: int) -> None:
        """Draft tokens up to `end_position` have left."""
        self._sent.append((now_s, end_position))

    def committed(self, message: Commit, now_s: float) -> None:
        """The target goes on at once, so its next commit is one pass away."""
        if self._waits:
            self._waits, self._trust = False, self._trust + HIT_ADDS * (1.0 - self._trust)
        self._verify_s = 0.0 if message.timings is None else message.timings.verify_us * 1e-6
        self._due_s = now_s + self._verify_s if self._verify_s > 0 else None

    def wait_until_s(
        self, tokens: Sequence[DraftToken], hedge: Hedge | None, length: int, rtt_s: float, now_s: float
    ) -> float | None:
        """Until when to wait before the next step; None where it should begin now.

        `tokens`: the tail after `length` committed tokens. `hedge`: the second way, if the step would go on from that.
        """
        if self._due_s is None or self._draft_s == 0.0:
            return None
        slack_s = max(LEAST_SLACK_S, SLACK_SHARE * self._draft_s)
        until_s = self._due_s - now_s
        if until_s <= -slack_s:
            if self._waits:
                self._waits, self._trust = False, self._trust * MISS_KEEPS
            return None
        if until_s >= self._draft_s:
            return None
        lost = self._trust * (1.0 - self._survives(tokens, hedge, length, self._due_s - rtt_s - self._verify_s))
        if lost * (self._draft_s - until_s) <= (1.0 - lost) * (max(0.0, until_s) + slack_s):
            return None
        self._waits = True
        return self._due_s + slack_s

    def _survives(self, tokens: Sequence[DraftToken], hedge: Hedge | None, length: int, sent_by_s: float) -> float:
        """How likely the next commit, on what had been sent by then, leaves the way on which the step would be."""
        judged_end = max((end for sent_s, end in self._sent if sent_s <= sent_by_s), default=length)
        survives = 1.0
        for offset, token in enumerate(tokens[: max(1, judged_end - length)]):
            right = min(SURE, token.confidence)
            if hedge is not None and offset == hedge.position - length:
                return survives * (1.0 - right) * second_is_right(token)
            survives *= right
        return survives
