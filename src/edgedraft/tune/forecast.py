"""What a strategy would have taken for the text seen lately: seconds and target passes a token, played step by step.

The text is what the draft was sure of and whether it was right; what a step costs is measured. Nothing is drawn at
random, so two strategies played over the same text differ by what they do and by nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from edgedraft.tune.search import Thresholds
from edgedraft.types import Assist

MAX_DRAFT_TOKENS = 64
MAX_PASS_TOKENS = 32
MAX_QUESTIONS = 2


@dataclass(frozen=True, slots=True)
class Outcome:
    """A draft token that the text has passed: how sure the draft was of it, and whether it was right."""

    confidence: float
    is_right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What one step takes, in seconds.

    `draft_s`: a draft token. `startup_s`, `per_token_s`: how long a message keeps the link up busy. `up_s`, `down_s`:
    its journey besides. `step_s`, `per_id_s`: a target pass, and what each draft token in it adds. `own_s`: between two
    tokens that the target writes by itself, as they arrive.
    """

    draft_s: float
    startup_s: float
    per_token_s: float
    up_s: float
    down_s: float
    step_s: float
    per_id_s: float
    own_s: float

    def pass_s(self, num_ids: int) -> float:
        return self.step_s + self.per_id_s * num_ids if num_ids else max(self.own_s, self.step_s)

    def message_s(self, num_ids: int) -> float:
        return self.startup_s + self.per_token_s * num_ids


@dataclass(frozen=True, slots=True)
class Forecast:
    """Mean over the text. `tpt_s`: seconds a committed token. `passes_per_token`: target passes a committed token."""

    tpt_s: float
    passes_per_token: float

    def price_s(self, pass_price_s: float) -> float:
        """What a token costs where a target pass is worth `pass_price_s` seconds."""
        return self.tpt_s + pass_price_s * self.passes_per_token


def cloud_only(costs: Costs) -> Forecast:
    return Forecast(costs.pass_s(0), 1.0)


# -- questions and answers ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Rounds:
    """`pipesd` at work. `position`: what is drafted next. `questions`: (flagged position, when its answer is here).

    `confidence`: product since the last question, the guess behind it left out; at `fired` another is due.
    """

    text: Sequence[Outcome]
    costs: Costs
    thresholds: Thresholds
    now_s: float = 0.0
    target_free_s: float = 0.0
    num_committed: int = 0
    num_passes: int = 0
    position: int = 0
    questions: list[tuple[int, float]] = field(default_factory=list)
    confidence: float = 1.0
    fired: bool = False

    def step(self) -> None:
        """Draft a token, ask, or wait for an answer, whatever is next."""
        if len(self.questions) < MAX_QUESTIONS and self.fired:
            self._ask()
        elif len(self.questions) < MAX_QUESTIONS:
            end_s = self.now_s + self.costs.draft_s  # a step that has begun is finished, for nothing or not
            if not (self.questions and self.questions[0][1] <= end_s) or self._hear():
                self._take_token()
            self.now_s = end_s
        else:
            self.now_s = max(self.now_s, self.questions[0][1])
            self._hear()

    def _take_token(self) -> None:
        position, self.position = self.position, self.position + 1
        if position >= len(self.text):
            self.fired = True
        elif not self.questions or position > self.questions[-1][0]:
            confidence = self.text[position].confidence
            self.confidence *= confidence
            is_low = confidence <= self.thresholds.token or self.confidence <= self.thresholds.sequence
            self.fired = is_low or self.position - self.num_committed >= MAX_DRAFT_TOKENS

    def _ask(self) -> None:
        asked_before = self.questions[-1][0] if self.questions else self.num_committed
        arrival_s = self.now_s + self.costs.message_s(1) + self.costs.up_s  # earlier messages hide the rest
        begins_s = max(arrival_s, self.target_free_s)
        self.target_free_s = begins_s + self.costs.pass_s(self.position - asked_before)
        self.questions.append((self.position, self.target_free_s + self.costs.down_s))
        self.num_passes += 1
        self.confidence, self.fired = 1.0, False

    def _hear(self) -> bool:
        """Take the oldest answer; whether what is drafted behind it still stands."""
        flagged, known_s = self.questions.pop(0)
        end = self.num_committed + _num_right(self.text, self.num_committed, flagged)
        self.num_committed = end + 1
        guess_is_right = end == flagged < self.position and (end >= len(self.text) or self.text[end].is_right)
        if not guess_is_right:
            self.position = self.num_committed
            if self.questions:  # about text that is not to be: the target never begins with it
                self.target_free_s = known_s - self.costs.down_s
                self.num_passes -= len(self.questions)
                self.questions.clear()
            self.confidence, self.fired = 1.0, False
        return guess_is_right


