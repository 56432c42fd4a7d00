"""What the pure core costs, without sockets or models: a session machine fed by a script, and rows of logits.

Processor time of one thread, which other work on the machine moves little.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence
from time import thread_time

import numpy as np

from edgedraft.core.edge_session import EdgeSession
from edgedraft.core.edge_settings import EdgeSessionSettings
from edgedraft.core.events import (
    DraftNext,
    EdgeCommand,
    EdgeEvent,
    LinkUp,
    MessageReceived,
    SendToCloud,
    Start,
    TokenDrafted,
    Uploaded,
)
from edgedraft.core.sampling import choose, draft_token
from edgedraft.protocol.messages import Commit, CommitKind, Draft, Open, Opened, Timings
from edgedraft.schedule.catalogue import vanilla
from edgedraft.types import SESSION_ID_BYTES, Float32Array, Rule, SamplingParams

DRAFT_LENGTH_TOKENS = 8
NUM_SAMPLED_ROWS = 40


def random_rows(num_rows: int, num_ids: int) -> Float32Array:
    """Logits with the heavy tail of natural text: float32, shape (num_rows, num_ids). Always the same."""
    generator = np.random.Generator(np.random.PCG64(7))
    return (2.0 * generator.gumbel(size=(num_rows, num_ids))).astype(np.float32)


def core_s_per_drafted_token(sampling: SamplingParams, *, num_tokens: int, num_ids: int = 1_000) -> float:
    """Seconds of `draft_token` and `EdgeSession` for each drafted token; the median of its rounds.

    The cloud is a script that accepts every draft whole, which makes rounds as long as they get. Its own work, the
    encoding and the making of rows are outside of the time.
    """
    rows = random_rows(64, num_ids)
    script = _Script(sampling, num_tokens, rows)
    while script.step():
        pass
    return statistics.median(script.round_s) / DRAFT_LENGTH_TOKENS


class _Script:
    """Plays shell and cloud for one `EdgeSession`, and adds up what the core takes in each round."""

    def __init__(self, sampling: SamplingParams, num_tokens: int, rows: Float32Array) -> None:
        settings = EdgeSessionSettings(
            session_id=bytes(SESSION_ID_BYTES),
            prompt_ids=range(1, 33),
            max_tokens=num_tokens,
            sampling=sampling,
            strategy=vanilla(DRAFT_LENGTH_TOKENS),
            eos_ids=frozenset(),
        )
        self.round_s: list[float] = []
        self._sampling = sampling
        self._rows = rows
        self._session = EdgeSession(settings)
        self._events: deque[EdgeEvent] = deque([Start(), LinkUp(channel=1)])
        self._sent: list[int] = []
        self._this_round_s = 0.0

    def step(self) -> bool:
        """Hand the next event over and answer what the session asks for; False at the end."""
        if not self._events:
            return False
        event = self._events.popleft()
        started_s = thread_time()
        commands = self._session.handle(event, started_s)
        self._this_round_s += thread_time() - started_s
        if isinstance(event, MessageReceived) and isinstance(event.message, Commit):
            self.round_s.append(self._this_round_s)
            self._this_round_s = 0.0
        for command in commands:
            self._answer(command)
        return True

    def _answer(self, command: EdgeCommand) -> None:
        match command:
            case DraftNext(epoch=epoch, position=first, num_tokens=num_tokens):
                for position in range(first, first + num_tokens):
                    row = self._rows[position % len(self._rows)]
                    started_s = thread_time()
                    token = draft_token(row, self._sampling, position, num_ids=len(row), rule=Rule.MATCH)
                    self._this_round_s += thread_time() - started_s
                    self._events.append(TokenDrafted(epoch, position, token))
            case SendToCloud(message=Open() as opening):
                opened = Opened(channel=1, incarnation=opening.incarnation, committed_length=opening.num_prompt)
                self._events.append(MessageReceived(opened))
            case SendToCloud(message=Draft(verify=True) as draft):
                self._events.extend([Uploaded(0.0), MessageReceived(_all_accepted(draft))])


def _all_accepted(draft: Draft) -> Commit:
    return Commit(
        channel=draft.channel,
        incarnation=draft.incarnation,
        epoch=draft.epoch,
        position=draft.position,
        token_ids=[*draft.token_ids, 1],
        kind=CommitKind.BONUS,
        num_judged=len(draft.token_ids),
        num_accepted=len(draft.token_ids),
        timings=Timings(10, 10, 30, 10, draft.position + len(draft.token_ids)),
    )


SAMPLINGS: Sequence[tuple[str, SamplingParams]] = (
    ("greedy", SamplingParams()),
    ("temperature 0.8", SamplingParams(temperature=0.8, seed=1)),
    ("top_k 40", SamplingParams(temperature=0.8, top_k=40, seed=1)),
    ("top_p 0.95", SamplingParams(temperature=0.8, top_p=0.95, seed=1)),
    ("min_p 0.05", SamplingParams(temperature=0.8, min_p=0.05, seed=1)),
)


def sampling_s_per_row(sampling: SamplingParams, rows: Float32Array) -> float:
    """Seconds for the target's choice from one row; the median over `rows`, shape (num_rows, num_ids)."""
    times_s = []
    for position, row in enumerate(rows):
        started_s = thread_time()
        choose(row, sampling, position, num_ids=len(row))
        times_s.append(thread_time() - started_s)
    return statistics.median(times_s)
