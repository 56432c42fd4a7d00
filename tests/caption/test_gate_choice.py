"""What a user says about the gate: checked early, and turned into the strategy it stands for."""

from __future__ import annotations

from typing import Any

import pytest

from edgedraft.backends.toy_tokenizer import ToyTokenizer
from edgedraft.caption.gate_choice import GATED, GateChoice
from edgedraft.core.block_length import BlockLengths
from edgedraft.core.gate import Everything, Measure, Nothing, SendUnit, Threshold
from edgedraft.errors import InvalidRequestError, UnsupportedError
from edgedraft.schedule.caption_catalogue import CAPTION_STRATEGIES


@pytest.fixture
def tokenizer() -> ToyTokenizer:
    return ToyTokenizer(300)


@pytest.mark.parametrize(
    ("name", "gate", "unit", "rank", "block"),
    [
        ("ugsd-sparse", Threshold(Measure.MAX_PROBABILITY, 0.5), SendUnit.TOKENS, 1, "1"),
        ("ugsd", Threshold(Measure.ENTROPY, 0.5), SendUnit.BLOCK, 1, "3-5-7"),
        ("exact", Everything(), SendUnit.BLOCK, 1, "3-5-7"),
        ("edge-only", Nothing(), SendUnit.BLOCK, 1, "3-5-7"),
    ],
)
def test_each_strategy_has_its_own_defaults(
    tokenizer: ToyTokenizer, name: str, gate: object, unit: SendUnit, rank: int, block: str
) -> None:
    choice = GateChoice(strategy=name)
    strategy = choice.build(tokenizer, "en", 0.5)
    assert strategy.gating is not None
    assert strategy.name == name
    assert strategy.gating.gate == gate
    assert strategy.gating.unit is unit
    assert strategy.rank == rank
    assert choice.block == block
    assert strategy.gating.lengths == choice.block_lengths


@pytest.mark.parametrize("unit", [None, *SendUnit])
def test_flags_mean_what_the_same_numbers_mean_from_python(tokenizer: ToyTokenizer, unit: SendUnit | None) -> None:
    numbers: dict[str, Any] = {"threshold": 0.5, "rank": 3, **({} if unit is None else {"unit": unit})}
    for name in GATED:
        assert GateChoice(strategy=name, **numbers).build(tokenizer, "en", None) == CAPTION_STRATEGIES[name](**numbers)


def test_what_is_given_wins(tokenizer: ToyTokenizer) -> None:
    choice = GateChoice(
        strategy="ugsd",
        threshold=0.25,
        measure="margin",
        unit="from-first",
        rank=7,
        lengths=BlockLengths.fixed(4),
        forced=("cycle",),
        bonus=True,
    )
    strategy = choice.build(tokenizer, "en", 0.9)
    assert strategy.gating is not None
    assert strategy.gating.gate == Threshold(Measure.MARGIN, 0.25)
    assert strategy.gating.unit is SendUnit.FROM_FIRST
    assert strategy.gating.lengths.tokens == 4
    assert strategy.gating.forced is not None
    assert strategy.gating.bonus
    assert strategy.rank == 7
    assert strategy.draft_ahead_tokens == 0, "never with bonus"
    assert choice.block == "4"


def test_a_bonus_and_drafting_ahead_do_not_go_together() -> None:
    with pytest.raises(UnsupportedError, match="draft_ahead is set together with bonus"):
        GateChoice(bonus=True, draft_ahead=True)


@pytest.mark.parametrize("bonus", [False, True])
@pytest.mark.parametrize("ahead", [None, False])
def test_it_drafts_ahead_unless_told_otherwise(tokenizer: ToyTokenizer, bonus: bool, ahead: bool | None) -> None:
    strategy = GateChoice(bonus=bonus, draft_ahead=ahead).build(tokenizer, "en", 0.5)
    assert bool(strategy.draft_ahead_tokens) is (ahead is None and not bonus)


def test_where_only_verdicts_count_the_blocks_are_others() -> None:
    assert GateChoice(strategy="ugsd").block == "3-5-7"
    assert GateChoice(strategy="ugsd", lengths=BlockLengths(counts_local=False)).block == "3-5-7-judged"
    assert GateChoice(lengths=BlockLengths(least=2, base=2, most=2, counts_local=False)).block == "2"


def test_cloud_only_has_no_gate(tokenizer: ToyTokenizer) -> None:
    assert GateChoice(strategy="cloud-only").build(tokenizer, "en", None).gating is None


def test_the_papers_rank_is_scaled_with_the_vocabulary() -> None:
    choice = GateChoice(strategy="ugsd")
    assert choice.gate_rank(151_936) == 20
    assert choice.gate_rank(75_968) == 10
    assert choice.gate_rank(600) == 1
    assert GateChoice().gate_rank(151_936) == 1
    assert GateChoice(strategy="ugsd", rank=3).gate_rank(151_936) == 3


def test_an_entropy_must_be_one_that_can_occur() -> None:
    choice = GateChoice(strategy="ugsd", threshold=3.5)
    choice.check_vocabulary(34)  # ln 34 = 3.526
    with pytest.raises(InvalidRequestError, match=r"legal for entropy: above 0, below ln 33 = 3\.497") as caught:
        choice.check_vocabulary(33)
    assert caught.value.field == "threshold"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"strategy": "best"}, "strategy"),
        ({"threshold": 1.0}, "threshold"),
        ({"threshold": -0.1, "measure": "entropy"}, "threshold"),
        ({"threshold": float("inf"), "measure": "margin"}, "threshold"),
        ({"threshold": 0.0, "measure": "log-probability"}, "threshold"),
        ({"measure": "mood"}, "measure"),
        ({"unit": "word"}, "unit"),
        ({"rank": 0}, "rank"),
        ({"forced": ("moon",)}, "forced"),
        ({"forced": "cycle"}, "forced"),
        ({"lengths": 5}, "lengths"),
        ({"threshold": "x"}, "threshold"),
        ({"threshold": True}, "threshold"),
        ({"rank": 2.5}, "rank"),
        ({"rank": True}, "rank"),
        ({"bonus": "no"}, "bonus"),
        ({"draft_ahead": "x"}, "draft_ahead"),
    ],
)
def test_what_cannot_be_is_refused_by_name(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        GateChoice(**fields)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("strategy", "fields"),
    [
        ("exact", {"threshold": 0.5}),
        ("exact", {"rank": 2}),
        ("edge-only", {"bonus": True}),
        ("edge-only", {"lengths": BlockLengths()}),
        ("cloud-only", {"measure": "entropy"}),
        ("cloud-only", {"draft_ahead": False}),
    ],
)
def test_what_a_strategy_has_no_use_for_is_refused(strategy: str, fields: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match=f"strategy '{strategy}' has no use for"):
        GateChoice(strategy=strategy, **fields)


def test_a_threshold_must_come_from_somewhere(tokenizer: ToyTokenizer) -> None:
    with pytest.raises(InvalidRequestError, match="threshold is missing"):
        GateChoice().build(tokenizer, "en", None)


@pytest.mark.parametrize("rank", [0, -1, 2**31, 10**30])
def test_a_rank_that_no_message_can_carry_is_refused_before_anything_is_sent(rank: int) -> None:
    with pytest.raises(InvalidRequestError, match="rank is"):
        GateChoice(rank=rank)
