"""The cloud's half of a session: it keeps the committed log, judges drafts against it and writes by itself.

The cloud alone appends (owner *cloud*), so every id in the log is the target's choice whatever the edge sends, in
whatever order. The rules cited as "rule n" are those of docs/protocol.md, "Progress".
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

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
from edgedraft.core.sequence import common_prefix_length, cut_at_end
from edgedraft.errors import (
    ContextLengthError,
    EdgedraftError,
    GapError,
    InvalidRequestError,
    MalformedFrameError,
    SessionLostError,
    UnsupportedError,
)
from edgedraft.protocol.codec import error_to_wire
from edgedraft.protocol.fingerprint import committed_hash
from edgedraft.protocol.messages import (
    Ack,
    Cancel,
    Close,
    Commit,
    CommitKind,
    Draft,
    Open,
    Opened,
    OpenIds,
    Resume,
    Resumed,
    SessionFromCloud,
    Timings,
)
from edgedraft.types import Assist, DraftDistribution, Owner, Rule

MAX_DRAFT_TOKENS_PER_PASS = 32
"""Bounds the rows of one pass (33 rows of 152,000 float32 logits are 20 MB)."""


class CloudState(enum.Enum):
    """Where a session stands; `CLOSED` is both before the first `Open` and after the end."""

    CLOSED = "closed"
    ASSEMBLING = "assembling"
    PREFILLING = "prefilling"
    LIVE = "live"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudSessionSettings:
    """What the target and the operator allow (`config.CloudConfig`). All lengths in tokens."""

    num_ids: int
    eos_ids: frozenset[int]
    context_length: int
    max_pending_tokens: int = 256
    assist_lead_tokens: int = 8
    cloud_only_lead_tokens: int = 64


@dataclass(slots=True)
class CloudCounters:
    """Raw counts for /health and the tests; in tokens where not passes."""

    num_dropped: int = 0
    num_judged: int = 0
    num_accepted: int = 0
    num_passes: int = 0


class CloudSession:
    """One session. `handle` takes an event and returns what to do; it never blocks and keeps no clock."""

    def __init__(self, session_id: bytes, settings: CloudSessionSettings) -> None:
        self.session_id = session_id
        self.settings = settings
        self.state = CloudState.CLOSED
        self.counters = CloudCounters()
        self.connection: int | None = None
        self.channel = 0
        self.incarnation = 0
        self.attach = 0
        self.log: list[int] = []
        self._next_pass_id = 0
        self._request: Open | None = None
        self._reset_incarnation()

    def _reset_incarnation(self) -> None:
        self.prompt_length = 0
        self.max_length = 0
        self.stop_ids: frozenset[int] = frozenset()
        self.epoch = 0
        self.dead_epoch = -1
        self.has_drafted = False
        self.edge_length = 0
        self.pending: list[int] = []
        self.pending_distributions: list[DraftDistribution] = []
        self.verify_at: int | None = None
        self.asked_s: float | None = None
        self.target_length = 0
        self._pass: RunPass | None = None

    @property
    def length(self) -> int:
        return len(self.log)

    @property
    def ended(self) -> bool:
        """Whether the text is complete: a stop id was written or the budget is used up."""
        written = self.length > self.prompt_length
        return self.length >= self.max_length or (written and self.log[-1] in self.stop_ids)

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
                    self.target_length = self.length
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
                case Ack():
                    self.edge_length = max(self.edge_length, message.committed_length)
                    return self._next_pass()
                case Cancel() | Close():
                    return self._close()
                case _:
                    raise MalformedFrameError(f"{type(message).__name__} has no place in a session.")
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
        self._check_open(message)
        self._request = message
        self.prompt_length = message.num_prompt
        self.max_length = message.max_length
        own_stops = frozenset() if message.ignore_eos else self.settings.eos_ids
        self.stop_ids = own_stops | frozenset(message.stop_ids)
        self.log = []
        return commands + self._take_ids(message.token_ids)

    def _check_open(self, message: Open) -> None:
        limit = self.settings.context_length
        num_held = message.num_prompt + message.num_committed
        if message.num_prompt < 1:
            raise InvalidRequestError("prompt is empty.", field="prompt", remedy="Give at least one token.")
        if not num_held < message.max_length <= limit:
            raise ContextLengthError(
                f"max_length is {message.max_length} with {num_held} tokens held; legal: above that, at most {limit}.",
                field="max_length",
                remedy="Shorten the prompt or lower max_tokens.",
            )
        if message.rule is Rule.RATIO and (message.assist is not Assist.NONE or message.eager):
            raise UnsupportedError(
                "rule is 'ratio' together with assist or eager verification, which changes the distribution.",
                field="rule",
                remedy="Use rule 'match', or set assist to 'none' and eager to false.",
            )
        if message.owner is not Owner.CLOUD:
            raise UnsupportedError("owner is 'edge'; this target serves sessions it owns.", field="owner")
        if message.rule is Rule.RANK:
            raise UnsupportedError("rule is 'rank', which needs owner 'edge'.", field="rule")
        if message.fork_of:
            raise UnsupportedError("fork_of names a session; this target does not share prefixes.", field="fork_of")

    def _on_open_ids(self, message: OpenIds) -> list[CloudCommand]:
        if self.state is not CloudState.ASSEMBLING or message.offset != self.length:
            raise MalformedFrameError(f"OpenIds.offset is {message.offset}; expected {self.length}.")
        return self._take_ids(message.token_ids)

    def _take_ids(self, token_ids: Sequence[int]) -> list[CloudCommand]:
        request = self._opened_with
        self._check_ids(token_ids)
        self.log.extend(token_ids)
        wanted = request.num_prompt + request.num_committed
        if self.length > wanted:
            raise MalformedFrameError(f"Open announced {wanted} ids; {self.length} came.")
        if self.length < wanted:
            return []
        self.state = CloudState.PREFILLING
        self.edge_length = self.length
        opened = Opened(channel=self.channel, incarnation=self.incarnation, committed_length=self.length)
        return [
            *self._send(opened),
            OpenTarget(self.incarnation, self.log[: self.prompt_length], self.log[self.prompt_length :]),
        ]

    @property
    def _opened_with(self) -> Open:
        if self._request is None:
            raise MalformedFrameError("The session was not opened.")
        return self._request

    def _check_ids(self, token_ids: Sequence[int]) -> None:
        if token_ids and not 0 <= min(token_ids) <= max(token_ids) < self.settings.num_ids:
            raise InvalidRequestError(
                f"token_ids hold {max(token_ids)}; the vocabulary has {self.settings.num_ids} ids.",
                field="token_ids",
                remedy="Draft and target must share a vocabulary: run `edgedraft doctor`.",
            )

    # -- resuming and losing the link ------------------------------------------------------------------------------

    def _on_resume(self, message: Resume, connection: int) -> list[CloudCommand]:
        if self.state is not CloudState.CLOSED and message.attach <= self.attach:
            return []
        self.connection, self.channel, self.attach = connection, message.channel, message.attach
        if not self._holds(message):
            return self._end_with(SessionLostError("The cloud does not hold this text."), message.incarnation)
        self.edge_length = message.committed_length
        self._clear_pending()
        resumed = Resumed(
            channel=self.channel,
            incarnation=self.incarnation,
            attach=self.attach,
            committed_length=self.length,
        )
        return [*self._send(resumed), *self._catch_up(message.committed_length), *self._next_pass()]

    def _holds(self, message: Resume) -> bool:
        length = message.committed_length
        return (
            self.state in (CloudState.PREFILLING, CloudState.LIVE)
            and message.incarnation == self.incarnation
            and self.prompt_length <= length <= self.length
            and committed_hash(self.log[:length]) == message.committed_hash
        )

    def _catch_up(self, from_length: int) -> list[CloudCommand]:
        missed = self.log[from_length:]
        return self._commit(from_length, missed, CommitKind.OWN) if missed else []

    def _on_connection_lost(self, connection: int) -> list[CloudCommand]:
        """Rule 7: queued work and the pending tail go at once; log and KV stay until they expire."""
        if connection != self.connection:
            return []
        self.connection = None
        if self.state is CloudState.ASSEMBLING:
            return self._close()
        self._clear_pending()
        return self._drop_pass()

    def _drop_pass(self) -> list[CloudCommand]:
        dropped, self._pass = self._pass, None
        return [CancelPass(dropped.pass_id)] if dropped else []

    # -- drafts ----------------------------------------------------------------------------------------------------

    def _on_draft(self, message: Draft, now_s: float) -> list[CloudCommand]:
        self._check_draft(message)
        self.has_drafted = True
        self.edge_length = max(self.edge_length, message.committed_length)
        if message.epoch > self.epoch:
            self._begin_epoch(message.epoch)
        if message.epoch < self.epoch or self._is_dead(message.epoch):
            self.counters.num_dropped += len(message.token_ids)
        else:
            self._take_draft(message)
        if message.verify:
            return self._on_verify(message, now_s)
        return self._next_pass()

    def _check_draft(self, message: Draft) -> None:
        if message.judged is not None:
            raise InvalidRequestError("judged is set, but the cloud owns this log.", field="judged")
        if message.position < self.prompt_length:
            raise MalformedFrameError(f"Draft.position is {message.position}, inside the prompt.")
        num_distributions = len(message.distributions or ())
        wanted = len(message.token_ids) if self._opened_with.rule is Rule.RATIO else 0
        if num_distributions != wanted:
            raise InvalidRequestError(
                f"distributions holds {num_distributions} entries; rule '{self._opened_with.rule}' needs {wanted}.",
                field="distributions",
            )
        self._check_ids(message.token_ids)

    def _begin_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self._clear_pending()

    def _is_dead(self, epoch: int) -> bool:
        """Rule 3: after a mismatch nothing of that epoch can be right."""
        return epoch <= self.dead_epoch

    def _kill_epoch(self) -> None:
        self.dead_epoch = self.epoch
        self._clear_pending()

    def _clear_pending(self) -> None:
        self.counters.num_dropped += len(self.pending)
        self.pending = []
        self.pending_distributions = []
        self.verify_at = None

    def _take_draft(self, message: Draft) -> None:
        """Use the part of a draft that goes past what is held; anything unequal kills its epoch."""
        held_end = self.length + len(self.pending)
        if message.position > held_end:
            raise GapError(f"Draft.position is {message.position}; expected {held_end}.", expected=held_end)
        held = self.log[message.position :] + self.pending[max(0, message.position - self.length) :]
        overlap = common_prefix_length(held, message.token_ids)
        if overlap < min(len(held), len(message.token_ids)):
            self.counters.num_dropped += len(message.token_ids) - overlap
            self._kill_epoch()
            return
        self.pending.extend(message.token_ids[overlap:])
        self.pending_distributions.extend((message.distributions or [])[overlap:])
        if len(self.pending) > self.settings.max_pending_tokens:
            raise InvalidRequestError(
                f"token_ids would make {len(self.pending)} unjudged ids; the limit is "
                f"{self.settings.max_pending_tokens}.",
                field="token_ids",
                remedy="Ask for a verdict earlier.",
            )

    def _on_verify(self, message: Draft, now_s: float) -> list[CloudCommand]:
        """Rule 1: every `verify` is answered, by an empty commit where nothing is left to judge."""
        flagged = message.position + len(message.token_ids)
        passed = self.length > flagged or self.ended
        if passed or message.epoch < self.epoch or self._is_dead(message.epoch):
            return [*self._commit(self.length, [], CommitKind.ACCEPTED_ONLY), *self._next_pass()]
        self.verify_at = flagged
        self.asked_s = now_s
        return self._next_pass()

    # -- passes ----------------------------------------------------------------------------------------------------

    def _next_pass(self) -> list[CloudCommand]:
        """The target pass that is worth running now, if any."""
        if self.state is not CloudState.LIVE or self._pass is not None or self.connection is None or self.ended:
            return []
        priority = self._priority()
        if priority is None:
            return []
        draft_ids = () if priority is OWN else self.pending[:MAX_DRAFT_TOKENS_PER_PASS]
        return [self._start_pass(priority, draft_ids)]

    def _priority(self) -> Priority | None:
        if self.verify_at is not None:
            return REQUESTED
        request = self._opened_with
        if self.pending:
            return EAGER if request.eager else None
        return OWN if self._may_write_on(request.assist) else None

    def _may_write_on(self, assist: Assist) -> bool:
        """Rule 8: ahead of the edge by a bounded number of ids, so a dead edge costs a bounded amount."""
        settings = self.settings
        lead = settings.assist_lead_tokens if self.has_drafted else settings.cloud_only_lead_tokens
        if self.length - self.edge_length >= lead:
            return False
        in_bubble = assist is Assist.BUBBLE and self._is_dead(self.epoch)
        return assist is Assist.ALWAYS or in_bubble

    def _start_pass(self, priority: Priority, draft_ids: Sequence[int]) -> RunPass:
        request = self._opened_with
        history = request.sampling.needs_history
        self._next_pass_id += 1
        self._pass = RunPass(
            pass_id=self._next_pass_id,
            priority=priority,
            length=self.target_length,
            committed_ids=self.log[self.target_length :],
            position=self.length,
            draft_ids=tuple(draft_ids),
            rule=request.rule,
            rank=request.rank,
            sampling=request.sampling,
            prompt_ids=self.log[: self.prompt_length] if history else (),
            output_ids=self.log[self.prompt_length :] if history else (),
            distributions=tuple(self.pending_distributions[: len(draft_ids)]),
        )
        return self._pass

    def _on_pass_done(self, event: PassDone, now_s: float) -> list[CloudCommand]:
        done = self._pass
        if done is None or event.pass_id != done.pass_id:
            return []
        self._pass = None
        accepted = list(done.draft_ids[: event.num_accepted])
        verdict = accepted if event.next_id is None else [*accepted, event.next_id]
        token_ids, _ = cut_at_end(verdict, length=self.length, max_length=self.max_length, stop_ids=self.stop_ids)
        cut = len(token_ids) < len(verdict)
        position = self.length
        self.log.extend(token_ids)
        # The last id has not been through the target yet, so that every later pass has a row to choose from.
        self.target_length = min(position + event.num_accepted, self.length - 1)
        self.counters.num_passes += 1
        self.counters.num_judged += len(done.draft_ids)
        self.counters.num_accepted += event.num_accepted
        commands = self._commit(
            position,
            token_ids,
            CommitKind.ACCEPTED_ONLY if cut else event.kind,
            num_judged=len(done.draft_ids),
            num_accepted=min(event.num_accepted, len(token_ids)),
            logprobs=event.logprobs,
            timings=self._timings(event, now_s),
        )
        self._reconcile_pending(token_ids)
        return [*commands, *self._next_pass()]

    def _reconcile_pending(self, token_ids: Sequence[int]) -> None:
        """Keep the pending ids that the new text confirms; an unequal one kills the epoch (rule 3)."""
        equal = common_prefix_length(self.pending, token_ids)
        if equal < min(len(self.pending), len(token_ids)) or self.ended:
            self._kill_epoch()
            return
        del self.pending[:equal]
        del self.pending_distributions[:equal]
        if self.verify_at is not None and self.length > self.verify_at:
            self.verify_at = None

    def _timings(self, event: PassDone, now_s: float) -> Timings | None:
        if not self._opened_with.timings:
            return None
        queue_us, verify_us = round(event.queue_s * 1e6), round(event.verify_s * 1e6)
        since_asked_us = 0 if self.asked_s is None else round((now_s - self.asked_s) * 1e6)
        self.asked_s = None
        return Timings(queue_us, verify_us, max(since_asked_us, queue_us + verify_us))

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
        logprobs: Sequence[float] | None = None,
        timings: Timings | None = None,
    ) -> list[CloudCommand]:
        return self._send(
            Commit(
                channel=self.channel,
                incarnation=self.incarnation,
                epoch=self.epoch,
                position=position,
                token_ids=list(token_ids),
                kind=kind,
                num_judged=num_judged,
                num_accepted=num_accepted,
                logprobs=None if logprobs is None else list(logprobs),
                timings=timings,
            )
        )

    def _send_error(self, error: EdgedraftError, incarnation: int | None = None) -> list[CloudCommand]:
        return self._send(error_to_wire(error, self.channel, self.incarnation if incarnation is None else incarnation))

    def _end_with(self, error: EdgedraftError, incarnation: int | None = None) -> list[CloudCommand]:
        return [*self._send_error(error, incarnation), *self._close()]

    def _close(self) -> list[CloudCommand]:
        self.state = CloudState.CLOSED
        self._clear_pending()
        return [*self._drop_pass(), CloseTarget()]


def _as_session_error(error: EdgedraftError) -> EdgedraftError:
    """Rule 6: what fails in the model is a lost session to the edge; what the request did wrong stays as it is."""
    if isinstance(error, InvalidRequestError):
        return error
    return SessionLostError(f"The target gave up this session: {type(error).__name__}.")
