"""The small interface behind which every model lives. Back ends never decide; they give logits.

A *family* is what an entry point of the group `edgedraft.backends` names: it opens drafts, targets and tokenizers
from the part of a model spec behind its name (`llamacpp:PATH.gguf` -> family `llamacpp`, rest `PATH.gguf`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from edgedraft.speech_features import FeatureSpec, SpeechFeatures
from edgedraft.types import Float32Array, ModelInfo


@runtime_checkable
class Tokenizer(Protocol):
    """Text to ids and back, on the edge. Never adds a BOS by itself: the chat template or `add_bos` decides once."""

    num_ids: int
    bos_id: int | None
    add_bos: bool
    eos_ids: tuple[int, ...]

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """Ids of `text`, without BOS. `parse_special`: whether text such as `<|im_end|>` becomes the control id."""

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token adds to the text; empty for control tokens. They may split a character."""

    def identity(self, token_id: int) -> bytes:
        """Bytes that are equal for two tokenizers only where the id means the same (text and kind)."""


@runtime_checkable
class DraftBackend(Protocol):
    """One sequence, on the edge, used from one thread. Holds `length` tokens."""

    info: ModelInfo
    length: int

    def append(self, token_ids: Sequence[int]) -> None:
        """Take `token_ids` as given, after the tokens held. Raises `ContextLengthError` past the context."""

    def rollback(self, length: int) -> None:
        """Forget everything from `length` on, in tokens and in the KV cache. 0 forgets all."""

    def draft(self) -> Float32Array:
        """Logits of the next position: float32, shape (vocab_size,). Needs `length` >= 1; appends nothing.

        The array may be reused by the next call. A back end without probabilities (prompt lookup) gives a one-hot
        row: 0 for its proposal, -inf elsewhere; and all -inf where it has no proposal. Opened without the size of the
        vocabulary, its row may be narrower than that: ids from its end on count as -inf.
        """

    def close(self) -> None:
        """Free the model."""


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """One session's part of a target pass.

    Roll the session back to `length`, then evaluate `committed_ids` and `draft_ids` after it. `committed_ids` may be
    empty only straight after `prefill`, when the last row is still held.
    """

    session_id: bytes
    length: int
    committed_ids: Sequence[int]
    draft_ids: Sequence[int]


@runtime_checkable
class TargetBackend(Protocol):
    """Many sessions, in the cloud, used from one thread. One that was closed or never opened is a `SessionLostError`.

    Determinism (`info.deterministic`): prompt ids are evaluated in chunks cut at absolute multiples of a fixed size,
    committed and draft ids in blocks of at most 16, never in one chunk with prompt ids, and never in one batch with
    another session.
    """

    info: ModelInfo
    max_batch_sessions: int
    """How many sessions one `score` call may hold."""

    def open(self, session_id: bytes, prompt_ids: Sequence[int], committed_ids: Sequence[int]) -> None:
        """Register a session, or open it again keeping the longest equal prefix. Runs no model.

        Raises `ContextLengthError`, or `SaturatedError` where no sequence is free.
        """

    def prefill(self, session_id: bytes) -> int:
        """Evaluate the next chunk of prompt and committed ids; how many tokens are still to do (0: ready)."""

    def score(self, requests: Sequence[ScoreRequest]) -> Sequence[Float32Array]:
        """One pass for all. For each request float32, shape (num_draft + 1, vocab_size): row i is the distribution
        of the position after `committed_ids + draft_ids[:i]`. The arrays may be reused by the next call.

        Raises before any model runs: `BackendError` for a pass or position that cannot be, `InvalidRequestError` for
        ids outside the vocabulary, `ContextLengthError`.
        """

    def close(self, session_id: bytes) -> None:
        """Free the session; unknown ids are ignored."""

    def shutdown(self) -> None:
        """Free the model."""


@runtime_checkable
class CaptionTokenizer(Tokenizer, Protocol):
    """The tokenizer of a model that captions speech: it also knows how that model is asked."""

    languages: tuple[str, ...]
    """ISO 639-1 codes, the default first."""

    def caption_prompt(self, language: str) -> list[int]:
        """Ids of the request for a caption in `language`, at least one. The same ids on the edge and in the cloud:
        what a model needs around them (chat template, places for the audio) its back end adds by itself.

        Raises `InvalidRequestError` for a language that the model was not made for.
        """


@runtime_checkable
class ListeningDraft(DraftBackend, Protocol):
    """A draft that hears a recording (`info.features` says in which form).

    `sends`: what of a recording is given to the targets that it was made for. `max_seconds`: how long one may be.
    """

    sends: FeatureSpec
    max_seconds: float

    def listen(self, features: SpeechFeatures) -> None:
        """Hear another recording: forgets all tokens. Called before the first `append` of a request.

        Raises `UnsupportedError` for features of another spec, `ContextLengthError` for more than fit.
        """


@runtime_checkable
class ListeningTarget(TargetBackend, Protocol):
    """A target whose sessions each have a recording (`info.features` says in which form)."""

    def listen(self, session_id: bytes, features: SpeechFeatures) -> None:
        """The recording of a session: between its `open` and the first `prefill` after that. Runs no model.

        Raises `UnsupportedError` for features of another spec, `ContextLengthError` for more than fit.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """What an operator or user may set for any back end. `None` leaves the family's default.

    `num_ids`: the real vocabulary of the tokenizer in use, for a draft that has none of its own (prompt lookup).
    """

    threads: int | None = None
    context_length: int | None = None
    max_sessions: int = 8
    deterministic: bool = False
    prefill_chunk_tokens: int = 128
    num_ids: int | None = None


class BackendFamily(Protocol):
    """The object an entry point names. A family that lacks a role raises `UnsupportedError` naming what it has."""

    name: str

    def open_draft(self, rest: str, options: BackendOptions) -> DraftBackend: ...

    def open_target(self, rest: str, options: BackendOptions) -> TargetBackend: ...

    def open_tokenizer(self, rest: str) -> Tokenizer: ...

    def chat_template(self, rest: str) -> str: ...
