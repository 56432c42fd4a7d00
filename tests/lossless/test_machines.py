"""The same chi-square through both session machines: every legal strategy, draft-ahead and lost links included."""

from __future__ import annotations

import itertools
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from edgedraft.core.cloud_session import CloudSession
from edgedraft.core.cloud_settings import CloudSessionSettings
from edgedraft.core.edge_session import EdgeSession
from edgedraft.core.edge_settings import EdgeSessionSettings
from edgedraft.core.events import (
    CancelPass,
    CloseTarget,
    ConnectionLost,
    DraftNext,
    EdgeMessage,
    EmitTokens,
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
    Start,
    TokenDrafted,
)
from edgedraft.core.hedging import Hedging
from edgedraft.core.sampling import draft_token
from edgedraft.core.strategy import Strategy, UploadImmediately
from edgedraft.core.triggers import FixedLength
from edgedraft.core.verify import verify
from edgedraft.errors import UnsupportedError
from edgedraft.schedule.catalogue import cloud_only, edgellm, flow, hsl, pipesd, vanilla
from edgedraft.schedule.uploads import UploadPlanned
from edgedraft.types import Assist, DraftToken, Rule, SamplingParams

NUM_WORDS = 4
LENGTH = 3
PROMPT = (0,)
NUM_REQUESTS = 3000

TARGET = np.log(
    np.array([[0.4, 0.3, 0.2, 0.1], [0.15, 0.35, 0.2, 0.3], [0.25, 0.25, 0.1, 0.4], [0.3, 0.2, 0.35, 0.15]])
).astype(np.float32)
DRAFT = np.log(
    np.array([[0.2, 0.25, 0.4, 0.15], [0.4, 0.2, 0.3, 0.1], [0.1, 0.5, 0.15, 0.25], [0.45, 0.1, 0.15, 0.3]])
).astype(np.float32)


class Request:
    """One request through both machines; whatever is ready next is drawn by lot, and the link may be cut once."""

    def __init__(self, seed: int, strategy: Strategy, *, cut: bool) -> None:
        self.dice = random.Random(seed)
        self.strategy = strategy
        self.sampling = SamplingParams(temperature=1.0, seed=seed)
        self.edge = EdgeSession(
            EdgeSessionSettings(
                session_id=bytes(16),
                prompt_ids=PROMPT,
                max_tokens=LENGTH,
                sampling=self.sampling,
                strategy=strategy,
                eos_ids=frozenset(),
            )
        )
        self.cloud = CloudSession(
            bytes(16), CloudSessionSettings(num_ids=NUM_WORDS, eos_ids=frozenset(), context_length=100)
        )
        self.connection = 0
        self.connected = False
        self.cuts = int(cut)
        self.queues: dict[str, deque[Callable[[], None]]] = {
            name: deque() for name in ("up", "down", "draft", "target")
        }
        self.held: list[int] = []
        self.text: list[int] = []
        self.ended = False

    def play(self) -> tuple[int, ...]:
        self.to_edge(Start())
        while not self.ended:
            actions = [queue.popleft for queue in self.queues.values() if queue]
            if not self.connected:
                actions.append(lambda: self.connect)
            elif self.cuts:
                actions.append(lambda: self.cut)
            self.dice.choice(actions)()()
        return tuple(self.text)

    def connect(self) -> None:
        self.connection += 1
        self.connected = True
        self.to_edge(LinkUp(channel=1))

    def cut(self) -> None:
        self.cuts -= 1
        self.connected = False
        self.queues["up"].clear()
        self.queues["down"].clear()
        self.to_cloud(ConnectionLost(self.connection))
        self.to_edge(LinkDown())

    def to_edge(self, event: Any) -> None:
        for command in self.edge.handle(event, 0.0):
            match command:
                case DraftNext():
                    self.queues["draft"].append(lambda step=command: self.draft(step))
                case SendToCloud(message=message):
                    arriving = EdgeMessage(message, self.connection)
                    self.queues["up"].append(lambda event=arriving: self.to_cloud(event))
                case EmitTokens(tokens=tokens):
                    self.text += [token.token_id for token in tokens]
                case Finish():
                    self.ended = True
                case Fail(error=error):
                    raise error

    def draft(self, step: DraftNext) -> None:
        self.held = [*self.held[: step.keep_length], *step.token_ids]
        token = self.drafted(step.position)
        if step.num_tokens > 1 and not self.queues["draft"]:
            rest = DraftNext(step.epoch, step.position + 1, step.position, [token.token_id], step.num_tokens - 1)
            self.queues["draft"].append(lambda: self.draft(rest))
        self.to_edge(TokenDrafted(step.epoch, step.position, token))

    def drafted(self, position: int) -> DraftToken:
        row = DRAFT[self.held[-1]]
        token = draft_token(row, self.sampling, position, num_ids=NUM_WORDS, rule=self.strategy.rule, with_second=True)
        assert token is not None
        return token

    def to_cloud(self, event: Any) -> None:
        for command in self.cloud.handle(event, 0.0):
            match command:
                case SendToEdge(message=message):
                    self.queues["down"].append(lambda message=message: self.to_edge(MessageReceived(message)))
                case OpenTarget(incarnation=incarnation):
                    prefilled = PrefillDone(incarnation)
                    self.queues["target"].append(lambda event=prefilled: self.to_cloud(event))
                case RunPass():
                    log = [*self.cloud.log[: command.position]]
                    self.queues["target"].append(lambda job=command, log=log: self.run(job, log))
                case CancelPass():
                    pass  # a pass that has begun: its answer is ignored
                case CloseTarget():
                    self.queues["target"].clear()

    def run(self, job: RunPass, log: list[int]) -> None:
        verdict = verify(
            TARGET[[log[-1], *job.draft_ids]],
            job.draft_ids,
            self.sampling,
            position=job.position,
            num_ids=NUM_WORDS,
            rule=job.rule,
            rank=job.rank,
            distributions=job.distributions,
        )
        self.to_cloud(PassDone(job.pass_id, verdict.num_accepted, verdict.next_id, verdict.kind, 0.0, 0.0))


