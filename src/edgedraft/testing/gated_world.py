# ruff: noqa: S101, S311 - what must hold is asserted; a test needs no cryptographic randomness
"""A gated session, a cloud session and two toy models in one process; what happens next is the test's choice."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np

from edgedraft.core.cloud_session import CloudSession
from edgedraft.core.cloud_settings import CloudSessionSettings
from edgedraft.core.edge_settings import EdgeSessionSettings
from edgedraft.core.events import (
    CancelPass,
    CloseTarget,
    CloudEvent,
    Connect,
    ConnectionLost,
    DraftNext,
    EdgeEvent,
    EdgeMessage,
    EmitTokens,
    Fail,
    Finish,
    LinkDown,
    LinkUp,
    MessageReceived,
    Notice,
    OpenTarget,
    PassDone,
    PrefillDone,
    RunPass,
    SendToCloud,
    SendToEdge,
    SetTimer,
    Start,
    TimerFired,
    TokenDrafted,
    Uploaded,
)
from edgedraft.core.gated_session import GatedSession
from edgedraft.core.sampling import draft_token
from edgedraft.core.strategy import Strategy
from edgedraft.core.verify import verify
from edgedraft.protocol.messages import Draft, SessionFromCloud, SessionFromEdge
from edgedraft.speech_features import POOLED_12, FeatureDtype, SpeechFeatures
from edgedraft.types import CommittedToken, Float32Array, OnLinkLoss, Rule, SamplingParams

EOS = 0
NUM_IDS = 12
PROMPT = (1, 2)
FEATURES = SpeechFeatures.of(POOLED_12, np.linspace(-1, 1, 20 * 40).reshape(20, 40), FeatureDtype.INT8, -20.0)
GREEDY = SamplingParams()

Model = Callable[[Sequence[int]], Float32Array]


def toy(seed: int, *, sharpness: float = 2.0, shared: int | None = None) -> Model:
    """Random logits for each prefix of two ids. `shared`: the seed of a part that two models may have in common."""

    def logits(ids: Sequence[int]) -> Float32Array:
        key = len(ids), *ids[-2:]
        row = _drawn(seed, key).copy() if shared is None else 0.35 * _drawn(seed, key) + _drawn(shared, key)
        row[EOS] -= 2.0 - len(ids) / 12
        return (sharpness * row).astype(np.float32)

    return logits


@functools.cache
def _drawn(seed: int, key: tuple[int, ...]) -> Float32Array:
    return np.random.default_rng([seed, *key]).normal(size=NUM_IDS).astype(np.float32)


@dataclass
class GatedWorld:
    """One request from its start to its end. `choices` lists what may happen next, `run` lets it happen by chance.

    `tokens`, `notices`, `end`: what the edge gave; `sent`: every message it sent. `cut` loses the link and what is on
    its way; `fire_timer` lets the edge's timer come due. Asserts what must hold in every order of events.
    """

    strategy: Strategy
    draft: Model
    target: Model
    max_tokens: int = 30
    on_link_loss: OnLinkLoss = OnLinkLoss.LOCAL
    draft_s: float = 0.0
    rng: Random = field(default_factory=lambda: Random(0))

    def __post_init__(self) -> None:
        settings = EdgeSessionSettings(
            session_id=b"S" * 16,
            prompt_ids=PROMPT,
            max_tokens=self.max_tokens,
            sampling=GREEDY,
            strategy=self.strategy,
            eos_ids=frozenset({EOS}),
            on_link_loss=self.on_link_loss,
            features=FEATURES,
        )
        self.edge = GatedSession(settings)
        self.new_cloud()
        self.tokens: list[CommittedToken] = []
        self.sent: list[SessionFromEdge] = []
        self.notices: list[str] = []
        self.end: Finish | Fail | None = None
        self.now_s = 0.0
        self.timer_s: float | None = None
        self.connection = 0
        self.wants_link = False
        self.num_uploading = 0
        self.up: deque[SessionFromEdge] = deque()
        self.down: deque[SessionFromCloud] = deque()
        self.drafts: deque[TokenDrafted] = deque()
        self._held: list[int] = []
        self._run: DraftNext | None = None
        self._num_run = 0

    def new_cloud(self) -> None:
        settings = CloudSessionSettings(
            num_ids=NUM_IDS, eos_ids=frozenset({EOS}), context_length=1000, features=POOLED_12
        )
        self.cloud = CloudSession(b"S" * 16, settings)
        self.work: deque[OpenTarget | RunPass] = deque()

    @property
    def text(self) -> list[int]:
        return [token.token_id for token in self.tokens]

    # -- the edge ------------------------------------------------------------------------------------------------------

    def feed(self, event: EdgeEvent) -> None:
        for command in self.edge.handle(event, self.now_s):
            assert self.end is None, "nothing follows the end"
            match command:
                case DraftNext():
                    assert command.keep_length <= len(self._held)
                    assert command.position == command.keep_length + len(command.token_ids)
                    self._held[command.keep_length :] = command.token_ids
                    self._run, self._num_run = command, command.num_tokens
                case SendToCloud(message=message, asks=asks):
                    self.sent.append(message)
                    if self.connection:
                        self.up.append(message)
                    self.num_uploading += asks
                case EmitTokens(tokens=tokens):
                    for token in tokens:
                        assert token.position == len(PROMPT) + len(self.tokens), "each position is committed once"
                        self.tokens.append(token)
                case SetTimer(at_s=at_s):
                    self.timer_s = at_s
                case Notice(text=text):
                    self.notices.append(text)
                case Connect():
                    self.wants_link = True
                case Finish() | Fail():
                    self.end = command

    def draft_step(self) -> None:
        run = self._run
        assert run is not None
        logits = self.draft(self._held)
        token = draft_token(
            logits, GREEDY, len(self._held), num_ids=NUM_IDS, rule=Rule.RANK, with_second=run.with_second
        )
        assert token is not None
        event = TokenDrafted(run.epoch, len(self._held), replace(token, draft_s=self.draft_s))
        self._num_run -= 1
        if self._num_run == 0 or token.token_id == EOS:
            self._run = None
        else:
            self._held.append(token.token_id)
        self.feed(event)

    def upload(self) -> None:
        """The link takes what was last asked."""
        self.num_uploading = 0
        self.feed(Uploaded(0.001))

    # -- the link ------------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        self.connection += 1
        self.feed(LinkUp(channel=self.connection, rtt_s=0.01))

    def cut(self) -> None:
        """What is on its way either way is lost."""
        self.up.clear()
        self.down.clear()
        self.num_uploading = 0
        self.cloud_event(ConnectionLost(self.connection))
        self.feed(LinkDown())

    # -- the cloud -----------------------------------------------------------------------------------------------------

    def cloud_event(self, event: CloudEvent) -> None:
        for command in self.cloud.handle(event, self.now_s):
            match command:
                case SendToEdge(message=message):
                    self.down.append(message)
                case OpenTarget() | RunPass():
                    self.work.append(command)
                case CancelPass(pass_id=pass_id):
                    self.work = deque(
                        each for each in self.work if not (isinstance(each, RunPass) and each.pass_id == pass_id)
                    )
                case CloseTarget():
                    self.work.clear()

    def work_step(self) -> None:
        job = self.work.popleft()
        if isinstance(job, OpenTarget):
            assert job.features == FEATURES
            self.cloud_event(PrefillDone(job.incarnation))
            return
        log = list(self.cloud.log)
        assert job.position == len(log)
        ids = [*log, *job.draft_ids]
        rows = np.stack([self.target(ids[: len(log) + row]) for row in range(len(job.draft_ids) + 1)])
        verdict = verify(
            rows,
            job.draft_ids,
            job.sampling,
            position=job.position,
            num_ids=NUM_IDS,
            rule=job.rule,
            rank=job.rank,
            judged=job.judged,
            bonus=job.bonus,
        )
        self.cloud_event(PassDone(job.pass_id, verdict.num_accepted, verdict.next_id, verdict.kind, 0.0, 0.001))

    # -- running -------------------------------------------------------------------------------------------------------

    def choices(self) -> list[Callable[[], None]]:
        found: list[Callable[[], None]] = []
        if self._run is not None:
            found.append(self.draft_step)
        if self.up:
            found.append(self._deliver_up)
        if self.down:
            found.append(self._deliver_down)
        if self.work:
            found.append(self.work_step)
        if self.num_uploading:
            found.append(self.upload)
        if self.wants_link and not self.connection:
            found.append(self.connect)
        return found

    def _deliver_up(self) -> None:
        self.cloud_event(EdgeMessage(self.up.popleft(), self.connection))

    def _deliver_down(self) -> None:
        self.feed(MessageReceived(self.down.popleft()))

    def fire_timer(self) -> None:
        assert self.timer_s is not None
        self.now_s, self.timer_s = max(self.now_s, self.timer_s), None
        self.feed(TimerFired())

    def run(self, *, may_cut: bool = False, max_steps: int = 5000) -> GatedWorld:
        self.feed(Start())
        for _ in range(max_steps):
            if self.end is not None:
                return self
            self.now_s += 0.001
            found = self.choices()
            if not found:
                assert self.timer_s is not None, "stuck"
                self.fire_timer()
            elif may_cut and self.connection and self.rng.random() < 0.02:
                self.cut()
                self.connect()
            else:
                self.rng.choice(found)()
        raise AssertionError("stuck: too many steps")

    def num_sent(self, kind: type[object]) -> int:
        return sum(isinstance(message, kind) for message in self.sent)

    @property
    def judged_ids(self) -> int:
        return sum(
            len(message.token_ids) if message.judged is None else len(message.judged)
            for message in self.sent
            if isinstance(message, Draft)
        )


def target_only(target: Model, max_tokens: int = 30) -> list[int]:
    ids: list[int] = []
    while len(ids) < max_tokens:
        ids.append(int(target([*PROMPT, *ids]).argmax()))
        if ids[-1] == EOS:
            break
    return ids
