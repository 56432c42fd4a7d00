"""Qwen-Omni models as a back end that hears: Qwen2.5-Omni (3B, 7B) and Qwen3-Omni (30B-A3B), draft or target.

Every model hears the same log-mel spectrogram with its own audio tower, once for each recording, so that a draft of one
line serves a target of the other and no audio embedding ever travels. The ids that travel are those of the shared text
vocabulary; `qwen_omni_transcript` tells how a log of them becomes what a model reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgedraft.backends.base import BackendOptions, ScoreRequest
from edgedraft.backends.contract_checks import (
    check_can_draft,
    check_draft_fits,
    check_ids,
    check_options,
    check_pass,
    check_range,
    check_request,
    check_rollback,
    checked_text,
)
from edgedraft.backends.qwen_omni_engine import Thinker, load_thinker
from edgedraft.backends.qwen_omni_files import open_source, weights_digest
from edgedraft.backends.qwen_omni_prompts import DETAILED, Frame
from edgedraft.backends.qwen_omni_tokenizer import QwenOmniTokenizer
from edgedraft.backends.qwen_omni_transcript import MAX_SECONDS, Transcript
from edgedraft.backends.session_table import SessionTable
from edgedraft.backends.transformers import DRAFT_CHUNK_TOKENS
from edgedraft.backends.transformers_engine import DEFAULT_CONTEXT_TOKENS, engine_name
from edgedraft.core.sequence import common_prefix_length
from edgedraft.errors import ModelFileError
from edgedraft.speech_features import LOGMEL_128, FeatureSpec, SpeechFeatures
from edgedraft.types import Float32Array, ModelInfo


def _open_model(rest: str, options: BackendOptions) -> tuple[Thinker, Frame, ModelInfo]:
    check_options(options)
    source, line, style = open_source(rest)
    tokenizer = QwenOmniTokenizer(source.path, style)
    frame = Frame.of(line, tokenizer)
    thinker = load_thinker(source, line, tokenizer, options.threads)
    most = thinker.trained_length - frame.num_ids - line.window_audio_tokens
    if most < 1:
        raise ModelFileError(
            f"{source.path} has a context of {thinker.trained_length} tokens, which 30 s of recording fill.",
            remedy="Fetch the model again.",
        )
    if options.context_length is not None:
        check_range("context_length", options.context_length, most)
    info = ModelInfo(
        name=thinker.name if style == DETAILED else f"{thinker.name}, {style}",
        engine=engine_name(),
        vocab_size=thinker.num_ids,
        num_ids=thinker.num_ids,
        eos_ids=tokenizer.eos_ids,
        context_length=options.context_length or min(most, DEFAULT_CONTEXT_TOKENS),
        quantisation=thinker.dtype,
        deterministic=False,
        exactness_note=f"{thinker.conditions}; rows change in their last bits with the number of ids in a pass",
        on_gpu=thinker.device != "cpu",
        features=LOGMEL_128,
        digest=weights_digest(source.path),
    )
    return thinker, frame, info


class QwenOmniDraft:
    """See `base.ListeningDraft`. `rollback(0)` keeps the recording; `listen` takes another."""

    sends: FeatureSpec = LOGMEL_128
    max_seconds: float = MAX_SECONDS

    def __init__(self, rest: str, options: BackendOptions) -> None:
        self._thinker, frame, self.info = _open_model(rest, options)
        self._transcript = Transcript(self._thinker, frame)
        self._row: Float32Array | None = None
        self.length = 0

    def listen(self, features: SpeechFeatures) -> None:
        self._transcript.hear(features)
        self._row, self.length = None, 0

    def append(self, token_ids: Sequence[int]) -> None:
        check_ids(token_ids, self.info.num_ids)
        check_draft_fits(self.length + len(token_ids), self.info)
        for start in range(0, len(token_ids), DRAFT_CHUNK_TOKENS):
            self._feed(token_ids[start : start + DRAFT_CHUNK_TOKENS])

    def _feed(self, token_ids: Sequence[int]) -> Float32Array:
        row: Float32Array = self._transcript.append(token_ids, 1)[0]
        self._row, self.length = row, self._transcript.length
        return row

    def rollback(self, length: int) -> None:
        check_rollback(length, self.length)
        if length < self.length:
            self._transcript.rollback(length)
            self._row, self.length = None, length

    def draft(self) -> Float32Array:
        check_can_draft(self.length)
        if self._row is not None:
            return self._row
        last_id = self._transcript.ids[-1]  # after a rollback the row of the last id is gone: evaluate that id again
        self.rollback(self.length - 1)
        return self._feed([last_id])

    def close(self) -> None:
        self._thinker.free()
        self._transcript.forget()


@dataclass(slots=True)
class _Session:
    """`ids`: all that is known of the log, of which `transcript` holds the beginning evaluated. `ready`: prefilled.

    `last_row`: logits after the first `row_length` ids, kept since prefill.
    """

    transcript: Transcript
    ids: list[int]
    prompt_length: int = 0
    ready: bool = False
    last_row: Float32Array | None = None
    row_length: int = 0


class QwenOmniTarget:
    """See `base.ListeningTarget`. Each session has a cache of its own, and a pass to itself."""

    max_batch_sessions = 1

    def __init__(self, rest: str, options: BackendOptions) -> None:
        self._thinker, self._frame, self.info = _open_model(rest, options)
        self._chunk = options.prefill_chunk_tokens
        self._sessions = SessionTable[_Session](options.max_sessions)

    def open(self, session_id: bytes, prompt_ids: Sequence[int], committed_ids: Sequence[int]) -> None:
        """As in `base`; a session that is opened again keeps its recording until it is given another."""
        ids = checked_text(prompt_ids, committed_ids, self.info)
        session = self._sessions.open(session_id, lambda: _Session(Transcript(self._thinker, self._frame), []))
        # The last id is always evaluated again, since its row of logits is needed.
        session.transcript.rollback(min(common_prefix_length(session.transcript.ids, ids), len(ids) - 1))
        session.ids, session.prompt_length = ids, len(prompt_ids)
        session.ready, session.last_row = False, None

    def listen(self, session_id: bytes, features: SpeechFeatures) -> None:
        session = self._sessions.find(session_id)
        if features != session.transcript.features:
            session.transcript.hear(features)
            session.ready, session.last_row = False, None

    def prefill(self, session_id: bytes) -> int:
        """The recording first, then the ids in chunks."""
        session = self._sessions.find(session_id)
        transcript, total = session.transcript, len(session.ids)
        if session.ready:
            return 0
        if not transcript.begun:
            transcript.begin()
            return total
        end = min(total, transcript.length + self._chunk)
        row = transcript.append(session.ids[transcript.length : end], 1)[0]
        if end == total:
            session.ready, session.last_row, session.row_length = True, row, total
        return total - end

    def score(self, requests: Sequence[ScoreRequest]) -> Sequence[Float32Array]:
        check_pass(requests, self.max_batch_sessions)
        return [self._rows(request) for request in requests]

    def _rows(self, request: ScoreRequest) -> Float32Array:
        session = self._checked(request)
        transcript = session.transcript
        if request.length < session.row_length:
            session.last_row = None
        session.ids[request.length :] = [*request.committed_ids, *request.draft_ids]
        transcript.rollback(request.length)
        num_rows = len(request.draft_ids) + bool(request.committed_ids)
        rows = transcript.append(session.ids[transcript.length :], num_rows)
        if request.committed_ids or session.last_row is None:
            return rows
        return np.vstack([session.last_row, rows])

    def close(self, session_id: bytes) -> None:
        self._sessions.close(session_id)

    def shutdown(self) -> None:
        self._sessions.clear()
        self._thinker.free()

    def _checked(self, request: ScoreRequest) -> _Session:
        session = self._sessions.find(request.session_id)
        check_request(
            request,
            self.info,
            ready=session.ready,
            first=session.prompt_length,
            last=len(session.ids),
            holds_row=session.last_row is not None and session.row_length == request.length,
        )
        return session


class QwenOmniFamily:
    """See `base.BackendFamily`. `rest` is `FOLDER_OR_HUB_NAME[,dtype=fp32|bf16][,device=cpu|cuda][,style=NAME]`."""

    name = "qwen-omni"

    def open_draft(self, rest: str, options: BackendOptions) -> QwenOmniDraft:
        return QwenOmniDraft(rest, options)

    def open_target(self, rest: str, options: BackendOptions) -> QwenOmniTarget:
        return QwenOmniTarget(rest, options)

    def open_tokenizer(self, rest: str) -> QwenOmniTokenizer:
        source, _, style = open_source(rest)
        return QwenOmniTokenizer(source.path, style)

    def chat_template(self, rest: str) -> str:
        """Empty: the back ends put the template's parts around the request by themselves."""
        open_source(rest)
        return ""
