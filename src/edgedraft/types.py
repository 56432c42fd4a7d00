"""The small values that everything else is made of. No behaviour beyond validation."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from edgedraft.errors import InvalidRequestError
from edgedraft.speech_features import FeatureSpec

Float32Array = npt.NDArray[np.float32]
Float64Array = npt.NDArray[np.float64]

SESSION_ID_BYTES = 16


class Rule(enum.StrEnum):
    """How a draft token is judged."""

    MATCH = "match"
    RATIO = "ratio"
    RANK = "rank"


class Assist(enum.StrEnum):
    """When the target writes by itself: never, after a mismatch, or whenever nothing valid is pending."""

    NONE = "none"
    BUBBLE = "bubble"
    ALWAYS = "always"


class Owner(enum.StrEnum):
    """Who may append to the committed log."""

    CLOUD = "cloud"
    EDGE = "edge"


class Exactness(enum.StrEnum):
    """What "exact" means for an answer (docs/exactness.md)."""

    BITWISE = "bitwise"
    UP_TO_NUMERICS = "up_to_numerics"
    DISTRIBUTION = "distribution"
    LOSSY = "lossy"


class TokenKind(enum.StrEnum):
    """Where a committed token came from; `local` is the edge's own, without a verdict."""

    ACCEPTED = "accepted"
    RECOVERED = "recovered"
    BONUS = "bonus"
    OWN = "own"
    LOCAL = "local"


class FinishReason(enum.StrEnum):
    """Why a request ended: an end-of-sequence id or stop string, the token budget, or the user."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


class OnLinkLoss(enum.StrEnum):
    """What a request does while the link is down."""

    WAIT = "wait"
    LOCAL = "local"
    FAIL = "fail"


def _in_range(field: str, value: float, low: float, high: float, legal: str) -> None:
    if not low <= value <= high:  # which no NaN fulfils
        raise InvalidRequestError(f"{field} is {value}; legal: {legal}.", field=field)


class SamplingParams(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """How the next token is chosen; OpenAI and vLLM meanings. Travels in `Open`, so the order is fixed.

    `seed` must be set before it is used: an absent seed is drawn by the edge and reported. `choice` keeps the
    answers of one request with n > 1 apart. Raises `InvalidRequestError` naming the first bad field.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    choice: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = {}

    def __post_init__(self) -> None:
        _in_range("temperature", self.temperature, 0.0, 100.0, "0 (greedy) to 100")
        _in_range("top_k", self.top_k, 0, 2**31 - 1, "0 (off) or more")
        _in_range("top_p", self.top_p, 1e-9, 1.0, "above 0, at most 1 (off)")
        _in_range("min_p", self.min_p, 0.0, 1.0, "0 (off) to 1")
        _in_range("seed", self.seed, 0, 2**63 - 1, "0 to 2^63 - 1")
        _in_range("choice", self.choice, 0, 2**16 - 1, "0 to 65535")
        _in_range("repetition_penalty", self.repetition_penalty, 1e-3, 1e3, "0.001 to 1000; 1 is off")
        _in_range("presence_penalty", self.presence_penalty, -2.0, 2.0, "-2 to 2; 0 is off")
        _in_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0, "-2 to 2; 0 is off")
        for token_id, bias in self.logit_bias.items():
            _in_range("logit_bias", token_id, 0, 2**31 - 1, "ids from 0")
            _in_range(f"logit_bias[{token_id}]", bias, -100.0, 100.0, "-100 to 100")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def needs_history(self) -> bool:
        """Whether a row's processing depends on the tokens before it."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


class DraftDistribution(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a draft token was sampled from, rounded first (rule *ratio* only).

    `token_ids`: the ids with probability, ascending. `probs_fp16`: little-endian float16, same order and length;
    renormalised in float64 by whoever reads it, so both sides see the same numbers.
    """

    token_ids: list[int]
    probs_fp16: bytes


@dataclass(frozen=True, slots=True)
class DraftToken:
    """One unverified token and how sure the draft model was of it.

    `confidence`: its probability under the draft's processed distribution (temperature 1 where the request is
    greedy). `entropy`: nats, of the raw distribution. `draft_s`: what drafting it took. `second_id`: what it would have
    been otherwise, with `second_confidence`; -1 where that was not asked for.
    """

    token_id: int
    confidence: float
    entropy: float
    draft_s: float = 0.0
    distribution: DraftDistribution | None = None
    second_id: int = -1
    second_confidence: float = 0.0


@dataclass(frozen=True, slots=True)
class CommittedToken:
    """One token of the answer. `position` counts from the first prompt token.

    `logprob`: the target's, where it was asked for; never that of a `local` token, which the target has not seen.
    `entropy`: the draft's at this position, in nats, where the edge owns the text.
    """

    token_id: int
    position: int
    kind: TokenKind
    logprob: float | None = None
    entropy: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What an engine knows about a loaded model.

    `vocab_size`: width of a row of logits. `num_ids`: the real vocabulary; ids from there on are padding and are
    never drafted or accepted. `deterministic`: whether rows are bit-identical however they are computed, and
    `exactness_note` says what that depends on. `on_gpu`: it computes on a GPU, whose power can be measured.
    `features`: what of a recording it listens to; None for a model of text. `digest`: of the weights, short; empty
    where the engine knows none.
    """

    name: str
    engine: str
    vocab_size: int
    num_ids: int
    eos_ids: tuple[int, ...]
    context_length: int
    quantisation: str = ""
    deterministic: bool = False
    exactness_note: str = ""
    on_gpu: bool = False
    features: FeatureSpec | None = None
    digest: str = ""

    @property
    def identity(self) -> str:
        """The name, told apart from other weights of that name where these are known."""
        return f"{self.name}#{self.digest}" if self.digest else self.name


@dataclass(frozen=True, slots=True)
class Usage:
    """Counted in tokens, never in chunks or words."""

    prompt_tokens: int
    completion_tokens: int

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def to_dict(self) -> Mapping[str, int]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.total_tokens,
        }
