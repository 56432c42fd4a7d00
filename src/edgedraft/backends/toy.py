"""Back ends over the exact small models of `toy_model`, for tests, overhead benches and first steps without an engine.

They check what they are asked far more strictly than an engine does, so that misuse of the contract in `base` is an
error and not a wrong row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from edgedraft.backends.base import BackendOptions, ScoreRequest
from edgedraft.backends.toy_model import ToyModel, ToySettings
from edgedraft.backends.toy_tokenizer import CHAT_TEMPLATE, ToyTokenizer
from edgedraft.core.sequence import common_prefix_length
from edgedraft.errors import BackendError, ContextLengthError, SaturatedError
from edgedraft.types import Float32Array


def _check_room(length: int, context_length: int) -> None:
    if length > context_length:
        raise ContextLengthError(
            f"{length} tokens do not fit the model's context of {context_length}.",
            field="prompt",
            remedy="Shorten the prompt, or open the model with a larger context.",
        )


class ToyDraft:
    """One sequence of a toy model; `DraftBackend`."""

    def __init__(self, model: ToyModel, *, context_length: int | None = None) -> None:
        self.model = model
        self.info = model.info(context_length)
        self.length = 0
        self._token_ids: list[int] = []

    def append(self, token_ids: Sequence[int]) -> None:
        self.model.check_ids(token_ids)
        _check_room(self.length + len(token_ids), self.info.context_length)
        self._token_ids.extend(token_ids)
        self.length = len(self._token_ids)

    def rollback(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise BackendError(f"rollback to length {length}, but {self.length} tokens are held.")
        del self._token_ids[length:]
        self.length = length

    def draft(self) -> Float32Array:
        return self.model.logits(self._token_ids)

    def close(self) -> None:
        self.rollback(0)


@dataclass(slots=True)
class _Session:
    """`token_ids`: what is to be held; `num_held`: how much of it is. `has_row`: nothing was scored since prefill."""

    num_prompt: int
    token_ids: list[int] = field(default_factory=list)
    num_held: int = 0
    has_row: bool = False

    @property
    def ready(self) -> bool:
        return self.num_held == len(self.token_ids)


class ToyTarget:
    """Many sessions of a toy model; `TargetBackend`. Deterministic: batches and chunks change no row."""

    def __init__(
        self,
        model: ToyModel,
        *,
        context_length: int | None = None,
        max_sessions: int = 8,
        max_batch_sessions: int = 8,
        prefill_chunk_tokens: int = 128,
    ) -> None:
        self.model = model
        self.info = model.info(context_length)
        self.max_sessions = max_sessions
        self.max_batch_sessions = max_batch_sessions
        self.prefill_chunk_tokens = prefill_chunk_tokens
        self._sessions: dict[bytes, _Session] = {}

    @property
    def num_sessions(self) -> int:
        return len(self._sessions)

    def open(self, session_id: bytes, prompt_ids: Sequence[int], committed_ids: Sequence[int]) -> None:
        token_ids = [*prompt_ids, *committed_ids]
        if not prompt_ids:
            raise BackendError("a session needs a prompt of at least one token.")
        self.model.check_ids(token_ids)
        _check_room(len(token_ids), self.info.context_length)
        before = self._sessions.get(session_id)
        if before is None and len(self._sessions) >= self.max_sessions:
            raise SaturatedError(f"all {self.max_sessions} sessions are in use.")
        kept = 0 if before is None else common_prefix_length(before.token_ids[: before.num_held], token_ids)
        # The last row is always computed anew: what was held of the session before may end elsewhere.
        self._sessions[session_id] = _Session(len(prompt_ids), token_ids, min(kept, len(token_ids) - 1))

    def prefill(self, session_id: bytes) -> int:
        session = self._session(session_id)
        if not session.ready:
            next_cut = (session.num_held // self.prefill_chunk_tokens + 1) * self.prefill_chunk_tokens
            session.num_held = min(next_cut, len(session.token_ids))
            session.has_row = session.ready
        return len(session.token_ids) - session.num_held

    def score(self, requests: Sequence[ScoreRequest]) -> Sequence[Float32Array]:
        if not 1 <= len(requests) <= self.max_batch_sessions:
            raise BackendError(f"{len(requests)} sessions in one pass; legal: 1 to {self.max_batch_sessions}.")
        if len({request.session_id for request in requests}) < len(requests):
            raise BackendError("a session is twice in one pass.")
        for request in requests:
            self._check(request)
        return [self._score_one(request) for request in requests]

    def close(self, session_id: bytes) -> None:
        self._sessions.pop(session_id, None)

    def shutdown(self) -> None:
        self._sessions.clear()

    def _session(self, session_id: bytes) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise BackendError("no such session; it was closed or never opened.")
        return session

    def _check(self, request: ScoreRequest) -> None:
        session = self._session(request.session_id)
        if not session.ready:
            raise BackendError("score before the session is prefilled.")
        if not session.num_prompt <= request.length <= session.num_held:
            raise BackendError(
                f"score from length {request.length}; legal: {session.num_prompt} (the prompt) to {session.num_held}."
            )
        if not request.committed_ids and not (session.has_row and request.length == session.num_held):
            raise BackendError("score without committed ids, though the last row is no longer held.")
        self.model.check_ids(request.committed_ids)
        self.model.check_ids(request.draft_ids)
        total = request.length + len(request.committed_ids) + len(request.draft_ids)
        _check_room(total, self.info.context_length)

    def _score_one(self, request: ScoreRequest) -> Float32Array:
        session = self._session(request.session_id)
        del session.token_ids[request.length :]
        session.token_ids.extend(request.committed_ids)
        rows = np.empty((len(request.draft_ids) + 1, self.info.vocab_size), dtype=np.float32)
        rows[0] = self.model.logits(session.token_ids)
        for index, token_id in enumerate(request.draft_ids):
            session.token_ids.append(token_id)
            rows[index + 1] = self.model.logits(session.token_ids)
        session.num_held, session.has_row = len(session.token_ids), False
        return rows


class ToyFamily:
    """`toy:vocab=64,seed=1,order=2,...`; the settings are those of `ToySettings`."""

    name = "toy"

    def open_draft(self, rest: str, options: BackendOptions) -> ToyDraft:
        return ToyDraft(ToyModel(ToySettings.parse(rest)), context_length=options.context_length)

    def open_target(self, rest: str, options: BackendOptions) -> ToyTarget:
        return ToyTarget(
            ToyModel(ToySettings.parse(rest)),
            context_length=options.context_length,
            max_sessions=options.max_sessions,
            max_batch_sessions=1 if options.deterministic else options.max_sessions,
            prefill_chunk_tokens=options.prefill_chunk_tokens,
        )

    def open_tokenizer(self, rest: str) -> ToyTokenizer:
        return ToyTokenizer(ToySettings.parse(rest).num_ids)

    def chat_template(self, rest: str) -> str:
        ToySettings.parse(rest)
        return CHAT_TEMPLATE
