"""What every back end refuses by the contract in `base`, in the same words; what one engine alone needs is with it."""

from __future__ import annotations

from collections.abc import Sequence

from edgedraft.backends.base import BackendOptions, ScoreRequest
from edgedraft.errors import BackendError, ContextLengthError, InvalidRequestError
from edgedraft.types import ModelInfo

MAX_SESSIONS = 256  # of one llama.cpp context
MAX_CHUNK_TOKENS = 4096
MAX_THREADS = 512


def check_range(field: str, value: int, most: int) -> None:
    """Raises `InvalidRequestError` unless 1 <= value <= most."""
    if not 1 <= value <= most:
        raise InvalidRequestError(f"{field} is {value}; legal: 1 to {most}.", field=field)


def check_options(options: BackendOptions) -> None:
    """Raises `InvalidRequestError` for what no engine can obey; the context's length is the model's own affair."""
    check_range("max_sessions", options.max_sessions, MAX_SESSIONS)
    check_range("prefill_chunk_tokens", options.prefill_chunk_tokens, MAX_CHUNK_TOKENS)
    if options.threads is not None:
        check_range("threads", options.threads, MAX_THREADS)


def check_ids(token_ids: Sequence[int], num_ids: int) -> None:
    """Raises `InvalidRequestError` for an id outside the real vocabulary."""
    if token_ids and not 0 <= min(token_ids) <= max(token_ids) < num_ids:
        bad_id = next(token_id for token_id in token_ids if not 0 <= token_id < num_ids)
        raise InvalidRequestError(
            f"token id {bad_id} is not in the vocabulary; legal: 0 to {num_ids - 1}.", field="token_ids"
        )


def check_draft_fits(length: int, info: ModelInfo) -> None:
    """Raises `ContextLengthError` where a draft would hold more tokens than its context."""
    _check_fits(length, info, "draft", "Raise the draft's context length, or go on without a draft.")


def check_rollback(length: int, held: int) -> None:
    """Raises `InvalidRequestError` for a length that a draft of `held` tokens cannot be cut to."""
    if not 0 <= length <= held:
        raise InvalidRequestError(f"rollback to {length}; legal: 0 to {held}.", field="length")


def check_can_draft(held: int) -> None:
    """Raises `InvalidRequestError` where there is no token to draft after."""
    if not held:
        raise InvalidRequestError("draft needs at least one token held; append the prompt first.", field="length")


def checked_text(prompt_ids: Sequence[int], committed_ids: Sequence[int], info: ModelInfo) -> list[int]:
    """All ids of a session to be opened. Raises `InvalidRequestError`, or `ContextLengthError`."""
    if not prompt_ids:
        raise InvalidRequestError("the prompt is empty; legal: at least one token.", field="prompt_ids")
    token_ids = [*prompt_ids, *committed_ids]
    check_ids(token_ids, info.num_ids)
    _check_target_fits(len(token_ids), info)
    return token_ids


def check_pass(requests: Sequence[ScoreRequest], most: int) -> None:
    """Raises `BackendError` for a pass of no session, of more than `most`, or with one of them twice."""
    if not 1 <= len(requests) <= most:
        raise BackendError(f"{len(requests)} sessions in one pass; legal: 1 to {most}.")
    if len({request.session_id for request in requests}) < len(requests):
        raise BackendError("A session appears twice in one pass.")


def check_request(
    request: ScoreRequest, info: ModelInfo, *, ready: bool, first: int, last: int, holds_row: bool
) -> None:
    """Raises `BackendError`, and for ids that cannot be evaluated what `checked_text` raises.

    `ready`: the session is prefilled. `first`, `last`: lengths that it may be rolled back to. `holds_row`: of the last
    of its tokens that the request keeps.
    """
    if not ready:
        raise BackendError("Score before the session is prefilled.")
    if not first <= request.length <= last:
        raise BackendError(f"Cannot score from position {request.length}; legal: {first} to {last}.")
    if not request.committed_ids and not holds_row:
        raise BackendError("No row is held for the last token.", remedy="Score it again as a committed token.")
    check_ids(request.committed_ids, info.num_ids)
    check_ids(request.draft_ids, info.num_ids)
    _check_target_fits(request.length + len(request.committed_ids) + len(request.draft_ids), info)


def _check_target_fits(length: int, info: ModelInfo) -> None:
    _check_fits(length, info, "target", "Shorten the prompt or serve the model with a longer context.")


def _check_fits(length: int, info: ModelInfo, role: str, remedy: str) -> None:
    if length > info.context_length:
        raise ContextLengthError(
            f"{length} tokens do not fit the {role} model's context of {info.context_length}.",
            field="context_length",
            remedy=remedy,
        )