def pipesd(text: Sequence[Outcome], costs: Costs, thresholds: Thresholds) -> Forecast:
    """A dual threshold, one level of look-ahead; `text` is not empty."""
    rounds = _Rounds(text, costs, thresholds)
    while rounds.num_committed < len(text):
        rounds.step()
    return Forecast(rounds.now_s / rounds.num_committed, rounds.num_passes / rounds.num_committed)


def _num_right(text: Sequence[Outcome], start: int, end: int) -> int:
    """How many tokens of `text[start:end]` come before the first wrong one."""
    position = start
    while position < min(end, len(text)) and text[position].is_right:
        position += 1
    return position - start


# -- a stream ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Stream:
    """Draft tokens on their way: where they start, which it was drafted from `since_s` on, when each arrives."""

    text: Sequence[Outcome]
    costs: Costs
    start: int = 0
    since_s: float = 0.0
    arrivals_s: list[float] = field(default_factory=list)
    free_s: float = 0.0

    def begin(self, start: int, since_s: float) -> None:
        """Draft anew: what was drafted is wrong, or overtaken."""
        self.start, self.since_s = start, since_s
        self.arrivals_s.clear()
        self.free_s = min(self.free_s, since_s + self.costs.message_s(1))

    def drafted_s(self, position: int) -> float:
        """When the token at `position` is there on the edge."""
        return self.since_s + (position - self.start + 1) * self.costs.draft_s

    def arrival_s(self, position: int) -> float:
        """When the token at `position` is there in the cloud: messages leave as soon as the link is free."""
        while len(self.arrivals_s) <= position - self.start:
            drafted_s = self.drafted_s(self.start + len(self.arrivals_s))
            if drafted_s >= self.free_s:
                self.free_s = drafted_s + self.costs.message_s(1)
            else:  # it shares the next message with what else waits
                self.free_s = max(self.free_s, drafted_s) + self.costs.per_token_s
            self.arrivals_s.append(self.free_s + self.costs.up_s)
        return self.arrivals_s[position - self.start]

    def is_ended_by(self, position: int, known_s: float) -> bool:
        """Whether the target's own token at `position`, known on the edge at `known_s`, is another or comes first."""
        if position < self.start:
            return False
        return position >= len(self.text) or not self.text[position].is_right or self.drafted_s(position) > known_s

    def num_arrived(self, position: int, now_s: float, most: int) -> int:
        """How many valid-looking ids from `position` on the cloud holds, up to `most`."""
        if position < self.start:
            return 0
        num_ids = 0
        while num_ids < most and position + num_ids < len(self.text):
            if self.arrival_s(position + num_ids) > now_s:
                break
            num_ids += 1
        return num_ids


def flow(text: Sequence[Outcome], costs: Costs, assist: Assist) -> Forecast:
    """The cloud verifies whatever has arrived, and writes on by itself as `assist` says; `text` is not empty."""
    stream = _Stream(text, costs)
    most = max(_best_block(text, costs), 0 if assist is Assist.ALWAYS else 1)
    now_s, position, num_passes = 0.0, 0, 0
    in_bubble = False
    while position < len(text):
        num_ids = stream.num_arrived(position, now_s, most)
        if not num_ids and (assist is Assist.NONE or (assist is Assist.BUBBLE and not in_bubble)):
            next_s = stream.arrival_s(max(position, stream.start))
            now_s = max(math.nextafter(now_s, math.inf), next_s)
            continue
        now_s += costs.pass_s(num_ids)
        num_passes += 1
        num_accepted = _num_right(text, position, position + num_ids)
        if num_ids:
            in_bubble = num_accepted < num_ids
        known_s = now_s + costs.down_s
        if num_accepted < num_ids or stream.is_ended_by(position + num_accepted, known_s):
            stream.begin(position + num_accepted + 1, known_s)
        position += num_accepted + 1
    return Forecast(now_s / position, num_passes / position)


def _best_block(text: Sequence[Outcome], costs: Costs) -> int:
    """How many draft ids the cloud judges at once at the most: as many as bring the most tokens a second."""
    rate = sum(outcome.is_right for outcome in text) / len(text)
    best, best_per_s, num_tokens, right = 0, 0.0, 1.0, 1.0
    for num_ids in range(MAX_PASS_TOKENS + 1):
        if num_tokens / costs.pass_s(num_ids) >= best_per_s:
            best, best_per_s = num_ids, num_tokens / costs.pass_s(num_ids)
        right *= rate
        num_tokens += right
    return best
