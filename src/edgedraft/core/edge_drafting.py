"""What an edge session drafts next, if anything: behind its draft, behind the second way, or not yet."""

from __future__ import annotations

from typing import Protocol

from edgedraft.core.draft_reach import DraftReach
from edgedraft.core.edge_account import EdgeAccount
from edgedraft.core.edge_alarm import Alarm
from edgedraft.core.edge_messages import DraftStanding
from edgedraft.core.edge_patience import Patience
from edgedraft.core.edge_settings import EdgeState
from edgedraft.core.edge_uplink import EdgeUplink
from edgedraft.core.events import DraftNext
from edgedraft.core.expectation import Expectation
from edgedraft.core.hedging import Hedging, Way, best_way


class Drafting(DraftStanding, Protocol):
    """What of an edge session the choice looks at besides."""

    state: EdgeState
    account: EdgeAccount
    alarm: Alarm
    expectation: Expectation
    patience: Patience
    uplink: EdgeUplink

    @property
    def may_send(self) -> bool: ...

    def new_epoch(self) -> int: ...


class EdgeDrafting:
    """Chooses for one request. The end of the reach is where a verdict has to be asked for."""

    def __init__(self, session: Drafting) -> None:
        self._session = session
        self._reach = DraftReach(session.settings)

    @property
    def is_full(self) -> bool:
        """Whether the draft's context has no room behind the committed text."""
        return self._reach.is_full(len(self._session.log))

    @property
    def must_ask(self) -> bool:
        """Rule 2: nothing more can be drafted before a verdict."""
        session = self._session
        return self._reach.must_ask(len(session.log), session.tail, session.strategy)

    def goes_on(self, must_ask: bool) -> bool:
        """Whether there is something to draft now. Where there is not, a verdict is asked for: all else would hang."""
        session = self._session
        if session.tail.step_is_out:
            return True
        may_draft = session.state is EdgeState.LOCAL or (not must_ask and self._may_draft())
        if session.strategy.hedging is None or not session.may_send:
            session.tail.go_on(on_hedge=False)
            return may_draft
        return self._choose_way(session.strategy.hedging, may_draft)

    def next_run(self, now_s: float) -> list[DraftNext]:
        """The next run of draft steps, unless one is out or a commit that is due is waited for."""
        session = self._session
        if session.tail.step_is_out or self._waits_for_commit(now_s):
            return []
        with_second = session.strategy.hedging is not None
        return [session.tail.next_run(session.log, self._run_length(), with_second=with_second)]

    def _may_draft(self) -> bool:
        """Up to the question, and past one that is out as far as the strategy drafts ahead."""
        tail, strategy, asked = self._session.tail, self._session.strategy, self._session.uplink.asked
        if tail.fired or not asked:
            return not tail.fired
        deepest = max(2, strategy.max_verdicts_out)
        return len(asked) < deepest and tail.num_ahead < strategy.draft_ahead_tokens

    def _choose_way(self, hedging: Hedging, may_draft: bool) -> bool:
        """Turn to what the next draft token is most likely to be of use for; whether there is such a thing."""
        session, tail = self._session, self._session.tail
        length = len(session.log)
        way, offset = best_way(tail, length, hedging)
        if way is Way.NEW_HEDGE:
            tail.open_hedge(offset, length, session.new_epoch())
            session.account.counters.num_drafted += 1
            way = Way.HEDGE
        tail.go_on(on_hedge=way is Way.HEDGE)
        if way is Way.HEDGE:
            return self._reach.has_room_behind_hedge(length, tail, session.strategy)
        return way is Way.MAIN and may_draft

    def _waits_for_commit(self, now_s: float) -> bool:
        """Whether a commit that is due may be waited for, where the strategy weighs such things."""
        session, tail = self._session, self._session.tail
        if session.strategy.hedging is None or session.state is not EdgeState.LIVE or not tail.tokens:
            return False
        hedge = tail.hedge if tail.on_hedge else None
        rtt_s = session.patience.rtt_s
        until_s = session.expectation.wait_until_s(tail.tokens, hedge, len(session.log), rtt_s, now_s)
        session.alarm.draft_at_s = until_s
        return until_s is not None

    def _run_length(self) -> int:
        session = self._session
        length = len(session.log)
        if session.state is EdgeState.LOCAL:
            return self._reach.run_length_alone(length)
        if session.strategy.hedging is not None:
            return 1  # after each token the other way may be the better one
        return self._reach.run_length(length, session.tail, session.strategy, ahead=bool(session.uplink.asked))
