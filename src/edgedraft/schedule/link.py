"""What a message costs on the uplink, and how that is learnt from messages and their answers."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from edgedraft.errors import InvalidRequestError
from edgedraft.schedule.link_fit import Uplink, UplinkFit, fit_uplink

WINDOW_SAMPLES = 100
ROUND_TRIP_SAMPLES = 20
REFIT_SHARE, REFIT_SAMPLES = 6, 8
"""The fit is made anew when one in so many samples is new, or so many are."""
CHANGE_SAMPLES, CHANGE_MISSES, CHANGE_SPAN_S = 8, 5, 1.5
CHANGE_SCALES, CHANGE_S = 6.0, 1e-3
"""Of the newest arrivals so many miss the fit by that much, and were sent over so long: the link has changed."""
ABSURD_S = 60.0
"""No message takes so long: a clock has jumped."""
MAX_MESSAGES = 2000
STAMP_RANGE_US = 2**32


@dataclass(frozen=True, slots=True)
class LinkCost:
    """How long a message occupies the uplink: a start-up, and a part for each draft token (PipeSD Eq. 2), in seconds.

    The one-way delay is no part of it: it does not keep the next message waiting. Raises `InvalidRequestError`.
    """

    startup_s: float
    per_token_s: float

    def __post_init__(self) -> None:
        for field, value in (("startup_s", self.startup_s), ("per_token_s", self.per_token_s)):
            if not 0.0 <= value < math.inf:  # which no NaN fulfils
                raise InvalidRequestError(f"{field} is {value}; legal: 0 or more, finite.", field=field)

    def message_s(self, num_tokens: int) -> float:
        """Seconds for which a message with `num_tokens` draft tokens keeps the link busy."""
        return self.startup_s + self.per_token_s * num_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkEstimate:
    """What `LinkMonitor` believes, in seconds.

    `startup_s`, `per_token_s`: occupancy of a message. `rtt_s`: round trip of a message without tokens over an idle
    link, the cloud's own time taken off. `delay_s`: one way, by the assumption that both ways are alike:
    rtt_s = startup_s + 2 delay_s. Where not `startup_known` the start-up could not be told from the delay: it is 0
    and the delay holds it. `num_samples`: arrivals that the estimate rests on.
    """

    startup_s: float
    per_token_s: float
    delay_s: float
    rtt_s: float
    num_samples: int
    startup_known: bool

    @property
    def cost(self) -> LinkCost:
        return LinkCost(self.startup_s, self.per_token_s)


@dataclass(frozen=True, slots=True)
class _Stamp:
    """The newest arrival: when its message was sent, and its stamp as seconds since the zero and as it came."""

    sent_s: float
    arrived_s: float
    arrival_us: int


@dataclass(slots=True)
class _Message:
    """`arrived_s`: cloud clock, from the zero numbered `zero`. `returned_s`: edge clock, its answer less turnaround."""

    sent_s: float
    num_tokens: int
    zero: int = 0
    arrived_s: float | None = None
    returned_s: float | None = None


class LinkMonitor:
    """Tells start-up, per-token occupancy and delay of a link apart, from the last `num_samples` known arrivals.

    Times of the edge are compared with each other and times of the cloud with each other, never one with the other,
    and the cloud's computing is in none of them. A sample that no link could have made (a clock jumped) is dropped
    and counted in `num_dropped`; when arrivals keep missing the fit, what was seen before is forgotten.
    """

    def __init__(self, num_samples: int = WINDOW_SAMPLES) -> None:
        if num_samples < CHANGE_SAMPLES:
            raise InvalidRequestError(
                f"num_samples is {num_samples}; legal: {CHANGE_SAMPLES} or more.", field="num_samples"
            )
        self.num_dropped = 0
        self._num_samples = num_samples
        self._messages: deque[_Message] = deque(maxlen=MAX_MESSAGES)
        self._named: dict[tuple[int, int], _Message | None] = {}
        self._zero = 0
        self._stamp: _Stamp | None = None
        self._num_seen = 0
        self._num_new = 0
        self._estimate: LinkEstimate | None = None

    @property
    def estimate(self) -> LinkEstimate | None:
        """Made anew when enough samples are new; None until a first round trip is known."""
        if self._num_new and self._num_new >= min(self._num_seen / REFIT_SHARE, REFIT_SAMPLES):
            self._refit()
        return self._estimate

    def opened(self) -> None:
        """The session was opened, or opened again: epochs, positions and the cloud's stamps start anew."""
        self._named.clear()
        self._zero += 1
        self._stamp = None

    def sent(self, now_s: float, epoch: int, end_position: int, num_tokens: int) -> None:
        """A `Draft` whose last id ends before `end_position` was given to the link."""
        if self._messages and not now_s >= self._messages[-1].sent_s:
            self._forget_all()
        message = _Message(now_s, num_tokens)
        self._messages.append(message)
        # Two with the same name (a bare question, a repeat) can't be told apart by the cloud's answer.
        self._named[epoch, end_position] = None if (epoch, end_position) in self._named else message
        if len(self._named) > MAX_MESSAGES:
            del self._named[next(iter(self._named))]

    def arrived(
        self, epoch: int, end_position: int, *, arrival_us: int, turnaround_s: float | None, received_s: float
    ) -> None:
        """A commit told when the `Draft` of that name arrived.

        `arrival_us`: cloud clock, any zero, modulo 2^32. `turnaround_s`: from that arrival until the commit left; None
        where not known. `received_s`: edge clock. A message that is unknown, or told of before, is no sample.
        """
        message = self._named.get((epoch, end_position))
        if message is None or message.arrived_s is not None:
            return
        round_s = received_s - message.sent_s - (turnaround_s or 0.0)
        arrived_s = self._unwrapped_s(message.sent_s, arrival_us)
        if arrived_s is None or not 0.0 <= round_s < ABSURD_S:  # which no NaN fulfils
            self.num_dropped += 1
            return
        message.zero, message.arrived_s = self._zero, arrived_s
        if turnaround_s is not None:
            message.returned_s = received_s - turnaround_s
        self._num_seen += 1
        self._num_new += 1

    def _unwrapped_s(self, sent_s: float, arrival_us: int) -> float | None:
        """Seconds since the first stamp of this zero; None, and a new zero, where the two clocks disagree absurdly."""
        before = self._stamp
        if before is None:
            self._stamp = _Stamp(sent_s, 0.0, arrival_us)
            return 0.0
        half = STAMP_RANGE_US // 2
        step_s = ((arrival_us - before.arrival_us + half) % STAMP_RANGE_US - half) * 1e-6
        if not abs(step_s - (sent_s - before.sent_s)) < ABSURD_S:
            self._zero += 1
            self._stamp = _Stamp(sent_s, 0.0, arrival_us)
            return None
        self._stamp = _Stamp(sent_s, before.arrived_s + step_s, arrival_us)
        return self._stamp.arrived_s

    def _forget_all(self) -> None:
        """The edge's own clock went back: nothing sent before can be compared with what follows."""
        self.num_dropped += self._num_seen
        self._num_seen = self._num_new = 0
        self._messages.clear()
        self.opened()

    def _refit(self) -> None:
        seen = self._keep_newest(self._num_samples)
        self._num_seen, self._num_new = len(seen), 0
        if not seen:
            return  # so many messages have left since that none of them is held any more
        fit = self._fit(seen)
        num_changed = _num_changed(fit, [self._messages[index].sent_s for index in seen])
        if num_changed:
            seen = self._keep_newest(num_changed)
            self._num_seen = num_changed
            fit = self._fit(seen)
        if self._estimate is None or fit.sufficient:
            self._estimate = self._estimated(fit, seen) or self._estimate

    def _keep_newest(self, num_seen: int) -> list[int]:
        """Forget all before the last `num_seen` arrivals; the indices of the messages that arrived."""
        seen = [index for index, message in enumerate(self._messages) if message.arrived_s is not None]
        for _ in range(seen[-num_seen] if len(seen) >= num_seen else 0):
            self._messages.popleft()
        return [index for index, message in enumerate(self._messages) if message.arrived_s is not None]

    def _fit(self, seen: Sequence[int]) -> UplinkFit:
        messages = list(self._messages)
        _, zero = np.unique([messages[index].zero for index in seen], return_inverse=True)
        return fit_uplink(
            Uplink(
                sent_s=np.array([message.sent_s for message in messages]),
                num_tokens=np.array([message.num_tokens for message in messages], np.float64),
                seen=np.array(seen),
                arrived_s=np.array([messages[index].arrived_s for index in seen], np.float64),
                zero=zero,
            )
        )

    def _estimated(self, fit: UplinkFit, seen: Sequence[int]) -> LinkEstimate | None:
        returned = [(index, self._messages[index].returned_s) for index in seen]
        delays_s = [returned_s - float(fit.left_s[index]) for index, returned_s in returned if returned_s is not None]
        if not delays_s:
            return None
        both_ways_s = max(0.0, median(delays_s[-ROUND_TRIP_SAMPLES:]))
        startup_s = fit.startup_s or 0.0
        return LinkEstimate(
            startup_s=startup_s,
            per_token_s=fit.per_token_s,
            delay_s=both_ways_s / 2,
            rtt_s=startup_s + both_ways_s,
            num_samples=len(seen),
            startup_known=fit.startup_s is not None,
        )


def _num_changed(fit: UplinkFit, sent_s: Sequence[float]) -> int:
    """How many of the newest arrivals tell of another link, from the first that misses the fit; 0: none, or a stall."""
    newest = np.abs(fit.residuals_s[-CHANGE_SAMPLES:])
    misses = np.flatnonzero(newest > max(CHANGE_S, CHANGE_SCALES * fit.scale_s))
    if len(misses) < CHANGE_MISSES:
        return 0
    num_changed = len(newest) - int(misses[0])
    return num_changed if sent_s[-1] - sent_s[-num_changed] >= CHANGE_SPAN_S else 0
