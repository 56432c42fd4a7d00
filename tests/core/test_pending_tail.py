"""The cloud's copy of an edge's tail, and the second way beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.core.pending_tail import PendingTail, SecondWay
from edgedraft.core.sequence import common_prefix_length
from edgedraft.errors import GapError, InvalidRequestError
from edgedraft.protocol.messages import Draft, Hedge

LOG = [5, 6]
MAX_TOKENS = 20


def draft(position: int, token_ids: list[int], *, epoch: int = 0, judged: list[int] | None = None) -> Draft:
    return Draft(
        channel=1,
        incarnation=1,
        epoch=epoch,
        position=position,
        token_ids=token_ids,
        verify=False,
        committed_length=2,
        judged=judged,
    )


def hedge(position: int, token_ids: list[int], *, epoch: int = 1) -> Hedge:
    return Hedge(
        channel=1, incarnation=1, epoch=epoch, position=position, token_ids=token_ids, committed_length=position
    )


def holding(*token_ids: int) -> PendingTail:
    pending = PendingTail()
    pending.take(draft(2, list(token_ids)), LOG, MAX_TOKENS)
    return pending


def with_hedge(position: int, *token_ids: int, epoch: int = 1) -> PendingTail:
    pending = holding(7, 8, 9)
    pending.take_hedge(hedge(position, list(token_ids), epoch=epoch), LOG, MAX_TOKENS)
    return pending


class TestDrafts:
    @pytest.mark.parametrize(
        ("position", "token_ids", "held"),
        [(4, [9], [7, 8, 9]), (2, [7, 8, 9], [7, 8, 9]), (3, [8, 9], [7, 8, 9]), (1, [6, 7], [7, 8]), (2, [], [7, 8])],
    )
    def test_what_goes_past_the_held_ids_is_used(self, position: int, token_ids: list[int], held: list[int]) -> None:
        pending = holding(7, 8)

        pending.take(draft(position, token_ids), LOG, MAX_TOKENS)

        assert (pending.ids, pending.num_dropped) == (held, 0)

    @pytest.mark.parametrize(("position", "token_ids"), [(2, [7, 30, 9]), (3, [30]), (1, [30, 7])])
    def test_a_difference_kills_the_epoch(self, position: int, token_ids: list[int]) -> None:
        pending = holding(7, 8)

        pending.take(draft(position, token_ids), LOG, MAX_TOKENS)

        assert pending.ids == []
        assert pending.is_dead(0)
        assert not pending.is_current(0)

    def test_a_hole_names_what_was_expected(self) -> None:
        with pytest.raises(GapError) as caught:
            holding(7, 8).take(draft(5, [9]), LOG, MAX_TOKENS)

        assert caught.value.expected == 4

    def test_there_is_a_bound(self) -> None:
        pending = holding(*[7] * MAX_TOKENS)

        with pytest.raises(InvalidRequestError, match="21 unjudged ids; the limit is 20"):
            pending.take(draft(2 + MAX_TOKENS, [7]), LOG, MAX_TOKENS)

    def test_each_id_keeps_whether_it_is_judged(self) -> None:
        pending = PendingTail()
        pending.take(draft(2, [7, 8], judged=[1]), LOG, MAX_TOKENS)
        pending.take(draft(4, [9]), LOG, MAX_TOKENS)

        assert pending.num_unjudged_first == 1
        assert pending.judged_offsets(3) == (1, 2)
        pending.drop_first(1)
        assert pending.judged_offsets(2) is None

    def test_a_new_epoch_forgets_ids_questions_and_the_second_way(self) -> None:
        pending = with_hedge(3, 18)
        pending.questions.append(5)

        pending.begin(2)

        assert (pending.ids, pending.questions, pending.hedge, pending.num_dropped) == ([], [], None, 4)
        assert pending.is_current(2)


class TestHedges:
    def test_it_is_kept_beside_the_drafts_until_its_place_is_passed(self) -> None:
        pending = with_hedge(3, 18, 19)

        pending.settle_hedge([*LOG, 7])

        assert pending.hedge == SecondWay(1, 3, [18, 19])
        assert (pending.ids, pending.epoch) == ([7, 8, 9], 0)

    @pytest.mark.parametrize(("text", "left"), [([7, 18], [19]), ([7, 18, 19], []), ([7, 18, 19, 30], [])])
    def test_text_that_takes_it_goes_on_with_it(self, text: list[int], left: list[int]) -> None:
        pending = with_hedge(3, 18, 19)
        pending.kill(3)

        pending.settle_hedge([*LOG, *text])

        assert (pending.ids, pending.epoch, pending.hedge) == (left, 1, None)
        assert pending.is_current(1)
        assert pending.judged_offsets(len(left)) is None

    @pytest.mark.parametrize("text", [[7, 8], [7, 18, 30], [7, 30, 19]])
    def test_text_that_goes_another_way_drops_it(self, text: list[int]) -> None:
        pending = with_hedge(3, 18, 19)

        pending.settle_hedge([*LOG, *text])

        assert (pending.hedge, pending.num_dropped, pending.epoch) == (None, 2, 0)

    def test_what_comes_late_of_a_dropped_one_is_dropped(self) -> None:
        pending = with_hedge(3, 18)
        text = [*LOG, 7, 8]
        pending.settle_hedge(text)

        pending.take_hedge(hedge(4, [19, 20]), text, MAX_TOKENS)

        assert (pending.hedge, pending.ids, pending.num_dropped) == (None, [7, 8, 9], 3)

    def test_it_comes_in_pieces(self) -> None:
        pending = with_hedge(3, 18)

        pending.take_hedge(hedge(4, [19]), LOG, MAX_TOKENS)

        assert pending.hedge == SecondWay(1, 3, [18, 19])

    def test_a_newer_one_replaces_it_and_an_older_one_does_not(self) -> None:
        pending = with_hedge(3, 18, epoch=2)

        pending.take_hedge(hedge(2, [17], epoch=1), LOG, MAX_TOKENS)
        assert pending.hedge == SecondWay(2, 3, [18])
        pending.take_hedge(hedge(4, [19], epoch=3), LOG, MAX_TOKENS)

        assert pending.hedge == SecondWay(3, 4, [19])
        assert pending.num_dropped == 2

    @pytest.mark.parametrize("epoch", [0, 1])
    def test_one_that_is_no_newer_than_the_drafts_is_dropped(self, epoch: int) -> None:
        pending = PendingTail()
        pending.begin(1)
        pending.kill(2)

        pending.take_hedge(hedge(2, [17], epoch=epoch), LOG, MAX_TOKENS)

        assert (pending.hedge, pending.ids, pending.num_dropped) == (None, [], 1)

    @pytest.mark.parametrize(
        ("text", "ids", "epoch"), [([7, 18], [19], 1), ([7, 18, 19, 20], [], 1), ([7, 30], [], 0), ([7, 18, 30], [], 0)]
    )
    def test_one_that_comes_after_the_text_is_settled_at_once(
        self, text: list[int], ids: list[int], epoch: int
    ) -> None:
        pending = PendingTail()

        pending.take_hedge(hedge(3, [18, 19]), [*LOG, *text], MAX_TOKENS)

        assert (pending.ids, pending.epoch, pending.hedge) == (ids, epoch, None)

    def test_once_taken_what_follows_of_it_joins_the_pending_ids(self) -> None:
        pending = with_hedge(3, 18, 19)
        text = [*LOG, 7, 18]
        pending.settle_hedge(text)

        pending.take_hedge(hedge(5, [20]), text, MAX_TOKENS)
        pending.take(draft(4, [19, 20, 21], epoch=1), text, MAX_TOKENS)

        assert (pending.ids, pending.num_dropped) == ([19, 20, 21], 3)  # 7 8 9 went with epoch 0

    @pytest.mark.parametrize(("left_at", "lives"), [(2, False), (3, True), (4, True)])
    def test_it_outlives_the_drafts_where_it_leaves_them_no_later_than_the_text(
        self, left_at: int, lives: bool
    ) -> None:
        pending = with_hedge(3, 18)

        pending.kill(left_at)

        assert (pending.hedge is not None) is lives
        assert (pending.ids, pending.is_dead(0)) == ([], True)

    def test_one_that_comes_late_and_leaves_the_drafts_behind_that_place_is_dropped(self) -> None:
        pending = holding(7, 8, 9)
        pending.kill(2)

        pending.take_hedge(hedge(3, [18]), [*LOG, 30], MAX_TOKENS)
        pending.take_hedge(hedge(3, [18], epoch=2), [*LOG, 30, 18], MAX_TOKENS)

        assert (pending.hedge, pending.ids, pending.epoch) == (None, [], 0)

    def test_there_is_a_bound(self) -> None:
        pending = with_hedge(3, *[18] * MAX_TOKENS)

        with pytest.raises(InvalidRequestError, match="21 unjudged ids"):
            pending.take_hedge(hedge(3 + MAX_TOKENS, [19]), LOG, MAX_TOKENS)

    def test_what_follows_of_a_taken_one_is_compared_with_the_text(self) -> None:
        """The target wrote 30 by itself where the hedge went on with 19: nothing behind 19 is of any use."""
        pending = with_hedge(3, 18)
        text = [*LOG, 7, 18, 30]
        pending.settle_hedge(text)

        pending.take_hedge(hedge(4, [19, 20]), text, MAX_TOKENS)

        assert pending.ids == []
        assert pending.is_dead(1)

    def test_the_bound_holds_for_a_taken_one_too(self) -> None:
        pending = with_hedge(3, 18)
        text = [*LOG, 7, 18]
        pending.settle_hedge(text)

        with pytest.raises(InvalidRequestError, match="unjudged ids"):
            pending.take_hedge(hedge(4, [19] * (MAX_TOKENS + 1)), text, MAX_TOKENS)


# -- against a simple model ------------------------------------------------------------------------------------------


@dataclass
class Lines:
    """Whole texts instead of tails: what the edge believes under the present epoch, and what under the hedge's."""

    log: list[int] = field(default_factory=lambda: list(LOG))
    main: list[int] = field(default_factory=lambda: list(LOG))
    alive: bool = True
    epoch: int = 0
    second: list[int] | None = None
    second_epoch: int = 0
    place: int = 0

    @property
    def pending(self) -> list[int]:
        return self.main[len(self.log) :] if self.alive else []

    def settle(self) -> None:
        if not agree(self.main, self.log):
            self.alive = False
        if self.second is not None and not agree(self.second[: self.place], self.log):
            self.second = None
        if self.second is None or len(self.log) <= self.place:
            return
        if agree(self.second, self.log):
            self.main, self.alive, self.epoch = self.second, True, self.second_epoch
        self.second = None


