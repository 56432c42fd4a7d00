"""The only place that accepts, recovers or adds a bonus token. Back ends never decide.

* *match*: the target chooses its own token at each position; a draft token is accepted while equal to that choice
  (coupling without communication: Daliri, Musco and Suresh 2024). Exact, token for token.
* *ratio*: accept with probability min(1, target / draft), else sample the normalised positive part of
  target - draft (Leviathan et al. 2023; Chen et al. 2023). Exact in distribution.
* *rank*: accept while the draft token is among the target's most probable. Lossy.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgedraft.core.distribution import Processed, distribution_probs, drawn_index, one_hot
from edgedraft.core.noise import IdArray, keyed_uniform
from edgedraft.core.sampling import (
    PURPOSE_ACCEPT,
    PURPOSE_BONUS,
    PURPOSE_RECOVER,
    TokenIds,
    chosen,
    edited_row,
    highest,
    logprob_of,
    processed_row,
)
from edgedraft.errors import BackendError, ProtocolError, UnsupportedError
from edgedraft.protocol.messages import CommitKind
from edgedraft.types import DraftDistribution, Float32Array, Float64Array, Rule, SamplingParams


@dataclass(frozen=True, slots=True)
class Verdict:
    """`num_accepted`: length of the accepted prefix of the draft, without the next token. `next_id`: the next token,
    of the given `kind`; None (with `ACCEPTED_ONLY`) where the rule gives none. `logprobs`: where asked for, of
    the accepted ids and the next one.
    """

    num_accepted: int
    next_id: int | None
    kind: CommitKind
    logprobs: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class _TargetPass:
    """Rows of a target pass with the history that the penalties of each see. `offset` counts from `draft_ids[0]`."""

    rows: Float32Array
    sampling: SamplingParams
    position: int
    num_ids: int
    prompt_ids: TokenIds
    output_ids: TokenIds
    num_output: int

    def row(self, offset: int) -> Float32Array:
        return edited_row(
            self.rows[offset],
            self.sampling,
            num_ids=self.num_ids,
            prompt_ids=self.prompt_ids,
            output_ids=self.output_ids[: self.num_output + offset],
        )

    def choice(self, offset: int) -> int:
        return chosen(self.row(offset), self.sampling, self.position + offset)

    def processed(self, offset: int) -> Processed:
        processed = processed_row(self.row(offset), self.sampling)
        return one_hot(processed) if self.sampling.greedy else processed

    def logprobs(self, token_ids: Sequence[int]) -> tuple[float, ...]:
        return tuple(logprob_of(self.row(offset), token_id) for offset, token_id in enumerate(token_ids))

    def uniform(self, offset: int, purpose: bytes) -> float:
        return keyed_uniform(self.sampling.seed, self.sampling.choice, self.position + offset, purpose)


def verify(
    rows: Float32Array,
    draft_ids: Sequence[int],
    sampling: SamplingParams,
    *,
    position: int,
    num_ids: int,
    rule: Rule,
    rank: int = 1,
    prompt_ids: TokenIds = (),
    output_ids: TokenIds = (),
    distributions: Sequence[DraftDistribution] = (),
    judged: Collection[int] | None = None,
    logprobs: bool = False,
    bonus: bool = False,
) -> Verdict:
    """Judge `draft_ids`, the first of which stands at `position`.

    `rows`: float32, shape (num_draft + 1, vocab_size); row i is the target's logits of position `position + i` after
    `draft_ids[:i]`. Rows are looked at in order, up to the first rejection. `num_ids`: the real vocabulary; ids from
    there on are never accepted. `prompt_ids`, `output_ids`: the history before `position`, for penalties.
    `distributions`: what each draft id was sampled from (rule *ratio*). `judged`: offsets up for judgement, None for
    all; other ids pass (rules *match* and *rank*). Without draft ids the target writes by itself: kind `OWN`.
    `bonus`: with rule *rank*, give a next token after full acceptance too.
    `logprobs`: give those of the ids to commit, as `sampling.logprob_of` defines them.

    Raises `BackendError` for rows of a wrong shape or without finite logits, `ProtocolError` for distributions that
    do not belong to the draft, `UnsupportedError` for `judged` with rule *ratio*.
    """
    if rows.ndim != 2 or len(rows) != len(draft_ids) + 1:
        raise BackendError(f"The target gave rows of shape {rows.shape} for {len(draft_ids)} draft ids.")
    if sampling.needs_history:
        prompt_ids = np.asarray(prompt_ids, dtype=np.int64)
        output_history = np.asarray([*output_ids, *draft_ids], dtype=np.int64)
        target = _TargetPass(rows, sampling, position, num_ids, prompt_ids, output_history, len(output_ids))
    else:
        target = _TargetPass(rows, sampling, position, num_ids, (), (), 0)
    verdict = _judge(target, draft_ids, rule, rank, distributions, judged)
    if bonus and verdict.next_id is None:
        verdict = Verdict(len(draft_ids), target.choice(len(draft_ids)), CommitKind.BONUS)
    if not logprobs:
        return verdict
    accepted = draft_ids[: verdict.num_accepted]
    committed = accepted if verdict.next_id is None else (*accepted, verdict.next_id)
    return replace(verdict, logprobs=target.logprobs(committed))


def _judge(
    target: _TargetPass,
    draft_ids: Sequence[int],
    rule: Rule,
    rank: int,
    distributions: Sequence[DraftDistribution],
    judged: Collection[int] | None,
) -> Verdict:
    if not draft_ids:
        return Verdict(0, _drawn(target, 0) if rule is Rule.RATIO else target.choice(0), CommitKind.OWN)
    if rule is Rule.RATIO:
        if judged is not None:
            raise UnsupportedError("judged is set together with rule 'ratio'.", field="judged")
        return _verify_ratio(target, draft_ids, distributions)
    offsets = range(len(draft_ids)) if judged is None else judged
    if rule is Rule.RANK:
        return _verify_rank(target, draft_ids, rank, offsets)
    return _verify_match(target, draft_ids, offsets)


def _verify_match(target: _TargetPass, draft_ids: Sequence[int], judged: Collection[int]) -> Verdict:
    for offset, draft_id in enumerate(draft_ids):
        if offset not in judged:
            continue
        choice = target.choice(offset)
        if choice != draft_id:
            return Verdict(offset, choice, CommitKind.RECOVERED)
    return Verdict(len(draft_ids), target.choice(len(draft_ids)), CommitKind.BONUS)


def _verify_rank(target: _TargetPass, draft_ids: Sequence[int], rank: int, judged: Collection[int]) -> Verdict:
    for offset, draft_id in enumerate(draft_ids):
        if offset not in judged:
            continue
        row = target.row(offset)
        highest(row)
        if rank_of(row, draft_id) > rank:
            return Verdict(offset, int(row.argmax()), CommitKind.RECOVERED)
    return Verdict(len(draft_ids), None, CommitKind.ACCEPTED_ONLY)


def rank_of(row: Float32Array, token_id: int) -> float:
    """1 + the number of ids of an edited row with a higher logit, or an equal one and a lower id.

    Infinite for ids that do not exist and for those that the row rules out with -inf.
    """
    if not 0 <= token_id < len(row) or row[token_id] == -math.inf:
        return math.inf
    value = row[token_id]
    return 1 + int(np.count_nonzero(row > value)) + int(np.count_nonzero(row[:token_id] == value))


def _verify_ratio(target: _TargetPass, draft_ids: Sequence[int], distributions: Sequence[DraftDistribution]) -> Verdict:
    if len(distributions) != len(draft_ids):
        raise ProtocolError(f"{len(draft_ids)} draft ids came with {len(distributions)} draft distributions.")
    for offset, (draft_id, distribution) in enumerate(zip(draft_ids, distributions, strict=True)):
        kept_by_draft, draft_probs = distribution_probs(distribution)
        draft_prob = _prob_of(draft_id, kept_by_draft, draft_probs)
        if draft_prob == 0.0:
            raise ProtocolError(f"Draft id {draft_id} has no probability in the distribution that came with it.")
        processed = target.processed(offset)
        target_probs = processed.probs()
        ratio = _prob_of(draft_id, processed.ids, target_probs) / draft_prob
        if target.uniform(offset, PURPOSE_ACCEPT) < ratio:
            continue
        weights = _residual(processed.ids, target_probs, kept_by_draft, draft_probs)
        next_id = processed.ids[drawn_index(weights, target.uniform(offset, PURPOSE_RECOVER))]
        return Verdict(offset, int(next_id), CommitKind.RECOVERED)
    return Verdict(len(draft_ids), _drawn(target, len(draft_ids)), CommitKind.BONUS)


def _prob_of(token_id: int, ids: IdArray, probs: Float64Array) -> float:
    index = int(np.searchsorted(ids, token_id))
    return float(probs[index]) if index < len(ids) and ids[index] == token_id else 0.0


def _residual(
    target_ids: IdArray, target_probs: Float64Array, draft_ids: IdArray, draft_probs: Float64Array
) -> Float64Array:
    """Positive part of target - draft over `target_ids`; the target itself where rounding leaves nothing."""
    places = np.minimum(np.searchsorted(draft_ids, target_ids), len(draft_ids) - 1)
    drafted = np.where(draft_ids[places] == target_ids, draft_probs[places], 0.0)
    residual: Float64Array = np.maximum(target_probs - drafted, 0.0)
    return residual if residual.any() else target_probs


def _drawn(target: _TargetPass, offset: int) -> int:
    """A sample of the target's own distribution, for a bonus or an own token of rule *ratio*."""
    processed = target.processed(offset)
    return int(processed.ids[drawn_index(processed.probs(), target.uniform(offset, PURPOSE_BONUS))])
