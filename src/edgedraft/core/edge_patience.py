"""How long an edge session waits for its cloud, and how often it tries again without getting anywhere."""

from __future__ import annotations

from edgedraft.errors import LinkLostError
from edgedraft.types import OnLinkLoss

MAX_REOPENS_WITHOUT_PROGRESS = 20
MAX_RETRIES_WHEN_SATURATED = 60
MAX_SILENCE_S = 30.0
MAX_SILENCES = 3
"""So often a cloud may be silent before a request that need not wait for it goes on, or fails."""
MAX_SILENCES_WHILE_WAITING = 8
"""The same for a request that waits: with the shortest silence, two and a half minutes."""


class Patience:
    """Times in seconds. `rtt_s`, `verify_s`: what an answer is known to take; 0 where nothing is known yet."""

    def __init__(self, least_silence_s: float) -> None:
        self.rtt_s = 0.0
        self.verify_s = 0.0
        self._least_silence_s = least_silence_s
        self._silence_s = least_silence_s
        self._num_tries = 0
        self._num_silences = 0

    @property
    def wait_s(self) -> float:
        """Rule 6: the silence after which to ask what has become of the session."""
        return max(self._silence_s, 3 * self.rtt_s + self.verify_s)

    def begin(self) -> None:
        """A session is opened: nothing has been waited for yet."""
        self._silence_s = self._least_silence_s

    def heard(self) -> None:
        """The cloud has answered something."""
        self._num_silences = 0

    def has_ended(self, on_link_loss: OnLinkLoss) -> bool:
        """Whether the cloud has been silent, question after question, for longer than the request waits."""
        limit = MAX_SILENCES_WHILE_WAITING if on_link_loss is OnLinkLoss.WAIT else MAX_SILENCES
        return self._num_silences >= limit

    def progressed(self) -> None:
        """The text has grown."""
        self._num_tries = 0
        self._num_silences = 0
        self._silence_s = self._least_silence_s

    def ran_out(self) -> None:
        """Nothing came in time: a long prefill, say, which must not be asked about at the same pace."""
        self._silence_s = min(2 * self._silence_s, MAX_SILENCE_S)
        self._num_silences += 1

    def failed(self) -> None:
        self._num_tries += 1

    @property
    def may_try_again(self) -> bool:
        return self._num_tries <= MAX_REOPENS_WITHOUT_PROGRESS

    def may_come_back(self, after_s: float) -> bool:
        """Whether to ask a cloud without room once more; if so, that is what is waited for."""
        self._silence_s = after_s
        return self._num_tries <= MAX_RETRIES_WHEN_SATURATED


def silent_cloud() -> LinkLostError:
    """What to say once patience has ended."""
    return LinkLostError(
        "The cloud can be reached, and answers nothing.",
        remedy="Look at its log and its /health page, or ask another one.",
    )
