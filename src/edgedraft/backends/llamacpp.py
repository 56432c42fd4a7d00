"""llama.cpp as a back end: any GGUF file, on the edge or in the cloud.

Exactness rests on how llama.cpp computes: with some quantisations a row of logits is bit-identical whether its token
was evaluated alone or in a small block, but a large block uses other kernels. So a deterministic target cuts prompts
at absolute multiples of a fixed chunk and everything after the prompt in small blocks, one session at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edgedraft.backends.base import BackendOptions, ScoreRequest
from edgedraft.backends.contract_checks import (
    check_can_draft,
    check_draft_fits,
    check_ids,
    check_options,
    check_pass,
    check_request,
    check_rollback,
    checked_text,
)
from edgedraft.backends.gguf import check_supported, read_header
from edgedraft.backends.llamacpp_engine import (
    Block,
    Context,
    LoadedModel,
    default_threads,
    engine_name,
    load_model,
    processor_features,
)
from edgedraft.backends.llamacpp_tokenizer import LlamaCppTokenizer, end_ids, real_vocabulary
from edgedraft.backends.session_table import SessionTable
from edgedraft.core.sequence import common_prefix_length
from edgedraft.errors import InvalidRequestError
from edgedraft.types import Float32Array, ModelInfo

DEFAULT_CONTEXT_TOKENS = 4096
EXACT_BLOCK_TOKENS = 16
DRAFT_BATCH_TOKENS = 512
# Measured bit-identical for blocks of 1 to 16 on one thread; others are not, or were not measured.
EXACT_MATRIX_TYPES = frozenset({"Q4_0", "Q4_1", "Q8_0"})


def _context_length(model: LoadedModel, options: BackendOptions) -> int:
    trained = model.header.context_length or DEFAULT_CONTEXT_TOKENS
    if options.context_length is None:
        return min(trained, DEFAULT_CONTEXT_TOKENS)
    if not 0 < options.context_length <= trained:
        raise InvalidRequestError(
            f"context_length is {options.context_length}; legal for {model.header.path}: 1 to {trained}.",
            field="context_length",
        )
    return options.context_length


def _model_info(model: LoadedModel, context_length: int, vocab_size: int, *, exactness: str, exact: bool) -> ModelInfo:
    num_ids = real_vocabulary(model)
    return ModelInfo(
        name=model.header.name,
        engine=engine_name(),
        vocab_size=vocab_size,
        num_ids=num_ids,
        eos_ids=end_ids(model, num_ids),
        context_length=context_length,
        quantisation=model.header.quantisation,
        deterministic=exact,
        exactness_note=exactness,
    )


class LlamaCppDraft:
    """See `base.DraftBackend`."""

    def __init__(self, path: Path, options: BackendOptions) -> None:
        check_options(options)
        model = load_model(path)
        context_length = _context_length(model, options)
        self._context = Context(
            model,
            context_length=context_length,
            num_sequences=1,
            batch_tokens=min(DRAFT_BATCH_TOKENS, context_length),
            batch_rows=1,
            threads=options.threads or default_threads(),
        )
        self._model = model
        self.info = _model_info(model, context_length, self._context.vocab_size, exactness="", exact=False)
        self.length = 0
        self._ids: list[int] = []
        self._row: Float32Array | None = None

    def append(self, token_ids: Sequence[int]) -> None:
        if not token_ids:
            return
        check_ids(token_ids, self.info.num_ids)
        check_draft_fits(self.length + len(token_ids), self.info)
        for start in range(0, len(token_ids), self._context.batch_tokens):
            self._feed(token_ids[start : start + self._context.batch_tokens])

    def _feed(self, token_ids: Sequence[int]) -> Float32Array:
        self._row = None
        row: Float32Array = self._context.decode([Block(0, self.length, token_ids, 1)])[0][0]
        self._ids.extend(token_ids)
        self.length = len(self._ids)
        self._row = row
        return row

    def rollback(self, length: int) -> None:
        check_rollback(length, self.length)
        if length == self.length:
            return
        self._context.rollback(0, length)
        del self._ids[length:]
        self.length = length
        self._row = None

    def draft(self) -> Float32Array:
        check_can_draft(self.length)
        if self._row is not None:
            return self._row
        last_id = self._ids[-1]  # after a rollback the row of the last id is gone: evaluate that id again
        self.rollback(self.length - 1)
        return self._feed([last_id])

    def close(self) -> None:
        self._context.close()
        self._model.free()


@dataclass(slots=True)
class _Session:
    """What the context holds of one session.

    `ids`: prompt and committed ids asked for at `open`, then whatever was scored. `length`: how many of them are
    evaluated. `prompt_length`: those of them evaluated in prompt chunks. `last_row`: logits after `row_length` ids.
    """

    slot: int
    ids: list[int] = field(default_factory=list)
    prompt_length: int = 0
    length: int = 0
    last_row: Float32Array | None = None
    row_length: int = 0


class LlamaCppTarget:
    """See `base.TargetBackend`. Every session has a KV stream of its own in one context."""

    def __init__(self, path: Path, options: BackendOptions) -> None:
        check_options(options)
        exact = options.deterministic
        threads = options.threads or (1 if exact else default_threads())
        model = load_model(path, cpu_only=exact)
        context_length = _context_length(model, options)
        self.max_batch_sessions = 1 if exact else options.max_sessions
        self._chunk = options.prefill_chunk_tokens
        self._block = EXACT_BLOCK_TOKENS if exact else max(EXACT_BLOCK_TOKENS * options.max_sessions, self._chunk)
        self._context = Context(
            model,
            context_length=context_length,
            num_sequences=options.max_sessions,
            batch_tokens=max(self._chunk, self._block),
            batch_rows=self._block,
            threads=threads,
        )
        self._model = model
        self.info = _model_info(
            model,
            context_length,
            self._context.vocab_size,
            exactness=_exactness_note(model, options, threads),
            exact=exact and threads == 1 and model.header.matrix_types <= EXACT_MATRIX_TYPES,
        )
        self._exact = exact
        self._sessions = SessionTable[_Session](options.max_sessions)
        self._free_slots = list(reversed(range(options.max_sessions)))

    def open(self, session_id: bytes, prompt_ids: Sequence[int], committed_ids: Sequence[int]) -> None:
        ids = checked_text(prompt_ids, committed_ids, self.info)
        session = self._sessions.open(session_id, lambda: _Session(self._free_slots.pop()))
        kept = self._reusable_length(session, ids, len(prompt_ids))
        self._context.rollback(session.slot, kept)
        session.ids, session.prompt_length, session.length = ids, len(prompt_ids), kept
        session.last_row = None

    def _reusable_length(self, session: _Session, ids: Sequence[int], prompt_length: int) -> int:
        """How many evaluated ids of `session` a fresh evaluation of `ids` would compute in just the same way.

        The last id is always evaluated again, since its row of logits is needed.
        """
        equal = min(common_prefix_length(session.ids[: session.length], ids), len(ids) - 1)
        same_prompt = prompt_length == session.prompt_length and equal >= prompt_length
        if same_prompt or not self._exact:
            return equal
        return min(equal, prompt_length, session.prompt_length) // self._chunk * self._chunk

    def prefill(self, session_id: bytes) -> int:
        session = self._sessions.find(session_id)
        total = len(session.ids)
        if session.length < total:
            if session.length < session.prompt_length:
                end = min(session.prompt_length, (session.length // self._chunk + 1) * self._chunk)
            else:
                end = min(total, session.length + self._block)
            block = Block(session.slot, session.length, session.ids[session.length : end], int(end == total))
            rows = self._context.decode([block])[0]
            session.length = end
            if end == total:
                session.last_row, session.row_length = rows[0], total
        return total - session.length

    def score(self, requests: Sequence[ScoreRequest]) -> Sequence[Float32Array]:
        check_pass(requests, self.max_batch_sessions)
        sessions = [self._checked(request) for request in requests]
        rows: dict[int, list[Float32Array]] = {}
        blocks: list[Block] = []
        owners: dict[int, _Session] = {}
        for request, session in zip(requests, sessions, strict=True):
            owners[session.slot] = session
            rows[session.slot] = []
            if not request.committed_ids and session.last_row is not None:
                rows[session.slot].append(session.last_row[np.newaxis])
            blocks += self._blocks(session, request)
        for batch in self._passes(blocks):
            for block, block_rows in zip(batch, self._context.decode(batch), strict=True):
                owners[block.sequence].length = block.position + len(block.token_ids)
                rows[block.sequence].append(block_rows)
        return [_joined(rows[session.slot]) for session in sessions]

    def _blocks(self, session: _Session, request: ScoreRequest) -> list[Block]:
        """Roll `session` back and cut what `request` evaluates into blocks.

        A rollback into the prompt evaluates what is left of its last whole chunk again, as ids after the prompt.
        """
        start = request.length
        if start < session.prompt_length:
            start = session.prompt_length = start // self._chunk * self._chunk
        if session.length > start:
            self._context.rollback(session.slot, start)
        session.ids[request.length :] = [*request.committed_ids, *request.draft_ids]
        session.length = start
        if request.length < session.row_length:
            session.last_row = None
        num_rows = len(request.draft_ids) + bool(request.committed_ids)
        first_row = len(session.ids) - num_rows
        blocks = []
        for begin in range(start, len(session.ids), self._block):
            end = min(begin + self._block, len(session.ids))
            blocks.append(Block(session.slot, begin, session.ids[begin:end], max(0, end - max(begin, first_row))))
        return blocks

    def _passes(self, blocks: Sequence[Block]) -> list[list[Block]]:
        """Which blocks share a pass: none with a deterministic target, else as many as fit."""
        passes: list[list[Block]] = []
        room = 0
        for block in blocks:
            if not passes or self._exact or len(block.token_ids) > room:
                passes.append([])
                room = self._context.batch_tokens
            passes[-1].append(block)
            room -= len(block.token_ids)
        return passes

    def close(self, session_id: bytes) -> None:
        session = self._sessions.close(session_id)
        if session is not None:
            self._context.rollback(session.slot, 0)
            self._free_slots.append(session.slot)

    def shutdown(self) -> None:
        self._sessions.clear()
        self._context.close()
        self._model.free()

    def _checked(self, request: ScoreRequest) -> _Session:
        """The session of a request, which may start from whatever is evaluated, the prompt's beginning included."""
        session = self._sessions.find(request.session_id)
        check_request(
            request,
            self.info,
            ready=True,
            first=0,
            last=session.length,
            holds_row=session.last_row is not None and session.row_length == request.length,
        )
        return session