def agree(one: Sequence[int], other: Sequence[int]) -> bool:
    return all(mine == theirs for mine, theirs in zip(one, other, strict=False))


class Both:
    """A pending tail and the model; messages come in order, as from one edge on one link."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.pending = PendingTail()
        self.lines = Lines()
        self.newest_epoch = 0

    def some_ids(self) -> list[int]:
        return self.data.draw(st.lists(st.integers(1, 2), min_size=1, max_size=2))

    def draft(self) -> None:
        """What the edge drafts on, as far as it has not seen that its line is dead."""
        lines, ids = self.lines, self.some_ids()
        if not lines.alive or len(lines.main) < len(lines.log):
            return
        self.pending.take(draft(len(lines.main), ids, epoch=lines.epoch), lines.log, 1_000)
        lines.main = [*lines.main, *ids]

    def restart(self) -> None:
        """The edge rolled back: a newer epoch from the text's end."""
        lines, ids = self.lines, self.some_ids()
        self.newest_epoch += 1
        self.pending.begin(self.newest_epoch)
        self.pending.take(draft(len(lines.log), ids, epoch=self.newest_epoch), lines.log, 1_000)
        lines.main, lines.alive, lines.epoch = [*lines.log, *ids], True, self.newest_epoch
        lines.second = None

    def hedge(self) -> None:
        """Another choice at a place of the line, which the text may have passed meanwhile."""
        lines = self.lines
        if len(lines.main) <= len(LOG):
            return
        self.newest_epoch += 1
        lines.place = self.data.draw(st.integers(len(LOG), len(lines.main) - 1))
        ids = [3 - lines.main[lines.place], *self.data.draw(st.lists(st.integers(1, 2), max_size=1))]
        lines.second, lines.second_epoch = [*lines.main[: lines.place], *ids], self.newest_epoch
        self.pending.take_hedge(hedge(lines.place, ids, epoch=self.newest_epoch), lines.log, 1_000)
        lines.settle()

    def hedge_on(self) -> None:
        """More of the second way; where the text took that meanwhile, it may already contradict what follows."""
        lines, ids = self.lines, self.some_ids()
        if lines.second is None and lines.epoch == lines.second_epoch > 0 and lines.alive:
            self.pending.take_hedge(hedge(len(lines.main), ids, epoch=lines.epoch), lines.log, 1_000)
            lines.main = [*lines.main, *ids]
            lines.settle()
        if lines.second is None:
            return
        self.pending.take_hedge(hedge(len(lines.second), ids, epoch=lines.second_epoch), lines.log, 1_000)
        lines.second = [*lines.second, *ids]

    def write(self) -> None:
        """The target commits: along a line for a while, then as it likes."""
        lines = self.lines
        line = self.data.draw(st.sampled_from([lines.pending, (lines.second or [])[len(lines.log) :]]))
        new_ids = [*line[: self.data.draw(st.integers(0, len(line)))], self.data.draw(st.integers(1, 2))]
        lines.log = [*lines.log, *new_ids]
        if agree(self.pending.ids, new_ids):
            self.pending.drop_first(min(len(self.pending), len(new_ids)))
        else:
            equal = common_prefix_length(self.pending.ids, new_ids)
            self.pending.kill(len(lines.log) - len(new_ids) + equal)
        self.pending.settle_hedge(lines.log)
        lines.settle()


@given(st.lists(st.sampled_from(["draft", "restart", "hedge", "hedge_on", "write"]), max_size=30), st.data())
def test_the_second_way_is_settled_as_whole_texts_say(actions: list[str], data: st.DataObject) -> None:
    both = Both(data)
    for action in ["draft", "hedge", *actions]:
        getattr(both, action)()
        lines, pending = both.lines, both.pending
        assert pending.ids == lines.pending
        held = None if pending.hedge is None else [*lines.second[: lines.place], *pending.hedge.ids]  # type: ignore[index]
        assert held == lines.second
        if lines.pending:
            assert pending.is_current(lines.epoch)
