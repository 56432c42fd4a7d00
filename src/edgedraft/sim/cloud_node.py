"""The cloud: sessions, the batcher and the target, in virtual time.

Mirrors `cloud.sessions` and `cloud.worker`. Where a pass holds one session the worker picks its next work before that
session hears of the last one, as a thread does that finds its queue filled. Where sessions share passes they are heard
first, so that those of the last pass can join the next. A worker that finds nothing begins as soon as something comes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgedraft.core.block_cut import PassCost
from edgedraft.core.cloud_session import CloudSession
from edgedraft.core.cloud_settings import CloudSessionSettings
from edgedraft.core.events import (
    CancelPass,
    CloseTarget,
    CloudCommand,
    CloudEvent,
    EdgeMessage,
    OpenTarget,
    PassDone,
    PrefillDone,
    RunPass,
    SendToEdge,
)
from edgedraft.core.verify import Verdict
from edgedraft.protocol.messages import Open, Resume, SessionFromCloud, SessionFromEdge
from edgedraft.schedule.verify_batcher import PrefillStep, QueuedPass, VerifyBatcher
from edgedraft.sim.clock import Clock
from edgedraft.sim.compute import TargetProfile
from edgedraft.sim.models import TextModels
from edgedraft.sim.timeline import Timeline

NUM_IDS = 2**31 - 1
CONTEXT_LENGTH_TOKENS = 2**30


@dataclass(slots=True, eq=False)
class _Entry:
    """One session. Its target has taken in `num_held` ids, and is to hold `num_to_hold` for `incarnation`.

    `to_hear_s`: of a recording that it has not heard yet.
    """

    session: CloudSession
    models: TextModels
    timeline: Timeline
    channel: tuple[int, int]
    incarnation: int = 0
    num_held: int = 0
    num_to_hold: int = 0
    to_hear_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Chunk:
    entry: _Entry
    incarnation: int
    num_ids: int
    started_s: float


@dataclass(frozen=True, slots=True)
class _Batch:
    passes: Sequence[tuple[QueuedPass, _Entry, Verdict]]
    started_s: float


class CloudNode:
    """Serves any number of edges with one target."""

    def __init__(self, clock: Clock, target: TargetProfile, *, max_batch_sessions: int) -> None:
        self._clock = clock
        self._target = target
        self._max_batch_sessions = max_batch_sessions
        self._pass_cost = PassCost()
        self._batcher = VerifyBatcher()
        self._busy = False
        self._links: list[Callable[[SessionFromCloud], None]] = []
        self._expected: dict[bytes, tuple[TextModels, Timeline]] = {}
        self._entries: dict[bytes, _Entry] = {}
        self._by_channel: dict[tuple[int, int], _Entry] = {}

    def connect(self, send: Callable[[SessionFromCloud], None]) -> int:
        """An edge's link; its number."""
        self._links.append(send)
        return len(self._links) - 1

    def expect(self, session_id: bytes, models: TextModels, timeline: Timeline) -> None:
        """What the target will say in this session, and where to note its work."""
        self._expected[session_id] = (models, timeline)

    # -- messages ------------------------------------------------------------------------------------------------------

    def receive(self, connection: int, message: SessionFromEdge) -> None:
        """A message has arrived. Those of a session that is over are dropped."""
        if isinstance(message, Open | Resume):
            entry = self._entries.get(message.session_id) or self._new_entry(connection, message)
        else:
            found = self._by_channel.get((connection, message.channel))
            if found is None:
                return
            entry = found
        self._dispatch(entry, EdgeMessage(message, connection))
        self._start_work()

    def _new_entry(self, connection: int, message: Open | Resume) -> _Entry:
        models, timeline = self._expected[message.session_id]
        features = models.features
        settings = CloudSessionSettings(
            num_ids=NUM_IDS,
            eos_ids=models.eos_ids,
            context_length=CONTEXT_LENGTH_TOKENS,
            features=None if features is None else features.spec,
            pass_cost=self._pass_cost,
        )
        session = CloudSession(message.session_id, settings)
        entry = _Entry(session, models, timeline, (connection, message.channel))
        entry.to_hear_s = 0.0 if features is None else features.seconds
        self._entries[message.session_id] = entry
        self._by_channel[entry.channel] = entry
        return entry

    def _dispatch(self, entry: _Entry, event: CloudEvent) -> None:
        for command in entry.session.handle(event, self._clock.now_s):
            self._carry_out(entry, command)

    def _carry_out(self, entry: _Entry, command: CloudCommand) -> None:
        key = entry.session.session_id
        match command:
            case SendToEdge(message=message, connection=connection):
                self._links[connection](message)
            case RunPass():
                self._batcher.add_pass(QueuedPass(key, command, self._clock.now_s))
            case CancelPass(pass_id=pass_id):
                self._batcher.cancel_pass(key, pass_id)
            case OpenTarget(incarnation=incarnation):
                self._batcher.cancel(key)
                entry.incarnation = incarnation
                # The target keeps what it has taken in of the same text.
                entry.num_to_hold = len(command.prompt_ids) + len(command.committed_ids)
                self._batcher.add_prefill(key)
            case CloseTarget():
                self._batcher.cancel(key)
                del self._entries[key], self._by_channel[entry.channel]

    # -- the worker ----------------------------------------------------------------------------------------------------

    def _start_work(self) -> None:
        if self._busy or not self._batcher.num_waiting:
            return
        work = self._batcher.next_work(self._max_batch_sessions)
        now_s = self._clock.now_s
        if isinstance(work, PrefillStep):
            self._busy = True
            entry = self._entries[work.session]
            num_ids = max(0, min(self._target.prefill_chunk_tokens, entry.num_to_hold - entry.num_held))
            chunk = _Chunk(entry, entry.incarnation, num_ids, now_s)
            took_s = num_ids * self._target.prefill_s_per_token + entry.to_hear_s * self._target.listen_s_per_s
            entry.to_hear_s = 0.0
            self._clock.at(now_s + took_s, self._end_chunk, chunk)
        elif work:
            self._busy = True
            took_s = self._target.pass_s([len(queued.command.draft_ids) for queued in work])
            self._clock.at(now_s + took_s, self._end_batch, _Batch([self._judged(each) for each in work], now_s))

    def _judged(self, queued: QueuedPass) -> tuple[QueuedPass, _Entry, Verdict]:
        """A pass that has begun, with its verdict: the text may change before it ends, which makes that void."""
        entry = self._entries[queued.session]
        return queued, entry, entry.models.verdict(entry.session.log, queued.command)

    def _end_chunk(self, chunk: _Chunk) -> None:
        self._busy = False
        entry, now_s = chunk.entry, self._clock.now_s
        entry.num_held += chunk.num_ids
        entry.timeline.add_prefill(chunk.started_s, now_s, chunk.num_ids)
        is_whole = entry.num_held >= entry.num_to_hold and chunk.incarnation == entry.incarnation
        if is_whole:
            self._batcher.finish_prefill(entry.session.session_id)
        self._start_work()
        if is_whole:
            self._dispatch(entry, PrefillDone(entry.incarnation))
            self._start_work()

    def _end_batch(self, batch: _Batch) -> None:
        self._busy = False
        if self._max_batch_sessions == 1:
            self._start_work()
        now_s = self._clock.now_s
        verify_s = now_s - batch.started_s
        for queued, entry, verdict in batch.passes:
            command = queued.command
            entry.timeline.add_pass(batch.started_s, now_s, len(batch.passes), len(command.draft_ids))
            entry.num_held = max(entry.num_held, command.position)
            queue_s = batch.started_s - queued.queued_s
            told = (verdict.num_accepted, verdict.next_id, verdict.kind)
            self._dispatch(entry, PassDone(command.pass_id, *told, queue_s, verify_s))
        self._start_work()
