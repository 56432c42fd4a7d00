"""One device: its requests, its draft model and its link, in virtual time. Mirrors `edge.runtime`."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import assert_never

from edgedraft.backends.trace import RecordedText
from edgedraft.core.edge_session import EdgeSession
from edgedraft.core.edge_settings import EdgeSessionSettings
from edgedraft.core.events import (
    Connect,
    DraftNext,
    EdgeCommand,
    EdgeEvent,
    EmitTokens,
    Fail,
    Finish,
    LinkUp,
    MessageReceived,
    Notice,
    SendToCloud,
    SetTimer,
    Start,
    TimerFired,
    Uploaded,
)
from edgedraft.core.gated_session import GatedSession
from edgedraft.metrics.records import RequestRecord
from edgedraft.protocol.messages import Commit, Draft, SessionFromCloud, SessionFromEdge
from edgedraft.sim.clock import Clock
from edgedraft.sim.cloud_node import CloudNode
from edgedraft.sim.drafter import Seat, SimulatedDrafter
from edgedraft.sim.edges import SimulatedAnswer, SimulatedEdge
from edgedraft.sim.models import TextModels
from edgedraft.sim.network import Way, schedules
from edgedraft.sim.payload import UpwardSizes, message_bytes
from edgedraft.sim.recorded import Recording
from edgedraft.sim.timeline import Lane, Timeline
from edgedraft.sim.uplink import Outgoing, Uplink
from edgedraft.types import CommittedToken, FinishReason, SamplingParams

SESSION_ID_BYTES = 16
TIMER_LATENESS_S = 1e-6
"""A timer is never early, nor due again at the same moment: rounding must not stop virtual time."""
CLIENT_SILENCE_S = 2.0
PAYLOAD_SILENCE_S = 60.0
GREEDY = SamplingParams()


class SimulatedRequest:
    """One request while it runs: events in, commands out, each at its moment."""

    def __init__(self, node: EdgeNode, models: TextModels, channel: int, timeline: Timeline) -> None:
        edge = node.edge
        most = models.max_tokens
        settings = EdgeSessionSettings(
            session_id=node.session_id(channel),
            prompt_ids=models.prompt_ids,
            max_tokens=edge.max_tokens if most is None else min(edge.max_tokens, most),
            sampling=GREEDY,
            strategy=edge.strategy,
            eos_ids=models.eos_ids,
            silence_s=node.silence_s,
            features=models.features,
        )
        self.models = models
        self.channel = channel
        self.timeline = timeline
        self.session = EdgeSession(settings) if edge.strategy.gating is None else GatedSession(settings)
        self.notices: list[str] = []
        self.tokens: list[CommittedToken] = []
        self.token_times_s: list[float] = []
        self.record = RequestRecord(counters=self.session.counters)
        self._node = node
        self._seat = Seat(models, timeline, self.feed)
        self._events: deque[EdgeEvent] = deque()
        self._feeding = False
        self._ended = False
        self._sent_as = (0, 0)
        self._timer_at_s: float | None = None
        self._wakes_at_s: float | None = None

    def now_s(self) -> float:
        return self._node.clock.now_s - self.timeline.started_s

    # -- events and commands -------------------------------------------------------------------------------------------

    def feed(self, event: EdgeEvent) -> None:
        """Hand an event to the session and carry out what it asks for; events that this causes wait their turn."""
        self._events.append(event)
        if self._feeding:
            return
        self._feeding = True
        steering, session, now_s = self._node.edge.steering, self.session, self.now_s()
        while self._events and not self._ended:
            event = self._events.popleft()
            commands = session.handle(event, now_s)
            if self._stands_at() != self._sent_as:
                self._recall_stale()
            for command in commands:
                self._carry_out(command)
            if steering is not None and (answer := steering.observe(event, commands, now_s)) is not None:
                self._events.append(answer)
        self._feeding = False

    def _carry_out(self, command: EdgeCommand) -> None:
        match command:
            case SetTimer(at_s=at_s):
                self._set_timer(at_s)
            case DraftNext():
                self._node.drafter.draft(self._seat, command)
            case Connect():
                self.feed(LinkUp(self.channel, self._node.rtt_s))
            case SendToCloud():
                self._node.send(self, command)
            case EmitTokens(tokens=tokens):
                if self.record.first_token_s is None:
                    self.record.first_token_s = self.now_s()
                self.tokens += tokens
                self.token_times_s.extend([self.now_s()] * len(tokens))
            case Notice(text=text):
                self.notices.append(text)
            case Finish(reason=reason):
                self._finish(reason)
            case Fail(error=error):
                raise error
            case _:
                assert_never(command)

    def _stands_at(self) -> tuple[int, int]:
        """Incarnation and epoch, which what leaves now is of."""
        session = self.session
        return session.incarnation, session.link.epoch if isinstance(session, GatedSession) else session.epoch

    def _recall_stale(self) -> None:
        """Drafts of an older epoch that have not begun to leave stay here: the cloud would drop them."""
        current = self._sent_as = self._stands_at()
        num_ids = self._node.uplink.recall(self, lambda draft: (draft.incarnation, draft.epoch) < current)
        self.session.counters.tokens_up -= num_ids

    # -- the link ------------------------------------------------------------------------------------------------------

    def sent(self, outgoing: Outgoing, start_s: float, arrival_s: float) -> None:
        """A message has begun to leave."""
        self.record.bytes_up += outgoing.size_bytes
        num_tokens = len(outgoing.message.token_ids) if isinstance(outgoing.message, Draft) else 0
        self.timeline.add(Lane.UPLOAD, start_s, arrival_s, num_tokens)

    def has_left(self, outgoing: Outgoing) -> None:
        """The message that asked for a verdict has left."""
        self.feed(Uploaded(self._node.clock.now_s - outgoing.queued_s))

    def received(self, message: SessionFromCloud, size_bytes: int) -> None:
        self.record.bytes_down += size_bytes
        self.feed(MessageReceived(message))

    # -- the timer -----------------------------------------------------------------------------------------------------

    def _set_timer(self, at_s: float | None) -> None:
        """Timers are replaced much more often than they fire: one that was put off is put off when it comes."""
        clock = self._node.clock
        if at_s is None:
            self._timer_at_s = None
            return
        self._timer_at_s = max(at_s + self.timeline.started_s, clock.now_s) + TIMER_LATENESS_S
        if self._wakes_at_s is None or self._timer_at_s < self._wakes_at_s:
            self._wakes_at_s = self._timer_at_s
            clock.at(self._timer_at_s, self._wake, self._timer_at_s)

    def _wake(self, due_s: float) -> None:
        if due_s != self._wakes_at_s or self._ended:
            return
        self._wakes_at_s = None
        if self._timer_at_s is None:
            return
        if self._timer_at_s > due_s:
            self._wakes_at_s = self._timer_at_s
            self._node.clock.at(self._timer_at_s, self._wake, self._timer_at_s)
            return
        self._timer_at_s = None
        self.feed(TimerFired())

    # -- the end -------------------------------------------------------------------------------------------------------

    def _finish(self, reason: FinishReason) -> None:
        self._ended = True
        self._seat.released = True
        self._node.uplink.recall(self, lambda draft: True)
        self.record.total_s = self.now_s()
        self.record.rounds = list(self.session.rounds)
        self._node.finished(self._answer(reason))

    def _answer(self, reason: FinishReason) -> SimulatedAnswer:
        session = self.session
        token_ids = tuple(session.log[session.prompt_length :])
        self.models.check(token_ids, session.strategy)
        return SimulatedAnswer(
            text=self._node.edge.texts[self.channel],
            edge_number=self._node.number,
            token_ids=token_ids,
            tokens=self.tokens,
            token_times_s=self.token_times_s,
            finish_reason=reason,
            strategy=session.strategy,
            record=self.record,
            timeline=self.timeline,
            notices=self.notices,
            num_opens=session.incarnation,
        )


class EdgeNode:
    """A device that asks for its texts one after another over one connection."""

    def __init__(
        self, clock: Clock, edge: SimulatedEdge, cloud: CloudNode, *, number: int, seed: int, keep_spans: bool
    ) -> None:
        self.clock = clock
        self.edge = edge
        self.number = number
        self.answers: list[SimulatedAnswer] = []
        self._cloud = cloud
        self._keep_spans = keep_spans
        ways, _ = schedules(edge.network, seed)
        self._down = ways[Way.DOWN]
        self.uplink = Uplink(clock, ways[Way.UP], self._arrived)
        self._sizes = UpwardSizes(edge.payload)
        self.drafter = SimulatedDrafter(clock, edge.profile, Random(f"{seed} draft"))  # noqa: S311 (guards nothing)
        self._connection = cloud.connect(self._send_down)
        self._request: SimulatedRequest | None = None
        clock.at(edge.start_s, self._begin_next)

    @property
    def silence_s(self) -> float:
        if self.edge.silence_s is not None:
            return self.edge.silence_s
        return PAYLOAD_SILENCE_S if self.edge.payload.token_payload_bytes else CLIENT_SILENCE_S

    @property
    def rtt_s(self) -> float:
        """What a small message and its answer take when the link is free."""
        up, down = self.edge.network.up, self.edge.network.down
        return sum(way.startup_s + way.delay_s + way.jitter_s / 2 for way in (up, down))

    def session_id(self, channel: int) -> bytes:
        return (self.number << 32 | channel).to_bytes(SESSION_ID_BYTES, "big")

    def _begin_next(self, _: None) -> None:
        channel = len(self.answers)
        text = self.edge.texts[channel]
        models = Recording(text, self.edge.eos_ids) if isinstance(text, RecordedText) else text
        timeline = Timeline(self.clock.now_s, [] if self._keep_spans else None)
        self._cloud.expect(self.session_id(channel), models, timeline)
        self._request = SimulatedRequest(self, models, channel, timeline)
        self._request.feed(Start())
        if self.edge.strategy.uses_cloud and self.edge.strategy.gating is None:
            self._request.feed(LinkUp(channel, self.rtt_s))

    def finished(self, answer: SimulatedAnswer) -> None:
        """The request that ran is over; the next begins at once."""
        self._request = None
        self.answers.append(answer)
        if len(self.answers) < len(self.edge.texts):
            self.clock.at(self.clock.now_s, self._begin_next)

    # -- the link ------------------------------------------------------------------------------------------------------

    def send(self, request: SimulatedRequest, command: SendToCloud) -> None:
        message = command.message
        self.uplink.put(Outgoing(request, message, self._sizes.size_bytes(message), self.clock.now_s, command.asks))

    def _arrived(self, message: SessionFromEdge) -> None:
        self._cloud.receive(self._connection, message)

    def _send_down(self, message: SessionFromCloud) -> None:
        size_bytes = message_bytes(message, masked=False)
        now_s = self.clock.now_s
        arrival_s = self._down.delivery_s(now_s, size_bytes)
        self.clock.at(arrival_s, self._receive, (message, size_bytes, now_s))

    def _receive(self, arrived: tuple[SessionFromCloud, int, float]) -> None:
        """Late messages of a request that is over find nobody."""
        message, size_bytes, sent_s = arrived
        request = self._request
        if request is None or message.channel != request.channel:
            return
        num_tokens = len(message.token_ids) if isinstance(message, Commit) else 0
        request.timeline.add(Lane.DOWNLOAD, sent_s, self.clock.now_s, num_tokens)
        request.received(message, size_bytes)
