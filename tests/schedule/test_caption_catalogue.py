from __future__ import annotations

import pytest

from edgedraft.core.block_length import BlockLengths
from edgedraft.core.gate import Everything, Measure, Nothing, SendUnit, Threshold
from edgedraft.core.gating import Gating
from edgedraft.core.strategy import Strategy
from edgedraft.errors import InvalidRequestError, UnsupportedError
from edgedraft.schedule.caption_catalogue import CAPTION_STRATEGIES, edge_only, exact, ugsd, ugsd_sparse
from edgedraft.types import Rule


def gating_of(strategy: Strategy) -> Gating:
    assert strategy.gating is not None
    return strategy.gating


def test_ugsd_is_the_paper_s() -> None:
    """Facts B2 and B8: entropy in nats, strictly above 3.5, whole blocks of 3, 5 and 7, rank 20, no bonus."""
    strategy = ugsd()
    gating = gating_of(strategy)
    assert gating.gate == Threshold(Measure.ENTROPY, 3.5)
    assert (gating.unit, gating.lengths, gating.bonus, gating.forced) == (SendUnit.BLOCK, BlockLengths(), False, None)
    assert (strategy.rule, strategy.rank, strategy.name) == (Rule.RANK, 20, "ugsd")
    assert strategy.draft_ahead_tokens > 0
    assert ugsd(draft_ahead=False).draft_ahead_tokens == 0


def test_ours_judges_single_tokens_with_rank_one() -> None:
    strategy = ugsd_sparse(threshold=0.7)
    gating = gating_of(strategy)
    assert gating.gate == Threshold(Measure.MAX_PROBABILITY, 0.7)
    assert (gating.unit, gating.lengths, strategy.rank) == (SendUnit.TOKENS, BlockLengths.fixed(1), 1)
    assert gating_of(ugsd_sparse(unit="from-first", lengths=BlockLengths())).unit is SendUnit.FROM_FIRST
    assert gating_of(ugsd_sparse(measure="margin")).gate == Threshold(Measure.MARGIN, 0.65)


def test_exact_and_edge_only() -> None:
    assert gating_of(exact()).gate == Everything()
    assert exact().rank == 1
    assert gating_of(edge_only()).gate == Nothing()


@pytest.mark.parametrize("name", CAPTION_STRATEGIES)
def test_every_name_makes_its_strategy(name: str) -> None:
    assert CAPTION_STRATEGIES[name]().name == name


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: ugsd(unit="word"), InvalidRequestError),
        (lambda: ugsd_sparse(measure="mood"), InvalidRequestError),
        (lambda: ugsd(rank=0), InvalidRequestError),
        (lambda: ugsd(threshold=float("nan")), InvalidRequestError),
    ],
)
def test_what_is_refused(make: object, error: type[InvalidRequestError]) -> None:
    with pytest.raises(error):
        make()  # type: ignore[operator]


def test_bonus_and_draft_ahead_do_not_go_together() -> None:
    assert ugsd(bonus=True).draft_ahead_tokens == 0
    with pytest.raises(UnsupportedError):
        Strategy(name="x", rule=Rule.RANK, rank=1, draft_ahead_tokens=1, gating=Gating(gate=Everything(), bonus=True))
