"""Random interleavings of both session machines: every order of deliveries, drafts, passes, cuts and evictions.

`World` joins an `EdgeSession` and a `CloudSession` by two queues, a draft step and a target pass that finish whenever
the dice say so, and breaks things in between. It plays one request to its end and raises `StuckError` or `WrongError`
at the first broken promise, so a strategy's author can run it over a thousand seeds in a second.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from edgedraft.core.cloud_session import CloudSession
from edgedraft.core.cloud_settings import CloudSessionSettings, CloudState
from edgedraft.core.edge_session import EdgeSession
from edgedraft.core.edge_settings import EdgeSessionSettings, EdgeState
from edgedraft.core.events import (
    OWN,
    CancelPass,
    CloseTarget,
    CloudCommand,
    CloudEvent,
    ConnectionLost,
    DraftNext,
    EdgeCommand,
    EdgeEvent,
    EdgeMessage,
    EmitTokens,
    Evicted,
    Fail,
    Finish,
    LinkDown,
    LinkUp,
    MessageReceived,
    OpenTarget,
    PassDone,
    PrefillDone,
    RunPass,
    SendToCloud,
    SendToEdge,
    SetTimer,
    Start,
    StrategyChanged,
    TimerFired,
    TokenDrafted,
)
from edgedraft.core.strategy import Strategy
from edgedraft.protocol.codec import decode_from_cloud, decode_from_edge, encode
from edgedraft.protocol.messages import (
    Commit,
    CommitKind,
    Draft,
    Error,
    Hedge,
    Open,
    Resume,
    SessionFromCloud,
    SessionFromEdge,
)
from edgedraft.types import DraftToken, FinishReason, SamplingParams

NUM_IDS = 6
EOS_ID = 0
LEAD_TOKENS = 8
MAX_STEPS = 20_000
STEP_S = 0.01


class StuckError(AssertionError):
    """Nothing can happen any more, or only a timer that no lost message accounts for."""


class WrongError(AssertionError):
    """A promise was broken: wrong text, text taken back, a position judged twice, a bound passed."""


def _digest(salt: str, context: Sequence[int]) -> int:
    text = f"{salt}:{','.join(map(str, context[-3:]))}:{len(context)}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")


def target_choice(context: Sequence[int]) -> int:
    """The target's own next id: a pure function of the text; end of sequence about once in forty."""
    dice = _digest("target", context)
    return EOS_ID if dice % 41 == 0 else 1 + dice % (NUM_IDS - 1)


def target_logprob(context: Sequence[int]) -> float:
    """What the target says of its choice after `context`; no two contexts of a text have the same."""
    return -len(context) - _digest("logprob", context) / 2**33


def draft_choice(context: Sequence[int], agreement: float) -> int:
    """The draft's next id: the target's with probability `agreement`."""
    dice = _digest("draft", context)
    return target_choice(context) if dice % 1000 < 1000 * agreement else dice % NUM_IDS


def draft_confidence(context: Sequence[int]) -> float:
    """How sure the draft says it is; above 0 and below 1."""
    return (1 + _digest("confidence", context) % 99) / 100


def second_choice(context: Sequence[int]) -> int:
    """The draft's other choice, often right where the first is not."""
    dice = _digest("second", context)
    return target_choice(context) if dice % 2 else dice % NUM_IDS


