"""Whether to draft on while a verdict is out, or to wait for it: what is drafted behind a correction is lost."""

from __future__ import annotations

import math

PRIOR_CORRECTIONS, PRIOR_VERDICTS = 1, 3
"""What is believed before the first verdict: one in three corrects something."""
NEWEST_SHARE = 0.3
LATE = 1.5
"""A verdict that takes so many times as long as expected is not waited for any more."""


class VerdictWait:
    """Learns from one request how long verdicts and draft steps take, and how often a verdict corrects.

    With an answer due in r, steps of s and corrections of probability p, waiting loses r where the draft is kept, and
    drafting on loses the rest of the step that is under way where it is not: it pays to wait while
    (1 - p) r < p (s ceil(r / s) - r), that is r < p s ceil(r / s).
    """

    def __init__(self) -> None:
        self._reply_s: float | None = None
        self._step_s: float | None = None
        self._num_verdicts = 0
        self._num_corrections = 0

    def drafted(self, step_s: float) -> None:
        self._step_s = _moved(self._step_s, step_s)

    def answered(self, after_s: float, *, corrected: bool) -> None:
        """A verdict came `after_s` seconds after it was asked for."""
        # The first one also waits for the session to open, so a quicker one says more than the mean.
        self._reply_s = after_s if after_s < (self._reply_s or 0.0) else _moved(self._reply_s, after_s)
        self._num_verdicts += 1
        self._num_corrections += corrected

    def until_s(self, asked_s: float, now_s: float, rtt_s: float) -> float | None:
        """Until when to wait at the most for the verdict asked for at `asked_s`; None: draft on.

        `rtt_s`: of the link, for the time before the first verdict.
        """
        reply_s = rtt_s if self._reply_s is None else self._reply_s
        if not self._step_s or not reply_s:
            return None
        due_s = asked_s + reply_s - now_s
        latest_s = asked_s + LATE * reply_s
        if now_s >= latest_s:
            return None
        corrected = (self._num_corrections + PRIOR_CORRECTIONS) / (self._num_verdicts + PRIOR_VERDICTS)
        left_s = due_s if due_s > 0 else latest_s - now_s
        pays = left_s < corrected * self._step_s * math.ceil(left_s / self._step_s)
        return latest_s if pays else None


def _moved(mean_s: float | None, newest_s: float) -> float:
    return newest_s if mean_s is None else mean_s + NEWEST_SHARE * (newest_s - mean_s)