def _joined(rows: Sequence[Float32Array]) -> Float32Array:
    return rows[0] if len(rows) == 1 else np.concatenate(rows)


def _exactness_note(model: LoadedModel, options: BackendOptions, threads: int) -> str:
    note = (
        f"{engine_name()} on {processor_features()}; weights {model.header.quantisation or 'of unknown type'}; "
        f"{threads} thread{'s' if threads > 1 else ''}; prompt in chunks of {options.prefill_chunk_tokens}; KV F16"
    )
    if not options.deterministic:
        return f"{note}; sessions share passes"
    if threads > 1:
        return f"{note}; bit-identical rows are promised for one thread only"
    unmeasured = model.header.matrix_types - EXACT_MATRIX_TYPES
    if unmeasured:
        return f"{note}; rows of {', '.join(sorted(unmeasured))} weights depend on the size of a pass"
    return note


class LlamaCppFamily:
    """See `base.BackendFamily`. `rest` is the path of a GGUF file."""

    name = "llamacpp"

    def open_draft(self, rest: str, options: BackendOptions) -> LlamaCppDraft:
        return LlamaCppDraft(_path(rest), options)

    def open_target(self, rest: str, options: BackendOptions) -> LlamaCppTarget:
        return LlamaCppTarget(_path(rest), options)

    def open_tokenizer(self, rest: str) -> LlamaCppTokenizer:
        return LlamaCppTokenizer(_path(rest))

    def chat_template(self, rest: str) -> str:
        header = read_header(_path(rest))
        check_supported(header)
        return header.chat_template


def _path(rest: str) -> Path:
    if not rest:
        raise InvalidRequestError("the model's path is empty; legal: llamacpp:PATH.gguf.", field="model")
    return Path(rest).expanduser()
