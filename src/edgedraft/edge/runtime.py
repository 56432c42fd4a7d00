"""One request while it runs: events in, commands out, and the clock, link, draft and text that they stand for.

The path of a token: the draft thread tells `TokenDrafted`; the session answers with `SendToCloud`; the cloud's verdict
comes as `MessageReceived`; the session answers with `EmitTokens`; their text goes to the caller as a `Piece`.
Everything here runs on the event loop and never waits, except `start` and `next_piece`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import assert_never

from edgedraft.backends.base import Tokenizer
from edgedraft.core.edge_session import EdgeSession
from edgedraft.core.edge_settings import EdgeSessionSettings
from edgedraft.core.events import (
    CancelRequested,
    Connect,
    DraftNext,
    EdgeCommand,
    EdgeEvent,
    EmitTokens,
    Fail,
    Finish,
    LinkDown,
    Notice,
    SendToCloud,
    SetTimer,
    Start,
    StopStringFound,
    TimerFired,
    TokenDrafted,
)
from edgedraft.core.gated_session import GatedSession
from edgedraft.edge.answer import Answer, Piece
from edgedraft.edge.connection import CloudConnection, SessionLink
from edgedraft.edge.drafter import Drafter, DraftOrder, DraftSeat
from edgedraft.edge.pilot import Pilot
from edgedraft.edge.text import TextStream
from edgedraft.errors import EdgedraftError, LinkError
from edgedraft.metrics.derive import accounting
from edgedraft.metrics.records import RequestRecord
from edgedraft.protocol.messages import Welcome
from edgedraft.types import CommittedToken, Exactness, FinishReason, OnLinkLoss, Usage

NOTABLE_WAIT_S = 0.5
LOCAL_NOTE = "Some or all of this text is the draft model's own, without a verdict of the target."


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPlan:
    """Everything decided before a request runs. `exact` holds as long as the text stays the target's.

    `promised`: what the cloud said of itself when this was decided; None where there is no cloud.
    """

    settings: EdgeSessionSettings
    stop: Sequence[str]
    order: DraftOrder | None
    exact: Exactness
    exactness_note: str
    notices: Sequence[str] = ()
    promised: Welcome | None = None


class RequestRun:
    """See the module. Made, started once, read with `next_piece` to None, then `answer`. `cancel` at any time."""

    def __init__(
        self,
        plan: RequestPlan,
        tokenizer: Tokenizer,
        *,
        started_s: float | None = None,
        pilot: Pilot | None = None,
    ) -> None:
        self.plan = plan
        gated = plan.settings.strategy.gating is not None
        self.session = GatedSession(plan.settings) if gated else EdgeSession(plan.settings)
        self.notices = list(plan.notices)
        self.tokens: list[CommittedToken] = []
        self._tokenizer = tokenizer
        self._pilot = pilot
        self._text = TextStream(plan.stop)
        self._record = RequestRecord(counters=self.session.counters)
        self._started_s = perf_counter() if started_s is None else started_s
        self._events: deque[EdgeEvent] = deque()
        self._feeding = False
        self._connection: CloudConnection | None = None
        self._link: SessionLink | None = None
        self._seat: DraftSeat | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pieces: asyncio.Queue[Piece | EdgedraftError | None] = asyncio.Queue()
        self._reason: FinishReason | None = None
        self._ended = False

    async def start(self, connection: CloudConnection | None, drafter: Drafter | None) -> None:
        """Wait for the draft if the request uses one, then begin."""
        if drafter is not None and self.plan.order is not None:
            asked_s = self._now_s()
            self._seat = await drafter.reserve(self.plan.order, self.feed)
            if self._ended:  # cancelled or broken off while it waited
                self._seat.release()
                return
            if (waited_s := self._now_s() - asked_s) >= NOTABLE_WAIT_S:
                self.notices.append(f"Waited {waited_s:.1f} s for the draft model, which another request was using.")
        self._connection = connection
        if self.plan.settings.strategy.gating is None:
            self._attach()
        self._record.began_s = self._now_s()
        self.feed(Start())

    def _attach(self) -> None:
        """Take part in the connection, which is made where there is none."""
        if self._connection is not None:
            self._record.called_cloud = True
            features = self.plan.settings.features
            self._link = self._connection.attach(
                self.feed, self.link_failed, self.plan.promised, None if features is None else features.spec
            )

    async def next_piece(self) -> Piece | None:
        """The next piece as soon as there is one; None at the end. Raises the error that ended the request."""
        item = await self._pieces.get()
        if isinstance(item, Piece):
            return item
        self._pieces.put_nowait(item)  # the end stays the end, however often it is asked for
        if isinstance(item, EdgedraftError):
            raise item
        return None

    def cancel(self) -> None:
        """End now: the cloud frees the session, the draft goes to the next request. Nothing happens after the end."""
        self.feed(CancelRequested())

    # -- events and commands -------------------------------------------------------------------------------------------

    def feed(self, event: EdgeEvent) -> None:
        """Hand an event to the session and carry out what it asks for; events that this causes wait their turn."""
        if self._ended:
            return
        self._events.append(event)
        if self._feeding:
            return
        self._feeding = True
        try:
            while self._events:
                self._take(self._events.popleft())
            if self._seat is not None and not self.session.needs_draft:
                self._seat.release()
        except EdgedraftError as error:
            self.break_off(error)
        except Exception as error:  # one request's fault must not reach the link, which others share
            broken = EdgedraftError(f"the request broke down ({type(error).__name__}).")
            broken.__cause__ = error
            self.break_off(broken)
        finally:
            self._feeding = False

    def _take(self, event: EdgeEvent) -> None:
        now_s = self._now_s()
        if isinstance(event, TokenDrafted) and event.token is not None:
            self._record.draft_steps_s.append(event.token.draft_s)
        commands = self.session.handle(event, now_s)
        for command in commands:
            self._carry_out(command)
        if self._pilot is not None and not self._ended:
            change = self._pilot.observe(event, commands, now_s, self.feed)
            if change is not None:
                self._events.append(change)

    def break_off(self, error: EdgedraftError) -> None:
        """End with an error that the session doesn't know of, and have the cloud free its part."""
        if self._ended:
            return
        with contextlib.suppress(Exception):
            for command in self.session.handle(CancelRequested(), self._now_s()):
                if isinstance(command, SendToCloud) and self._link is not None:
                    self._link.send(command)
        self._end(error)

    def link_failed(self, error: EdgedraftError) -> None:
        """The connection gave up. Whoever may go on without it does."""
        if self.session.went_local:
            return
        if isinstance(error, LinkError) and self.plan.settings.on_link_loss is OnLinkLoss.LOCAL:
            self.notices.append(f"Going on without the cloud: {error}")
            self.feed(LinkDown())
        else:
            self._end(error)

    def _carry_out(self, command: EdgeCommand) -> None:
        match command:
            case DraftNext():
                if self._seat is not None:
                    self._seat.draft(command)
            case Connect():
                self._attach()
            case SendToCloud():
                if self._link is not None:
                    self._link.send(command)
            case EmitTokens(tokens=tokens):
                self._emit(tokens)
            case SetTimer(at_s=at_s):
                self._set_timer(at_s)
            case Notice(text=text):
                self.notices.append(text)
            case Finish(reason=reason):
                self._finish(reason)
            case Fail(error=error):
                self._finish(FinishReason.STOP) if self._text.stopped else self._end(error)
            case _:
                assert_never(command)

    def _emit(self, tokens: Sequence[CommittedToken]) -> None:
        """Show tokens up to the one that completes a stop string; the session hears of that one."""
        if self._text.stopped:
            return
        kept: list[CommittedToken] = []
        parts: list[str] = []
        for token in tokens:
            kept.append(token)
            if token.token_id in self.session.stop_ids:
                break  # ends the answer and is no part of its text
            parts.append(self._text.push(self._tokenizer.token_bytes(token.token_id)))
            if self._text.stopped:
                self._events.append(StopStringFound(token.position + 1))
                break
        if self._record.first_token_s is None:
            self._record.first_token_s = self._now_s()
        self.tokens += kept
        self._pieces.put_nowait(Piece("".join(parts), kept))

    def _set_timer(self, at_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_s is not None:
            wait_s = max(0.0, at_s - self._now_s())
            self._timer = asyncio.get_running_loop().call_later(wait_s, self.feed, TimerFired())

    def _now_s(self) -> float:
        return perf_counter() - self._started_s

    # -- the end -------------------------------------------------------------------------------------------------------

    def _finish(self, reason: FinishReason) -> None:
        """A stop string ends the text before anything else that the same tokens brought."""
        if self._ended:
            return
        if rest := self._text.flush():
            self._pieces.put_nowait(Piece(rest, ()))
        self._reason = FinishReason.STOP if self._text.stopped else reason
        self._end(None)

    def _end(self, error: EdgedraftError | None) -> None:
        """Free what the request used, and tell the caller. Once."""
        if self._ended:
            return
        self._ended = True
        self._record.total_s = self._now_s()
        self._set_timer(None)
        if self._seat is not None:
            self._seat.release()
        if self._link is not None:
            self._link.detach()
        self._pieces.put_nowait(error)

    def answer(self) -> Answer:
        """The finished request. Only after `next_piece` has given None."""
        if self._reason is None:
            raise EdgedraftError("there is no answer yet.", remedy="Read the pieces to their end first.")
        record, settings = self._record, self.plan.settings
        record.rounds = list(self.session.rounds)
        if self._pilot is not None:
            record.control = self._pilot.record()
        if self._link is not None:
            record.bytes_up, record.bytes_down = self._link.bytes_up, self._link.bytes_down
        local = self.session.went_local
        return Answer(
            text=self._text.text,
            token_ids=tuple(token.token_id for token in self.tokens),
            tokens=tuple(self.tokens),
            finish_reason=self._reason,
            usage=Usage(len(settings.prompt_ids), len(self.tokens)),
            strategy=settings.strategy.name,
            exact=Exactness.LOSSY if local else self.plan.exact,
            exactness_note=LOCAL_NOTE if local else self.plan.exactness_note,
            seed=settings.sampling.seed,
            notices=tuple(self.notices),
            accounting=accounting(record),
            record=record,
            logprobs=tuple(token.logprob for token in self.tokens) if settings.logprobs else None,
        )
