"""The threshold for a wished share: a quantile where tokens are judged one by one, a walk of blocks where not."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.caption.calibration import CalibrationKey, calibrate, threshold_for, verified_share
from edgedraft.caption.gate_choice import GateChoice
from edgedraft.core.block_length import BlockLengths
from edgedraft.core.gate import Measure
from edgedraft.errors import InvalidRequestError
from edgedraft.types import DraftToken


def chain(*entropies: float) -> list[DraftToken]:
    return [DraftToken(token_id=index, confidence=0.9, entropy=value) for index, value in enumerate(entropies)]


def random_chains(seed: int, num_chains: int = 8) -> list[list[DraftToken]]:
    random = Random(seed)
    return [
        [
            DraftToken(
                token_id=random.randrange(50),
                confidence=random.uniform(0.1, 1.0),
                entropy=random.expovariate(2.0),
                second_confidence=random.uniform(0.0, 0.1),
            )
            for _ in range(random.randint(1, 40))
        ]
        for _ in range(num_chains)
    ]


def test_one_uncertain_token_costs_its_whole_block() -> None:
    chains = [chain(0, 0, 9, 0, 0, 0, 0, 0, 0, 0)]
    blocks = GateChoice(strategy="ugsd", lengths=BlockLengths.fixed(5))
    assert verified_share(chains, blocks.gating(1.0)) == 0.5
    assert verified_share(chains, GateChoice(strategy="ugsd", unit="from-first").gating(1.0)) == 0.3
    assert verified_share(chains, GateChoice(measure="entropy").gating(1.0)) == 0.1


def test_dynamic_blocks_grow_as_they_are_kept() -> None:
    entropies = [0.0] * 22
    entropies[10] = 9.0  # the first of the third block, which has seven tokens after two of five
    assert verified_share([chain(*entropies)], GateChoice(strategy="ugsd").gating(1.0)) == 7 / 22


def test_single_tokens_have_their_quantile() -> None:
    chains = [chain(*(value / 100 for value in range(100)))]
    found = threshold_for(chains, GateChoice(measure="entropy"), 0.15)
    assert found.share == 0.15
    assert found.threshold == 0.84
    assert found.wished == 0.15


def test_the_quantile_of_tokens_would_verify_far_too_much_of_blocks() -> None:
    chains = random_chains(1)
    tokens = threshold_for(chains, GateChoice(measure="entropy"), 0.15)
    choice = GateChoice(strategy="ugsd")
    assert verified_share(chains, choice.gating(tokens.threshold)) > 0.4
    assert threshold_for(chains, choice, 0.15).share <= 0.15


@given(
    seed=st.integers(0, 2**16),
    wished=st.floats(0.01, 0.99),
    measure=st.sampled_from(list(Measure)),
    unit=st.sampled_from(["block", "from-first", "tokens"]),
)
def test_no_other_value_comes_closer_without_passing_the_share(
    seed: int, wished: float, measure: str, unit: str
) -> None:
    chains = random_chains(seed, num_chains=3)
    choice = GateChoice(strategy="ugsd", measure=measure, unit=unit)
    found = threshold_for(chains, choice, wished)
    values = {choice.gate_measure.of(token) for each in chains for token in each}
    shares = [verified_share(chains, choice.gating(value)) for value in values]
    assert found.threshold in values
    assert found.share == max(share for share in shares if share <= wished)


def test_a_calibration_says_where_it_comes_from() -> None:
    chains = random_chains(2)
    choice = GateChoice(strategy="ugsd")
    found = calibrate(chains, choice, 0.12, draft="captioner:edge", language="zh", note="by hand")
    assert found.key == CalibrationKey(
        draft="captioner:edge", strategy="ugsd", measure="entropy", unit="block", block="3-5-7", language="zh"
    )
    assert found.num_clips == 8
    assert found.num_tokens == sum(map(len, chains))
    assert found.note == "by hand"
    wished = [row.wished for row in found.table]
    assert wished == sorted(wished)
    assert (found.threshold, found.share) in [(row.threshold, row.share) for row in found.table if row.wished == 0.12]
    thresholds = [row.threshold for row in found.table]
    assert thresholds == sorted(thresholds, reverse=True), "more is doubted at a lower entropy"


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(InvalidRequestError, match="share is") as caught:
        threshold_for(random_chains(3), GateChoice(), share)
    assert caught.value.field == "share"


@pytest.mark.parametrize("chains", [[], [[]]])
def test_nothing_to_calibrate_on_is_refused(chains: Sequence[Sequence[DraftToken]]) -> None:
    with pytest.raises(InvalidRequestError, match="no tokens"):
        threshold_for(chains, GateChoice(), 0.5)
