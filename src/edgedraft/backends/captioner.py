"""The embedded captioners: `captioner:edge` and `captioner:cloud`, a pair made for each other, or `captioner:PATH`.

They hear speech features and write a caption in English or Chinese. numpy only; trained on synthetic speech
(captioner_weights/MODEL_CARD.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edgedraft.backends.base import BackendOptions, ScoreRequest
from edgedraft.backends.captioner_file import load_captioner
from edgedraft.backends.captioner_model import Captioner, CaptionerText, Heard
from edgedraft.backends.captioner_tokenizer import EOS_ID, CaptionerTokenizer
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
from edgedraft.core.sequence import common_prefix_length
from edgedraft.errors import BackendError, InvalidRequestError, UnsupportedError
from edgedraft.speech_features import SpeechFeatures
from edgedraft.types import Float32Array, ModelInfo

SHIPPED = ("edge", "cloud")
CONTEXT_LENGTH, MAX_CONTEXT_LENGTH = 256, 4096

_WEIGHTS = Path(__file__).parent / "captioner_weights"


def _info(model: Captioner, name: str, context_length: int | None) -> ModelInfo:
    length = CONTEXT_LENGTH if context_length is None else context_length
    if not 2 <= length <= MAX_CONTEXT_LENGTH:
        raise InvalidRequestError(
            f"context_length is {length}; legal: 2 to {MAX_CONTEXT_LENGTH}.", field="context_length"
        )
    return ModelInfo(
        name=f"captioner:{name}",
        engine="captioner",
        vocab_size=model.config.num_ids,
        num_ids=model.config.num_ids,
        eos_ids=(EOS_ID,),
        context_length=length,
        quantisation="float16 weights, float32 arithmetic",
        deterministic=True,
        exactness_note="each position is computed by itself; equal on one machine with one build of numpy",
        features=model.config.spec,
        digest=_digest(model),
    )


def _digest(model: Captioner) -> str:
    """Other weights of the same name are another model, with thresholds of its own."""
    found = hashlib.sha256()
    for name in sorted(model.weights):
        found.update(name.encode() + model.weights[name].tobytes())
    return found.hexdigest()[:12]


class CaptionerDraft:
    """One recording and one text; `ListeningDraft`. `max_seconds`: the longest recording that it takes."""

    def __init__(self, model: Captioner, name: str, *, context_length: int | None = None) -> None:
        self.model = model
        self.info = _info(model, name, context_length)
        self.sends = model.config.sends
        self.max_seconds = model.config.max_seconds
        self.length = 0
        self._features: SpeechFeatures | None = None
        self._heard: Heard | None = None
        self._text = CaptionerText(model, self.info.context_length)

    def listen(self, features: SpeechFeatures) -> None:
        """Encodes the recording at once, unless it is the one before."""
        if features != self._features:
            self._heard = self.model.hear(features)
            self._features = features
        self.rollback(0)

    def append(self, token_ids: Sequence[int]) -> None:
        check_ids(token_ids, self.info.num_ids)
        check_draft_fits(self.length + len(token_ids), self.info)
        heard = self._hearing()
        for token_id in token_ids:
            self._text.append(token_id, heard)
        self.length = len(self._text.token_ids)

    def rollback(self, length: int) -> None:
        check_rollback(length, self.length)
        self._text.rollback(length)
        self.length = length

    def draft(self) -> Float32Array:
        check_can_draft(self.length)
        return self._text.last_row(self._hearing())

    def close(self) -> None:
        self.rollback(0)
        self._features, self._heard = None, None

    def _hearing(self) -> Heard:
        if self._heard is None:
            raise BackendError("the draft has heard no recording: listen comes first.")
        return self._heard


@dataclass(slots=True)
class _Session:
    """`token_ids`: what is to be held; `text` holds how much of it is. `listened`: since the last `open`."""

    text: CaptionerText
    num_prompt: int = 0
    token_ids: list[int] = field(default_factory=list)
    features: SpeechFeatures | None = None
    heard: Heard | None = None
    listened: bool = False
    has_row: bool = False

    @property
    def num_held(self) -> int:
        return len(self.text.token_ids)

    @property
    def ready(self) -> bool:
        return self.listened and self.num_held == len(self.token_ids)


class CaptionerTarget:
    """Many recordings, a text each; `ListeningTarget`. Deterministic: batches and chunks change no row."""

    def __init__(
        self,
        model: Captioner,
        name: str,
        *,
        context_length: int | None = None,
        max_sessions: int = 8,
        max_batch_sessions: int = 8,
        prefill_chunk_tokens: int = 128,
    ) -> None:
        self.model = model
        self.info = _info(model, name, context_length)
        self.max_batch_sessions = max_batch_sessions
        self.prefill_chunk_tokens = prefill_chunk_tokens
        self._sessions = SessionTable[_Session](max_sessions)

    @property
    def num_sessions(self) -> int:
        return len(self._sessions)

    def open(self, session_id: bytes, prompt_ids: Sequence[int], committed_ids: Sequence[int]) -> None:
        """The recording is not part of this: `listen` follows, also where the session was open before."""
        token_ids = checked_text(prompt_ids, committed_ids, self.info)
        session = self._sessions.open(session_id, lambda: _Session(CaptionerText(self.model, self.info.context_length)))
        # The last row is always computed anew: what was held of the session before may end elsewhere.
        kept = min(common_prefix_length(session.text.token_ids, token_ids), len(token_ids) - 1)
        session.text.rollback(kept)
        session.num_prompt, session.token_ids = len(prompt_ids), token_ids
        session.listened, session.has_row = False, False

    def listen(self, session_id: bytes, features: SpeechFeatures) -> None:
        """Checks only; the next `prefill` encodes. Equal features keep what was heard, and the text about it."""
        session = self._sessions.find(session_id)
        if session.ready:
            raise BackendError("listen after the prefill; open the session again first.")
        self.model.check(features)
        if features != session.features:
            session.features, session.heard = features, None
            session.text.rollback(0)
        session.listened = True

    def prefill(self, session_id: bytes) -> int:
        session = self._sessions.find(session_id)
        heard = self._hearing(session)
        if session.num_held < len(session.token_ids):
            next_cut = (session.num_held // self.prefill_chunk_tokens + 1) * self.prefill_chunk_tokens
            for token_id in session.token_ids[session.num_held : next_cut]:
                session.text.append(token_id, heard)
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

    def _hearing(self, session: _Session) -> Heard:
        if not session.listened or session.features is None:
            raise BackendError("the session has no recording: listen comes between open and prefill.")
        if session.heard is None:
            session.heard = self.model.hear(session.features)
        return session.heard

    def _checked(self, request: ScoreRequest) -> _Session:
        session = self._sessions.find(request.session_id)
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
        text, heard = session.text, self._hearing(session)
        text.rollback(request.length)
        for token_id in request.committed_ids:
            text.append(token_id, heard)
        rows = np.empty((len(request.draft_ids) + 1, self.info.vocab_size), dtype=np.float32)
        rows[0] = text.last_row(heard)
        for index, token_id in enumerate(request.draft_ids):
            rows[index + 1] = self.model.logits(text.append(token_id, heard))
        session.token_ids, session.has_row = list(text.token_ids), False
        return rows


class CaptionerFamily:
    """`captioner:edge` and `captioner:cloud` are shipped; anything else is the path of a weights file."""

    name = "captioner"

    def path(self, rest: str) -> Path:
        """Raises `InvalidRequestError` where nothing is named."""
        if not rest:
            raise InvalidRequestError(
                "model is 'captioner', which names no weights.",
                field="model",
                remedy="Write captioner:edge, captioner:cloud or captioner:PATH.",
            )
        return _WEIGHTS / f"{rest}.npz" if rest in SHIPPED else Path(rest).expanduser()

    def open_draft(self, rest: str, options: BackendOptions) -> CaptionerDraft:
        path = self.path(rest)
        model, _ = load_captioner(path)
        return CaptionerDraft(model, path.stem, context_length=options.context_length)

    def open_target(self, rest: str, options: BackendOptions) -> CaptionerTarget:
        path = self.path(rest)
        model, _ = load_captioner(path)
        return CaptionerTarget(
            model,
            path.stem,
            context_length=options.context_length,
            max_sessions=options.max_sessions,
            max_batch_sessions=1 if options.deterministic else options.max_sessions,
            prefill_chunk_tokens=options.prefill_chunk_tokens,
        )

    def open_tokenizer(self, rest: str) -> CaptionerTokenizer:
        _, tokenizer = load_captioner(self.path(rest))
        return tokenizer

    def chat_template(self, rest: str) -> str:
        raise UnsupportedError(
            "a captioner has no chat template: it captions recordings.",
            field="model",
            remedy="Use `edgedraft caption`.",
        )
