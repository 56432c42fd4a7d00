"""What the draft should go on with: its tail, its other choice somewhere, or nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.core.hedging import SURE, Hedge, Hedging, Way, best_way, second_is_right
from edgedraft.types import DraftToken

from .conftest import EOS, sure, unsure

LENGTH = 10


@dataclass
class Tail:
    tokens: list[DraftToken]
    hedge: Hedge | None = None
    on_hedge: bool = False


def hedged(tokens: list[DraftToken], offset: int, *behind: float, **fields: bool) -> Tail:
    """A tail with a hedge at `offset`; `behind`: confidences of what was drafted behind its first token."""
    more = [sure(9, confidence) for confidence in behind]
    first = DraftToken(8, tokens[offset].second_confidence, 0.5)
    hedge = Hedge(position=LENGTH + offset, epoch=1, tokens=[first, *more], ended=fields.pop("ended", False))
    return Tail(tokens, hedge, **fields)


class TestHedge:
    def test_it_ends_where_nothing_is_proposed_and_at_a_stop_id(self) -> None:
        for last, num_tokens in ((None, 2), (sure(EOS), 3)):
            hedge = Hedge(position=4, epoch=1, tokens=[sure(8)])
            hedge.add(sure(9), {EOS})
            assert not hedge.ended
            hedge.add(last, {EOS})

            assert hedge.ended
            assert len(hedge.tokens) == num_tokens

    def test_what_has_not_been_sent(self) -> None:
        assert Hedge(position=4, epoch=1, tokens=[sure(8), sure(9)], num_sent=1).num_unsent == 1

    @pytest.mark.parametrize(
        ("text", "agrees"),
        [([1, 2, 8], True), ([1, 2, 8, 9], True), ([1, 2, 8, 9, 4], True), ([1, 2, 8, 7], False), ([1, 2, 7], False)],
    )
    def test_it_agrees_as_far_as_both_go(self, text: list[int], agrees: bool) -> None:
        hedge = Hedge(position=LENGTH + 2, epoch=1, tokens=[sure(8), sure(9)])

        assert hedge.agrees_with(text, LENGTH) is agrees


class TestSecondIsRight:
    def test_it_is_its_share_of_what_the_first_leaves(self) -> None:
        assert second_is_right(unsure(1, 2, confidence=0.6, second=0.3)) == pytest.approx(0.75)

    @pytest.mark.parametrize("second_id", [-1, 1])
    def test_no_other_choice_is_never_right(self, second_id: int) -> None:
        assert second_is_right(unsure(1, second_id)) == 0.0

    @pytest.mark.parametrize(("confidence", "second"), [(1.0, 0.5), (0.5, 0.5), (0.9, 0.4)])
    def test_nothing_is_certain(self, confidence: float, second: float) -> None:
        assert second_is_right(unsure(1, 2, confidence=confidence, second=second)) == SURE


class TestBestWay:
    def test_an_empty_tail_is_drafted_on(self) -> None:
        assert best_way(Tail([]), LENGTH, Hedging(least_use=1.0)) == (Way.MAIN, 0)

    def test_a_likely_tail_is_drafted_on(self) -> None:
        assert best_way(Tail([sure(1), sure(2)]), LENGTH, Hedging()) == (Way.MAIN, 0)

    def test_the_most_useful_other_choice_opens_a_hedge(self) -> None:
        tokens = [sure(1), unsure(2, 12, confidence=0.3, second=0.3), unsure(3, 13), unsure(4, 14)]

        # Of use with 0.99 * 0.7 * 0.43 = 0.30 at offset 1, with 0.99 * 0.3 * 0.9 * 0.94 = 0.25 at offset 2.
        assert best_way(Tail(tokens), LENGTH, Hedging()) == (Way.NEW_HEDGE, 1)

    def test_patience_keeps_the_draft_on_its_tail(self) -> None:
        tokens = [unsure(1, 11, confidence=0.2, second=0.5)]  # 0.5 for the other choice, 0.2 for the tail

        assert best_way(Tail(tokens), LENGTH, Hedging(patience=2.4))[0] is Way.NEW_HEDGE
        assert best_way(Tail(tokens), LENGTH, Hedging(patience=2.6))[0] is Way.MAIN

    def test_no_hedge_is_opened_where_the_strategy_does_not(self) -> None:
        assert best_way(Tail([unsure(1, 11)]), LENGTH, Hedging(opens=False))[0] is Way.MAIN

    def test_what_is_hardly_of_use_is_not_drafted(self) -> None:
        tokens = [unsure(1, 11, confidence=0.4, second=0.3)]  # 0.3 and 0.4

        assert best_way(Tail(tokens), LENGTH, Hedging(patience=0.5, least_use=0.35))[0] is Way.MAIN
        assert best_way(Tail(tokens), LENGTH, Hedging(patience=0.5, least_use=0.45))[0] is Way.STOP

    def test_no_token_is_taken_for_certain(self) -> None:
        hedging = Hedging(least_use=(1.0 + SURE) / 2)

        assert best_way(Tail([sure(1, 1.0)]), LENGTH, hedging)[0] is Way.STOP

    def test_a_hedge_is_changed_to_with_patience_and_left_without(self) -> None:
        tokens = [unsure(1, 11, confidence=0.2, second=0.5)]
        impatient, patient = Hedging(patience=2.0), Hedging(patience=3.0)

        assert best_way(hedged(tokens, 0), LENGTH, impatient)[0] is Way.HEDGE
        assert best_way(hedged(tokens, 0), LENGTH, patient)[0] is Way.MAIN
        assert best_way(hedged(tokens, 0, on_hedge=True), LENGTH, patient)[0] is Way.HEDGE
        assert best_way(hedged(tokens, 0, 0.35, on_hedge=True), LENGTH, patient)[0] is Way.MAIN

    def test_a_hedge_far_in_is_right_only_where_what_stands_before_it_is(self) -> None:
        tokens = [sure(1, 0.5), unsure(2, 12)]  # 0.5 * 0.9 * 0.94 = 0.42 against 0.05

        assert best_way(hedged(tokens, 1), LENGTH, Hedging(patience=8.0))[0] is Way.HEDGE
        assert best_way(hedged(tokens, 1), LENGTH, Hedging(patience=8.0, least_use=0.5))[0] is Way.STOP

    def test_an_ended_hedge_is_not_drafted_on(self) -> None:
        assert best_way(hedged([unsure(1, 11)], 0, ended=True), LENGTH, Hedging())[0] is Way.MAIN
        assert best_way(hedged([unsure(1, 11)], 0, ended=True), LENGTH, Hedging(least_use=0.2))[0] is Way.STOP

    def test_there_is_one_hedge_at_a_time(self) -> None:
        tokens = [unsure(1, 11, confidence=0.4, second=0.01), unsure(2, 12)]

        assert best_way(hedged(tokens, 0), LENGTH, Hedging(patience=1.0))[0] is Way.MAIN


@dataclass
class Chances:
    """What the tokens say, worked out from the rules of chance alone."""

    tokens: list[DraftToken]
    right: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.right = [min(SURE, token.confidence) for token in self.tokens]

    @property
    def all_right(self) -> float:
        return math.prod(self.right)

    def only_second_at(self, offset: int) -> float:
        first_wrong = 1.0 - self.right[offset]
        return math.prod(self.right[:offset]) * first_wrong * second_is_right(self.tokens[offset])


PROBS = st.floats(0.01, 0.99)
TOKENS = st.lists(
    st.builds(lambda first, rest: unsure(1, 2, confidence=first, second=(1 - first) * rest), PROBS, PROBS), max_size=8
)
HEDGINGS = st.builds(Hedging, patience=st.floats(1.0, 5.0), least_use=st.floats(0.0, 0.5))


@given(TOKENS, HEDGINGS)
def test_a_new_hedge_is_where_the_other_choice_is_most_likely_and_pays(
    tokens: list[DraftToken], hedging: Hedging
) -> None:
    way, offset = best_way(Tail(tokens), LENGTH, hedging)

    chances = Chances(tokens)
    uses = [chances.only_second_at(place) for place in range(len(tokens))]
    pays = max(uses, default=0.0) > max(chances.all_right * hedging.patience, hedging.least_use)
    assert (way is Way.NEW_HEDGE) is pays
    if pays:
        assert uses[offset] == max(uses)
    else:
        assert (way is Way.MAIN) is (chances.all_right >= hedging.least_use)


@given(TOKENS.filter(bool), st.lists(PROBS, max_size=4), HEDGINGS, st.booleans(), st.data())
def test_an_open_hedge_is_drafted_on_where_it_is_the_likelier(
    tokens: list[DraftToken], behind: list[float], hedging: Hedging, on_hedge: bool, data: st.DataObject
) -> None:
    offset = data.draw(st.integers(0, len(tokens) - 1))
    way, _ = best_way(hedged(tokens, offset, *behind, on_hedge=on_hedge), LENGTH, hedging)

    chances = Chances(tokens)
    use = chances.only_second_at(offset) * math.prod(behind)
    if max(use, chances.all_right) < hedging.least_use:
        assert way is Way.STOP
    elif not math.isclose(use * (1.0 if on_hedge else 1.0 / hedging.patience), chances.all_right):
        bonus = 1.0 if on_hedge else 1.0 / hedging.patience
        assert way is (Way.HEDGE if use * bonus > chances.all_right else Way.MAIN)
