"""What an edge session sends of its draft, and the verdicts that it has asked for."""

from __future__ import annotations

from typing import Protocol

from edgedraft.core.edge_account import EdgeAccount
from edgedraft.core.edge_alarm import Alarm
from edgedraft.core.edge_messages import DraftStanding, drafted, hedged
from edgedraft.core.events import SendToCloud
from edgedraft.core.expectation import Expectation
from edgedraft.protocol.messages import Ack
from edgedraft.types import Assist

ACKS_PER_LEAD = 4
"""How often an edge confirms what it holds while the cloud writes as far ahead as it may (rule 8)."""


class Sender(DraftStanding, Protocol):
    """What of an edge session its uplink needs besides."""

    account: EdgeAccount
    alarm: Alarm
    expectation: Expectation


class EdgeUplink:
    """`asked`: flagged positions that verdicts are out for, the oldest first."""

    def __init__(self, session: Sender) -> None:
        self.asked: list[int] = []
        self._session = session
        self._told_length = 0

    def forget(self) -> None:
        """No verdict is waited for any more."""
        self.asked.clear()
        self._session.account.clock.forget()

    def told(self) -> None:
        """The cloud knows how far the text is here."""
        self._told_length = len(self._session.log)

    def end_waits(self, new_length: int) -> None:
        """Rule 1: a wait ends when the text passes the flagged position. (A raised epoch ends it by itself.)"""
        while self.asked and new_length > self.asked[0]:
            self.asked.pop(0)
            end = self.asked[0] if self.asked else new_length + len(self._session.tail)
            self._session.account.counters.num_reused += max(0, end - new_length)

    def upload(self, now_s: float, due: bool) -> list[SendToCloud]:
        """What leaves now. `due`: a verdict should be asked for, unless as many are out as may be."""
        tail, strategy = self._session.tail, self._session.strategy
        if due and (not self.asked or (len(self.asked) < strategy.max_verdicts_out and tail.num_ahead > 0)):
            return [self._ask(now_s)]
        commands: list[SendToCloud] = []
        while (state := tail.upload_state(now_s)).num_unsent > 0:
            num_ids = min(strategy.upload.num_to_send(state), state.num_unsent)
            if num_ids == 0:
                wait_s = strategy.upload.wait_s(state)
                self._session.alarm.upload_at_s = None if wait_s is None else now_s + wait_s
                break
            commands.append(
                self._send_draft(now_s, num_ids, verify=False) if tail.num_unsent else self._send_hedge(now_s)
            )
        return commands

    def acknowledge(self) -> list[SendToCloud]:
        """Where the target writes by itself it has to hear how far the edge is; drafts tell it too."""
        session = self._session
        every_tokens = max(1, session.settings.assist_lead_tokens // ACKS_PER_LEAD)
        if session.strategy.assist is Assist.NONE or len(session.log) - self._told_length < every_tokens:
            return []
        self.told()
        return [
            SendToCloud(
                Ack(channel=session.channel, incarnation=session.incarnation, committed_length=self._told_length)
            )
        ]

    def _ask(self, now_s: float) -> SendToCloud:
        tail = self._session.tail
        # What is drafted behind another question starts with a guess, which that question's answer settles.
        self._session.account.clock.asked(now_s, num_drafted=tail.num_ahead - 1 if self.asked else len(tail))
        command = self._send_draft(now_s, tail.num_unsent, verify=True)
        self.asked.append(len(self._session.log) + len(tail))
        tail.mark_asked()
        return command

    def _send_draft(self, now_s: float, num_ids: int, *, verify: bool) -> SendToCloud:
        draft = drafted(self._session, num_ids, verify=verify)
        self._session.expectation.sent(now_s, draft.position + num_ids)
        self._session.tail.mark_sent(num_ids, now_s)
        self._session.account.counters.tokens_up += num_ids
        self.told()
        return SendToCloud(draft, asks=verify)

    def _send_hedge(self, now_s: float) -> SendToCloud:
        hedge = self._session.tail.hedge
        assert hedge is not None, "there is something unsent, and it is not of the tail"
        message = hedged(self._session, hedge)
        self._session.tail.mark_hedge_sent(now_s)
        self._session.account.counters.tokens_up += len(message.token_ids)
        self.told()
        return SendToCloud(message)
