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
from edgedraft.protocol.messages import (
    MAX_FEATURE_BYTES,
    Commit,
    CommitKind,
    Draft,
    Features,
    Hedge,
    Open,
    OpenIds,
    Resume,
    SessionFromEdge,
)
from edgedraft.types import DraftDistribution, DraftToken, Owner, Rule, TokenKind


class Standing(Protocol):
    """What of an edge session its messages tell."""

    settings: EdgeSessionSettings
    strategy: Strategy
    log: list[int]
    prompt_length: int
    max_length: int
    channel: int
    incarnation: int
    attach: int
    epoch: int


class DraftStanding(Standing, Protocol):
    """What of it its drafts tell besides."""

    tail: DraftTail


def opening(session: Standing) -> list[SessionFromEdge]:
    """`Open` with prompt and committed ids, further pieces of a long text, and those of the recording's features."""
    strategy = session.strategy
    first, *more = split_ids(session.log)
    messages: list[SessionFromEdge] = [
        Open(
            channel=session.channel,
            session_id=session.settings.session_id,
            incarnation=session.incarnation,
            attach=session.attach,
            owner=Owner.CLOUD if strategy.gating is None else Owner.EDGE,
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
            bonus=strategy.gating is not None and strategy.gating.bonus,
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
    return [*messages, *_feature_pieces(session)]


def _feature_pieces(session: Standing) -> list[SessionFromEdge]:
    features = session.settings.features
    if features is None:
        return []
    spec = features.spec
    return [
        Features(
            channel=session.channel,
            incarnation=session.incarnation,
            kind=spec.kind,
            encoder_id=spec.encoder_id,
            rate_hz=spec.rate_hz,
            dims=spec.dims,
            dtype=features.dtype,
            scale=features.scale,
            count=features.count,
            level_db=features.level_db,
            offset=offset,
            data=features.data[offset : offset + MAX_FEATURE_BYTES],
        )
        for offset in range(0, features.num_bytes, MAX_FEATURE_BYTES)
    ]


def resuming(session: Standing, length: int | None = None) -> Resume:
    """`length`: how much of the log the cloud is to confirm; None for all."""
    log = session.log[:length]
    return Resume(
        channel=session.channel,
        session_id=session.settings.session_id,
        incarnation=session.incarnation,
        attach=session.attach,
        committed_length=len(log),
        committed_hash=committed_hash(log),
    )


def drafted(session: DraftStanding, num_ids: int, *, verify: bool) -> Draft:
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


def hedged(session: DraftStanding, hedge: core.Hedge) -> Hedge:
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
