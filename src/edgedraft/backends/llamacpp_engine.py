"""The few calls of llama.cpp that edgedraft needs, made safe: load, decode with rows of logits, forget, free.

Nothing here knows of drafts, targets or sessions. One thread per object.
"""

from __future__ import annotations

import collections
import ctypes
import importlib.metadata
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from edgedraft.backends.gguf import GgufHeader, check_supported, no_rollback_error, read_header
from edgedraft.errors import BackendError, ModelFileError, UnsupportedError
from edgedraft.types import Float32Array

_T = TypeVar("_T")

_CELL_MULTIPLE = 256  # llama.cpp rounds the KV cells of a sequence up to this
_LOG_LEVEL_ERROR = 4

_error_lines: collections.deque[str] = collections.deque(maxlen=4)
_line_listeners: list[Callable[[str], None]] = []


def _on_log(level: int, text: bytes | None, _user_data: object) -> None:
    """Keep the engine's words off the terminal; remember its errors for our own messages."""
    line = (text or b"").decode("utf-8", errors="replace").strip()
    if level == _LOG_LEVEL_ERROR and line:
        _error_lines.append(" ".join(line.split()))
    for listener in _line_listeners:
        listener(line)


def interruptible(call: Callable[[], _T]) -> _T:
    """Run a long call of the engine so that Ctrl-C and SIGTERM end the wait for it.

    What a signal handler raises inside the engine's log callback is swallowed there; on a thread of its own the call
    never meets one, and the handler raises here instead.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    outcome: Future[_T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name="edgedraft-engine", daemon=True).start()
    return outcome.result()


@cache
def load_library() -> Any:
    """llama-cpp-python, initialised once and silenced. Raises `UnsupportedError` where it is not installed."""
    try:
        import llama_cpp
    except ImportError as error:
        raise UnsupportedError(
            f"llama-cpp-python cannot be loaded: {error}.",
            field="model",
            remedy="Install it with: pip install 'edgedraft[llamacpp]' (it is compiled, which takes some minutes).",
        ) from error
    library: Any = llama_cpp
    library.edgedraft_log_callback = library.llama_log_callback(_on_log)  # kept alive with the module
    library.llama_log_set(library.edgedraft_log_callback, ctypes.c_void_p(0))
    library.llama_backend_init()
    return library


def listen(listener: Callable[[str], None]) -> Callable[[], None]:
    """Call `listener` with each line that the engine logs, until the returned function is called."""
    _line_listeners.append(listener)
    return lambda: _line_listeners.remove(listener)


def engine_words(prefix: str = " The engine said: ") -> str:
    """The engine's last error lines, for a message; empty where there are none. Forgets them."""
    lines = "; ".join(_error_lines)
    _error_lines.clear()
    return f"{prefix}{lines}" if lines else ""


def engine_name() -> str:
    library = load_library()
    build = library.llama_version().decode()
    return f"llama.cpp {build} (llama-cpp-python {importlib.metadata.version('llama-cpp-python')})"


def processor_features() -> str:
    """The instruction sets that the engine uses, on which its rounding depends: `CPU AVX2 FMA ...`."""
    words = load_library().llama_print_system_info().decode().replace("|", " ").split()
    enabled = [words[index - 1] for index, word in enumerate(words) if word == "=" and words[index + 1] == "1"]
    return " ".join(["CPU", *enabled])


