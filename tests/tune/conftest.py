"""Messages and tokens as a session sees them."""

from __future__ import annotations

from collections.abc import Sequence

from edgedraft.protocol.messages import Commit, CommitKind, Draft, Timings
from edgedraft.types import DraftToken


def token(token_id: int, confidence: float = 0.9, draft_s: float = 0.02) -> DraftToken:
    return DraftToken(token_id, confidence, 0.1, draft_s)


def draft_of(position: int, ids: Sequence[int], epoch: int = 0) -> Draft:
    return Draft(
        channel=0,
        incarnation=1,
        epoch=epoch,
        position=position,
        token_ids=list(ids),
        verify=False,
        committed_length=position,
    )


def commit_of(
    position: int, ids: Sequence[int], *, num_judged: int = 0, num_accepted: int = 0, timings: Timings | None = None
) -> Commit:
    kind = CommitKind.BONUS if num_judged else CommitKind.OWN
    return Commit(
        channel=0,
        incarnation=1,
        epoch=0,
        position=position,
        token_ids=list(ids),
        kind=kind,
        num_judged=num_judged,
        num_accepted=num_accepted,
        timings=timings,
    )
