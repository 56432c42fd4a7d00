"""What an edge session counts, and what it has to say about it."""

from __future__ import annotations

from edgedraft.core.edge_rounds import RoundClock
from edgedraft.core.events import Notice
from edgedraft.metrics.records import Counters
from edgedraft.protocol.messages import Commit

MISFIT_JUDGED_TOKENS = 40
MISFIT_ACCEPTANCE_RATE = 0.1
"""Below this share of that many judged tokens a draft is called a misfit."""


class EdgeAccount:
    """`counters` are the request's raw counts; `clock` keeps its rounds."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.clock = RoundClock()
        self._warned = False

    def count(self, message: Commit, now_s: float, *, was_asked: bool) -> None:
        """A commit that carries new ids. `was_asked`: a verdict was out."""
        counters = self.counters
        counters.num_judged += message.num_judged
        counters.num_accepted += message.num_accepted
        counters.num_rounds += was_asked
        counters.num_target_passes += 1
        self.clock.close(message, now_s)

    def misfit_notice(self) -> list[Notice]:
        """Never silently slow: say it once where hardly any draft token is accepted."""
        judged, accepted = self.counters.num_judged, self.counters.num_accepted
        if self._warned or judged < MISFIT_JUDGED_TOKENS or accepted >= MISFIT_ACCEPTANCE_RATE * judged:
            return []
        self._warned = True
        return [
            Notice(
                f"The target accepted {accepted} of {judged} draft tokens: this draft does not suit it. "
                "Use another one, or the strategy 'cloud-only'."
            )
        ]
