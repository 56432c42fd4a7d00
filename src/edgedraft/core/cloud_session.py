"""The cloud's half of a session: it keeps the committed log, judges drafts against it and writes by itself.

Where the cloud owns the log it alone appends, so every id in it is the target's choice whatever the edge sends, in
whatever order. Where the edge owns it (captions, rule *rank*) the cloud judges what it is asked to and never adds.
The rules cited as "rule n" are those of docs/protocol.md, "Progress".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from edgedraft.core.arrivals import Arrivals
from edgedraft.core.block_cut import AcceptanceRate, best_cut
from edgedraft.core.cloud_log import CloudLog
from edgedraft.core.cloud_settings import CloudSessionSettings, CloudState, check_open
from edgedraft.core.draft_checks import check_draft, check_hedge, check_ids
from edgedraft.core.echo import Echo
from edgedraft.core.events import (
    EAGER,
    OWN,
    REQUESTED,
    CancelPass,
    CloseTarget,
    CloudCommand,
    CloudEvent,
    ConnectionLost,
    EdgeMessage,
    Evicted,
    OpenTarget,
    PassDone,
    PrefillDone,
    Priority,
    RunPass,
    SendToEdge,
    TargetFailed,
)
from edgedraft.core.feature_assembly import FeatureAssembly
from edgedraft.core.pending_tail import PendingTail
from edgedraft.core.sequence import common_prefix_length
from edgedraft.errors import (
    EdgedraftError,
    GapError,
    InvalidRequestError,
    MalformedFrameError,
    SaturatedError,
    SessionLostError,
)
from edgedraft.protocol.codec import error_to_wire
from edgedraft.protocol.messages import (
    MAX_IDS_PER_PIECE,
    Ack,
    Cancel,
    Close,
    Commit,
    CommitKind,
    Draft,
    Features,
    Hedge,
    Open,
    Opened,
    OpenIds,
    Resume,
    Resumed,
    SessionFromCloud,
    Timings,
)
from edgedraft.types import Assist, Rule

MAX_DRAFT_TOKENS_PER_PASS = 32
"""Bounds the rows of one pass (33 rows of 152,000 float32 logits are 20 MB)."""


class CloudSession:
    """One session. `handle` takes an event and returns what to do; it never blocks and keeps no clock."""

    def __init__(self, session_id: bytes, settings: CloudSessionSettings) -> None:
        self.session_id = session_id
        self.settings = settings
        self.state = CloudState.CLOSED
        self.connection: int | None = None
        self.channel = 0
        self.incarnation = 0
        self.attach = 0
        self._next_pass_id = 0
        self._log: CloudLog | None = None
        self._reset_incarnation()

    def _reset_incarnation(self) -> None:
        self.pending = PendingTail()
        self.edge_length = 0
        self._arrivals = Arrivals()
        self._features = FeatureAssembly(self.settings.features)
        self._pass: RunPass | None = None
        self._acceptance = AcceptanceRate()
        self._echo = Echo()
        self._echoed = AcceptanceRate()

    @property
    def log(self) -> Sequence[int]:
        """Prompt and committed ids; empty before the first `Open`."""
        return self._log.ids if self._log is not None else ()

    @property
    def length(self) -> int:
        return len(self.log)

    @property
    def _opened(self) -> CloudLog:
        assert self._log is not None, "the state is CLOSED until an Open has come"
        return self._log

    # -- events ----------------------------------------------------------------------------------------------------

    def handle(self, event: CloudEvent, now_s: float) -> list[CloudCommand]:
        """What to do about `event`. Errors of the edge become an `Error` message; none is raised to the shell."""
        match event:
            case EdgeMessage():
                return self._on_message(event, now_s)
            case ConnectionLost(connection=connection):
                return self._on_connection_lost(connection)
            case PrefillDone(incarnation=incarnation):
                if self.state is CloudState.PREFILLING and incarnation == self.incarnation:
                    self.state = CloudState.LIVE
                return self._next_pass()
            case PassDone():
                return self._on_pass_done(event, now_s)
            case TargetFailed(error=error):
                return self._end_with(_as_session_error(error))
            case Evicted(reason=reason):
                return self._end_with(SessionLostError(reason))
            case _:
                assert_never(event)

    def _on_message(self, event: EdgeMessage, now_s: float) -> list[CloudCommand]:
        message = event.message
        try:
            if isinstance(message, Open):
                return self._on_open(message, event.connection)
            if isinstance(message, Resume):
                return self._on_resume(message, event.connection)
            if self._is_stale(message.incarnation, event.connection):
                return []
            match message:
                case OpenIds():
                    return self._on_open_ids(message)
                case Draft():
                    return self._on_draft(message, now_s)
                case Hedge():
                    return self._on_hedge(message)
                case Ack():
                    self.edge_length = max(self.edge_length, message.committed_length)
                    return self._next_pass()
                case Cancel() | Close():
                    return self._close()
                case Features():
                    return self._on_features(message)
                case _:
                    assert_never(message)
        except GapError as error:
            return self._send_error(error)
        except EdgedraftError as error:
            return self._end_with(error)

    def _is_stale(self, incarnation: int, connection: int) -> bool:
        """Another incarnation, another connection, or no session: dropped without an answer."""
        return self.state is CloudState.CLOSED or incarnation != self.incarnation or connection != self.connection

    # -- opening ---------------------------------------------------------------------------------------------------

    def _on_open(self, message: Open, connection: int) -> list[CloudCommand]:
        if message.incarnation <= self.incarnation or message.attach <= self.attach:
            return []
        commands = self._drop_pass()
        self._reset_incarnation()
        self.incarnation, self.attach = message.incarnation, message.attach
        self.connection, self.channel = connection, message.channel
        self.state = CloudState.ASSEMBLING
        check_open(message, self.settings.context_length)
        self._log = CloudLog(message, self.settings.eos_ids)
        return commands + self._take_ids(message.token_ids)

    def _on_open_ids(self, message: OpenIds) -> list[CloudCommand]:
        if self.state is not CloudState.ASSEMBLING or message.offset != self.length:
            raise MalformedFrameError(f"OpenIds.offset is {message.offset}; expected {self.length}.")
        return self._take_ids(message.token_ids)

    def _take_ids(self, token_ids: Sequence[int]) -> list[CloudCommand]:
        check_ids(token_ids, self.settings.num_ids)
        return self._begin() if self._opened.take_piece(token_ids) else []

    def _on_features(self, message: Features) -> list[CloudCommand]:
        return self._begin() if self._features.take(message) else []

    def _begin(self) -> list[CloudCommand]:
        """The text is here; so is the recording, where the target listens to one: hand them to the target."""
        log = self._opened
        if not (log.is_complete and self._features.is_complete):
            return []
        self.edge_length = len(log)
        opened = Opened(channel=self.channel, incarnation=self.incarnation, committed_length=len(log))
        return [*self._send(opened), self._prefill()]

    def _prefill(self) -> OpenTarget:
        log = self._opened
        self.state = CloudState.PREFILLING
        features = self._features.features
        return OpenTarget(self.incarnation, log.ids[: log.prompt_length], log.ids[log.prompt_length :], features)

    def _begin_again(self) -> list[CloudCommand]:
        """The edge has taken back all of its text, and with it the row that the target would choose from next.

        A prefill of the prompt alone that still runs will leave one.
        """
        if self.state is CloudState.LIVE:
            return [self._prefill()]
        if self._opened.request.num_committed:
            raise SessionLostError("The text that is being prefilled was taken back.", remedy="Open the session again.")
        return []

    # -- resuming and losing the link ------------------------------------------------------------------------------

    def _on_resume(self, message: Resume, connection: int) -> list[CloudCommand]:
        if self.state is not CloudState.CLOSED and message.attach <= self.attach:
            return []
        self.connection, self.channel, self.attach = connection, message.channel, message.attach
        if self.state is CloudState.ASSEMBLING and self._opened.is_complete:
            self._features.require_complete()  # they would be here: messages of a connection keep their order
        if not self._holds(message):
            return self._end_with(SessionLostError("The cloud does not hold this text."), message.incarnation)
        self.edge_length = message.committed_length
        self.pending.clear()
        resumed = Resumed(
            channel=self.channel,
            incarnation=self.incarnation,
            attach=self.attach,
            committed_length=self.length,
        )
        return [*self._send(resumed), *self._catch_up(message.committed_length), *self._next_pass()]

    def _holds(self, message: Resume) -> bool:
        return (
            self.state in (CloudState.PREFILLING, CloudState.LIVE)
            and message.incarnation == self.incarnation
            and self._opened.holds(message)
        )

    def _catch_up(self, from_length: int) -> list[CloudCommand]:
        """What the edge lacks, in as many commits as it takes. It lacks nothing of a text that it owns."""
        commands: list[CloudCommand] = []
        if self._opened.edge_owns:
            return commands
        for start in range(from_length, self.length, MAX_IDS_PER_PIECE):
            commands += self._commit(start, self.log[start : start + MAX_IDS_PER_PIECE], CommitKind.OWN)
        return commands

    def _on_connection_lost(self, connection: int) -> list[CloudCommand]:
        """Rule 7: queued work and the pending tail go at once; log and KV stay until they expire."""
        if connection != self.connection:
            return []
        self.connection = None
        if self.state is CloudState.ASSEMBLING:
            return self._close()
        self.pending.clear()
        return self._drop_pass()

    def _drop_pass(self) -> list[CloudCommand]:
        dropped, self._pass = self._pass, None
        return [CancelPass(dropped.pass_id)] if dropped else []

    # -- drafts ----------------------------------------------------------------------------------------------------

    def _on_draft(self, message: Draft, now_s: float) -> list[CloudCommand]:
        check_draft(message, self._opened, self.settings.num_ids)
        self._features.require_complete()
        self._arrivals.note(message, now_s)
        self.edge_length = max(self.edge_length, message.committed_length)
        commands: list[CloudCommand] = []
        if message.epoch > self.pending.epoch:
            self.pending.begin(message.epoch)
            if self._opened.edge_owns:
                commands = self._drop_pass()  # its verdict would be on ids that the edge has taken back
                if self._opened.truncate(message.position):
                    commands += self._begin_again()
        if self.pending.is_current(message.epoch):
            self.pending.take(message, self.log, self.settings.max_pending_tokens)
            self._commit_unjudged()
        else:
            self.pending.num_dropped += len(message.token_ids)
        return commands + (self._on_verify(message) if message.verify else self._next_pass())

    def _on_hedge(self, message: Hedge) -> list[CloudCommand]:
        """A second way beside the drafts. Where it is taken its ids are judged like any other."""
        check_hedge(message, self._opened, self.settings.num_ids)
        self.edge_length = max(self.edge_length, message.committed_length)
        if not self._opened.ended:
            self.pending.take_hedge(message, self.log, self.settings.max_pending_tokens)
        return self._next_pass()

    def _on_verify(self, message: Draft) -> list[CloudCommand]:
        """Rule 1: every `verify` is answered, by an empty commit where nothing is left to judge."""
        flagged = message.position + len(message.token_ids)
        if not self.pending.is_current(message.epoch) or self._opened.ended or self._is_past(flagged):
            return [*self._commit(self.length, [], CommitKind.ACCEPTED_ONLY), *self._next_pass()]
        self.pending.questions.append(flagged)
        return self._next_pass()

    def _is_past(self, flagged: int) -> bool:
        """Whether the log settles a verdict asked for at `flagged`; rule *rank* gives no next token."""
        return self.length > flagged or (self._opened.edge_owns and self.length == flagged)

    def _commit_unjudged(self) -> None:
        """Ids before the first judged one need no verdict: the edge, which owns the log, has committed them itself."""
        if not self._opened.edge_owns or self._pass is not None:
            return
        count = self.pending.num_unjudged_first
        self._opened.ids.extend(self.pending.ids[:count])
        self.pending.drop_first(count)

    # -- passes ----------------------------------------------------------------------------------------------------

    def _next_pass(self) -> list[CloudCommand]:
        """The target pass that is worth running now, if any."""
        if self.state is not CloudState.LIVE or self._pass is not None or self.connection is None:
            return []
        if self._opened.ended:
            return []
        priority = self._priority()
        if priority is None:
            return []
        return [self._start_pass(priority, self._echo_ids() if priority is OWN else self._ids_to_judge())]

    def _ids_to_judge(self) -> Sequence[int]:
        """Rule *ratio* judges up to the flagged position only: which ids are tested must not depend on arrival."""
        request = self._opened.request
        count = min(len(self.pending), MAX_DRAFT_TOKENS_PER_PASS)
        if request.rule is Rule.RATIO and self.pending.questions:
            count = min(count, self.pending.questions[0] - self.length)
        if request.eager:
            least = 0 if request.assist is Assist.ALWAYS else 1
            count = best_cut(count, self.settings.pass_cost, self._acceptance.rate, least=least)
        return self.pending.ids[:count]

    def _echo_ids(self) -> Sequence[int]:
        """Guesses at what the target itself writes, within the lead of rule 8 and as many as are worth their time."""
        log = self._opened
        if not log.request.eager:
            return ()
        lead = self.settings.assist_lead_tokens - (self.length - self.edge_length)
        guesses = self._echo.guess(log.ids, min(lead, log.max_length - len(log)) - 1)
        return guesses[: best_cut(len(guesses), self.settings.pass_cost, self._echoed.rate, least=0)]

    def _priority(self) -> Priority | None:
        if self.pending.questions:
            return REQUESTED
        request = self._opened.request
        if self.pending.ids:
            return EAGER if request.eager else None
        return OWN if self._may_write_on(request.assist) else None

    def _may_write_on(self, assist: Assist) -> bool:
        """Rule 8: ahead of the edge by a bounded number of ids, so a dead edge costs a bounded amount."""
        if self.length - self.edge_length >= self.settings.assist_lead_tokens:
            return False
        in_bubble = assist is Assist.BUBBLE and self.pending.is_dead(self.pending.epoch)
        return assist is Assist.ALWAYS or in_bubble

    def _start_pass(self, priority: Priority, draft_ids: Sequence[int]) -> RunPass:
        log, request = self._opened, self._opened.request
        history = request.sampling.needs_history
        self._next_pass_id += 1
        self._pass = RunPass(
            pass_id=self._next_pass_id,
            priority=priority,
            length=log.target_length,
            committed_ids=log.ids[log.target_length :],
            position=len(log),
            draft_ids=tuple(draft_ids),
            rule=request.rule,
            rank=request.rank,
            sampling=request.sampling,
            prompt_ids=log.ids[: log.prompt_length] if history else (),
            output_ids=log.ids[log.prompt_length :] if history else (),
            distributions=tuple(self.pending.distributions[: len(draft_ids)]),
            judged=self.pending.judged_offsets(len(draft_ids)),
            logprobs=request.logprobs,
            bonus=request.bonus,
        )
        return self._pass

    def _on_pass_done(self, event: PassDone, now_s: float) -> list[CloudCommand]:
        done = self._pass
        if done is None or event.pass_id != done.pass_id:
            return []
        self._pass = None
        self.settings.pass_cost.add(len(done.draft_ids), event.verify_s)
        accepted = done.draft_ids[: event.num_accepted]
        verdict = accepted if event.next_id is None else (*accepted, event.next_id)
        position = self.length
        token_ids = self._opened.append_verdict(verdict, event.num_accepted, event.logprobs)
        wants_timings = self._opened.request.timings
        timings = self._arrivals.timings(event.queue_s, event.verify_s, now_s) if wants_timings else None
        if done.priority is OWN:
            self._echoed.add(event.num_accepted, then_wrong=event.num_accepted < len(done.draft_ids))
            commands = self._commit(position, token_ids, CommitKind.OWN, timings=timings)
        else:
            kind = CommitKind.ACCEPTED_ONLY if len(token_ids) < len(verdict) else event.kind
            num_accepted, num_judged = min(event.num_accepted, len(token_ids)), len(done.draft_ids)
            commands = self._commit(
                position, token_ids, kind, num_judged=num_judged, num_accepted=num_accepted, timings=timings
            )
        self._reconcile_pending(token_ids)
        return [*commands, *self._next_pass()]

    def _reconcile_pending(self, token_ids: Sequence[int]) -> None:
        """Keep the pending ids that the new text confirms; an unequal one kills the epoch (rule 3)."""
        pending = self.pending
        equal = common_prefix_length(pending.ids, token_ids)
        contradicted = equal < min(len(pending), len(token_ids))
        self._acceptance.add(equal, then_wrong=contradicted)
        if contradicted or self._opened.ended:
            pending.kill(self.length - len(token_ids) + equal)
            pending.settle_hedge(self.log)
            return
        pending.drop_first(equal)
        while pending.questions and self._is_past(pending.questions[0]):
            pending.questions.pop(0)
        pending.settle_hedge(self.log)
        self._commit_unjudged()

    # -- answers ---------------------------------------------------------------------------------------------------

    def _send(self, message: SessionFromCloud) -> list[CloudCommand]:
        return [] if self.connection is None else [SendToEdge(message, self.connection)]

    def _commit(
        self,
        position: int,
        token_ids: Sequence[int],
        kind: CommitKind,
        *,
        num_judged: int = 0,
        num_accepted: int = 0,
        timings: Timings | None = None,
    ) -> list[CloudCommand]:
        return self._send(
            Commit(
                channel=self.channel,
                incarnation=self.incarnation,
                epoch=self.pending.epoch,
                position=position,
                token_ids=list(token_ids),
                kind=kind,
                num_judged=num_judged,
                num_accepted=num_accepted,
                logprobs=self._opened.logprobs(position, len(token_ids)),
                timings=timings,
            )
        )

    def _send_error(self, error: EdgedraftError, incarnation: int | None = None) -> list[CloudCommand]:
        return self._send(error_to_wire(error, self.channel, self.incarnation if incarnation is None else incarnation))

    def _end_with(self, error: EdgedraftError, incarnation: int | None = None) -> list[CloudCommand]:
        return [*self._send_error(error, incarnation), *self._close()]

    def _close(self) -> list[CloudCommand]:
        self.state = CloudState.CLOSED
        self.pending.clear()
        return [*self._drop_pass(), CloseTarget()]


def _as_session_error(error: EdgedraftError) -> EdgedraftError:
    """Rule 6: what fails in the model is a lost session; a bad request and a full target stay what they are."""
    if isinstance(error, InvalidRequestError | SaturatedError):
        return error
    return SessionLostError(f"The target gave up this session: {type(error).__name__}.")
