"""A processed row as a distribution: rounded for the wire, read back, drawn from (rule *ratio*)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgedraft.core.noise import IdArray
from edgedraft.core.truncation import highest_indices
from edgedraft.errors import ProtocolError
from edgedraft.types import DraftDistribution, Float64Array

MAX_DISTRIBUTION_IDS = 256
"""At most 7 bytes an id travel, so that 32 draft tokens fit a frame."""

_WIRE_DTYPE = np.dtype("<f2")


@dataclass(frozen=True, slots=True, eq=False)
class Processed:
    """What is left of a row. `ids`: int64, ascending. `logits`: float64, same shape, scaled by temperature, finite,
    shifted so that the highest is 0.
    """

    ids: IdArray
    logits: Float64Array

    def probs(self) -> Float64Array:
        """Softmax of `logits`: float64, same shape."""
        weights = np.exp(self.logits)
        weights /= weights.sum()
        return weights


def one_hot(processed: Processed) -> Processed:
    """All probability on the highest logit, lowest id on a tie: what temperature 0 draws from."""
    best = int(processed.logits.argmax())
    return Processed(processed.ids[best : best + 1], np.zeros(1))


def round_distribution(processed: Processed, max_ids: int = MAX_DISTRIBUTION_IDS) -> DraftDistribution:
    """The `max_ids` most probable ids, renormalised and rounded to float16; what rounds to 0 is left out.

    A draft token must be sampled from the outcome (`distribution_probs`), never from what went in.
    """
    kept = highest_indices(processed.logits, max_ids)
    probs = Processed(processed.ids[kept], processed.logits[kept]).probs().astype(_WIRE_DTYPE)
    nonzero = np.flatnonzero(probs)
    return DraftDistribution(processed.ids[kept[nonzero]].tolist(), probs[nonzero].tobytes())


def distribution_probs(distribution: DraftDistribution) -> tuple[IdArray, Float64Array]:
    """Ids (int64, ascending) and probabilities (float64, sum 1) as both sides read them.

    Raises `ProtocolError` where lengths differ, ids do not ascend or a probability is not a positive number.
    """
    ids = np.asarray(distribution.token_ids, dtype=np.int64)
    if len(ids) == 0 or len(distribution.probs_fp16) != _WIRE_DTYPE.itemsize * len(ids):
        raise ProtocolError(
            f"A draft distribution holds {len(ids)} ids and {len(distribution.probs_fp16)} bytes of probabilities; "
            f"there must be ids, and two bytes for each."
        )
    if ids[0] < 0 or (np.diff(ids) <= 0).any():
        raise ProtocolError("The ids of a draft distribution do not ascend.")
    probs = np.frombuffer(distribution.probs_fp16, _WIRE_DTYPE).astype(np.float64)
    if not (np.isfinite(probs) & (probs > 0.0)).all():
        raise ProtocolError("A draft distribution holds a probability that is not a positive number.")
    probs /= probs.sum()
    return ids, probs


def drawn_index(weights: Float64Array, uniform: float) -> int:
    """The index that `uniform`, in (0, 1), falls on when the unit interval is shared out by `weights`.

    `weights`: float64, shape (n,), not negative, not all 0. An index of weight 0 is never drawn.
    """
    shares = np.cumsum(weights)
    index = int(np.searchsorted(shares, uniform * shares[-1], side="right"))
    return min(index, int(np.searchsorted(shares, shares[-1])))
