"""From a row of logits to a token, in the one order of processing that edge and cloud share (docs/protocol.md).

logit bias; repetition, presence and frequency penalties; temperature; min-p; top-k; top-p; then noise, last. All of it
is defined in float64, on real ids only, and is a pure function of its arguments.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from edgedraft.core.distribution import Processed, distribution_probs, drawn_index, one_hot, round_distribution
from edgedraft.core.noise import (
    CHUNK_IDS,
    IdArray,
    gumbel_noise,
    keyed_uniform,
    noise_hashes,
    noise_key,
    noisy_argmax,
)
from edgedraft.core.truncation import Kept, best_id, truncate
from edgedraft.errors import BackendError, InvalidRequestError
from edgedraft.types import DraftDistribution, DraftToken, Float32Array, Float64Array, Rule, SamplingParams

__all__ = [
    "Processed",
    "TokenIds",
    "choose",
    "chosen",
    "distribution_probs",
    "draft_token",
    "edited_row",
    "gumbel_noise",
    "highest",
    "keyed_uniform",
    "logprob_of",
    "noise_hashes",
    "noise_key",
    "process",
    "processed_row",
    "round_distribution",
]

TokenIds = Sequence[int] | IdArray

PURPOSE_DRAFT, PURPOSE_ACCEPT, PURPOSE_RECOVER, PURPOSE_BONUS = b"draft", b"accept", b"recover", b"bonus"
"""What a keyed uniform is for (rule *ratio*); one of each per position."""

_LOWEST_SCORE = np.float32(-200.0)
"""exp() of it is 0 in float32, and 0 times it is still 0."""
_STEEPEST = 1e30


def process(
    logits: Float32Array,
    sampling: SamplingParams,
    *,
    num_ids: int,
    prompt_ids: TokenIds = (),
    output_ids: TokenIds = (),
) -> Processed:
    """The distribution a token is drawn from. Temperature 0 counts as 1 here.

    `logits`: float32, shape (vocab_size,); ids from `num_ids` on are padding and left out. `prompt_ids` and
    `output_ids`: the history, looked at only where a penalty is set. Raises `BackendError` for NaN, +inf or a row
    without a finite logit, `InvalidRequestError` for a bias on an id that does not exist.
    """
    row = edited_row(logits, sampling, num_ids=num_ids, prompt_ids=prompt_ids, output_ids=output_ids)
    return processed_row(row, sampling)


def processed_row(row: Float32Array, sampling: SamplingParams) -> Processed:
    """The rest of `process` for a row that `edited_row` gave."""
    return _processed(truncate(row, highest(row), sampling))


def _processed(kept: Kept) -> Processed:
    scores = kept.scores()
    if scores.min() > -math.inf:
        return Processed(kept.ids, scores)
    finite = np.flatnonzero(scores > -math.inf)
    return Processed(kept.ids[finite], scores[finite])


def choose(
    logits: Float32Array,
    sampling: SamplingParams,
    position: int,
    *,
    num_ids: int,
    prompt_ids: TokenIds = (),
    output_ids: TokenIds = (),
) -> int:
    """The model's own token for `position`: arg max at temperature 0, else the Gumbel-max sample; lowest id on a tie.

    Bit for bit the arg max of `process(...).logits + gumbel_noise(...)` over its ids, without computing all of them.
    Arguments and errors as for `process`.
    """
    row = edited_row(logits, sampling, num_ids=num_ids, prompt_ids=prompt_ids, output_ids=output_ids)
    return chosen(row, sampling, position)


def chosen(row: Float32Array, sampling: SamplingParams, position: int) -> int:
    """The rest of `choose` for a row that `edited_row` gave."""
    top = highest(row)
    if sampling.greedy:
        return int(row.argmax())
    return best_id(row, top, sampling, lambda kept: _noisy_index(kept, sampling, position))


def _noisy_index(kept: Kept, sampling: SamplingParams, position: int) -> int:
    key = noise_key(sampling.seed, sampling.choice, position)
    return noisy_argmax(kept.values, kept.top, kept.temperature, kept.ids, key)


def draft_token(
    logits: Float32Array,
    sampling: SamplingParams,
    position: int,
    *,
    num_ids: int,
    rule: Rule,
    prompt_ids: TokenIds = (),
    output_ids: TokenIds = (),
    with_second: bool = False,
) -> DraftToken | None:
    """The edge's draft for `position`; None where the draft model proposes nothing (all real logits are -inf).

    Rules *match* and *rank* choose with the target's own noise, so that the two agree as often as they can; *ratio*
    samples from the rounded distribution, which the token then carries. `with_second`: what the choice would have been
    without that id, for rules *match* and *rank* (it costs another look at the row). Arguments and errors as for
    `process`.
    """
    raw = logits[:num_ids]
    raw_top = float(raw.max(initial=-math.inf))
    if raw_top == -math.inf:
        return None
    row = edited_row(raw, sampling, num_ids=num_ids, prompt_ids=prompt_ids, output_ids=output_ids)
    kept = truncate(row, _checked_top(raw_top) if row is raw else highest(row), sampling)
    distribution = None
    if rule is Rule.RATIO:
        processed = _processed(kept)
        distribution = round_distribution(one_hot(processed) if sampling.greedy else processed)
        index = int(np.searchsorted(kept.ids, _drawn_draft(distribution, sampling, position)))
    else:
        index = int(kept.values.argmax()) if sampling.greedy else _noisy_index(kept, sampling, position)
    total, entropy = _total_and_entropy(raw, raw_top)
    if kept.values is not raw or kept.temperature != 1.0:
        total = _total(kept)
    second = _second_index(kept, index, sampling, position) if with_second and rule is not Rule.RATIO else None
    return DraftToken(
        int(kept.ids[index]),
        _share(kept, index, total),
        entropy,
        distribution=distribution,
        second_id=-1 if second is None else int(kept.ids[second]),
        second_confidence=0.0 if second is None else _share(kept, second, total),
    )


def _share(kept: Kept, index: int, total: float) -> float:
    """The probability of the kept id at `index`, where `total` is the sum of all weights."""
    return math.exp((float(kept.values[index]) - kept.top) / kept.temperature) / total


def _second_index(kept: Kept, index: int, sampling: SamplingParams, position: int) -> int | None:
    """The choice among the kept ids but that at `index`; None where there is no other."""
    values = kept.values.copy()
    values[index] = -np.inf
    if not np.isfinite(values.max()):
        return None
    others = dataclasses.replace(kept, values=values)
    return int(values.argmax()) if sampling.greedy else _noisy_index(others, sampling, position)


def _total_and_entropy(values: Float32Array, top: float) -> tuple[float, float]:
    """Sum of exp(value - top), and the entropy in nats of the distribution that this normalises.

    In float32, to about six digits, as in `_total`: they tell how sure a draft is and decide nothing that must be
    equal elsewhere.
    """
    total = weighted = 0.0
    for start in range(0, len(values), CHUNK_IDS):
        scores = values[start : start + CHUNK_IDS] - np.float32(top)
        np.maximum(scores, _LOWEST_SCORE, out=scores)
        weights = np.exp(scores)
        total += float(np.add.reduce(weights))
        weights *= scores  # not `weights @ scores`: BLAS threads made it 50 times slower on a busy machine
        weighted += float(np.add.reduce(weights))
    return total, max(0.0, math.log(total) - weighted / total)


def _total(kept: Kept) -> float:
    """Sum of exp(score) over all ids."""
    total = 0.0
    steepness = np.float32(min(1.0 / kept.temperature, _STEEPEST))
    with np.errstate(over="ignore"):  # masked ids may have the lowest float32 there is
        for start in range(0, len(kept.ids), CHUNK_IDS):
            scores = kept.values[start : start + CHUNK_IDS] - np.float32(kept.top)
            scores *= steepness
            total += float(np.add.reduce(np.exp(scores, out=scores)))
    return total


def _drawn_draft(distribution: DraftDistribution, sampling: SamplingParams, position: int) -> int:
    ids, probs = distribution_probs(distribution)
    uniform = keyed_uniform(sampling.seed, sampling.choice, position, PURPOSE_DRAFT)
    return int(ids[drawn_index(probs, uniform)])


def highest(row: Float32Array) -> float:
    """The highest logit of a row. Raises `BackendError` where it is not a finite number."""
    return _checked_top(float(row.max(initial=-math.inf)))


def logprob_of(row: Float32Array, token_id: int) -> float:
    """Natural log of an id's softmax probability in a row that `edited_row` gave.

    After bias and penalties, at temperature 1 and with nothing truncated, so it is finite for whatever id a request
    can commit and does not depend on its temperature, top-k, top-p and min-p. In float64.
    """
    top = highest(row)
    total = 0.0
    for start in range(0, len(row), CHUNK_IDS):
        scores = row[start : start + CHUNK_IDS].astype(np.float64)
        scores -= top
        total += float(np.add.reduce(np.exp(scores, out=scores)))
    return float(row[token_id]) - top - math.log(total)


def _checked_top(top: float) -> float:
    if math.isfinite(top):
        return top
    if top == -math.inf:
        raise BackendError("The model gave a row of logits in which no real id has a finite value.")
    raise BackendError(f"The model gave a row of logits that holds {top}.")


def edited_row(
    logits: Float32Array,
    sampling: SamplingParams,
    *,
    num_ids: int,
    prompt_ids: TokenIds = (),
    output_ids: TokenIds = (),
) -> Float32Array:
    """Real ids' logits after bias and penalties, before temperature: float32, shape (min(num_ids, vocab_size),).

    `logits` or a view of it where neither is set, else a copy: computed in float64, rounded once. Repetition counts
    prompt and output; presence and frequency count output only. Raises `InvalidRequestError` as `process` does.
    """
    row = logits if len(logits) <= num_ids else logits[:num_ids]
    if not sampling.logit_bias and not sampling.needs_history:
        return row
    bias_ids, biases = _biases(sampling, num_ids, len(row))
    prompt = _real(prompt_ids if sampling.repetition_penalty != 1.0 else (), len(row))
    output = _real(output_ids if sampling.needs_history else (), len(row))
    seen = np.zeros(len(row), np.bool_)
    seen[prompt] = seen[output] = True
    changing = seen.copy()
    changing[bias_ids] = True
    ids = np.flatnonzero(changing)
    values = row[ids].astype(np.float64)
    values[np.searchsorted(ids, bias_ids)] += biases
    _penalise(values, sampling, seen[ids], np.bincount(output, minlength=len(row))[ids])
    edited = row.copy()
    edited[ids] = values
    return edited


def _biases(sampling: SamplingParams, num_ids: int, width: int) -> tuple[IdArray, Float64Array]:
    unknown = [token_id for token_id in sampling.logit_bias if token_id >= num_ids]
    if unknown:
        raise InvalidRequestError(
            f"logit_bias names id {unknown[0]}; the vocabulary has ids 0 to {num_ids - 1}.", field="logit_bias"
        )
    biased = [token_id for token_id in sampling.logit_bias if token_id < width]
    biases = np.array([sampling.logit_bias[token_id] for token_id in biased], np.float64)
    return np.array(biased, np.int64), biases


def _real(ids: TokenIds, width: int) -> IdArray:
    """The ids that have a logit; others, such as placeholders of features, are passed over."""
    array = np.asarray(ids, dtype=np.int64)
    return array[(array >= 0) & (array < width)]


def _penalise(
    values: Float64Array, sampling: SamplingParams, seen: npt.NDArray[np.bool_], num_in_output: IdArray
) -> None:
    """In place; all of one shape. `seen`: in prompt or output."""
    factor = sampling.repetition_penalty
    values[seen & (values > 0.0)] /= factor
    values[seen & (values <= 0.0)] *= factor
    values -= sampling.frequency_penalty * num_in_output + sampling.presence_penalty * (num_in_output > 0)
