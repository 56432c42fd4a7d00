"""What a simulated request did when: for figures and for energy. All times count from the start of the request."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Lane(enum.StrEnum):
    """Who was busy: the draft model, the link up, the target, the link down."""

    DRAFT = "draft"
    UPLOAD = "upload"
    VERIFY = "verify"
    DOWNLOAD = "download"


@dataclass(frozen=True, slots=True)
class Span:
    """One piece of work. `num_tokens`: draft tokens in it, or committed ids on the way down."""

    lane: Lane
    start_s: float
    end_s: float
    num_tokens: int


@dataclass(frozen=True, slots=True)
class TargetPass:
    """The target at work for a request: a pass, or a piece of its prompt (`num_prefill_tokens`).

    `num_sessions` shared it; `num_draft_tokens` are those of this request.
    """

    start_s: float
    end_s: float
    num_sessions: int = 1
    num_draft_tokens: int = 0
    num_prefill_tokens: int = 0

    @property
    def share_s(self) -> float:
        """This request's part of the time."""
        return (self.end_s - self.start_s) / self.num_sessions


@dataclass(slots=True)
class Timeline:
    """Filled while the request runs. `started_s`: in the world's time. `spans`: None where they are not kept.

    A pass that a request leaves behind still ends, so `passes` may grow after its answer is there.
    """

    started_s: float
    spans: list[Span] | None = None
    passes: list[TargetPass] = field(default_factory=list)

    def add(self, lane: Lane, start_s: float, end_s: float, num_tokens: int) -> None:
        """Note a piece of work, told in the world's time."""
        if self.spans is not None:
            self.spans.append(Span(lane, start_s - self.started_s, end_s - self.started_s, num_tokens))

    def add_pass(self, start_s: float, end_s: float, num_sessions: int, num_draft_tokens: int) -> None:
        """Note a target pass, told in the world's time."""
        zero_s = self.started_s
        self.passes.append(TargetPass(start_s - zero_s, end_s - zero_s, num_sessions, num_draft_tokens))
        self.add(Lane.VERIFY, start_s, end_s, num_draft_tokens)

    def add_prefill(self, start_s: float, end_s: float, num_tokens: int) -> None:
        """Note a piece of the prompt that the target has taken in, told in the world's time."""
        zero_s = self.started_s
        self.passes.append(TargetPass(start_s - zero_s, end_s - zero_s, num_prefill_tokens=num_tokens))
