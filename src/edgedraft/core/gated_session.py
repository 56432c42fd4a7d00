"""A request whose text the edge owns (UGSD): it commits what it is sure of and asks the cloud about the rest.

The draft comes in blocks. A gate says which tokens of a block need a verdict; where none does, the block is committed
without a word to anyone. Nothing is sent, not even a connection made, before the first block that does. Then the cloud
opens a session with the recording's features, judges what it is asked about, and the edge goes on from its verdict.
The rules cited as "rule n" are those of docs/protocol.md, "Progress".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from edgedraft.core.blocks import Block, BlockTail
from edgedraft.core.draft_tail import DraftTail
from edgedraft.core.edge_account import EdgeAccount
from edgedraft.core.edge_alarm import Alarm
from edgedraft.core.edge_messages import token_kinds
from edgedraft.core.edge_settings import EdgeSessionSettings
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
    SetTimer,
    Start,
    StopStringFound,
    StrategyChanged,
    TimerFired,
    TokenDrafted,
    Uploaded,
)
from edgedraft.core.gated_link import GatedLink
from edgedraft.core.sequence import common_prefix_length, cut_at_end
from edgedraft.core.verdict_wait import VerdictWait
from edgedraft.errors import BackendError, EdgedraftError, ProtocolError
from edgedraft.metrics.records import RoundRecord
from edgedraft.protocol.messages import Cancel, Close, Commit, SessionFromCloud
from edgedraft.types import CommittedToken, FinishReason, TokenKind


class GatedSession:
    """`handle` takes an event and returns what to do; it never blocks and keeps no clock.

    `log`: prompt and committed ids. `went_local`: part of the text should have had a verdict and got none.
    """

    def __init__(self, settings: EdgeSessionSettings) -> None:
        strategy = settings.strategy
        assert strategy.gating is not None, "a strategy without gating leaves the text to the cloud"
        self.settings = settings
        self.strategy = strategy
        self.account = EdgeAccount()
        self.counters = self.account.counters
        self.log = list(settings.prompt_ids)
        self.prompt_length = len(self.log)
        self.max_length = self.prompt_length + settings.max_tokens
        self.stop_ids = settings.end_ids
        self.tail = DraftTail()
        self.drafted = BlockTail(strategy.gating, self.tail)
        self.link = GatedLink(self)
        self.alarm = Alarm()
        self.wait = VerdictWait()
        self.ended = False
        self._started = False

    @property
    def length(self) -> int:
        return len(self.log)

    @property
    def incarnation(self) -> int:
        """How often the cloud was given a session, and with it the recording's features."""
        return self.link.incarnation

    @property
    def went_local(self) -> bool:
        return self.counters.num_unverified > 0

    @property
    def needs_draft(self) -> bool:
        return not self.ended

    @property
    def rounds(self) -> list[RoundRecord]:
        return self.account.clock.records

    # -- events ----------------------------------------------------------------------------------------------------

    def handle(self, event: EdgeEvent, now_s: float) -> list[EdgeCommand]:
        """What to do about `event`. Nothing is returned after the `Finish` or `Fail` that ended the request."""
        if isinstance(event, StopStringFound):
            return self._on_stop_string(event.length)
        if self.ended:
            return []
        match event:
            case Start():
                self.account.clock.start(now_s)
                self._started = True
                commands: list[EdgeCommand] = []
            case LinkUp():
                commands = self.link.came_up(event)
            case LinkDown():
                commands = self.link.went_down()
            case MessageReceived(message=message):
                commands = self._on_message(message, now_s)
            case TokenDrafted():
                commands = self._on_token_drafted(event)
            case DraftUnavailable(reason=reason):
                commands = self._without_draft(reason)
            case Uploaded(upload_s=upload_s):
                self.account.clock.uploaded(upload_s)
                self.link.uploaded()
                commands = []
            case TimerFired():
                commands = self.link.ran_out_of_time() if self.alarm.is_for_silence else []
            case CancelRequested():
                commands = self._end(Finish(FinishReason.CANCELLED), Cancel)
            case StrategyChanged():
                return []  # nothing steers a caption
            case _:
                assert_never(event)
        return [*commands, *self._advance(now_s), *self._timer(now_s)]

    def _on_message(self, message: SessionFromCloud, now_s: float) -> list[EdgeCommand]:
        return self._on_commit(message, now_s) if isinstance(message, Commit) else self.link.heard(message, now_s)

    def _on_token_drafted(self, event: TokenDrafted) -> list[EdgeCommand]:
        token = event.token
        self.counters.num_drafted += token is not None
        if not self.tail.take_step(event, self.stop_ids):
            self.counters.num_discarded += token is not None
            return []
        if token is None:
            return self.fail(BackendError("The draft has no proposal."))
        self.wait.drafted(token.draft_s)
        assert event.position == self._drafted_length, "invariant 4: drafted at the end of log and tail"
        ends = token.token_id in self.stop_ids or self._is_last(event.position)
        self.drafted.add(token, event.position, self.log, ends=ends)
        return []

    def _without_draft(self, reason: str) -> list[EdgeCommand]:
        if self.length == self.prompt_length:
            return self.fail(BackendError(f"The draft model cannot answer: {reason}."))
        return [Notice(f"The answer ends here: {reason}."), *self._end(Finish(FinishReason.LENGTH), Close)]

    # -- verdicts --------------------------------------------------------------------------------------------------

    def _on_commit(self, message: Commit, now_s: float) -> list[EdgeCommand]:
        """A verdict, which may bring the text past several places that were judged, up to a correction."""
        if not self.link.expects(message):
            return []
        known = self.length - message.position
        if known < 0:
            return self.link.resume()  # rule 5: a gap
        if self.log[message.position : message.position + len(message.token_ids)] != message.token_ids[:known]:
            return self.fail(ProtocolError("The cloud contradicts text that it had committed."))
        new_ids = message.token_ids[known:]
        if not new_ids:
            return []
        self.link.progressed(message)
        self.counters.num_rounds += 1
        self.counters.num_target_passes += 1
        self.account.clock.close(message, now_s)
        kept = common_prefix_length([token.token_id for token in self.tail.tokens], new_ids)
        # A bonus token comes where nothing is drafted, and ends no block: it follows one.
        corrected = kept < min(len(self.tail.tokens), len(new_ids))
        asked_s = self.drafted.blocks[0].asked_s if self.drafted.blocks else None
        if asked_s is not None:
            self.wait.answered(now_s - asked_s, corrected=corrected)
        kinds = self._kinds(message, known, kept)
        entropies = [token.entropy for token in self.tail.tokens[: len(new_ids)]]
        self.counters.num_accepted += kinds.count(TokenKind.ACCEPTED)
        outcome = self.tail.reconcile(new_ids, self.length, message.position + message.num_judged)
        self.counters.num_discarded += outcome.num_dropped
        if corrected:
            self.counters.num_rollbacks += 1
            self._count(self.drafted.correct())
        commands = self._append(new_ids, kinds, entropies)
        if corrected or outcome.overtaken:
            self.link.new_epoch(self.length)
        self.drafted.settle(self.length)
        return commands

    def _kinds(self, message: Commit, known: int, kept: int) -> list[TokenKind]:
        """What the verdict says of each new token; ids that went along without being judged stay the edge's own."""
        kinds = token_kinds(message)[known:]
        judged = {position for block in self.drafted.blocks if block.asked for position in block.judged or ()}
        return [
            TokenKind.LOCAL if offset < kept and self.length + offset not in judged else kind
            for offset, kind in enumerate(kinds)
        ]

    def _count(self, block: Block) -> None:
        self.counters.num_gated += block.num_tokens
        self.counters.num_judged += block.num_judged

    # -- what can be done now --------------------------------------------------------------------------------------

    def _advance(self, now_s: float) -> list[EdgeCommand]:
        if self.ended or not self._started:
            return []
        commands = self._settle(now_s)
        self.alarm.draft_at_s = None
        if not self.ended and self._may_draft and not self._waits(now_s):
            commands.append(self.tail.next_run(self.log, self._run_length, with_second=True))
        return commands

    def _settle(self, now_s: float) -> list[EdgeCommand]:
        """Commit what needs no verdict, ask for the one that is needed next, drop blocks that are done."""
        commands: list[EdgeCommand] = []
        while self.drafted.blocks and not self.ended:
            block = self.drafted.blocks[0]
            if block.judged is None or block.asked:
                break
            commands += self._commit_alone(block.judged[0] if block.waits else block.end)
            if self.ended:
                break
            if block.waits:
                if not self.link.is_given_up:
                    commands += self.link.ask(block, now_s)
                    break
                self.counters.num_unverified += len(block.judged)
                block.num_judged -= len(block.judged)
                commands += [*self.link.notice(), *self._commit_alone(block.end)]
                if self.ended:
                    break
            self.drafted.blocks.pop(0)
            self._count(block)
        return commands

    def _commit_alone(self, end: int) -> list[EdgeCommand]:
        """The edge's own tokens up to position `end`, without a verdict."""
        tokens = self.tail.tokens[: end - self.length]
        if not tokens:
            return []
        del self.tail.tokens[: len(tokens)]
        self.counters.num_local += len(tokens)
        ids = [token.token_id for token in tokens]
        return self._append(ids, [TokenKind.LOCAL] * len(ids), [token.entropy for token in tokens])

    def _append(self, ids: Sequence[int], kinds: Sequence[TokenKind], entropies: Sequence[float]) -> list[EdgeCommand]:
        """Commit ids, show them, and end the request where the text ends."""
        kept, reason = cut_at_end(ids, length=self.length, max_length=self.max_length, stop_ids=self.stop_ids)
        tokens = [
            CommittedToken(
                token_id,
                self.length + offset,
                kinds[offset],
                entropy=entropies[offset] if offset < len(entropies) else None,
            )
            for offset, token_id in enumerate(kept)
        ]
        self.log.extend(kept)
        self.counters.num_committed += len(kept)
        return [EmitTokens(tokens), *(self._end(Finish(reason), Close) if reason is not None else [])]

    @property
    def _drafted_length(self) -> int:
        return self.length + len(self.tail)

    def _is_last(self, position: int) -> bool:
        """Whether nothing can follow a token at `position`. The budget never passes the draft's context."""
        return position + 1 >= self.max_length

    @property
    def _may_draft(self) -> bool:
        """Up to the end of the text; past a block that waits as far as the strategy drafts ahead."""
        newest = self.tail.tokens[-1] if self.tail.tokens else None
        at_end = self._is_last(self._drafted_length - 1) or (newest is not None and newest.token_id in self.stop_ids)
        if self.tail.step_is_out or at_end:
            return False
        blocks = self.drafted.blocks
        return not (blocks and blocks[0].waits) or self.drafted.num_ahead < self.strategy.draft_ahead_tokens

    def _waits(self, now_s: float) -> bool:
        """Whether the verdict that is out may be waited for; the alarm says how long at the most."""
        block = self.drafted.blocks[0] if self.drafted.blocks else None
        if block is None or block.asked_s is None:
            return False
        self.alarm.draft_at_s = self.wait.until_s(block.asked_s, now_s, self.link.patience.rtt_s)
        return self.alarm.draft_at_s is not None

    @property
    def _run_length(self) -> int:
        bounds = [self.drafted.num_left, self.max_length - self._drafted_length]
        if self.drafted.blocks and self.drafted.blocks[0].waits:
            bounds.append(self.strategy.draft_ahead_tokens - self.drafted.num_ahead)
            bounds.append(1)  # after each token the verdict may be near enough to be waited for
        return min(bounds)

    def _timer(self, now_s: float) -> list[EdgeCommand]:
        if self.ended:
            return []
        waits = bool(self.drafted.blocks) and self.drafted.blocks[0].waits and not self.link.is_uploading
        if not waits or self.alarm.silence_at_s is None or self.link.has_news:
            self.alarm.silence_at_s = now_s + self.link.patience.wait_s if waits else None
            self.link.has_news = False
        return [*self.alarm.commands()]

    # -- the end ---------------------------------------------------------------------------------------------------

    def _on_stop_string(self, length: int) -> list[EdgeCommand]:
        self.counters.num_committed = length - self.prompt_length
        return [] if self.ended else self._end(Finish(FinishReason.STOP), Close)

    def fail(self, error: EdgedraftError) -> list[EdgeCommand]:
        return self._end(Fail(error), Close)

    def _end(self, last: Finish | Fail, goodbye: type[Close] | type[Cancel]) -> list[EdgeCommand]:
        """Invariant 5: a request ends once. The cloud is told where it has a session."""
        self.ended = True
        self.counters.num_discarded += len(self.tail)
        for block in self.drafted.blocks[:1]:
            self._count(block)
        return [*self.link.farewell(goodbye), SetTimer(None), last]
