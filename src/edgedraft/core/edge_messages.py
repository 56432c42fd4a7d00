"""The messages an edge session sends, built from where it stands; and what a commit says of its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edgedraft.core import hedging as core
from edgedraft.core.draft_tail import DraftTail
from edgedraft.core.edge_settings import EdgeSessionSettings
from edgedraft.core.strategy import Strategy
from edgedraft.protocol.codec import split_ids
from edgedraft.protocol.fingerprint import committed_hash
from edgedraft.protocol.messages import Commit, CommitKind, Draft, Hedge, Open, OpenIds, Resume, SessionFromEdge
from edgedraft.types import DraftDistribution, DraftToken, Owner, Rule, TokenKind


class Standing(Protocol):
    """What of an edge session its messages tell."""

    settings: EdgeSessionSettings
    strategy: Strategy
    log: list[int]
    tail: DraftTail
    prompt_length: int
    max_length: int
    channel: int
    incarnation: int
    attach: int
    epoch: int


def opening(session: Standing) -> list[SessionFromEdge]:
    """`Open` with prompt and committed ids, and the further pieces of a long text."""
    strategy = session.strategy
    first, *more = split_ids(session.log)
    messages: list[SessionFromEdge] = [
        Open(
            channel=session.channel,
            session_id=session.settings.session_id,
            incarnation=session.incarnation,
            attach=session.attach,
            owner=Owner.CLOUD,
            num_prompt=session.prompt_length,
            num_committed=len(session.log) - session.prompt_length,
            max_length=session.max_length,
            stop_ids=sorted(session.settings.stop_ids),
            ignore_eos=session.settings.ignore_eos,
            sampling=session.settings.sampling,
            rule=strategy.rule,
            rank=strategy.rank,
            assist=strategy.assist,
            eager=strategy.eager,
            timings=True,
            logprobs=session.settings.logprobs,
            fork_of=b"",
            token_ids=first,
        )
    ]
    offset = len(first)
    for piece in more:
        messages.append(
            OpenIds(channel=session.channel, incarnation=session.incarnation, offset=offset, token_ids=piece)
        )
        offset += len(piece)
    return messages


def resuming(session: Standing) -> Resume:
    return Resume(
        channel=session.channel,
        session_id=session.settings.session_id,
        incarnation=session.incarnation,
        attach=session.attach,
        committed_length=len(session.log),
        committed_hash=committed_hash(session.log),
    )


def drafted(session: Standing, num_ids: int, *, verify: bool) -> Draft:
    """The next `num_ids` unsent ids of the tail."""
    first = session.tail.num_sent
    sent = session.tail.tokens[first : first + num_ids]
    return Draft(
        channel=session.channel,
        incarnation=session.incarnation,
        epoch=session.epoch,
        position=len(session.log) + first,
        token_ids=[token.token_id for token in sent],
        verify=verify,
        committed_length=len(session.log),
        distributions=_distributions(sent) if session.strategy.rule is Rule.RATIO else None,
    )


def hedged(session: Standing, hedge: core.Hedge) -> Hedge:
    """What of the second way has not been sent."""
    return Hedge(
        channel=session.channel,
        incarnation=session.incarnation,
        epoch=hedge.epoch,
        position=hedge.position + hedge.num_sent,
        token_ids=[token.token_id for token in hedge.tokens[hedge.num_sent :]],
        committed_length=len(session.log),
    )


_NEXT_TOKEN_KINDS = {
    CommitKind.ACCEPTED_ONLY: TokenKind.ACCEPTED,
    CommitKind.RECOVERED: TokenKind.RECOVERED,
    CommitKind.BONUS: TokenKind.BONUS,
    CommitKind.OWN: TokenKind.OWN,
}


def token_kinds(message: Commit) -> list[TokenKind]:
    """Where each id of a commit came from: accepted draft ids first, then the next token."""
    num_next = len(message.token_ids) - message.num_accepted
    return [TokenKind.ACCEPTED] * message.num_accepted + [_NEXT_TOKEN_KINDS[message.kind]] * num_next


def _distributions(tokens: Sequence[DraftToken]) -> list[DraftDistribution] | None:
    found = [token.distribution for token in tokens if token.distribution is not None]
    assert len(found) == len(tokens), "rule ratio: each draft token carries what it was sampled from"
    return found or None