def default_threads() -> int:
    """Half of the processors that this process may use: a second hardware thread of a core adds little."""
    return max(1, len(os.sched_getaffinity(0)) // 2)


class LoadedModel:
    """A model in memory. `handle` and `vocab` are the engine's pointers, valid until `free` or the object's end."""

    def __init__(self, header: GgufHeader, handle: Any) -> None:
        library = load_library()
        self.header = header
        self.handle = handle
        self.vocab = library.llama_model_get_vocab(handle)
        self._finalizer = weakref.finalize(self, library.llama_model_free, handle)
        self._finalizer.atexit = False

    def free(self) -> None:
        self._finalizer()


def load_model(path: Path, *, vocab_only: bool = False, cpu_only: bool = False) -> LoadedModel:
    """Load the GGUF file `path` after checking its header.

    Raises `ModelFileError` (missing, damaged, not a language model, refused by the engine) or `UnsupportedError`
    (state that cannot be rolled back).
    """
    header = read_header(path)
    check_supported(header)
    library = load_library()
    params = library.llama_model_default_params()
    params.vocab_only = vocab_only
    if cpu_only or vocab_only:
        params.n_gpu_layers = 0
    _error_lines.clear()
    handle = interruptible(lambda: library.llama_model_load_from_file(os.fsencode(path), params))
    if not handle:
        raise ModelFileError(
            f"{path} cannot be loaded.{engine_words()}",
            remedy="The file may be damaged, or need a newer llama-cpp-python.",
        )
    model = LoadedModel(header, handle)
    if library.llama_model_is_recurrent(handle) or library.llama_model_is_hybrid(handle):
        model.free()
        raise no_rollback_error(path, header.architecture)
    if library.llama_model_is_diffusion(handle) or library.llama_model_has_encoder(handle):
        model.free()
        raise UnsupportedError(
            f"{path} has architecture '{header.architecture}', which does not write one token after another.",
            field="model",
            remedy="Use a causal decoder (llama, qwen2, qwen3, gemma, phi, ...).",
        )
    return model


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive ids of one sequence, the first at `position`; logits are wanted for the last `num_rows` of them."""

    sequence: int
    position: int
    token_ids: Sequence[int]
    num_rows: int


class Context:
    """A KV cache for `num_sequences` sequences of `context_length` tokens each, each in a stream of its own."""

    def __init__(
        self,
        model: LoadedModel,
        *,
        context_length: int,
        num_sequences: int,
        batch_tokens: int,
        batch_rows: int,
        threads: int,
    ) -> None:
        """`batch_tokens`, `batch_rows`: the most ids and rows of logits in one `decode`."""
        library = load_library()
        self._library = library
        self._model = model  # the context must not outlive it
        self.batch_tokens = batch_tokens
        self.vocab_size: int = library.llama_vocab_n_tokens(model.vocab)
        params = library.llama_context_default_params()
        params.n_ctx = -(-context_length // _CELL_MULTIPLE) * _CELL_MULTIPLE * num_sequences
        params.n_seq_max = num_sequences
        params.n_batch = params.n_ubatch = batch_tokens  # one physical batch, or the engine would cut it elsewhere
        params.n_outputs_max = min(batch_rows, batch_tokens)
        params.n_outputs_max_per_seq = params.n_outputs_max
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = False
        params.swa_full = True  # a window that forgets could not be rolled back
        _error_lines.clear()
        handle = interruptible(lambda: library.llama_init_from_model(model.handle, params))
        if not handle:
            raise BackendError(
                f"No context of {context_length} tokens for {num_sequences} sequences could be made.{engine_words()}",
                remedy="Ask for a shorter context or fewer sessions.",
            )
        self._handle = handle
        self._memory = library.llama_get_memory(handle)
        self._batch = _Batch(library, batch_tokens)
        self._finalizer = weakref.finalize(self, library.llama_free, handle)
        self._finalizer.atexit = False

    def decode(self, blocks: Sequence[Block]) -> list[Float32Array]:
        """Evaluate `blocks` in one pass; for each a new float32 array, shape (num_rows, vocab_size).

        The blocks' sequences must end at their positions. On `BackendError` the sequences are rolled back to there.
        """
        self._check_open()
        row_indices = self._batch.fill(blocks)
        _error_lines.clear()
        status = self._library.llama_decode(self._handle, self._batch.struct)
        if status != 0:
            for block in blocks:
                self.rollback(block.sequence, block.position)
            raise BackendError(
                f"The engine failed (status {status}) in a pass over {self._batch.struct.n_tokens} ids.{engine_words()}"
            )
        return [self._rows(indices) for indices in row_indices]

    def _rows(self, indices: range) -> Float32Array:
        rows = np.empty((len(indices), self.vocab_size), dtype=np.float32)
        for row, index in zip(rows, indices, strict=True):
            pointer = self._library.llama_get_logits_ith(self._handle, index)
            if not pointer:
                raise BackendError(f"The engine gave no logits for id {index} of a pass.{engine_words()}")
            row[:] = np.ctypeslib.as_array(pointer, (self.vocab_size,))
        return rows

    def rollback(self, sequence: int, length: int) -> None:
        """Forget `sequence` from `length` on."""
        self._check_open()
        if not self._library.llama_memory_seq_rm(self._memory, sequence, length, -1):
            raise BackendError(
                f"The engine cannot roll a sequence back to {length} tokens.", remedy="Use a plain transformer model."
            )

    def _check_open(self) -> None:
        if not self._finalizer.alive:  # the engine would read freed memory
            raise BackendError("The model is closed.", remedy="Open it again.")

    def close(self) -> None:
        self._finalizer()


class _Batch:
    """A `llama_batch` over arrays of our own, filled without a Python loop over ids."""

    def __init__(self, library: Any, capacity: int) -> None:
        self._ids = np.zeros(capacity, dtype=np.int32)
        self._positions = np.zeros(capacity, dtype=np.int32)
        self._sequences = np.zeros(capacity, dtype=np.int32)
        self._ones = np.ones(capacity, dtype=np.int32)
        self._wanted = np.zeros(capacity, dtype=np.int8)
        addresses = self._sequences.ctypes.data + 4 * np.arange(capacity, dtype=np.uintp)
        self._sequence_pointers = addresses.astype(np.uintp)
        self.struct = library.llama_batch(
            n_tokens=0,
            token=self._pointer(library, "token", self._ids),
            embd=None,
            pos=self._pointer(library, "pos", self._positions),
            n_seq_id=self._pointer(library, "n_seq_id", self._ones),
            seq_id=self._pointer(library, "seq_id", self._sequence_pointers),
            logits=self._pointer(library, "logits", self._wanted),
        )

    @staticmethod
    def _pointer(library: Any, field: str, array: np.ndarray[Any, Any]) -> Any:
        return ctypes.cast(array.ctypes.data, dict(library.llama_batch._fields_)[field])

    def fill(self, blocks: Sequence[Block]) -> list[range]:
        """Put `blocks` one after another; the indices of each block's wanted rows."""
        start = 0
        row_indices = []
        for block in blocks:
            end = start + len(block.token_ids)
            self._ids[start:end] = block.token_ids
            self._positions[start:end] = np.arange(block.position, block.position + len(block.token_ids))
            self._sequences[start:end] = block.sequence
            self._wanted[start:end] = 0
            self._wanted[end - block.num_rows : end] = 1
            row_indices.append(range(end - block.num_rows, end))
            start = end
        self.struct.n_tokens = start
        return row_indices
