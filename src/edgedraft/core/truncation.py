"""Temperature, min-p, top-k and top-p of a row: which ids are kept.

min-p keeps ids whose probability is at least `min_p` times the highest; top-k the `top_k` highest; top-p the fewest,
from the highest down, that hold at least `top_p` of what min-p and top-k left. Equal scores rank by id, lowest first.
The score of an id is `(logit - top) / temperature` in float64, `top` being the highest logit. Long rows are sieved in
their own precision with a margin; what passes is decided by the definition.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgedraft.core.noise import CHUNK_IDS, IdArray, scale
from edgedraft.types import Float32Array, Float64Array, SamplingParams

_SIEVE = 1e-6
"""Relative margin of a sieve: 16 times the rounding of float32."""
_MASS_UNITS = 2.0**40
"""Probabilities are summed for top-p in whole units of 2^-40 of the highest one: exact, whatever the order."""
_SHORT_ROW_IDS = 4096
"""Up to so many ids, sieving costs more than it saves."""
_LEAST_TEMPERATURE = 1e-200
"""Any two different logits are infinitely far apart long before."""
_LEAST_LOGIT = float(np.finfo(np.float32).min)
_FIRST_FLOOR = -3.0
_FLOOR_STEP = 1.4


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """The ids that are left of a row, ascending, with their logits before temperature. Some may be -inf."""

    ids: IdArray
    values: Float32Array
    top: float
    temperature: float

    def scores(self) -> Float64Array:
        """float64, shape of `ids`; the highest is 0."""
        return scale(self.values, self.top, self.temperature)

    def only(self, indices: IdArray) -> Kept:
        """Of the ids those at `indices`, which ascend."""
        if len(indices) == len(self.ids):
            return self
        return Kept(self.ids[indices], self.values[indices], self.top, self.temperature)


def truncate(row: Float32Array, top: float, sampling: SamplingParams) -> Kept:
    """What min-p, top-k and top-p keep of `row`, whose highest value is `top` (finite).

    Temperature 0 counts as 1, another below 1e-200 as 1e-200.
    """
    kept, top_p = _without_top_p(row, top, sampling)
    return kept if top_p == 1.0 else kept.only(_nucleus(kept, top_p))


def best_id(row: Float32Array, top: float, sampling: SamplingParams, best: Callable[[Kept], int]) -> int:
    """The id that `best` finds in `truncate(row, top, sampling)`.

    `best`: the index of the highest of values that each id has whatever else is kept; the first one on a tie. So what
    is best of more, and kept, is best of what is kept: of a flat row top-p need not rank the whole.
    """
    kept, top_p = _without_top_p(row, top, sampling)
    if top_p == 1.0:
        return int(kept.ids[best(kept)])
    needed = _needed(_total_mass(kept), top_p)
    kept = kept.only(_likely(kept, needed))
    while True:
        index = best(kept)
        higher, mass = _higher(kept, index)
        if mass < needed:
            return int(kept.ids[index])
        kept = kept.only(np.flatnonzero(higher))


def _without_top_p(row: Float32Array, top: float, sampling: SamplingParams) -> tuple[Kept, float]:
    """What min-p and top-k keep, and the top-p still to be applied: 1 where it is off, or was applied with top-k."""
    temperature = max(sampling.temperature, _LEAST_TEMPERATURE) if sampling.temperature > 0.0 else 1.0
    floor = math.log(sampling.min_p) if sampling.min_p > 0.0 else -math.inf
    top_k = sampling.top_k if 0 < sampling.top_k < len(row) else 0
    kept = Kept(all_ids(len(row)), row, top, temperature)
    if len(row) > _SHORT_ROW_IDS and (top_k or floor > -math.inf):
        kept = kept.only(_contenders(row, top, temperature * floor, top_k))
    if floor > -math.inf:
        kept = kept.only(np.flatnonzero(kept.scores() >= floor))
    if top_k:
        return kept.only(_best(kept.scores(), top_k, sampling.top_p)), 1.0
    return kept, sampling.top_p


@functools.lru_cache(maxsize=8)
def all_ids(num_ids: int) -> IdArray:
    """0 to `num_ids` - 1, shared and read-only."""
    ids = np.arange(num_ids, dtype=np.int64)
    ids.flags.writeable = False
    return ids


def _above(row: Float32Array, top: float, cut: float) -> IdArray:
    """Indices of all values that are at least `cut`, and of few others."""
    margin = _SIEVE * (abs(top) + abs(cut))
    return np.flatnonzero(row >= max(cut - margin, _LEAST_LOGIT))


def _contenders(row: Float32Array, top: float, drop: float, top_k: int) -> IdArray:
    """Indices of all that min-p (at most `-drop` below the top) and top-k keep, and of few others."""
    cut = top + drop
    if top_k:
        cut = max(cut, _bound_of_kth(row, top_k))
    return _above(row, top, cut) if cut > -math.inf else all_ids(len(row))


def _bound_of_kth(values: Float32Array | Float64Array, count: int) -> float:
    """A lower bound of the `count`-th highest value, near it: the `count`-th highest of the maxima of small groups."""
    width = max(1, len(values) // (16 * count))
    groups = len(values) // width
    maxima = values[: groups * width].reshape(width, groups).max(axis=0)
    return float(np.partition(maxima, groups - count)[groups - count])


def highest_indices(scores: Float64Array, count: int) -> IdArray:
    """Indices of the `count` highest scores, ascending; among equal ones the lowest indices."""
    return all_ids(len(scores)) if count >= len(scores) else np.sort(_ranked(scores, count))


def _ranked(scores: Float64Array, count: int) -> IdArray:
    """Indices of the `count` highest scores, best first, lowest index first among equal ones."""
    contenders = np.flatnonzero(scores >= _bound_of_kth(scores, min(count, len(scores))))
    return contenders[np.argsort(-scores[contenders], kind="stable")[:count]]


def _best(scores: Float64Array, top_k: int, top_p: float) -> IdArray:
    """Indices, ascending, that top-k and then top-p keep."""
    order = _ranked(scores, top_k)
    if top_p < 1.0:
        shares = np.cumsum(_masses(scores[order]))
        order = order[: int(np.searchsorted(shares, _needed(int(shares[-1]), top_p))) + 1]
    return np.sort(order)


def _masses(scores: Float64Array) -> IdArray:
    """Probabilities in whole units: int64, shape of `scores`. 2^22 of them cannot overflow a sum."""
    weights = np.exp(scores)
    weights *= _MASS_UNITS
    return weights.astype(np.int64)


def _needed(total: int, top_p: float) -> int:
    return min(math.ceil(top_p * total), total)


def _nucleus(kept: Kept, top_p: float) -> IdArray:
    """Indices, ascending, of the fewest highest scores that hold `top_p` of the mass of `kept`."""
    needed = _needed(_total_mass(kept), top_p)
    indices = _likely(kept, needed)
    scores = scale(kept.values[indices], kept.top, kept.temperature)
    masses = _masses(scores)
    certain: list[IdArray] = []
    while len(indices) > _SHORT_ROW_IDS:
        upper = scores > scores.mean()
        if upper.all() or not upper.any():
            break  # equal, or nearly so: in order already
        mass = int((masses * upper).sum())
        if mass < needed:
            needed -= mass
            certain.append(indices[upper])
            upper = ~upper
        rest = np.flatnonzero(upper)
        indices, scores, masses = indices[rest], scores[rest], masses[rest]
    mask = np.zeros(len(kept.ids), np.bool_)
    for chosen in [*certain, indices[_fewest(scores, masses, needed)]]:
        mask[chosen] = True
    return np.flatnonzero(mask)


def _fewest(scores: Float64Array, masses: IdArray, needed: int) -> IdArray:
    order = np.argsort(-scores, kind="stable")
    return order[: int(np.searchsorted(np.cumsum(masses[order]), needed)) + 1]


def _total_mass(kept: Kept) -> int:
    chunks = (kept.values[start : start + CHUNK_IDS] for start in range(0, len(kept.ids), CHUNK_IDS))
    return sum(int(_masses(scale(chunk, kept.top, kept.temperature)).sum()) for chunk in chunks)


def _higher(kept: Kept, index: int) -> tuple[npt.NDArray[np.bool_], int]:
    """Which ids rank before the one at `index`, and their mass."""
    score = scale(kept.values[index : index + 1], kept.top, kept.temperature)[0]
    parts = []
    mass = 0
    for start in range(0, len(kept.ids), CHUNK_IDS):
        scores = scale(kept.values[start : start + CHUNK_IDS], kept.top, kept.temperature)
        higher = scores > score
        num_before = max(0, index - start)
        higher[:num_before] |= scores[:num_before] == score
        parts.append(higher)
        mass += int((_masses(scores) * higher).sum())
    return np.concatenate(parts), mass


def _likely(kept: Kept, needed: int) -> IdArray:
    """Indices, ascending, of enough of the highest scores to hold `needed`; of all where those are not few."""
    everything = all_ids(len(kept.ids))
    if len(everything) <= _SHORT_ROW_IDS:
        return everything
    floor = _FIRST_FLOOR
    while len(indices := _above(kept.values, kept.top, kept.top + kept.temperature * floor)) <= CHUNK_IDS:
        if int(_masses(scale(kept.values[indices], kept.top, kept.temperature)).sum()) >= needed:
            return indices
        floor *= _FLOOR_STEP
    return everything
