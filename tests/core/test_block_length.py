from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.core.block_length import BlockLengths, BlockOutcome
from edgedraft.errors import InvalidRequestError

LOCAL, ACCEPTED, CORRECTED = BlockOutcome.LOCAL, BlockOutcome.ACCEPTED, BlockOutcome.CORRECTED


def lengths_after(*outcomes: BlockOutcome, counts_local: bool = True) -> list[int]:
    lengths = BlockLengths(counts_local=counts_local)
    found = [lengths.tokens]
    for outcome in outcomes:
        lengths = lengths.after(outcome)
        found.append(lengths.tokens)
    return found


@pytest.mark.parametrize(
    ("outcomes", "wanted"),
    [
        ((), [5]),
        ((ACCEPTED,), [5, 5]),
        ((ACCEPTED, ACCEPTED), [5, 5, 7]),
        ((ACCEPTED, ACCEPTED, ACCEPTED, ACCEPTED), [5, 5, 7, 7, 7]),
        ((CORRECTED,), [5, 3]),
        ((CORRECTED, ACCEPTED), [5, 3, 5]),
        ((CORRECTED, ACCEPTED, ACCEPTED), [5, 3, 5, 7]),
        ((ACCEPTED, ACCEPTED, CORRECTED, ACCEPTED), [5, 5, 7, 3, 5]),
        ((CORRECTED, CORRECTED), [5, 3, 3]),
        ((LOCAL, LOCAL), [5, 5, 7]),
        ((LOCAL, ACCEPTED), [5, 5, 7]),
    ],
)
def test_the_controller_of_the_paper(outcomes: tuple[BlockOutcome, ...], wanted: list[int]) -> None:
    assert lengths_after(*outcomes) == wanted


@pytest.mark.parametrize(
    ("outcomes", "wanted"),
    [
        ((LOCAL, LOCAL, LOCAL), [5, 5, 5, 5]),
        ((ACCEPTED, LOCAL, ACCEPTED), [5, 5, 5, 7]),
        ((ACCEPTED, ACCEPTED, LOCAL), [5, 5, 7, 7]),
        ((CORRECTED, LOCAL), [5, 3, 5]),
    ],
)
def test_local_blocks_need_not_count(outcomes: tuple[BlockOutcome, ...], wanted: list[int]) -> None:
    assert lengths_after(*outcomes, counts_local=False) == wanted


@given(st.lists(st.sampled_from(list(BlockOutcome))), st.integers(1, 32))
def test_a_fixed_length_stays(outcomes: list[BlockOutcome], tokens: int) -> None:
    lengths = BlockLengths.fixed(tokens)
    for outcome in outcomes:
        lengths = lengths.after(outcome)
        assert lengths.tokens == tokens


@pytest.mark.parametrize("bad", [{"least": 0}, {"base": 2}, {"most": 33}, {"most": 4}, {"long_after": 0}])
def test_lengths_that_cannot_be(bad: dict[str, int]) -> None:
    with pytest.raises(InvalidRequestError):
        BlockLengths(**bad)
