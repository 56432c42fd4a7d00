"""Upload policies that know the link. A question for a verdict takes every unsent token along (PipeSD, Rule 1)."""

from __future__ import annotations

from dataclasses import dataclass

from edgedraft.core.strategy import UploadState
from edgedraft.errors import InvalidRequestError
from edgedraft.schedule.link import LinkCost


@dataclass(frozen=True, slots=True)
class UploadPlanned:
    """Messages of planned sizes, again from the first when the plan is through (PipeSD section 3.2).

    `sizes`: tokens per message, as `plan_batches` returns them. A message leaves once it is full; where several are,
    the policy has to be asked again.
    """

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1:
            raise InvalidRequestError(
                f"sizes is {self.sizes}; legal: at least one size, each 1 or more.", field="sizes"
            )

    def num_to_send(self, state: UploadState) -> int:
        size = self.sizes[state.num_messages % len(self.sizes)]
        return size if state.num_unsent >= size else 0

    def wait_s(self, state: UploadState) -> float | None:
        return None


@dataclass(frozen=True, slots=True)
class UploadWhenFree:
    """Everything unsent, once the message before has left the link by the estimate `cost` ("greedy")."""

    cost: LinkCost

    def num_to_send(self, state: UploadState) -> int:
        return state.num_unsent if self._busy_s(state) <= 0.0 else 0

    def wait_s(self, state: UploadState) -> float | None:
        """Seconds until the link is free; None where there is nothing to send."""
        return max(0.0, self._busy_s(state)) if state.num_unsent > 0 else None

    def _busy_s(self, state: UploadState) -> float:
        return self.cost.message_s(state.last_message_tokens) - state.since_last_s
