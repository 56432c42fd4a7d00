"""What drafting a token and verifying a draft take, learnt from the newest samples. Stalls hardly move them."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

DRAFT_SAMPLES = 50
VERIFY_SAMPLES = 100
STALL_FACTOR = 5.0


class DraftTimeMonitor:
    """Mean of the last `num_samples` draft steps; a step longer than five medians counts as five."""

    def __init__(self, num_samples: int = DRAFT_SAMPLES) -> None:
        self.num_dropped = 0
        self._steps_s: deque[float] = deque(maxlen=num_samples)

    def add(self, draft_s: float) -> None:
        """One whole token step: evaluation, sampling and bookkeeping. One that took no time was not measured."""
        if not 0.0 < draft_s < math.inf:  # which no NaN fulfils
            self.num_dropped += 1
            return
        self._steps_s.append(draft_s)

    @property
    def num_samples(self) -> int:
        return len(self._steps_s)

    @property
    def draft_s(self) -> float | None:
        """Seconds for one draft token; None before the first."""
        if not self._steps_s:
            return None
        longest_s = STALL_FACTOR * median(self._steps_s)
        return fmean(min(step_s, longest_s) for step_s in self._steps_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyEstimate:
    """A target pass takes `step_s + per_draft_s * n` seconds where it judges n draft tokens.

    `per_draft_s` is 0 while all passes seen were equally long.
    """

    step_s: float
    per_draft_s: float
    num_samples: int

    def pass_s(self, num_draft_tokens: int) -> float:
        return self.step_s + self.per_draft_s * num_draft_tokens


class VerifyMonitor:
    """A line through the last `num_samples` passes: the median of the slopes of all pairs (Theil 1950, Sen 1968)."""

    def __init__(self, num_samples: int = VERIFY_SAMPLES) -> None:
        self.num_dropped = 0
        self._passes: deque[tuple[int, float]] = deque(maxlen=num_samples)

    def add(self, num_draft_tokens: int, verify_s: float) -> None:
        """One pass, its wait for the worker not counted."""
        if num_draft_tokens < 0 or not 0.0 < verify_s < math.inf:
            self.num_dropped += 1
            return
        self._passes.append((num_draft_tokens, verify_s))

    @property
    def estimate(self) -> VerifyEstimate | None:
        """None before the first pass. Takes some 100 microseconds: ask after a change, not after every token."""
        if not self._passes:
            return None
        tokens, seconds = np.array(self._passes, np.float64).T
        first, second = np.triu_indices(len(tokens), 1)
        apart = tokens[second] - tokens[first]
        slopes = (seconds[second] - seconds[first])[apart != 0.0] / apart[apart != 0.0]
        per_draft_s = max(0.0, float(np.median(slopes))) if len(slopes) else 0.0
        step_s = max(0.0, float(np.median(seconds - per_draft_s * tokens)))
        return VerifyEstimate(step_s=step_s, per_draft_s=per_draft_s, num_samples=len(tokens))
