"""What a cloud session refuses of an edge's drafts, each with the field that is at fault."""

from __future__ import annotations

from collections.abc import Sequence

from edgedraft.core.cloud_log import CloudLog
from edgedraft.errors import InvalidRequestError, MalformedFrameError, UnsupportedError
from edgedraft.protocol.messages import Draft, Hedge
from edgedraft.types import Rule


def check_ids(token_ids: Sequence[int], num_ids: int) -> None:
    """Raises `InvalidRequestError` for ids outside the real vocabulary."""
    if token_ids and not 0 <= min(token_ids) <= max(token_ids) < num_ids:
        raise InvalidRequestError(
            f"token_ids hold {max(token_ids)}; the vocabulary has {num_ids} ids.",
            field="token_ids",
            remedy="Draft and target must share a vocabulary: run `edgedraft doctor`.",
        )


def check_draft(message: Draft, log: CloudLog, num_ids: int) -> None:
    """Raises `InvalidRequestError` or `MalformedFrameError`."""
    if message.judged is not None and not log.edge_owns:
        raise InvalidRequestError("judged is set, but the cloud owns this log.", field="judged")
    _check_place(message.position, len(message.token_ids), log)
    num_distributions = len(message.distributions or ())
    wanted = len(message.token_ids) if log.request.rule is Rule.RATIO else 0
    if num_distributions != wanted:
        raise InvalidRequestError(
            f"distributions holds {num_distributions} entries; rule '{log.request.rule}' needs {wanted}.",
            field="distributions",
        )
    check_ids(message.token_ids, num_ids)


def check_hedge(message: Hedge, log: CloudLog, num_ids: int) -> None:
    """Raises `UnsupportedError` where hedges have no place, and what `check_draft` raises."""
    if log.request.rule is not Rule.MATCH or not log.request.eager or log.edge_owns:
        raise UnsupportedError("a Hedge came; it needs rule 'match' and eager verification.", field="hedging")
    _check_place(message.position, len(message.token_ids), log)
    check_ids(message.token_ids, num_ids)


def _check_place(position: int, num_ids: int, log: CloudLog) -> None:
    if position < log.prompt_length:
        raise MalformedFrameError(f"position is {position}, inside the prompt.")
    if (end := position + num_ids) > log.max_length:
        raise InvalidRequestError(
            f"token_ids reach position {end}; the request's max_length is {log.max_length}.", field="token_ids"
        )
