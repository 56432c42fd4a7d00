"""The strategies of speech emotion captioning, as data. What they have in common: the edge owns the text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from edgedraft.core.block_length import BlockLengths
from edgedraft.core.forced import ForcedEscalation
from edgedraft.core.gate import Everything, Gate, Measure, Nothing, SendUnit, Threshold
from edgedraft.core.gating import Gating
from edgedraft.core.strategy import Strategy
from edgedraft.errors import InvalidRequestError
from edgedraft.schedule.catalogue import cloud_only
from edgedraft.types import Rule

PAPER_THRESHOLD_NATS = 3.5
"""The precursor's usual value, inside the [2.5, 5] that the paper explored; for a vocabulary of 152,000 ids."""
PAPER_RANK = 20
AHEAD_TOKENS = 64
SPARSE_BLOCK_TOKENS = 1
"""What is doubted is asked about as soon as it is drafted, not at the end of a block."""
SPARSE_MAX_PROBABILITY = 0.65


def gated(
    name: str,
    gate: Gate,
    *,
    unit: SendUnit | str = SendUnit.BLOCK,
    rank: int = 1,
    lengths: BlockLengths | None = None,
    forced: ForcedEscalation | None = None,
    bonus: bool = False,
    draft_ahead: bool = True,
) -> Strategy:
    """Any gate with any unit. `draft_ahead`: draft on while a verdict is out; never with `bonus`."""
    try:
        unit = SendUnit(unit)
    except ValueError:
        raise InvalidRequestError(f"unit is '{unit}'; legal: {', '.join(SendUnit)}.", field="unit") from None
    gating = Gating(
        gate=gate,
        unit=unit,
        lengths=lengths or BlockLengths(),
        forced=forced,
        bonus=bonus,
    )
    ahead_tokens = AHEAD_TOKENS if draft_ahead and not bonus else 0
    return Strategy(name=name, rule=Rule.RANK, rank=rank, draft_ahead_tokens=ahead_tokens, gating=gating)


def ugsd(*, threshold: float = PAPER_THRESHOLD_NATS, rank: int = PAPER_RANK, **numbers: Any) -> Strategy:
    """The paper's: entropy above `threshold` (nats) escalates the whole block; lengths 3, 5 and 7; rank acceptance."""
    return gated("ugsd", Threshold(Measure.ENTROPY, threshold), rank=rank, **numbers)


def ugsd_sparse(
    *,
    threshold: float = SPARSE_MAX_PROBABILITY,
    measure: Measure | str = Measure.MAX_PROBABILITY,
    rank: int = 1,
    **numbers: Any,
) -> Strategy:
    """Ours: only the tokens that the edge itself is unsure of are judged, each as soon as it is drafted."""
    try:
        measure = Measure(measure)
    except ValueError:
        raise InvalidRequestError(f"measure is '{measure}'; legal: {', '.join(Measure)}.", field="measure") from None
    numbers = {"unit": SendUnit.TOKENS, **numbers}
    numbers = {"lengths": sparse_lengths(numbers["unit"]), **numbers}
    return gated("ugsd-sparse", Threshold(measure, threshold), rank=rank, **numbers)


def sparse_lengths(unit: SendUnit | str) -> BlockLengths:
    """Single tokens need no block around them; the other units judge more of one than what is doubted."""
    return BlockLengths.fixed(SPARSE_BLOCK_TOKENS) if unit == SendUnit.TOKENS else BlockLengths()


def exact(**numbers: Any) -> Strategy:
    """Every token is judged with rank 1: the target's own text, token for token."""
    return gated("exact", Everything(), **numbers)


def edge_only(**numbers: Any) -> Strategy:
    """Blocks that never escalate: the edge's own text, and nothing leaves."""
    return gated("edge-only", Nothing(), **numbers)


CAPTION_STRATEGIES: Mapping[str, Callable[..., Strategy]] = MappingProxyType(
    {
        "ugsd-sparse": ugsd_sparse,
        "ugsd": ugsd,
        "exact": exact,
        "cloud-only": cloud_only,
        "edge-only": edge_only,
    }
)
"""What a caption may be asked for with, the default first."""
