"""Times of the present round, from the edge's clock and the cloud's own differences."""

from __future__ import annotations

from edgedraft.metrics.records import RoundRecord
from edgedraft.protocol.messages import Commit, Timings


class RoundClock:
    """Builds one `RoundRecord` per commit that carries ids. A round starts where the one before ended."""

    def __init__(self) -> None:
        self.records: list[RoundRecord] = []
        self._started_s = 0.0
        self._asked_s: float | None = None
        self._upload_s = 0.0
        self._num_drafted = 0

    def start(self, now_s: float) -> None:
        self._started_s = now_s

    def asked(self, now_s: float, *, num_drafted: int) -> None:
        self._asked_s = now_s
        self._num_drafted = num_drafted

    def uploaded(self, upload_s: float) -> None:
        self._upload_s = upload_s

    def close(self, message: Commit, now_s: float) -> None:
        """End the round with the verdict. The five parts are cut so that they add up to the round exactly."""
        round_s = now_s - self._started_s
        draft_s = 0.0 if self._asked_s is None else min(max(0.0, self._asked_s - self._started_s), round_s)
        left_s = round_s - draft_s
        upload_s = min(self._upload_s, left_s)
        left_s -= upload_s
        timings = message.timings or Timings(0, 0, 0)
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
                num_drafted=max(self._num_drafted, message.num_judged),  # an eager cloud judges unasked
                num_accepted=message.num_accepted,
                num_committed=len(message.token_ids),
            )
        )
        self._started_s = now_s
        self._asked_s = None
        self._upload_s = 0.0
        self._num_drafted = 0
