"""The draft tail and its second way, step by step and against lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.core.draft_tail import DraftTail, Reconciled
from edgedraft.core.events import DraftNext, TokenDrafted
from edgedraft.core.strategy import UploadState
from edgedraft.core.triggers import FixedLength, Never
from edgedraft.types import DraftToken

from .conftest import EOS, unsure

LOG = [5, 6]
NO_STOP: frozenset[int] = frozenset()


def tail_of(*token_ids: int, second_id: int = 99) -> DraftTail:
    """After `LOG`, drafted one by one; nothing has been sent."""
    tail = DraftTail()
    for token_id in token_ids:
        draft(tail, token_id, second_id=second_id)
    return tail


def draft(tail: DraftTail, token_id: int, *, second_id: int = 99, log: Sequence[int] = LOG) -> DraftNext:
    step = tail.next_run(log, 1)
    token = unsure(token_id, second_id)
    assert tail.take_step(TokenDrafted(step.epoch, step.position, token), NO_STOP)
    if tail.hedge is not None and tail.on_hedge:
        tail.hedge.add(token, NO_STOP)
    else:
        tail.add(token, Never(), verdict_is_out=False)
    return step


def hedged(*behind: int, tail: DraftTail | None = None, offset: int = 1) -> DraftTail:
    """A tail 7 8 9 with a hedge in the place of 8, drafted on by `behind`."""
    tail = tail or tail_of(7, 8, 9, second_id=18)
    tail.open_hedge(offset, len(LOG), epoch=4)
    tail.go_on(on_hedge=True)
    for token_id in behind:
        draft(tail, token_id)
    return tail


def ids(tail: DraftTail) -> list[int]:
    return [token.token_id for token in tail.tokens]


def reconcile(tail: DraftTail, *new_ids: int, num_judged: int = 0) -> Reconciled:
    return tail.reconcile(new_ids, len(LOG), len(LOG) + num_judged)


class TestSteps:
    def test_the_model_is_told_only_what_it_does_not_hold(self) -> None:
        tail = DraftTail()

        assert tail.next_run(LOG, 3) == DraftNext(0, 2, 0, [5, 6], 3)

    def test_a_run_is_answered_token_by_token(self) -> None:
        tail = DraftTail()
        tail.next_run(LOG, 2)

        assert not tail.take_step(TokenDrafted(0, 3, unsure(7, 8)), NO_STOP)
        assert tail.take_step(TokenDrafted(0, 2, unsure(7, 8)), NO_STOP)
        assert tail.step_is_out
        assert tail.take_step(TokenDrafted(0, 3, unsure(7, 8)), NO_STOP)
        assert not tail.step_is_out

    @pytest.mark.parametrize("last", [None, unsure(EOS, 8)])
    def test_a_run_ends_early_without_a_proposal_and_at_a_stop_id(self, last: DraftToken | None) -> None:
        tail = DraftTail()
        tail.next_run(LOG, 5)

        tail.take_step(TokenDrafted(0, 2, last), {EOS})

        assert not tail.step_is_out


class TestQuestions:
    def test_the_trigger_looks_at_what_was_drafted_since_the_last_question(self) -> None:
        tail = tail_of(7, 8)
        tail.mark_asked()
        tail.tokens += tail_of(9, 10).tokens

        assert [token.token_id for token in tail.pending(verdict_is_out=False)] == [9, 10]

    def test_the_guess_behind_a_question_is_left_out(self) -> None:
        tail = tail_of(7, 8)
        tail.mark_asked()
        trigger = FixedLength(1)

        tail.add(unsure(9, 1), trigger, verdict_is_out=True)
        assert (tail.fired, tail.num_ahead) == (False, 1)
        tail.add(unsure(10, 1), trigger, verdict_is_out=True)
        assert tail.fired

    def test_asking_starts_the_plan_anew_and_ends_the_firing(self) -> None:
        tail = tail_of(7, 8)
        tail.fired = True
        tail.mark_sent(2, 1.0)

        tail.mark_asked()

        assert (tail.fired, tail.num_asked, tail.num_messages, tail.num_ahead) == (False, 2, 0, 0)


class TestUploads:
    def test_before_the_first_message_the_link_was_always_free(self) -> None:
        assert tail_of(7).upload_state(3.0) == UploadState(num_unsent=1)

    def test_what_left_is_told_to_the_policy(self) -> None:
        tail = tail_of(7, 8, 9)
        tail.mark_sent(2, 1.0)

        assert tail.upload_state(1.5) == UploadState(1, 1, last_message_tokens=2, since_last_s=0.5)

    def test_a_question_without_ids_is_no_message_of_the_plan(self) -> None:
        tail = tail_of(7)
        tail.mark_sent(0, 1.0)

        assert tail.num_messages == 0

    def test_the_second_way_waits_until_the_tail_has_left(self) -> None:
        tail = hedged(19, 20)
        assert tail.upload_state(0.0).num_unsent == 3
        tail.mark_sent(3, 1.0)
        assert tail.upload_state(1.0).num_unsent == 3  # 18 19 20

        tail.mark_hedge_sent(2.0)

        assert tail.upload_state(2.5) == UploadState(0, 1, last_message_tokens=3, since_last_s=0.5)

    def test_forgotten_uploads_travel_again_and_the_second_way_is_gone(self) -> None:
        tail = hedged(19)
        tail.mark_sent(3, 1.0)
        tail.mark_asked()

        tail.forget_uploads()

        assert (tail.num_sent, tail.num_asked, tail.num_messages, tail.hedge) == (0, 0, 0, None)
        assert ids(tail) == [7, 8, 9]


class TestSecondWay:
    def test_it_starts_with_the_other_choice(self) -> None:
        tail = hedged()

        assert tail.hedge is not None
        assert (tail.hedge.position, tail.hedge.epoch) == (3, 4)
        assert [token.token_id for token in tail.line(len(LOG))] == [7, 18]
        assert ids(tail) == [7, 8, 9]

    def test_the_model_goes_back_to_where_the_ways_part(self) -> None:
        tail = hedged()

        assert draft(tail, 19) == DraftNext(0, 4, 3, [18])
        assert draft(tail, 20) == DraftNext(0, 5, 4, [19])
        tail.go_on(on_hedge=False)
        assert draft(tail, 10) == DraftNext(0, 5, 3, [8, 9])

    def test_text_that_takes_it_makes_it_the_tail(self) -> None:
        tail = hedged(19, 20)
        tail.mark_hedge_sent(1.0)

        outcome = reconcile(tail, 7, 18, 19)

        assert outcome == Reconciled(contradicted=True, overtaken=False, num_dropped=2, epoch=4)
        assert (ids(tail), tail.num_sent, tail.hedge, tail.on_hedge) == ([20], 1, None, False)
        assert draft(tail, 21, log=[*LOG, 7, 18, 19]) == DraftNext(0, 6, 5, [20])

    def test_what_of_it_had_not_left_still_has_to(self) -> None:
        tail = hedged(19)
        tail.mark_hedge_sent(1.0)
        draft(tail, 20)

        reconcile(tail, 7, 18)

        assert (ids(tail), tail.num_sent) == ([19, 20], 1)

    def test_taken_while_the_tail_was_drafted_on_it_drops_that_step(self) -> None:
        tail = hedged(19)
        tail.go_on(on_hedge=False)
        step = tail.next_run(LOG, 1)

        reconcile(tail, 7, 18)

        assert not tail.take_step(TokenDrafted(step.epoch, step.position, unsure(10, 1)), NO_STOP)
        assert draft(tail, 20, log=[*LOG, 7, 18]) == DraftNext(1, 5, 3, [18, 19])

    def test_taken_while_it_was_drafted_on_it_keeps_that_step(self) -> None:
        tail = hedged(19)
        step = tail.next_run(LOG, 1)

        reconcile(tail, 7, 18)

        assert tail.take_step(TokenDrafted(step.epoch, step.position, unsure(20, 1)), NO_STOP)

    def test_text_beyond_the_step_behind_it_overtakes_that(self) -> None:
        tail = hedged()
        step = tail.next_run(LOG, 1)  # at 4

        reconcile(tail, 7, 18, 30)

        assert not tail.take_step(TokenDrafted(step.epoch, step.position, unsure(30, 1)), NO_STOP)
        assert ids(tail) == []

    @pytest.mark.parametrize("text", [(7, 18, 30), (7, 30), (30,)])
    def test_text_that_takes_neither_way_drops_both(self, text: tuple[int, ...]) -> None:
        tail = hedged(19)

        outcome = reconcile(tail, *text)

        assert (outcome.contradicted, outcome.epoch) == (True, None)
        assert outcome.num_dropped == len(ids(tail_of(7, 8, 9))) - min(len(text) - 1, 1) + 2
        assert (ids(tail), tail.hedge, tail.step_is_out) == ([], None, False)

    def test_text_that_passes_its_place_by_the_tail_drops_it(self) -> None:
        tail = hedged(19)

        assert reconcile(tail, 7).num_dropped == 0
        assert tail.hedge is not None
        outcome = tail.reconcile([8], len(LOG) + 1, 0)

        assert outcome == Reconciled(contradicted=False, overtaken=False, num_dropped=2)
        assert ids(tail) == [9]
        assert tail.hedge is None
        assert draft(tail, 10, log=[*LOG, 7, 8]) == DraftNext(1, 5, 3, [8, 9])

    def test_judged_tokens_are_not_counted_as_dropped(self) -> None:
        assert reconcile(tail_of(7, 8, 9), 30, num_judged=2).num_dropped == 1


# -- against lists ---------------------------------------------------------------------------------------------------


@dataclass
class Lists:
    """The same as plain lists: the log, the tail, and the second way with its place."""

    log: list[int] = field(default_factory=lambda: list(LOG))
    tail: list[int] = field(default_factory=list)
    hedge: list[int] | None = None
    place: int = 0

    def line(self, *, on_hedge: bool) -> list[int]:
        if on_hedge and self.hedge is not None:
            return [*self.log, *self.tail[: self.place - len(self.log)], *self.hedge]
        return [*self.log, *self.tail]

    def commit(self, new_ids: list[int]) -> tuple[bool, bool]:
        """Whether the text contradicted the tail, and whether it took the second way."""
        main, length = [*self.log, *self.tail], len(self.log)
        second = None if self.hedge is None else self.line(on_hedge=True)
        self.log += new_ids
        agrees, takes = agree(main, self.log), second is not None and agree(second, self.log)
        adopted = takes and not agrees and len(self.log) > self.place
        if adopted:
            assert second is not None
            self.tail, self.hedge = second[len(self.log) :], None
        elif not agrees:
            self.tail, self.hedge = [], None
        else:
            self.tail = self.tail[len(self.log) - length :]
            if len(self.log) > self.place:
                self.hedge = None
        return not agrees, adopted


def agree(one: list[int], other: list[int]) -> bool:
    return all(mine == theirs for mine, theirs in zip(one, other, strict=False))


class Pair:
    """Both, with a draft model that holds what it was told; few ids, so that texts meet by chance."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.tail = DraftTail()
        self.lists = Lists()
        self.epoch = 0
        self.held: list[int] = []
        self.step: DraftNext | None = None

    def draw_id(self) -> int:
        return self.data.draw(st.integers(1, 3))

    def play(self, action: str) -> None:
        getattr(self, action)()
        assert ids(self.tail) == self.lists.tail
        hedge = self.tail.hedge
        assert (None if hedge is None else [token.token_id for token in hedge.tokens]) == self.lists.hedge
        if not self.tail.step_is_out:
            self.step = None

    def begin(self) -> None:
        if self.tail.step_is_out:
            return
        self.step = self.tail.next_run(self.lists.log, 1)
        self.held = [*self.held[: self.step.keep_length], *self.step.token_ids]
        assert self.held == self.lists.line(on_hedge=self.tail.on_hedge)

    def finish(self) -> None:
        if self.step is None:
            return
        token = unsure(self.draw_id(), self.draw_id())
        self.held.append(token.token_id)
        assert self.tail.take_step(TokenDrafted(self.step.epoch, self.step.position, token), NO_STOP)
        if self.tail.hedge is not None and self.tail.on_hedge:
            self.tail.hedge.add(token, NO_STOP)
            assert self.lists.hedge is not None
            self.lists.hedge.append(token.token_id)
        else:
            self.tail.add(token, Never(), verdict_is_out=False)
            self.lists.tail.append(token.token_id)

    def hedge(self) -> None:
        differing = [place for place, token in enumerate(self.tail.tokens) if token.second_id != token.token_id]
        if self.tail.hedge is not None or self.tail.step_is_out or not differing:
            return
        offset = self.data.draw(st.sampled_from(differing))
        self.epoch += 1
        self.tail.open_hedge(offset, len(self.lists.log), self.epoch)
        self.lists.hedge, self.lists.place = [self.tail.tokens[offset].second_id], len(self.lists.log) + offset
        self.turn()

    def turn(self) -> None:
        if not self.tail.step_is_out:
            self.tail.go_on(on_hedge=not self.tail.on_hedge)

    def send(self) -> None:
        self.tail.mark_sent(self.data.draw(st.integers(0, self.tail.num_unsent)), 0.0)
        if self.tail.hedge is not None:
            self.tail.mark_hedge_sent(0.0)

    def commit(self) -> None:
        line = self.lists.line(on_hedge=self.data.draw(st.booleans()))[len(self.lists.log) :]
        new_ids = [
            *line[: self.data.draw(st.integers(0, len(line)))],
            *self.data.draw(st.lists(st.just(2), max_size=2)),
        ]
        if not new_ids:
            return
        outcome = self.tail.reconcile(new_ids, len(self.lists.log), 0)
        contradicted, adopted = self.lists.commit(new_ids)
        assert (outcome.contradicted, outcome.epoch is not None) == (contradicted, adopted)
        assert 0 <= self.tail.num_asked <= len(self.tail)
        assert 0 <= self.tail.num_sent <= len(self.tail)
        if outcome.overtaken:
            self.tail.forget_uploads()  # as a session does, whose epoch rises
            self.lists.hedge = None


@given(st.lists(st.sampled_from(["begin", "finish", "hedge", "turn", "send", "commit"]), max_size=60), st.data())
def test_it_is_what_lists_make_of_the_same(actions: list[str], data: st.DataObject) -> None:
    pair = Pair(data)
    for action in ["begin", "finish", "begin", "finish", *actions]:
        pair.play(action)
