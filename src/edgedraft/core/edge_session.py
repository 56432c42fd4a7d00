"""The edge's half of a session: it owns the request, keeps a copy of the committed log and a draft tail after it.

Everything the shell does for a request is asked for here: draft the next token, send a message, show tokens, set the
timer, finish. The rules cited as "rule n" are those of docs/protocol.md, "Progress".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import assert_never

from edgedraft.core.draft_tail import DraftTail
from edgedraft.core.edge_account import EdgeAccount
from edgedraft.core.edge_alarm import Alarm
from edgedraft.core.edge_drafting import EdgeDrafting
from edgedraft.core.edge_messages import opening, resuming, token_kinds
from edgedraft.core.edge_patience import Patience, silent_cloud
from edgedraft.core.edge_settings import CONNECTED, EdgeSessionSettings, EdgeState
from edgedraft.core.edge_uplink import EdgeUplink
from edgedraft.core.events import (
    CancelRequested,
    DraftUnavailable,
    EdgeCommand,
    EdgeEvent,
    EmitTokens,
    Fail,
    Finish,
    LinkDown,
    LinkUp,
    MessageReceived,
    Notice,
    SendToCloud,
    SetTimer,
    Start,
    StopStringFound,
    StrategyChanged,
    TimerFired,
    TokenDrafted,
    Uploaded,
)
from edgedraft.core.expectation import Expectation
from edgedraft.core.sequence import cut_at_end
from edgedraft.core.strategy import Strategy
from edgedraft.errors import BackendError, EdgedraftError, LinkLostError, ProtocolError, SessionLostError
from edgedraft.metrics.records import RoundRecord
from edgedraft.protocol.codec import error_from_wire
from edgedraft.protocol.messages import Cancel, Close, Commit, Error, Opened, Resumed, SessionFromCloud
from edgedraft.types import Assist, CommittedToken, FinishReason, OnLinkLoss, Rule, TokenKind

MAX_EPOCH = 2**32 - 1


class EdgeSession:
    """One request. `handle` takes an event and returns what to do; it never blocks and keeps no clock.

    `log`: prompt and committed ids. `went_local`: part of the text is the draft's own, without a verdict.
    """

    def __init__(self, settings: EdgeSessionSettings) -> None:
        self.settings = settings
        self.strategy = settings.strategy
        self.state = EdgeState.NEW
        self.account = EdgeAccount()
        self.counters = self.account.counters
        self.log = list(settings.prompt_ids)
        self.prompt_length = len(self.log)
        self.max_length = self.prompt_length + settings.max_tokens
        self.stop_ids = settings.end_ids
        self.channel = 0
        self.incarnation = 0
        self.attach = 0
        self.epoch = self._newest_epoch = 0
        self.tail = DraftTail()
        self.uplink = EdgeUplink(self)
        self.went_local = False
        self._told = self.strategy.terms
        self.patience = Patience(settings.silence_s)
        self._open_again = False
        self.alarm = Alarm()
        self._draft_is_lost = False
        self.expectation = Expectation()
        self._drafting = EdgeDrafting(self)

    @property
    def length(self) -> int:
        return len(self.log)

    @property
    def asked(self) -> Sequence[int]:
        """Flagged positions that verdicts are out for, the oldest first."""
        return self.uplink.asked

    @property
    def goes_on_at_s(self) -> float | None:
        """When it goes on by itself, without a message: the link is free then, or an expected commit has not come."""
        times = (self.alarm.upload_at_s, self.alarm.draft_at_s)
        return min((at_s for at_s in times if at_s is not None), default=None)

    @property
    def needs_draft(self) -> bool:
        """Whether the draft model may still be asked for something."""
        return self.settings.strategy.uses_draft and not self._draft_is_lost

    @property
    def rounds(self) -> list[RoundRecord]:
        return self.account.clock.records

    # -- events ----------------------------------------------------------------------------------------------------

    def handle(self, event: EdgeEvent, now_s: float) -> list[EdgeCommand]:
        """What to do about `event`. Nothing is returned after the `Finish` or `Fail` that ended the request."""
        if isinstance(event, StopStringFound):
            return self._on_stop_string(event.length)
        if self.state is EdgeState.ENDED:
            return []
        match event:
            case Start():
                commands = self._on_start(now_s)
            case LinkUp():
                commands = self._on_link_up(event)
            case LinkDown():
                commands = self._on_link_down()
            case MessageReceived(message=message):
                commands = self._on_message(message, now_s)
            case TokenDrafted():
                commands = self._on_token_drafted(event)
            case DraftUnavailable(reason=reason):
                commands = self._without_draft(reason)
            case Uploaded(upload_s=upload_s):
                self.account.clock.uploaded(upload_s)
                return []
            case TimerFired():
                commands = self._on_timer()
            case StrategyChanged(strategy=strategy):
                commands = self._on_strategy_changed(strategy)
            case CancelRequested():
                commands = self._end(Finish(FinishReason.CANCELLED), Cancel)
            case _:
                assert_never(event)
        return [*commands, *self._advance(now_s), *self._timer(now_s)]

    def _on_start(self, now_s: float) -> list[EdgeCommand]:
        self.account.clock.start(now_s)
        if not self.strategy.uses_cloud:
            self.state, self.went_local = EdgeState.LOCAL, True
            return []
        self.state = EdgeState.DOWN
        limit = self.settings.draft_context_length
        if self.strategy.uses_draft and limit is not None and self.length >= limit:
            return self._without_draft(f"the prompt has {self.length} tokens, the draft model's context {limit}")
        return []

    # -- link ------------------------------------------------------------------------------------------------------

    def _on_link_up(self, event: LinkUp) -> list[EdgeCommand]:
        if self.state is EdgeState.LOCAL:
            return []
        self.channel = event.channel
        self.patience.rtt_s = event.rtt_s
        if self.incarnation == 0:
            return self._open()
        self.counters.num_reconnects += 1
        return self._resume() if self._told == self.strategy.terms else self._open_anew()

    def _on_link_down(self) -> list[EdgeCommand]:
        if self.state is EdgeState.LOCAL:
            return []
        self.state = EdgeState.DOWN
        self._open_again = False
        self._forget_uploads()
        match self.settings.on_link_loss:
            case OnLinkLoss.WAIT:
                return []
            case OnLinkLoss.FAIL:
                return self._fail(
                    LinkLostError("The link to the cloud was lost.", remedy="Set on_link_loss to 'wait' to resume.")
                )
            case OnLinkLoss.LOCAL:
                return self._go_local()

    def _go_local(self) -> list[EdgeCommand]:
        """On alone to the end of the answer, which stays labelled; the cloud's session expires there."""
        if not self.strategy.uses_draft:
            return self._fail(LinkLostError("The link was lost and there is no draft model to go on with."))
        self.state, self.went_local = EdgeState.LOCAL, True
        notice = Notice("The link was lost: the rest of this answer is the draft model's own.")
        alone = [(token.token_id, TokenKind.LOCAL) for token in self.tail.tokens]
        self.tail.tokens = []
        return [notice, *self._append(alone)]

    def _open(self) -> list[EdgeCommand]:
        """Open the session, or open it again with prompt + committed ids; epochs start at 0 with each incarnation."""
        self.state = EdgeState.OPENING
        self.incarnation += 1
        self.attach += 1
        self.epoch = self._newest_epoch = 0
        self._open_again = False
        self._told = self.strategy.terms
        self.patience.begin()
        self._forget_uploads()
        return [SendToCloud(message) for message in opening(self)]

    def _open_anew(self) -> list[EdgeCommand]:
        self.counters.num_reopens += 1
        return self._open()

    def _resume(self) -> list[EdgeCommand]:
        self.state = EdgeState.RESUMING
        self.attach += 1
        self.counters.num_resumes += 1
        self._forget_uploads()
        return [SendToCloud(resuming(self))]

    def _forget_uploads(self) -> None:
        """Rule 4: what travelled may be lost: ids start at the committed length again, a verdict is asked for anew."""
        if self.asked and self.tail.tokens:
            self.tail.fired = True
        self.uplink.forget()
        self.tail.forget_uploads()

    def new_epoch(self) -> int:
        if self._newest_epoch >= MAX_EPOCH:
            raise ProtocolError(f"epoch would pass {MAX_EPOCH}.")
        self._newest_epoch += 1
        return self._newest_epoch

    def _raise_epoch(self) -> None:
        self.epoch = self.new_epoch()
        self._forget_uploads()

    def _take_second_way(self, epoch: int) -> None:
        """The text took the hedge, and what travelled of it is at the cloud under its own epoch."""
        self.epoch = epoch
        self.uplink.forget()

    # -- messages --------------------------------------------------------------------------------------------------

    def _on_message(self, message: SessionFromCloud, now_s: float) -> list[EdgeCommand]:
        if self.state is EdgeState.LOCAL or message.incarnation != self.incarnation:
            return []
        self.patience.heard()
        match message:
            case Opened():
                if self.state is EdgeState.OPENING:
                    self._go_live()
                return []
            case Resumed(attach=attach):
                if self.state is EdgeState.RESUMING and attach == self.attach:
                    self._raise_epoch()
                    self._go_live()
                return []
            case Commit():
                return self._on_commit(message, now_s)
            case Error():
                return self._on_error(message)

    def _go_live(self) -> None:
        self.state = EdgeState.LIVE
        self.uplink.told()

    def _on_error(self, message: Error) -> list[EdgeCommand]:
        error = error_from_wire(message)
        self.patience.failed()
        if isinstance(error, SessionLostError) and self.patience.may_try_again:
            self.counters.num_reopens += 1
            return self._open()
        if message.retryable and message.retry_after_s is not None:
            self._open_again = self.patience.may_come_back(message.retry_after_s)
            return [] if self._open_again else self._fail(error)
        if message.retryable and message.expected is not None and self.patience.may_try_again:
            return self._resume()
        return self._fail(error)

    def _on_commit(self, message: Commit, now_s: float) -> list[EdgeCommand]:
        """Reconcile by content: what the tail already says stays, the first difference rolls back to it."""
        if self.state is not EdgeState.LIVE:
            return []  # rule 5: no commit before Opened or Resumed
        if message.position > self.length:
            return self._resume()  # rule 5: a gap
        known = self.length - message.position
        if self.log[message.position : message.position + len(message.token_ids)] != message.token_ids[:known]:
            return self._fail(ProtocolError("The cloud contradicts text that it had committed."))
        new_ids = message.token_ids[known:]
        if not new_ids:
            return []
        if self.settings.logprobs and message.logprobs is None:
            return self._fail(ProtocolError("A commit came without the log-probabilities that were asked for."))
        self.patience.progressed()
        if message.timings is not None:
            self.patience.verify_s = message.timings.verify_us * 1e-6
        self.account.count(message, now_s, was_asked=bool(self.asked))
        self.expectation.committed(message, now_s)
        self._adapt(message)
        self._reconcile(new_ids, message.position + message.num_judged)
        new = list(zip(new_ids, token_kinds(message)[known:], strict=True))
        return self.account.misfit_notice() + self._append(new, message.logprobs and message.logprobs[known:])

    def _adapt(self, message: Commit) -> None:
        """Let the trigger learn from a verdict, before the tail forgets what was judged."""
        if message.num_judged and message.position == self.length:
            judged = self.tail.tokens[: message.num_judged]
            trigger = self.strategy.trigger.after_verdict(judged, message.num_accepted)
            if trigger is not self.strategy.trigger:
                self.strategy = dataclasses.replace(self.strategy, trigger=trigger)

    def _reconcile(self, new_ids: Sequence[int], judged_end: int) -> None:
        outcome = self.tail.reconcile(new_ids, self.length, judged_end)
        self.counters.num_discarded += outcome.num_dropped
        self.counters.num_rollbacks += outcome.contradicted
        if outcome.epoch is not None:
            self._take_second_way(outcome.epoch)
        elif outcome.contradicted or outcome.overtaken:
            self._raise_epoch()
        else:
            self._end_waits(self.length + len(new_ids))

    def _end_waits(self, new_length: int) -> None:
        self.uplink.end_waits(new_length)

    def _append(
        self, new: Sequence[tuple[int, TokenKind]], logprobs: Sequence[float] | None = None
    ) -> list[EdgeCommand]:
        """Commit ids, show them, and end the request where the text ends."""
        ids = [token_id for token_id, _ in new]
        kept, reason = cut_at_end(ids, length=self.length, max_length=self.max_length, stop_ids=self.stop_ids)
        tokens = [
            CommittedToken(token_id, self.length + i, new[i][1], logprobs[i] if logprobs else None)
            for i, token_id in enumerate(kept)
        ]
        self.log.extend(kept)
        self.counters.num_committed += len(kept)
        commands: list[EdgeCommand] = [EmitTokens(tokens)] if tokens else []
        return commands if reason is None else [*commands, *self._end(Finish(reason), Close)]

    # -- drafting --------------------------------------------------------------------------------------------------

    def _on_token_drafted(self, event: TokenDrafted) -> list[EdgeCommand]:
        token = event.token
        self.counters.num_drafted += token is not None
        if not self.tail.take_step(event, self.stop_ids):
            self.counters.num_discarded += token is not None
            return []
        end = self.length + len(self.tail.line(self.length))
        assert event.position == end, "invariant 4: drafted at the end of log and tail"
        if self.state is EdgeState.LOCAL:
            if token is None:
                return self._fail(BackendError("The draft has no proposal, and no cloud is in use."))
            return self._append([(token.token_id, TokenKind.LOCAL)])
        if token is not None:
            self.expectation.drafted(token.draft_s)
        if self.tail.hedge is not None and self.tail.on_hedge:
            self.tail.hedge.add(token, self.stop_ids)
        elif token is None:
            self.tail.no_proposal = True
        else:
            self.tail.add(token, self.strategy.trigger, verdict_is_out=bool(self.asked))
        return []

    def _without_draft(self, reason: str) -> list[EdgeCommand]:
        """Go on as cloud-only: open again, so that the target writes by itself instead of a token per round trip."""
        if self.state is EdgeState.LOCAL:
            if self.length == self.prompt_length:
                return self._fail(BackendError(f"The draft model cannot answer: {reason}."))
            return [Notice(f"The answer ends here: {reason}."), *self._end(Finish(FinishReason.LENGTH), Close)]
        if self._draft_is_lost or not self.settings.strategy.uses_draft:
            return []
        self._draft_is_lost = True
        self.strategy = dataclasses.replace(
            self.strategy, uses_draft=False, assist=Assist.ALWAYS, eager=False, hedging=None, rule=Rule.MATCH
        )
        self._drop_tail()
        notice = Notice(f"Going on without the draft model (cloud-only): {reason}.")
        return [notice, *(self._open() if self.state in CONNECTED else [])]

    def _drop_tail(self) -> None:
        self.counters.num_discarded += len(self.tail)
        self.tail.clear(self.length)

    def _on_strategy_changed(self, strategy: Strategy) -> list[EdgeCommand]:
        """Other numbers hold from the next token on; where the cloud's terms change, the session is opened anew.

        A draft that is lost stays lost, and an edge on its own stays alone.
        """
        old = self.strategy
        strategy.check_follows(old)
        if self._draft_is_lost or self.state is EdgeState.LOCAL:
            return []
        self.strategy = strategy
        if old.uses_draft and not strategy.uses_draft:
            self._drop_tail()
            self._raise_epoch()
        return [] if self._told == self.strategy.terms or self.state not in CONNECTED else self._open_anew()

    # -- what can be done now --------------------------------------------------------------------------------------

    def _advance(self, now_s: float) -> list[EdgeCommand]:
        """The moves that the present position allows: ask for a verdict, upload, draft on, confirm."""
        if self.state in (EdgeState.ENDED, EdgeState.NEW):
            return []
        self.alarm.upload_at_s = self.alarm.draft_at_s = None
        if not self.strategy.uses_draft:
            return [*self._acknowledge()]
        if not self.tail.tokens and not self.asked and self._drafting.is_full:
            reason = f"the draft model's context of {self.settings.draft_context_length} tokens is full"
            return [*self._without_draft(reason), *self._acknowledge()]
        must_ask = self._drafting.must_ask
        drafts_on = self._drafting.goes_on(must_ask)
        commands: list[EdgeCommand] = []
        if self.may_send:
            commands += self._upload(now_s, self.tail.fired or must_ask or not drafts_on)
        if drafts_on or self._drafting.goes_on(must_ask):  # with the question out it may draft ahead
            commands += self._drafting.next_run(now_s)
        return [*commands, *self._acknowledge()]

    def _acknowledge(self) -> list[SendToCloud]:
        return self.uplink.acknowledge() if self.state is EdgeState.LIVE else []

    @property
    def may_send(self) -> bool:
        """Drafts follow an `Open` at once: the cloud takes them in that order. A `Resume` has to be answered first."""
        return self.state is EdgeState.LIVE or (self.state is EdgeState.OPENING and not self._open_again)

    def _upload(self, now_s: float, due: bool) -> list[SendToCloud]:
        return self.uplink.upload(now_s, due)

    # -- timer -----------------------------------------------------------------------------------------------------

    def _timer(self, now_s: float) -> list[EdgeCommand]:
        if self.state is EdgeState.ENDED:
            return []
        self.alarm.silence_at_s = now_s + self.patience.wait_s if self._awaits_cloud() else None
        return [*self.alarm.commands()]

    def _awaits_cloud(self) -> bool:
        if self.state is EdgeState.LIVE and not self._open_again:
            judged_unasked = self.strategy.eager and self.tail.num_sent > 0
            return bool(self.asked) or judged_unasked or not self.strategy.uses_draft
        return self._open_again or self.state in CONNECTED

    def _on_timer(self) -> list[EdgeCommand]:
        """Rule 6: an edge that hears nothing resumes, ever more patiently; one that was told to come back does."""
        if not self._awaits_cloud() or not self.alarm.is_for_silence:
            return []
        if self._open_again:
            return self._open()
        self.patience.ran_out()
        if self.patience.has_ended(self.settings.on_link_loss):
            alone = self.settings.on_link_loss is OnLinkLoss.LOCAL and self.strategy.uses_draft
            return self._go_local() if alone else self._fail(silent_cloud())
        return self._resume()

    # -- the end ---------------------------------------------------------------------------------------------------

    def _on_stop_string(self, length: int) -> list[EdgeCommand]:
        """The text layer found the end inside a run; it may come after the run itself ended the request."""
        self.counters.num_committed = length - self.prompt_length
        return [] if self.state is EdgeState.ENDED else self._end(Finish(FinishReason.STOP), Close)

    def _fail(self, error: EdgedraftError) -> list[EdgeCommand]:
        return self._end(Fail(error), Close)

    def _end(self, last: Finish | Fail, goodbye: type[Close] | type[Cancel]) -> list[EdgeCommand]:
        """Invariant 5: a request ends once. The cloud is told where there is a link."""
        told = self.state in CONNECTED
        self.state = EdgeState.ENDED
        self.counters.num_discarded += len(self.tail)
        farewell = [SendToCloud(goodbye(channel=self.channel, incarnation=self.incarnation))] if told else []
        return [*farewell, SetTimer(None), last]
