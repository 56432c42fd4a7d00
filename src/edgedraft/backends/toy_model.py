"""Small exact models: the next token's distribution is a pure function of the last few ids.

A row of logits is the sum of fixed tables, each rotated by a hash of the context. A table entry is -ln(u) with u
uniform, so that exp(logit) has the heavy tail of natural text: `skew` is its exponent, and a row of 152,000 logits
costs one addition per table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from edgedraft.backends.spec import check_setting, parse_settings
from edgedraft.types import Float32Array, Float64Array, ModelInfo

NUM_SPECIAL = 4
"""The last real ids are bos, eos, im_start, im_end, in this order."""

NEVER_LOGIT, CERTAIN_LOGIT, PADDING_LOGIT = -1e4, 1e4, 2e4
"""Of control tokens, of an end of sequence that is due, and of padding: the highest, so that whoever forgets to cut
the padding off is found out at once."""

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _mix(value: int) -> int:
    """splitmix64's finaliser (Steele, Lea and Flood 2014)."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


@lru_cache(maxsize=32)
def _table(seed: int, number: int, size: int) -> Float32Array:
    """-ln(u) for `size` uniforms, float32, twice in a row so that a rotation is a slice. Shape (2 * size,)."""
    counters = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    bits = counters + np.uint64(_mix((seed * 64 + number + 1) * _GOLDEN & _MASK))
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    uniforms = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    once = (-np.log(uniforms)).astype(np.float32)
    doubled = np.concatenate([once, once])
    doubled.setflags(write=False)
    return doubled


@dataclass(frozen=True, slots=True)
class ToySettings:
    """What stands behind `toy:`, as `key=value,key=value`.

    `vocab`: width of a row. `ids`: real vocabulary, the rest is padding (0: no padding). `seed`: which model.
    `order`: how many ids the next one depends on. `skew`: how peaked rows are. `context`: context length in tokens.
    `eos_every`: an end of sequence is certain in one of so many contexts (0: never). A draft is the target's spec with
    `noise` (weight of a second table added to the logits, 0: none) and `agree` (share of contexts in which the model is
    the one of `seed`; in the others it is an unrelated one).
    """

    vocab: int = 64
    ids: int = 0
    seed: int = 1
    order: int = 2
    skew: float = 2.0
    context: int = 4096
    eos_every: int = 0
    noise: float = 0.0
    agree: float = 1.0

    def __post_init__(self) -> None:
        check_setting("toy", "vocab", self.vocab, NUM_SPECIAL + 2, 1_000_000)
        if self.ids:
            check_setting("toy", "ids", self.ids, NUM_SPECIAL + 2, self.vocab)
        check_setting("toy", "seed", self.seed, 0, 2**32 - 1)
        check_setting("toy", "order", self.order, 1, 16)
        check_setting("toy", "skew", self.skew, 0.0, 16.0)
        check_setting("toy", "context", self.context, 1, 10_000_000)
        check_setting("toy", "eos_every", self.eos_every, 0, 2**31)
        check_setting("toy", "noise", self.noise, 0.0, 100.0)
        check_setting("toy", "agree", self.agree, 0.0, 1.0)

    @property
    def num_ids(self) -> int:
        return self.ids or self.vocab

    @classmethod
    def parse(cls, rest: str) -> ToySettings:
        """Raises `InvalidRequestError` naming the setting that is unknown or out of range."""
        defaults: dict[str, Any] = {field.name: field.default for field in fields(cls)}
        settings: dict[str, Any] = parse_settings("toy", rest, defaults)
        return cls(**settings)


class ToyModel:
    """Logits and exact probabilities of the next token, for any context."""

    def __init__(self, settings: ToySettings) -> None:
        self.settings = settings
        self.num_ids = settings.num_ids
        self.num_plain = self.num_ids - NUM_SPECIAL
        self.bos_id, self.eos_id, self.im_start_id, self.im_end_id = range(self.num_plain, self.num_ids)
        self.eos_ids = (self.eos_id, self.im_end_id)

    def info(self, context_length: int | None) -> ModelInfo:
        settings = self.settings
        return ModelInfo(
            name=f"toy:seed={settings.seed},vocab={settings.vocab}",
            engine="toy",
            vocab_size=settings.vocab,
            num_ids=self.num_ids,
            eos_ids=self.eos_ids,
            context_length=context_length or settings.context,
            deterministic=True,
            exactness_note="a row depends on nothing but the ids before it",
        )

    def logits(self, context: Sequence[int]) -> Float32Array:
        """Logits after `context` (of which the last `order` ids count): float32, shape (vocab_size,), a new array."""
        settings = self.settings
        key = _mix(settings.seed * _GOLDEN & _MASK)
        for token_id in context[-settings.order :]:
            key = _mix((key + (token_id + 1) * _GOLDEN) & _MASK)
        row = np.empty(settings.vocab, dtype=np.float32)
        self._fill_plain(row[: self.num_plain], key)
        row[self.num_plain : self.num_ids] = NEVER_LOGIT
        row[self.num_ids :] = PADDING_LOGIT
        ending = _mix(key ^ 5)
        if settings.eos_every and ending % settings.eos_every == 0:
            row[self.eos_ids[(ending >> 32) % 2]] = CERTAIN_LOGIT
        return row

    def _fill_plain(self, out: Float32Array, key: int) -> None:
        settings, size = self.settings, self.num_plain
        seed = settings.seed if _mix(key ^ 4) < settings.agree * 2.0**64 else settings.seed + 2**32
        first, second, third = (_mix(key ^ number) % size for number in (1, 2, 3))
        np.add(_table(seed, 0, size)[first : first + size], _table(seed, 1, size)[second : second + size], out=out)
        out *= np.float32(settings.skew / 2)
        if settings.noise:
            out += np.float32(settings.noise) * _table(seed, 2, size)[third : third + size]

    def probs(self, context: Sequence[int]) -> Float64Array:
        """Exact distribution of the next token at temperature 1: float64, shape (num_ids,)."""
        logits = self.logits(context)[: self.num_ids].astype(np.float64)
        weights = np.exp(logits - logits.max())
        return np.asarray(weights / math.fsum(weights), dtype=np.float64)
