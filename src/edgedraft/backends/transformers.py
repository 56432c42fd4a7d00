"""PyTorch models through transformers as a back end: any causal model whose cache can be cut, from safetensors or GGUF.

Exactness rests on fixed shapes. Here a row's last bits depend on how many ids share its pass and on where in the pass
it stands, in fp32 and bf16 alike. So a deterministic target always evaluates a position in the same pass: prompts in
chunks cut at absolute multiples, everything after them in blocks of `EXACT_BLOCK_TOKENS` that start at fixed places
behind the prompt, filled up with padding and evaluated again when more ids arrive. Whatever a row's block holds
behind it is masked, and adds exact zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from edgedraft.backends.base import BackendOptions, ScoreRequest, Tokenizer
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
from edgedraft.backends.session_table import SessionTable
from edgedraft.backends.transformers_engine import (
    DEFAULT_CONTEXT_TOKENS,
    Block,
    LoadedModel,
    TextCache,
    engine_name,
    load_model,
)
from edgedraft.backends.transformers_files import ModelSource, parse_source, read_chat_template
from edgedraft.backends.transformers_tokenizer import TransformersTokenizer
from edgedraft.core.sequence import common_prefix_length
from edgedraft.errors import ModelFileError
from edgedraft.types import Float32Array, ModelInfo

EXACT_BLOCK_TOKENS = 16
DRAFT_CHUNK_TOKENS = 512


def _context_length(model: LoadedModel, options: BackendOptions) -> int:
    if options.context_length is None:
        return min(model.trained_length, DEFAULT_CONTEXT_TOKENS)
    check_range("context_length", options.context_length, model.trained_length)
    return options.context_length


def _open_tokenizer(source: ModelSource) -> Tokenizer:
    if not source.is_gguf:
        return TransformersTokenizer(source.path)
    from edgedraft.backends.llamacpp_tokenizer import LlamaCppTokenizer  # reads every vocabulary that GGUF holds

    return LlamaCppTokenizer(source.path)


def _model_info(
    model: LoadedModel, tokenizer: Tokenizer, context_length: int, *, exactness: str = "", exact: bool = False
) -> ModelInfo:
    if tokenizer.num_ids > model.vocab_size:
        raise ModelFileError(
            f"{model.source.path} has a tokenizer of {tokenizer.num_ids} ids and rows of {model.vocab_size} logits.",
            remedy="Fetch tokenizer and weights of one model again.",
        )
    return ModelInfo(
        name=model.name,
        engine=engine_name(),
        vocab_size=model.vocab_size,
        num_ids=tokenizer.num_ids,
        eos_ids=tokenizer.eos_ids,
        context_length=context_length,
        quantisation=model.quantisation,
        deterministic=exact,
        exactness_note=exactness,
        on_gpu=model.device != "cpu",
    )


class TransformersDraft:
    """See `base.DraftBackend`."""

    def __init__(self, source: ModelSource, options: BackendOptions) -> None:
        check_options(options)
        tokenizer = _open_tokenizer(source)
        self._model = load_model(source, threads=options.threads)
        self.info = _model_info(self._model, tokenizer, _context_length(self._model, options))
        self.length = 0
        self._text = TextCache()
        self._ids: list[int] = []
        self._row: Float32Array | None = None

    def append(self, token_ids: Sequence[int]) -> None:
        check_ids(token_ids, self.info.num_ids)
        check_draft_fits(self.length + len(token_ids), self.info)
        for start in range(0, len(token_ids), DRAFT_CHUNK_TOKENS):
            self._feed(token_ids[start : start + DRAFT_CHUNK_TOKENS])

    def _feed(self, token_ids: Sequence[int]) -> Float32Array:
        row: Float32Array = self._model.evaluate([Block(self._text, token_ids, 1)])[0][0]
        self._ids.extend(token_ids)
        self.length = len(self._ids)
        self._row = row
        return row

    def rollback(self, length: int) -> None:
        check_rollback(length, self.length)
        if length < self.length:
            self._text.rollback(length)
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
        self._model.free()
        self._text = TextCache()


@dataclass(slots=True)
class _Session:
    """`ids`: all that is known of the text, of which `text` holds `text.length` evaluated. `ready`: prefilled.

    `last_row`: logits after the first `row_length` ids, kept since prefill.
    """

    text: TextCache = field(default_factory=TextCache)
    ids: list[int] = field(default_factory=list)
    prompt_length: int = 0
    ready: bool = False
    last_row: Float32Array | None = None
    row_length: int = 0


class TransformersTarget:
    """See `base.TargetBackend`. Each session has a cache of its own; a pass over several pads them to one length."""

    def __init__(self, source: ModelSource, options: BackendOptions) -> None:
        check_options(options)
        self._exact = exact = options.deterministic
        tokenizer = _open_tokenizer(source)
        self._model = load_model(source, threads=options.threads or (1 if exact else None), cpu_only=exact)
        self._context_length = _context_length(self._model, options)
        self.max_batch_sessions = 1 if exact else options.max_sessions
        self._chunk = options.prefill_chunk_tokens
        self._sessions = SessionTable[_Session](options.max_sessions)
        doubt = self._doubt() if exact else "sessions share passes"
        self.info = _model_info(
            self._model,
            tokenizer,
            self._context_length,
            exactness=f"{self._conditions()}; {doubt}" if doubt else self._conditions(),
            exact=exact and not doubt,
        )

    def _conditions(self) -> str:
        model = self._model
        return (
            f"{engine_name()} on {model.processor}; weights {model.quantisation}; {model.threads} "
            f"thread{'s' if model.threads > 1 else ''}; {model.attention} attention; "
            f"prompt in chunks of {self._chunk}"
        )

    def _doubt(self) -> str:
        """Why rows may not be bit-identical; empty where they are, as far as a look at this very model can tell."""
        if self._model.device != "cpu":
            return "bit-identical rows were measured on CPUs only"
        if self._model.threads > 1:
            return "bit-identical rows are promised for one thread only"
        if self._model.mixes_rows:
            return "a mixture of experts groups the ids of a pass, so rows depend on their neighbours"
        if self._context_length <= EXACT_BLOCK_TOKENS:
            return "the context is no longer than a block"
        session = _Session(ids=[number % self._model.vocab_size for number in range(1 + EXACT_BLOCK_TOKENS)])
        self._model.evaluate([Block(session.text, session.ids[:1], 1)])
        whole = self._exact_rows(session, 1, len(session.ids))
        for end in (12, 6, 2):  # the same ids with padding behind them
            if not np.array_equal(self._exact_rows(session, 1, end), whole[: end - 1]):
                return "rows of this model depend on what stands behind them in a pass"
        return ""

    def open(self, session_id: bytes, prompt_ids: Sequence[int], committed_ids: Sequence[int]) -> None:
        ids = checked_text(prompt_ids, committed_ids, self.info)
        session = self._sessions.open(session_id, _Session)
        session.text.rollback(self._reusable_length(session, ids, len(prompt_ids)))
        session.ids, session.prompt_length = ids, len(prompt_ids)
        session.ready, session.last_row = False, None

    def _reusable_length(self, session: _Session, ids: Sequence[int], prompt_length: int) -> int:
        """How many evaluated ids of `session` a fresh evaluation of `ids` would compute in just the same way.

        The last id is always evaluated again, since its row of logits is needed.
        """
        equal = min(common_prefix_length(session.ids[: session.text.length], ids), len(ids) - 1)
        same_prompt = prompt_length == session.prompt_length and equal >= prompt_length
        if same_prompt or not self._exact:
            return equal
        return min(equal, prompt_length, session.prompt_length) // self._chunk * self._chunk

    def prefill(self, session_id: bytes) -> int:
        session = self._sessions.find(session_id)
        total, position = len(session.ids), session.text.length
        if session.ready:
            return 0
        if self._exact and position >= session.prompt_length:
            start = self._block_start(session, position)
            end = min(total, start + EXACT_BLOCK_TOKENS)
            row = self._exact_rows(session, start, end)[-1]
        else:
            limit = session.prompt_length if self._exact else total
            end = min(limit, (position // self._chunk + 1) * self._chunk)
            row = self._model.evaluate([Block(session.text, session.ids[position:end], 1)])[0][0]
        if end == total:
            session.ready, session.last_row, session.row_length = True, row, total
        return total - end

    def score(self, requests: Sequence[ScoreRequest]) -> Sequence[Float32Array]:
        check_pass(requests, self.max_batch_sessions)
        sessions = [self._checked(request) for request in requests]
        for request, session in zip(requests, sessions, strict=True):
            if request.length < session.row_length:
                session.last_row = None
            session.ids[request.length :] = [*request.committed_ids, *request.draft_ids]
            session.text.rollback(min(request.length, session.text.length))
        new_rows = self._exact_passes(requests, sessions) if self._exact else self._shared_pass(requests, sessions)
        return [
            rows if request.committed_ids or session.last_row is None else np.vstack([session.last_row, rows])
            for request, session, rows in zip(requests, sessions, new_rows, strict=True)
        ]

    def _shared_pass(self, requests: Sequence[ScoreRequest], sessions: Sequence[_Session]) -> list[Float32Array]:
        blocks = [
            Block(
                session.text, session.ids[session.text.length :], len(request.draft_ids) + bool(request.committed_ids)
            )
            for request, session in zip(requests, sessions, strict=True)
        ]
        evaluated = iter(self._model.evaluate(asked) if (asked := [each for each in blocks if each.token_ids]) else [])
        return [next(evaluated) if block.token_ids else self._no_rows() for block in blocks]

    def _exact_passes(self, requests: Sequence[ScoreRequest], sessions: Sequence[_Session]) -> list[Float32Array]:
        """Every block from the first unevaluated id on, one after another."""
        found = []
        for request, session in zip(requests, sessions, strict=True):
            total = len(session.ids)
            num_rows = len(request.draft_ids) + bool(request.committed_ids)
            start = self._block_start(session, session.text.length)
            rows = [
                self._exact_rows(session, begin, min(begin + EXACT_BLOCK_TOKENS, total))
                for begin in range(start, total, EXACT_BLOCK_TOKENS)
            ]
            joined = np.concatenate([self._no_rows(), *rows])
            found.append(joined[len(joined) - num_rows :])
        return found

    def _block_start(self, session: _Session, position: int) -> int:
        behind_prompt = position - session.prompt_length
        return session.prompt_length + behind_prompt // EXACT_BLOCK_TOKENS * EXACT_BLOCK_TOKENS

    def _exact_rows(self, session: _Session, start: int, end: int) -> Float32Array:
        """The rows after each id in [start, end) of the block at `start`, whose shape depends on `start` alone."""
        width = min(EXACT_BLOCK_TOKENS, self._context_length - start)
        padded = [*session.ids[start:end], *[0] * (width - (end - start))]
        session.text.rollback(start)
        rows = self._model.evaluate([Block(session.text, padded, width)])[0]
        session.text.rollback(end)
        return rows[: end - start]

    def _no_rows(self) -> Float32Array:
        return np.empty((0, self._model.vocab_size), dtype=np.float32)

    def close(self, session_id: bytes) -> None:
        self._sessions.close(session_id)

    def shutdown(self) -> None:
        self._sessions.clear()
        self._model.free()

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


class TransformersFamily:
    """See `base.BackendFamily`. `rest` is `PATH[,dtype=fp32|bf16][,device=cpu|cuda]`: a folder or a GGUF file."""

    name = "transformers"

    def open_draft(self, rest: str, options: BackendOptions) -> TransformersDraft:
        return TransformersDraft(parse_source(rest), options)

    def open_target(self, rest: str, options: BackendOptions) -> TransformersTarget:
        return TransformersTarget(parse_source(rest), options)

    def open_tokenizer(self, rest: str) -> Tokenizer:
        return _open_tokenizer(parse_source(rest))

    def chat_template(self, rest: str) -> str:
        return read_chat_template(parse_source(rest))
