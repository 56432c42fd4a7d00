"""Times of the present round, from the edge's clock and the cloud's own differences."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from edgedraft.metrics.records import RoundRecord
from edgedraft.protocol.messages import Commit, Timings

NO_TIMINGS = Timings(0, 0, 0, 0, 0)


@dataclass(slots=True)
class _Question:
    """A verdict that was asked for: when, on how many tokens, and how long its message took to leave."""

    asked_s: float
    num_drafted: int
    upload_s: float = 0.0


class RoundClock:
    """Builds one `RoundRecord` per commit that carries ids. A round starts where the one before ended."""

    def __init__(self) -> None:
        self.records: list[RoundRecord] = []
        self._started_s = 0.0
        self._questions: deque[_Question] = deque()

    def start(self, now_s: float) -> None:
        self._started_s = now_s

    def asked(self, now_s: float, *, num_drafted: int) -> None:
        self._questions.append(_Question(now_s, num_drafted))

    def uploaded(self, upload_s: float) -> None:
        if self._questions:
            self._questions[-1].upload_s = upload_s

    def forget(self) -> None:
        """No answer is waited for any more."""
        self._questions.clear()

    def close(self, message: Commit, now_s: float) -> None:
        """End the round with the verdict. The five parts are cut so that they add up to the round exactly."""
        question = self._questions.popleft() if self._questions else None
        round_s = now_s - self._started_s
        draft_s = 0.0 if question is None else min(max(0.0, question.asked_s - self._started_s), round_s)
        left_s = round_s - draft_s
        upload_s = min(question.upload_s if question else 0.0, left_s)
        left_s -= upload_s
        timings = message.timings or NO_TIMINGS
        verify_s = min(timings.verify_us * 1e-6, left_s)
        left_s -= verify_s
        queue_s = min(timings.queue_us * 1e-6, left_s)
        self.records.append(
            RoundRecord(
                round_id=len(self.records),
                started_s=self._started_s,
                round_s=round_s,
                draft_s=draft_s,
                upload_s=upload_s,
                queue_s=queue_s,
                verify_s=verify_s,
                network_s=left_s - queue_s,
                # An eager cloud judges unasked, and more than what was asked for.
                num_drafted=max(question.num_drafted if question else 0, message.num_judged),
                num_accepted=message.num_accepted,
                num_committed=len(message.token_ids),
            )
        )
        self._started_s = now_s
