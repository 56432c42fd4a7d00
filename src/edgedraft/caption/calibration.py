"""The threshold at which a wished share of the draft is verified, from the edge's own uncertainty.

Entropy means different things to different models: the paper's 3.5 nats never occur with a vocabulary of 600. So the
threshold is a quantile of what the edge itself shows on a calibration set. A block is sent whole or not at all, so the
share is not that of the tokens beyond the threshold: the blocks are walked.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from edgedraft.caption.gate_choice import GateChoice
from edgedraft.core.block_length import BlockOutcome
from edgedraft.core.gating import Gating
from edgedraft.errors import InvalidRequestError
from edgedraft.types import DraftToken

DEFAULT_SHARE = 0.15
TABLE_SHARES = (0.02, 0.05, 0.10, 0.15, 0.20, 0.30, 0.40, 0.50, 0.75)

Chain = Sequence[DraftToken]
"""What the edge writes by itself for one recording."""


class CalibrationKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a threshold depends on. `draft`: `ModelInfo.identity`. `language`: ISO 639-1; empty: all of its."""

    draft: str
    strategy: str
    measure: str
    unit: str
    block: str
    language: str = ""

    @classmethod
    def of(cls, draft: str, choice: GateChoice, language: str = "") -> CalibrationKey:
        return cls(
            draft=draft,
            strategy=choice.strategy,
            measure=choice.gate_measure.value,
            unit=choice.gate_unit.value,
            block=choice.block,
            language=language,
        )


class CalibratedShare(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`share` of the drafted tokens need a verdict at `threshold`, of the edge's own text; `wished` was asked for."""

    wished: float
    share: float
    threshold: float


class Calibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A threshold and where it comes from. `rank`: R, to go with it. `table`: what other shares would need.

    `note`: how it was chosen. `target`: the model that verified meanwhile, as its cloud calls it; empty: none did.
    """

    key: CalibrationKey
    threshold: float
    share: float
    rank: int = 1
    num_clips: int
    num_tokens: int
    table: Sequence[CalibratedShare] = ()
    note: str = ""
    target: str = ""


def verified_share(chains: Sequence[Chain], gating: Gating) -> float:
    """Tokens that would need a verdict / tokens drafted, walking each chain block by block as if all were kept.

    With a cloud a correction changes what follows, so the share of a real run differs a little.
    """
    num_judged = sum(_num_judged(chain, gating) for chain in chains)
    return num_judged / sum(map(len, chains))


def _num_judged(chain: Chain, gating: Gating) -> int:
    lengths, start, num_judged = gating.lengths, 0, 0
    token_ids = [token.token_id for token in chain]
    while start < len(chain):
        block = chain[start : start + lengths.tokens]
        judged = gating.judged(block, start, token_ids[:start])
        lengths = lengths.after(BlockOutcome.ACCEPTED if judged else BlockOutcome.LOCAL)
        num_judged += len(judged)
        start += len(block)
    return num_judged


def threshold_for(chains: Sequence[Chain], choice: GateChoice, wished: float) -> CalibratedShare:
    """The threshold that has most tokens verified without passing the `wished` share.

    It is one of the values that occur. Raises `InvalidRequestError` for a share outside 0 to 1, both excluded, and for
    chains without tokens.
    """
    if not 0.0 < wished < 1.0:
        raise InvalidRequestError(f"share is {wished:g}; legal: above 0, below 1.", field="share")
    measure = choice.gate_measure
    values = sorted({measure.of(token) for chain in chains for token in chain}, reverse=not measure.rises)
    if not values:
        raise InvalidRequestError("the calibration set has no tokens.", field="dataset", remedy="Use another one.")
    low, high = 0, len(values) - 1  # the further, the less is doubted: nothing at all at the last
    while low < high:
        middle = (low + high) // 2
        if verified_share(chains, choice.gating(values[middle])) <= wished:
            high = middle
        else:
            low = middle + 1
    share = verified_share(chains, choice.gating(values[low]))
    return CalibratedShare(wished=wished, share=share, threshold=values[low])


def calibrate(
    chains: Sequence[Chain],
    choice: GateChoice,
    wished: float,
    *,
    draft: str,
    rank: int = 1,
    language: str = "",
    note: str = "",
) -> Calibration:
    """The calibration of a draft's gate on its `chains`. Raises as `threshold_for`."""
    chosen = threshold_for(chains, choice, wished)
    return Calibration(
        key=CalibrationKey.of(draft, choice, language),
        threshold=chosen.threshold,
        share=chosen.share,
        rank=rank,
        num_clips=len(chains),
        num_tokens=sum(map(len, chains)),
        table=[threshold_for(chains, choice, share) for share in sorted({*TABLE_SHARES, wished})],
        note=note,
    )