def target_only(prompt_ids: Sequence[int], max_tokens: int) -> list[int]:
    """What the target alone writes."""
    text = list(prompt_ids)
    while len(text) < len(prompt_ids) + max_tokens:
        text.append(target_choice(text))
        if text[-1] == EOS_ID:
            break
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How many of each fault a run may have. A muted link loses what is on it without telling anybody.

    `changes`: not a fault, but as sudden: how often the request goes on with another of the strategies `others`.
    """

    cuts: int = 0
    evictions: int = 0
    mutes: int = 0
    changes: int = 0
    others: tuple[Strategy, ...] = ()


@dataclass(slots=True)
class _Link:
    up: deque[bytes] = field(default_factory=deque)
    down: deque[bytes] = field(default_factory=deque)


class World:
    """One request, one seed, one strategy, some faults. `play` returns the committed ids, prompt first.

    Every second seed asks for log-probabilities. Where each draft id makes a pass longer, blocks are cut.
    """

    def __init__(
        self,
        seed: int,
        strategy: Strategy,
        faults: Faults,
        *,
        max_tokens: int = 40,
        agreement: float = 0.7,
        edge_class: type[EdgeSession] = EdgeSession,
        cloud_class: type[CloudSession] = CloudSession,
    ) -> None:
        self.random = random.Random(seed)  # noqa: S311
        self.strategy = strategy
        self.agreement = agreement
        self.per_draft_s = self.random.choice((0.0, STEP_S))
        self.max_tokens = max_tokens
        self.prompt_ids = [self.random.randrange(1, NUM_IDS) for _ in range(self.random.randrange(1, 4))]
        self.now_s = 0.0
        self.cuts, self.evictions, self.mutes = faults.cuts, faults.evictions, faults.mutes
        self.changes, self.others = faults.changes, faults.others
        self.is_faulty = faults != Faults()
        self.num_muted = 0
        self.num_faults = 0
        self._cloud_class = cloud_class
        self.edge = edge_class(
            EdgeSessionSettings(
                session_id=b"0123456789abcdef",
                prompt_ids=self.prompt_ids,
                max_tokens=max_tokens,
                sampling=SamplingParams(),
                strategy=strategy,
                eos_ids=frozenset({EOS_ID}),
                logprobs=seed % 2 == 1,
                assist_lead_tokens=LEAD_TOKENS,
            )
        )
        self.cloud = self._new_cloud()
        self.connection = 0
        self.link: _Link | None = None
        self.timer_s: float | None = None
        self.draft_steps: deque[DraftNext] = deque()
        self.draft_held: list[int] = []
        self.target_jobs: deque[RunPass | OpenTarget] = deque()
        self.target_held: list[int] = []
        self.shown: list[int] = []
        self.ending: Finish | Fail | None = None
        self.judged: set[tuple[int, int, int]] = set()
        self.unanswered = 0
        self.flagged_epoch = 0

    def _new_cloud(self) -> CloudSession:
        settings = CloudSessionSettings(
            num_ids=NUM_IDS,
            eos_ids=frozenset({EOS_ID}),
            context_length=10_000,
            assist_lead_tokens=LEAD_TOKENS,
        )
        return self._cloud_class(b"0123456789abcdef", settings)

    # -- playing ---------------------------------------------------------------------------------------------------

    def play(self) -> list[int]:
        self._to_edge(Start())
        for _ in range(MAX_STEPS):
            if self.ending is not None:
                return self._check_end()
            self.now_s += STEP_S
            actions = self._enabled()
            if not actions:
                self._fire_timer()
                continue
            self.random.choice(actions)()
        raise StuckError(f"no end after {MAX_STEPS} steps: {self._where()}")

    def _enabled(self) -> list[Callable[[], None]]:
        actions: list[Callable[[], None]] = []
        if self.draft_steps:
            actions += [self._finish_draft_step] * 4
        if self.target_jobs:
            actions += [self._finish_target_job] * 4
        if self.link is None:
            actions.append(self._connect)
        else:
            actions += [self._deliver_up] * 4 if self.link.up else []
            actions += [self._deliver_down] * 4 if self.link.down else []
            actions += [self._cut] if self.cuts else []
            actions += [self._mute] if self.mutes and (self.link.up or self.link.down) else []
        if self.changes and self.others:
            actions.append(self._change_strategy)
        if self._may_go_on():
            actions.append(self._tell_time)
        if self.evictions and self.cloud.state is not CloudState.CLOSED:
            actions.append(self._evict)
        return actions

    def _change_strategy(self) -> None:
        self.changes -= 1
        self.num_faults += 1  # the cloud may have to be told, which opens the session again
        self._to_edge(StrategyChanged(self.random.choice(self.others)))

    def _may_go_on(self) -> bool:
        return self.edge.goes_on_at_s is not None and self.edge.goes_on_at_s <= self.now_s

    def _tell_time(self) -> None:
        self.timer_s = None
        self._to_edge(TimerFired())

    def _fire_timer(self) -> None:
        """Only a message that was lost in silence excuses a timer, or a link that is thought busy."""
        if self.timer_s is None or not (self.num_muted or self.edge.goes_on_at_s is not None):
            raise StuckError(f"nothing can happen: {self._where()}")
        self.now_s = max(self.now_s, self.timer_s)
        self.timer_s = None
        self._to_edge(TimerFired())

    def _where(self) -> str:
        edge, cloud = self.edge, self.cloud
        return (
            f"edge {edge.state.value} length {edge.length} tail {len(edge.tail)} asked {edge.asked} "
            f"epoch {edge.epoch}; cloud {cloud.state.value} length {cloud.length} pending {len(cloud.pending)} "
            f"questions {len(cloud.pending.questions)} dead {cloud.pending.dead_epoch}"
        )

    def _check_end(self) -> list[int]:
        if isinstance(self.ending, Fail):
            raise WrongError(f"the request failed: {self.ending.error}")
        expected = target_only(self.prompt_ids, self.max_tokens)
        text = [*self.prompt_ids, *self.shown]
        if text != expected:
            raise WrongError(f"text differs from the target's own: {text} != {expected}")
        reason = FinishReason.STOP if expected[-1] == EOS_ID else FinishReason.LENGTH
        if self.ending is None or self.ending.reason is not reason:
            raise WrongError(f"finish reason is {self.ending}, expected {reason}")
        self._check_counters()
        return text

    def _check_counters(self) -> None:
        counters = self.edge.counters
        repeats = 1 + counters.num_resumes + counters.num_reopens
        if counters.tokens_up > counters.num_drafted * repeats:
            raise WrongError(f"{counters.tokens_up} ids travelled, {counters.num_drafted} were drafted")
        if not self.is_faulty and (counters.num_resumes or counters.num_reopens):
            raise WrongError("a run without faults resumed or re-opened")
        if counters.num_reopens > self.num_faults:
            raise WrongError(f"{counters.num_reopens} re-opens for {self.num_faults} faults")

    # -- faults ----------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        self.connection += 1
        self.link = _Link()
        self._to_edge(LinkUp(channel=self.connection))

    def _cut(self) -> None:
        self.cuts -= 1
        self.num_faults += 1
        lost, self.link = self.connection, None
        self.unanswered = 0
        self._to_cloud(ConnectionLost(lost))
        if self.cloud.pending.ids or any(isinstance(job, RunPass) for job in list(self.target_jobs)[1:]):
            raise WrongError("rule 7: queued work outlived its connection")
        self._to_edge(LinkDown())

    def _mute(self) -> None:
        """Lose what is on the link, without a word."""
        self.mutes -= 1
        self.num_muted += 1
        self.num_faults += 1
        self.unanswered = 0
        if self.link is not None:
            self.link.up.clear()
            self.link.down.clear()

    def _evict(self) -> None:
        self.evictions -= 1
        self.num_faults += 1
        self.unanswered = 0
        self._to_cloud(Evicted("evicted"))

    # -- link ------------------------------------------------------------------------------------------------------

    def _deliver_up(self) -> None:
        if self.link is None:
            return
        message = decode_from_edge(self.link.up.popleft())
        if not isinstance(message, SessionFromEdge):
            raise WrongError(f"{message} is not a session message")
        self._await_verdict(message)
        self._to_cloud(EdgeMessage(message, self.connection))

    def _await_verdict(self, message: SessionFromEdge) -> None:
        """A verify is owed an answer until the edge itself ends the wait by a newer epoch or a resume.

        A newer hedge, sent before its tail was settled, tells the same where the text has come past it.
        """
        newer = isinstance(message, Draft | Hedge) and message.epoch > self.flagged_epoch
        settled = isinstance(message, Draft) or (isinstance(message, Hedge) and message.position < self.cloud.length)
        if isinstance(message, Open | Resume) or (newer and settled):
            self.unanswered = 0
        is_known = self.cloud.state is CloudState.LIVE and message.incarnation == self.cloud.incarnation
        if isinstance(message, Draft) and message.verify and is_known:
            self.unanswered += 1
            self.flagged_epoch = message.epoch

    def _deliver_down(self) -> None:
        if self.link is None:
            return
        message = decode_from_cloud(self.link.down.popleft())
        if not isinstance(message, SessionFromCloud):
            raise WrongError(f"{message} is not a session message")
        gap = (
            isinstance(message, Commit)
            and self.edge.state is EdgeState.LIVE
            and message.incarnation == self.edge.incarnation
            and message.position > self.edge.length
        )
        self._to_edge(MessageReceived(message))
        if gap and self.edge.state is not EdgeState.RESUMING:
            raise WrongError("rule 5: a commit that leaves a gap was not followed by a resume")

    # -- edge ------------------------------------------------------------------------------------------------------

    def _to_edge(self, event: EdgeEvent) -> None:
        for command in self.edge.handle(event, self.now_s):
            self._obey_edge(command, event)

    def _obey_edge(self, command: EdgeCommand, cause: EdgeEvent) -> None:
        if self.ending is not None:
            raise WrongError(f"{command} came after the end")
        match command:
            case DraftNext():
                self.draft_steps.append(command)
            case SendToCloud(message=message):
                self._send_up(message, cause)
            case EmitTokens(tokens=tokens):
                start = len(self.prompt_ids) + len(self.shown)
                if [token.position for token in tokens] != list(range(start, start + len(tokens))):
                    raise WrongError("a position was committed twice or skipped")
                for token in tokens:
                    expected = target_logprob([*self.prompt_ids, *self.shown]) if self.edge.settings.logprobs else None
                    if token.logprob != expected:
                        raise WrongError(f"the log-probability of {token} is not {expected}")
                    self.shown.append(token.token_id)
            case SetTimer(at_s=at_s):
                self.timer_s = at_s
            case Finish() | Fail():
                self.ending = command
            case _:
                pass

    def _send_up(self, message: SessionFromEdge, cause: EdgeEvent) -> None:
        if self.link is None:
            raise WrongError(f"{type(message).__name__} was sent without a link")
        if isinstance(message, Resume) and isinstance(cause, MessageReceived) and not self.num_muted:
            raise WrongError("a resume that no lost message accounts for")
        self.link.up.append(encode(message))

    def _finish_draft_step(self) -> None:
        step = self.draft_steps.popleft()
        if step.position != step.keep_length + len(step.token_ids) or step.keep_length > len(self.draft_held):
            raise WrongError(f"{step} does not fit a draft that holds {len(self.draft_held)} tokens")
        self.draft_held = [*self.draft_held[: step.keep_length], *step.token_ids]
        held = self.draft_held
        token = DraftToken(
            draft_choice(held, self.agreement),
            draft_confidence(held),
            entropy=0.5,
            second_id=second_choice(held),
            second_confidence=0.3,
        )
        current = [*self.edge.log, *(held.token_id for held in self.edge.tail.line(self.edge.length))]
        fresh = self.edge.tail.step_is_out and not self.draft_steps
        if fresh and self.draft_held != current:
            raise WrongError("invariant 4: the draft model holds another text than the session")
        if step.num_tokens > 1 and token.token_id != EOS_ID and not self.draft_steps:
            self.draft_steps.append(
                DraftNext(step.epoch, step.position + 1, step.position, [token.token_id], step.num_tokens - 1)
            )
        self._to_edge(TokenDrafted(step.epoch, step.position, token))

    # -- cloud -----------------------------------------------------------------------------------------------------

    def _to_cloud(self, event: CloudEvent) -> None:
        for command in self.cloud.handle(event, self.now_s):
            self._obey_cloud(command)
        if self.unanswered and isinstance(event, EdgeMessage | PassDone) and not self._verdict_is_due():
            raise StuckError("rule 1: a verify was not answered")

    def _verdict_is_due(self) -> bool:
        return bool(self.cloud.pending.questions) or self.cloud.state is not CloudState.LIVE

    def _obey_cloud(self, command: CloudCommand) -> None:
        match command:
            case SendToEdge(message=message, connection=connection):
                if self.link is not None and connection == self.connection:
                    self.link.down.append(encode(message))
                    if isinstance(message, Commit | Error):
                        self.unanswered = 0
            case OpenTarget():
                self.target_jobs.append(command)
            case RunPass():
                self._check_lead(command)
                self.target_jobs.append(command)
            case CancelPass(pass_id=pass_id):
                begun, queued = list(self.target_jobs)[:1], list(self.target_jobs)[1:]
                kept = [job for job in queued if not (isinstance(job, RunPass) and job.pass_id == pass_id)]
                self.target_jobs = deque([*begun, *kept])
            case CloseTarget():
                self.target_jobs.clear()
                self.cloud = self._new_cloud()

    def _finish_target_job(self) -> None:
        job = self.target_jobs.popleft()
        if isinstance(job, OpenTarget):
            self.target_held = [*job.prompt_ids, *job.committed_ids]
            self._to_cloud(PrefillDone(job.incarnation))
            return
        if job.length > len(self.target_held):
            raise WrongError(f"{job} does not fit a target that holds {len(self.target_held)} tokens")
        self.target_held = [*self.target_held[: job.length], *job.committed_ids, *job.draft_ids]
        context = self.target_held[: job.position]
        logprobs = [target_logprob(context)]
        accepted = 0
        for draft_id in job.draft_ids:
            if target_choice(context) != draft_id:
                break
            context.append(draft_id)
            logprobs.append(target_logprob(context))
            accepted += 1
        kind = CommitKind.RECOVERED if accepted < len(job.draft_ids) else CommitKind.BONUS
        before = self.cloud.length
        epoch = self.cloud.pending.epoch
        given = logprobs if job.logprobs else None
        verify_s = STEP_S + self.per_draft_s * len(job.draft_ids)
        self._to_cloud(PassDone(job.pass_id, accepted, target_choice(context), kind, 0.0, verify_s, given))
        if self.cloud.length > before and job.priority != OWN:
            self._check_pass(job, epoch)

    def _check_pass(self, job: RunPass, epoch: int) -> None:
        for position in range(job.position, job.position + len(job.draft_ids)):
            key = (self.cloud.incarnation, epoch, position)
            if key in self.judged and position < self.cloud.length - 1:
                raise WrongError(f"invariant 6: {key} was judged twice")
            self.judged.add(key)

    def _check_lead(self, job: RunPass) -> None:
        settings = self.cloud.settings
        lead = settings.assist_lead_tokens
        ahead = self.cloud.length - self.cloud.edge_length
        if job.priority == OWN and ahead >= lead:
            raise WrongError(f"rule 8: writing on, {ahead} ids ahead of the edge")
