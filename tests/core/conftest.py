"""An edge session with its shell played by hand, and tokens that are sure of themselves or not."""

from __future__ import annotations

from typing import Any

from edgedraft.core.edge_session import EdgeSession
from edgedraft.core.edge_settings import EdgeSessionSettings
from edgedraft.core.events import DraftNext, LinkUp, MessageReceived, SendToCloud, Start, TokenDrafted
from edgedraft.core.strategy import Strategy
from edgedraft.protocol.messages import Commit, CommitKind, Draft, Opened
from edgedraft.schedule.catalogue import vanilla
from edgedraft.types import DraftToken, SamplingParams

EOS = 0


def unsure(token_id: int, second_id: int, *, confidence: float = 0.1, second: float = 0.85) -> DraftToken:
    """A token whose other choice is the likelier one."""
    return DraftToken(token_id, confidence, 0.5, second_id=second_id, second_confidence=second)


def sure(token_id: int, confidence: float = 0.99) -> DraftToken:
    return DraftToken(token_id, confidence, 0.1, second_id=token_id + 50, second_confidence=(1 - confidence) / 2)


class Edge:
    """A session whose commands are kept; `drafted` answers the step that is out with ids, whole tokens or nothing."""

    def __init__(self, strategy: Strategy | None = None, **changes: Any) -> None:
        fields: dict[str, Any] = {
            "session_id": b"s" * 16,
            "prompt_ids": (5, 6),
            "max_tokens": 20,
            "sampling": SamplingParams(),
            "strategy": strategy or vanilla(2),
            "eos_ids": frozenset({EOS}),
        }
        self.core = EdgeSession(EdgeSessionSettings(**{**fields, **changes}))
        self.now_s = 0.0
        self.last: list[Any] = []
        self.step: DraftNext | None = None

    def tell(self, event: Any) -> list[Any]:
        self.last = self.core.handle(event, self.now_s)
        steps = [command for command in self.last if isinstance(command, DraftNext)]
        self.step = steps[-1] if steps else self.step
        return self.last

    def live(self) -> Edge:
        self.tell(Start())
        self.tell(LinkUp(channel=1))
        asked_at_once = self.sent(Draft)
        self.receive(Opened(channel=1, incarnation=1, committed_length=2))
        self.last = [*map(SendToCloud, asked_at_once), *self.last]
        return self

    def receive(self, message: Any) -> list[Any]:
        return self.tell(MessageReceived(message))

    def drafted(self, *proposals: int | DraftToken | None) -> list[Any]:
        for proposal in proposals:
            assert self.step is not None
            step, self.step = self.step, None
            token = DraftToken(proposal, 0.5, 0.5) if isinstance(proposal, int) else proposal
            if step.num_tokens > 1 and token is not None and token.token_id != EOS:
                rest = step.num_tokens - 1
                self.step = DraftNext(step.epoch, step.position + 1, step.position, [token.token_id], rest)
            self.tell(TokenDrafted(step.epoch, step.position, token))
        return self.last

    def commit(self, position: int, token_ids: list[int], num_accepted: int, **changes: Any) -> list[Any]:
        fields: dict[str, Any] = {
            "channel": 1,
            "incarnation": self.core.incarnation,
            "epoch": self.core.epoch,
            "kind": CommitKind.BONUS,
            "num_judged": num_accepted,
        }
        return self.receive(
            Commit(position=position, token_ids=token_ids, num_accepted=num_accepted, **{**fields, **changes})
        )

    def sent(self, kind: type) -> list[Any]:
        """Messages of the last event's answer."""
        return [
            command.message
            for command in self.last
            if isinstance(command, SendToCloud) and isinstance(command.message, kind)
        ]

    def commands(self, kind: type) -> list[Any]:
        return [command for command in self.last if isinstance(command, kind)]