def misfit(strategy: Strategy, *, cut: bool, request: type[Request] = Request) -> float:
    """Chi-square over its 99.9 % critical value; 1 or more is a rejection."""
    counts = Counter(request(seed, strategy, cut=cut).play() for seed in range(NUM_REQUESTS))
    probs = np.exp(TARGET.astype(np.float64))
    statistic = 0.0
    for text in itertools.product(range(NUM_WORDS), repeat=LENGTH):
        steps = itertools.pairwise([*PROMPT, *text])
        expected = NUM_REQUESTS * float(np.prod([probs[last, word] for last, word in steps]))
        statistic += (counts[text] - expected) ** 2 / expected
    return statistic / float(stats.chi2.ppf(0.999, NUM_WORDS**LENGTH - 1))


def ratio(strategy: Strategy) -> Strategy:
    return replace(strategy, rule=Rule.RATIO)


EARLY = UploadPlanned((1, 2))
DUAL = pipesd(token_threshold=0.3, sequence_threshold=0.1, upload=EARLY)
PATIENT = Hedging(patience=1.0)
STRATEGIES = {
    "match-whole": vanilla(2),
    "match-pipesd": DUAL,
    "match-flow": replace(flow(assist="always", hedging=None), upload=UploadImmediately()),
    "match-hedging": replace(flow(assist="bubble", hedging=PATIENT), upload=UploadImmediately()),
    "ratio-whole": ratio(vanilla(2)),
    "ratio-hsl": ratio(hsl(token_threshold=0.3)),
    "ratio-edgellm": ratio(edgellm(sequence_threshold=0.2)),
    "ratio-pipesd": ratio(DUAL),
    "ratio-immediate": ratio(replace(DUAL, upload=UploadImmediately(), trigger=FixedLength(1))),
}


STEADY = ("match-whole", "ratio-whole", "ratio-pipesd")


@pytest.mark.parametrize(("name", "cut"), [*((name, True) for name in STRATEGIES), *((name, False) for name in STEADY)])
def test_text_through_the_machines_follows_the_target(name: str, cut: bool) -> None:
    assert misfit(STRATEGIES[name], cut=cut) < 1


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: ratio(flow(assist="none")), "rule"),
        (lambda: ratio(replace(vanilla(2), eager=True)), "rule"),
        (lambda: ratio(replace(vanilla(2), assist=Assist.BUBBLE)), "rule"),
        (lambda: replace(ratio(vanilla(2)), hedging=PATIENT), "hedging"),
        (lambda: ratio(cloud_only()), "rule"),
    ],
)
def test_ratio_refuses_what_would_decide_by_the_drafts_which_ids_are_tested(
    make: Callable[[], Strategy], field: str
) -> None:
    with pytest.raises(UnsupportedError) as refused:
        make()

    assert refused.value.field == field


class NotSampled(Request):
    """Drafts its likeliest word, while the distribution says that it was sampled."""

    def drafted(self, position: int) -> DraftToken:
        return replace(super().drafted(position), token_id=int(DRAFT[self.held[-1]].argmax()))


def test_a_draft_that_was_not_sampled_is_found() -> None:
    assert misfit(STRATEGIES["ratio-whole"], cut=False, request=NotSampled) >= 1
