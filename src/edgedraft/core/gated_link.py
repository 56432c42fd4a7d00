"""A gated session's side of the link: when the cloud is asked, what it is told, and when it is given up."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

from edgedraft.core.blocks import Block, BlockTail
from edgedraft.core.draft_tail import DraftTail
from edgedraft.core.edge_account import EdgeAccount
from edgedraft.core.edge_messages import opening, resuming
from edgedraft.core.edge_patience import Patience, silent_cloud
from edgedraft.core.edge_settings import EdgeSessionSettings
from edgedraft.core.events import Connect, EdgeCommand, LinkUp, Notice, SendToCloud
from edgedraft.core.strategy import Strategy
from edgedraft.errors import EdgedraftError, LinkLostError, ProtocolError, SessionLostError
from edgedraft.protocol.codec import error_from_wire
from edgedraft.protocol.messages import (
    Cancel,
    Close,
    Commit,
    Draft,
    Error,
    Opened,
    Resumed,
    SessionFromCloud,
)
from edgedraft.types import OnLinkLoss

MAX_EPOCH = 2**32 - 1
MAX_LOSSES = 2
"""So often it may lose the session before that."""
OUT_OF_REACH = "The cloud was out of reach"


class LinkState(enum.Enum):
    """`UNUSED`: nobody has been called yet. `UP`: a link, but no session on it."""

    UNUSED = "unused"
    DIALLING = "dialling"
    DOWN = "down"
    UP = "up"
    OPENING = "opening"
    RESUMING = "resuming"
    LIVE = "live"


IN_SESSION = frozenset({LinkState.OPENING, LinkState.RESUMING, LinkState.LIVE})


class Owner(Protocol):
    """What of a gated session its link needs."""

    settings: EdgeSessionSettings
    strategy: Strategy
    account: EdgeAccount
    log: list[int]
    prompt_length: int
    max_length: int
    tail: DraftTail
    drafted: BlockTail

    def fail(self, error: EdgedraftError) -> list[EdgeCommand]: ...


class GatedLink:
    """`is_given_up`: what needs a verdict is committed without one. `has_news`: the wait for the cloud begins anew.

    `is_uploading`: the question has not left, so the cloud owes nothing: features may take their time on a slow link.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self.settings = owner.settings
        self.strategy = owner.strategy
        self.log = owner.log
        self.prompt_length = owner.prompt_length
        self.max_length = owner.max_length
        self.state = LinkState.UNUSED
        self.channel = self.incarnation = self.attach = self.epoch = 0
        self.patience = Patience(owner.settings.silence_s)
        self.is_given_up = False
        self.has_news = False
        self._sent_length = 0
        self._known_length = 0
        self.is_uploading = False
        self._num_losses = 0
        self._busy_until_s = 0.0
        self._noticed = False
        self._why = OUT_OF_REACH

    # -- asking ----------------------------------------------------------------------------------------------------

    def ask(self, block: Block, now_s: float) -> list[EdgeCommand]:
        """Ask for the verdict on `block`, or take the next step towards being able to."""
        match self.state:
            case LinkState.UNUSED:
                self.state, self.has_news = LinkState.DIALLING, True
                return [Connect()]
            case LinkState.UP if now_s >= self._busy_until_s:
                return [*self._open(), self._draft(block, now_s)]
            case LinkState.OPENING | LinkState.LIVE:
                return [self._draft(block, now_s)]
            case _:
                return []

    def _open(self) -> list[SendToCloud]:
        """The session, with the text so far and the recording's features. Epochs start at 0 with each incarnation."""
        self.state = LinkState.OPENING
        self._owner.account.counters.num_reopens += self.incarnation > 0
        self.incarnation += 1
        self.attach += 1
        self.epoch = 0
        self.patience.begin()
        self._sent_length = self._known_length = len(self.log)
        return [SendToCloud(message) for message in opening(self)]

    def _draft(self, block: Block, now_s: float) -> SendToCloud:
        """All that the cloud lacks, up to the last token that is to be judged; what follows that waits here."""
        judged = block.judged or ()
        position, end = self._sent_length, judged[-1] + 1
        unseen = [token.token_id for token in self._owner.tail.tokens[: end - len(self.log)]]
        token_ids = [*self.log[position:], *unseen][: end - position]
        offsets = [at - position for at in judged]
        block.asked_s, self.has_news, self.is_uploading = now_s, True, True
        self._sent_length = end
        account = self._owner.account
        account.counters.tokens_up += len(token_ids)
        account.clock.asked(now_s, num_drafted=block.num_tokens)
        return SendToCloud(
            Draft(
                channel=self.channel,
                incarnation=self.incarnation,
                epoch=self.epoch,
                position=position,
                token_ids=token_ids,
                verify=True,
                committed_length=len(self.log),
                judged=None if len(offsets) == len(token_ids) else offsets,
            ),
            asks=True,
        )

    def uploaded(self) -> None:
        """The question has left: from here on it is the cloud that is waited for."""
        self.is_uploading, self.has_news = False, True

    # -- the link --------------------------------------------------------------------------------------------------

    def came_up(self, event: LinkUp) -> list[EdgeCommand]:
        self.channel = event.channel
        self.patience.rtt_s = event.rtt_s
        self._back_again()
        if self.incarnation == 0:
            self.state = LinkState.UP
            return []
        self._owner.account.counters.num_reconnects += 1
        return self.resume()

    def went_down(self) -> list[EdgeCommand]:
        self.state, self._why = LinkState.DOWN, OUT_OF_REACH
        self._forget_questions()
        match self.settings.on_link_loss:
            case OnLinkLoss.WAIT:
                return []
            case OnLinkLoss.LOCAL:
                self.is_given_up = True
                return []
            case OnLinkLoss.FAIL:
                return self._owner.fail(
                    LinkLostError(
                        "The link to the cloud was lost.", remedy="Set on_link_loss to 'local' to go on alone."
                    )
                )

    def resume(self) -> list[EdgeCommand]:
        """Ask for the session again, from what the cloud is known to hold."""
        self.state = LinkState.RESUMING
        self.attach += 1
        self._owner.account.counters.num_resumes += 1
        self._forget_questions()
        return [SendToCloud(resuming(self, self._known_length))]

    def ran_out_of_time(self) -> list[EdgeCommand]:
        """Rule 6: an edge that hears nothing resumes; one that may go on alone does so when that is no help either."""
        self.has_news = True
        if self.state is LinkState.UP:
            return []  # the cloud had no room; by now it may have
        self.patience.ran_out()
        if self.patience.has_ended(self.settings.on_link_loss):
            if not self._may_go_alone:
                return self._owner.fail(silent_cloud())
            self.is_given_up = True
        return self.resume() if self.state in IN_SESSION else []

    def _forget_questions(self) -> None:
        """What travelled may be lost: a verdict has to be asked for anew."""
        for block in self._owner.drafted.blocks:
            block.asked_s = None
        self.is_uploading = False
        self._owner.account.clock.forget()

    def _back_again(self) -> None:
        self.is_given_up = False
        self.patience.heard()
        self.has_news = True

    @property
    def _may_go_alone(self) -> bool:
        return self.settings.on_link_loss is OnLinkLoss.LOCAL

    # -- messages --------------------------------------------------------------------------------------------------

    def expects(self, message: Commit) -> bool:
        """Rule 5: no commit before `Opened` or `Resumed`; none of an older epoch."""
        is_ours = message.incarnation == self.incarnation and message.epoch == self.epoch
        return self.state is LinkState.LIVE and is_ours

    def progressed(self, message: Commit) -> None:
        """A verdict that brings new text."""
        self.patience.progressed()
        if message.timings is not None:
            self.patience.verify_s = message.timings.verify_us * 1e-6
        self._num_losses = 0
        self.has_news = True
        self._known_length = message.position + len(message.token_ids)
        self._sent_length = max(self._sent_length, self._known_length)

    def heard(self, message: SessionFromCloud, now_s: float) -> list[EdgeCommand]:
        """Anything but a verdict."""
        if message.incarnation != self.incarnation:
            return []
        match message:
            case Opened() if self.state is LinkState.OPENING:
                self.state, self.has_news = LinkState.LIVE, True
                self.patience.heard()
            case Resumed(attach=attach) if self.state is LinkState.RESUMING and attach == self.attach:
                self.state = LinkState.LIVE
                self._back_again()
                self.new_epoch(self._known_length)
            case Error():
                return self._on_error(message, now_s)
        return []

    def _on_error(self, message: Error, now_s: float) -> list[EdgeCommand]:
        error = error_from_wire(message)
        self.patience.failed()
        if isinstance(error, SessionLostError):
            self._num_losses += 1
            may_try = self._num_losses <= MAX_LOSSES if self._may_go_alone else self.patience.may_try_again
            return self._without_session(error, may_try=may_try)
        if message.retryable and message.retry_after_s is not None:
            self._busy_until_s = now_s + message.retry_after_s
            may_wait = not self._may_go_alone and self.patience.may_come_back(message.retry_after_s)
            return self._without_session(error, may_try=may_wait)
        if message.retryable and message.expected is not None and self.patience.may_try_again:
            return self.resume()
        return self._owner.fail(error)

    def _without_session(self, error: EdgedraftError, *, may_try: bool) -> list[EdgeCommand]:
        """There is a link and no session: try again, or give the cloud up, or the request."""
        self.state, self.has_news = LinkState.UP, True
        self._forget_questions()
        if may_try:
            return []
        if not self._may_go_alone:
            return self._owner.fail(error)
        self.is_given_up = True
        self._why = f"The cloud did not take this on ({error.message.removesuffix('.')})"
        return []

    def new_epoch(self, length: int) -> None:
        """What travelled behind position `length` is void; ids start there again (rule 4)."""
        if self.epoch >= MAX_EPOCH:
            raise ProtocolError(f"epoch would pass {MAX_EPOCH}.")
        self.epoch += 1
        self._sent_length = length

    # -- words -----------------------------------------------------------------------------------------------------

    def notice(self) -> Sequence[Notice]:
        """Said once, where tokens that needed a verdict are committed without one."""
        if self._noticed:
            return ()
        self._noticed = True
        return [Notice(f"{self._why}: from there on uncertain tokens are the edge's own, unverified.")]

    def farewell(self, goodbye: type[Close] | type[Cancel]) -> list[SendToCloud]:
        if self.state not in IN_SESSION:
            return []
        return [SendToCloud(goodbye(channel=self.channel, incarnation=self.incarnation))]
