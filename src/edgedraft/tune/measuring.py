"""What an edge learns while its requests run, from what its sessions are told and ask for: link, models, text."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from statistics import median

from edgedraft.core.events import EdgeCommand, EdgeEvent, LinkUp, MessageReceived, SendToCloud, Start, TokenDrafted
from edgedraft.protocol.messages import Commit, CommitKind, Draft, Hedge, Open
from edgedraft.schedule.link import LinkEstimate, LinkMonitor
from edgedraft.schedule.monitors import DraftTimeMonitor, VerifyEstimate, VerifyMonitor
from edgedraft.schedule.window import DraftWindow
from edgedraft.tune.forecast import Costs, Outcome
from edgedraft.types import DraftToken

TEXT_TOKENS = 256
PACE_SAMPLES = 32
MIN_PACE_SAMPLES = 3


class Measurements:
    """Outlives the requests of one edge, which run one at a time. `observe` is told each event of each of them.

    `text`: the last draft tokens that the text has passed, the oldest first; `newest`: those of the newest commit.
    `rtt_s`: as the newest handshake found it.
    """

    def __init__(self) -> None:
        self.link = LinkMonitor()
        self.draft = DraftTimeMonitor()
        self.verify = VerifyMonitor()
        self.window = DraftWindow()
        self.text: deque[Outcome] = deque(maxlen=TEXT_TOKENS)
        self.newest: Sequence[Outcome] = ()
        self.rtt_s = 0.0
        self._verify_estimate: VerifyEstimate | None = None
        self._queue_s: deque[float] = deque(maxlen=PACE_SAMPLES)
        self._pace_s: deque[float] = deque(maxlen=PACE_SAMPLES)
        self._line = DraftLine()
        self._zero_s = self._newest_s = 0.0
        self._first_step = True
        self._before: tuple[int, float] | None = None

    # -- what happens --------------------------------------------------------------------------------------------------

    def observe(self, event: EdgeEvent, commands: Sequence[EdgeCommand], now_s: float, *, writes_on: bool) -> None:
        """`now_s` counts from the start of each request. `writes_on`: the target writes whenever it has no drafts."""
        match event:
            case Start():
                self._zero_s, self._first_step, self._before = self._newest_s - now_s, True, None
            case LinkUp(rtt_s=rtt_s):
                self.rtt_s = rtt_s or self.rtt_s
                self._before = None
            case TokenDrafted(position=position, token=DraftToken() as token):
                self._line.drafted(position, token)
                if not self._first_step:  # which takes in the prompt
                    self.draft.add(token.draft_s)
                self._first_step = False
            case MessageReceived(message=Commit() as commit):
                self._committed(commit, now_s, writes_on=writes_on)
        self._newest_s = max(self._newest_s, self._zero_s + now_s)
        for command in commands:
            if isinstance(command, SendToCloud):
                self._sent(command.message, now_s)

    def _sent(self, message: object, now_s: float) -> None:
        if isinstance(message, Open):
            self.link.opened()
            self._line.forget()
        elif isinstance(message, Hedge):
            self._line.sent(message)
        elif isinstance(message, Draft):
            end = message.position + len(message.token_ids)
            self.link.sent(self._zero_s + now_s, message.epoch, end, len(message.token_ids))
            self._line.sent(message)

    def _committed(self, commit: Commit, now_s: float, *, writes_on: bool) -> None:
        timings, end = commit.timings, commit.position + len(commit.token_ids)
        if timings is not None:
            self.verify.add(commit.num_judged, timings.verify_us * 1e-6)
            self._verify_estimate = None
            if commit.num_judged:
                self._queue_s.append(timings.queue_us * 1e-6)
            if timings.arrival_end:
                self.link.arrived(
                    commit.epoch,
                    timings.arrival_end,
                    arrival_us=timings.arrival_us,
                    turnaround_s=timings.turnaround_us * 1e-6,
                    received_s=self._zero_s + now_s,
                )
            if writes_on and commit.kind is CommitKind.OWN and self._before is not None:
                before_end, before_s = self._before
                if before_end == commit.position and now_s > before_s:
                    self._pace_s.append(now_s - before_s)
        self._before = (end, now_s)
        self.window.add(commit.num_judged)
        self.newest = self._line.passed(commit)
        self.text.extend(self.newest)

    def judged(self, commit: Commit) -> Sequence[DraftToken]:
        """The draft tokens that a commit judged, as far as they are known. Ask before `observe` is told of it."""
        return self._line.tokens(commit.position, commit.num_judged)

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def verify_estimate(self) -> VerifyEstimate | None:
        if self._verify_estimate is None:
            self._verify_estimate = self.verify.estimate
        return self._verify_estimate

    @property
    def acceptance_rate(self) -> float | None:
        """Share of the remembered draft tokens that were right."""
        return sum(outcome.is_right for outcome in self.text) / len(self.text) if self.text else None

    def costs(self) -> Costs | None:
        """What steps take, for forecasts; None until a draft step and a pass have been seen."""
        draft_s, verify = self.draft.draft_s, self.verify_estimate
        if draft_s is None or verify is None:
            return None
        link = self.link.estimate or _guessed(self.rtt_s)
        queue_s = median(self._queue_s) if self._queue_s else 0.0
        step_s = verify.step_s + queue_s
        return Costs(
            draft_s=draft_s,
            startup_s=link.startup_s,
            per_token_s=link.per_token_s,
            up_s=link.delay_s,
            down_s=link.delay_s,
            step_s=step_s,
            per_id_s=verify.per_draft_s,
            own_s=median(self._pace_s) if len(self._pace_s) >= MIN_PACE_SAMPLES else step_s,
        )


def _guessed(rtt_s: float) -> LinkEstimate:
    """A link of which nothing but a round trip is known."""
    return LinkEstimate(
        startup_s=0.0, per_token_s=0.0, delay_s=rtt_s / 2, rtt_s=rtt_s, num_samples=0, startup_known=False
    )


class DraftLine:
    """The draft tokens that travelled and have not met the text, by position; and those of a second way beside them."""

    def __init__(self) -> None:
        self._drafted: dict[tuple[int, int], DraftToken] = {}
        self._line: dict[int, DraftToken] = {}
        self._epoch = -1
        self._hedge: list[tuple[int, int]] = []  # positions and ids
        self._hedge_epoch = -1

    def forget(self) -> None:
        self._drafted.clear()
        self._line.clear()
        self._hedge.clear()

    def drafted(self, position: int, token: DraftToken) -> None:
        self._drafted[position, token.token_id] = token

    def sent(self, message: Draft | Hedge) -> None:
        """Whatever was drafted and not sent, for instance before a rollback, is not the line."""
        placed = list(enumerate(message.token_ids, start=message.position))
        if isinstance(message, Hedge):
            if message.epoch != self._hedge_epoch:
                self._hedge_epoch, self._hedge = message.epoch, []
            self._hedge += placed
            return
        if message.epoch != self._epoch:
            self._epoch = message.epoch
            self._line.clear()
        self._extend(placed)

    def _extend(self, placed: Sequence[tuple[int, int]]) -> None:
        for position, token_id in placed:
            token = self._drafted.get((position, token_id))
            if token is not None:
                self._line[position] = token

    def tokens(self, position: int, num_tokens: int) -> list[DraftToken]:
        found = (self._line.get(each) for each in range(position, position + num_tokens))
        return [token for token in found if token is not None]

    def passed(self, commit: Commit) -> list[Outcome]:
        """How the line met the text. At the first difference it ends, or goes on as the second way where that left."""
        outcomes: list[Outcome] = []
        end = commit.position + len(commit.token_ids)
        for position, token_id in enumerate(commit.token_ids, start=commit.position):
            token = self._line.pop(position, None)
            if token is None:
                continue
            is_right = token.token_id == token_id
            outcomes.append(Outcome(token.confidence, is_right))
            if not is_right:
                self._turn(position, token_id)
        self._drafted = {key: token for key, token in self._drafted.items() if key[0] >= end}
        return outcomes

    def _turn(self, position: int, token_id: int) -> None:
        self._line.clear()
        if self._hedge and self._hedge[0] == (position, token_id):
            self._epoch = self._hedge_epoch
            self._extend(self._hedge[1:])
        self._hedge = []


def is_time(elapsed_s: float, longest_s: float) -> bool:
    """Whether a difference of two clock readings can be one: clocks jump, and links stall."""
    return 0.0 <= elapsed_s <= longest_s and math.isfinite(elapsed_s)
