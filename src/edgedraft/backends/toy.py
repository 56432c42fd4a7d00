"""Back ends over the exact small models of `toy_model`, for tests, overhead benches and first steps without an engine.

They are as strict as the contract in `base` allows: the row held since prefill is gone after one pass, and no pass
goes back into the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from edgedraft.backends.base import BackendOptions, ScoreRequest
from edgedraft.backends.contract_checks import (
    check_can_draft,
    check_draft_fits,
    check_ids,
    check_pass,
    check_request,
    check_rollback,
    checked_text,
)
from edgedraft.backends.session_table import SessionTable
from edgedraft.backends.toy_model import ToyModel, ToySettings
from edgedraft.backends.toy_tokenizer import CHAT_TEMPLATE, ToyTokenizer
from edgedraft.core.sequence import common_prefix_length
from edgedraft.types import Float32Array


class ToyDraft:
    """One sequence of a toy model; `DraftBackend`."""

    def __init__(self, model: ToyModel, *, context_length: int | None = None) -> None:
        self.model = model
        self.info = model.info(context_length)
        self.length = 0
        self._token_ids: list[int] = []

    def append(self, token_ids: Sequence[int]) -> None:
        check_ids(token_ids, self.info.num_ids)
        check_draft_fits(self.length + len(token_ids), self.info)
        self._token_ids.extend(token_ids)
        self.length = len(self._token_ids)

    def rollback(self, length: int) -> None:
        check_rollback(length, self.length)
        del self._token_ids[length:]
        self.length = length

    def draft(self) -> Float32Array:
        check_can_draft(self.length)
        return self.model.logits(self._token_ids)

    def close(self) -> None:
        self.rollback(0)


@dataclass(slots=True)
class _Session:
    """`token_ids`: what is to be held; `num_held`: how much of it is. `has_row`: nothing was scored since prefill."""

    num_prompt: int = 0
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
        self.max_batch_sessions = max_batch_sessions
        self.prefill_chunk_tokens = prefill_chunk_tokens
        self._sessions = SessionTable[_Session](max_sessions)

    @property
    def num_sessions(self) -> int:
        return len(self._sessions)

    def open(self, session_id: bytes, prompt_ids: Sequence[int], committed_ids: Sequence[int]) -> None:
        token_ids = checked_text(prompt_ids, committed_ids, self.info)
        session = self._sessions.open(session_id, _Session)
        kept = common_prefix_length(session.token_ids[: session.num_held], token_ids)
        # The last row is always computed anew: what was held of the session before may end elsewhere.
        session.num_held, session.has_row = min(kept, len(token_ids) - 1), False
        session.num_prompt, session.token_ids = len(prompt_ids), token_ids

    def prefill(self, session_id: bytes) -> int:
        session = self._session(session_id)
        if not session.ready:
            next_cut = (session.num_held // self.prefill_chunk_tokens + 1) * self.prefill_chunk_tokens
            session.num_held = min(next_cut, len(session.token_ids))
            session.has_row = session.ready
        return len(session.token_ids) - session.num_held

    def score(self, requests: Sequence[ScoreRequest]) -> Sequence[Float32Array]:
        check_pass(requests, self.max_batch_sessions)
        sessions = [self._checked(request) for request in requests]
        return [self._rows(request, session) for request, session in zip(requests, sessions, strict=True)]

    def close(self, session_id: bytes) -> None:
        self._sessions.close(session_id)

    def shutdown(self) -> None:
        self._sessions.clear()

    def _session(self, session_id: bytes) -> _Session:
        """Asked for also by back ends that are made of this one."""
        return self._sessions.find(session_id)

    def _checked(self, request: ScoreRequest) -> _Session:
        session = self._session(request.session_id)
        check_request(
            request,
            self.info,
            ready=session.ready,
            first=session.num_prompt,
            last=session.num_held,
            holds_row=session.has_row and request.length == session.num_held,
        )
        return session

    def _rows(self, request: ScoreRequest, session: _Session) -> Float32Array:
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
