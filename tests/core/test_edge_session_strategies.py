"""The edge's machine under what strategies ask of it: two questions, plans, adaption, changes, a second way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edgedraft.core.edge_settings import EdgeState
from edgedraft.core.events import DraftNext, DraftUnavailable, LinkDown, LinkUp, SetTimer, Start, StrategyChanged
from edgedraft.core.events import TimerFired as Timer
from edgedraft.core.hedging import Hedging
from edgedraft.core.strategy import Strategy, UploadImmediately, UploadPolicy, UploadWhole
from edgedraft.core.triggers import AdaptiveSequenceConfidence, FixedLength, Never, TokenConfidence
from edgedraft.errors import InvalidRequestError, SaturatedError
from edgedraft.protocol.messages import CommitKind, Draft, Error, Hedge, Open, Opened, Resume, Resumed
from edgedraft.schedule.catalogue import cloud_only, edgellm, flow, vanilla
from edgedraft.schedule.link import LinkCost
from edgedraft.schedule.uploads import UploadPlanned, UploadWhenFree
from edgedraft.types import Assist, DraftToken, Rule

from .conftest import EOS, Edge, sure, unsure


def ahead(upload: UploadPolicy | None = None, **changes: Any) -> Strategy:
    """Asks after two tokens, and for a second verdict before the first is there."""
    fields: dict[str, Any] = {"trigger": FixedLength(2), "draft_ahead_tokens": 64, "max_verdicts_out": 2, **changes}
    return Strategy(name="ahead", upload=upload or UploadWhole(), **fields)


def hedging(upload: UploadPolicy | None = None, **numbers: Any) -> Strategy:
    return Strategy(
        name="hedging",
        trigger=Never(),
        upload=upload or UploadImmediately(),
        draft_ahead_tokens=64,
        max_in_flight_tokens=64,
        eager=True,
        hedging=Hedging(**{"patience": 1.0, **numbers}),
    )


def travelled(edge: Edge, kind: type = Draft) -> list[tuple[int, int, list[int]]]:
    """Epoch, position and ids of what the last event sent."""
    return [(message.epoch, message.position, message.token_ids) for message in edge.sent(kind)]


class TestOpening:
    """Drafts follow an `Open` at once."""

    def test_what_is_drafted_already_leaves_with_it(self) -> None:
        edge = Edge()
        edge.tell(Start())
        edge.drafted(7, 8)
        assert edge.sent(Draft) == []

        edge.tell(LinkUp(channel=1))

        assert [type(command.message) for command in edge.last if hasattr(command, "message")] == [Open, Draft]
        assert edge.sent(Draft)[0].token_ids == [7, 8]

    def test_nothing_of_it_is_sent_again_once_it_is_opened(self) -> None:
        edge = Edge(ahead(UploadImmediately()))
        edge.tell(Start())
        edge.tell(LinkUp(channel=1))
        edge.drafted(7)
        assert travelled(edge) == [(0, 2, [7])]

        edge.receive(Opened(channel=1, incarnation=1, committed_length=2))

        assert edge.sent(Draft) == []
        edge.drafted(8)
        assert travelled(edge) == [(0, 3, [8])]

    def test_a_resume_has_to_be_answered_first(self) -> None:
        edge = Edge(ahead(UploadImmediately())).live()
        edge.drafted(7)
        edge.tell(LinkDown())
        edge.tell(LinkUp(channel=2))

        edge.drafted(8)
        assert edge.sent(Draft) == []
        edge.receive(Resumed(channel=2, incarnation=1, attach=2, committed_length=2))

        assert travelled(edge) == [(1, 2, [7, 8])]

    def test_a_cloud_without_room_gets_none_until_it_is_asked_again(self) -> None:
        edge = Edge(ahead(UploadImmediately()))
        edge.tell(Start())
        edge.tell(LinkUp(channel=1))
        full = Error(
            channel=1, incarnation=1, code=SaturatedError.code, message="full", retryable=True, retry_after_s=3.0
        )
        edge.receive(full)

        edge.drafted(7)
        assert edge.sent(Draft) == []
        edge.now_s = 3.0
        edge.tell(Timer())

        assert edge.sent(Open)[0].incarnation == 2
        assert travelled(edge) == [(0, 2, [7])]


class TestTwoQuestions:
    def test_a_second_is_asked_while_the_first_is_out_and_nothing_is_drafted_past_it(self) -> None:
        edge = Edge(ahead()).live()
        edge.drafted(7, 8)

        edge.drafted(9, 10, 11)  # 9 is a guess at the next token, and no part of the second draft

        (second,) = edge.sent(Draft)
        assert (second.position, second.token_ids, second.verify) == (4, [9, 10, 11], True)
        assert edge.core.asked == [4, 7]
        assert edge.step is None

    def test_with_one_verdict_out_at_a_time_the_second_waits(self) -> None:
        edge = Edge(ahead(max_verdicts_out=1)).live()
        edge.drafted(7, 8, 9, 10, 11)
        assert edge.sent(Draft) == []

        edge.commit(2, [7, 8, 9], 2)

        assert travelled(edge) == [(0, 5, [10, 11])]
        assert edge.core.asked == [7]

    def test_the_guess_does_not_fire_the_trigger(self) -> None:
        edge = Edge(ahead(trigger=TokenConfidence(0.5))).live()
        edge.drafted(DraftToken(7, 0.4, 0.5))
        assert edge.core.asked == [3]

        edge.drafted(DraftToken(8, 0.1, 0.5), DraftToken(9, 0.9, 0.5))
        assert edge.core.asked == [3]
        edge.drafted(DraftToken(10, 0.4, 0.5))

        assert edge.core.asked == [3, 6]

    def test_they_are_answered_one_after_the_other(self) -> None:
        edge = Edge(ahead()).live()
        edge.drafted(7, 8, 9, 10, 11)

        edge.commit(2, [7, 8, 9], 2)
        assert (edge.core.asked, edge.core.counters.num_reused) == ([7], 2)  # 10 and 11
        edge.drafted(12)
        edge.commit(5, [10, 11, 12], 2)

        assert (edge.core.asked, edge.core.epoch, edge.core.counters.num_rounds) == ([], 0, 2)
        assert [record.num_drafted for record in edge.core.rounds] == [2, 2]

    def test_one_commit_may_answer_both(self) -> None:
        edge = Edge(ahead()).live()
        edge.drafted(7, 8, 9, 10, 11)

        edge.commit(2, [7, 8, 9, 10, 11, 12], 5)

        assert edge.core.asked == []

    def test_a_contradiction_ends_both(self) -> None:
        edge = Edge(ahead()).live()
        edge.drafted(7, 8, 9, 10, 11)

        edge.commit(2, [7, 8, 30], 2)

        assert (edge.core.asked, edge.core.epoch) == ([], 1)
        assert edge.step == DraftNext(1, 5, 4, [30], 2)

    def test_the_end_of_sequence_asks_at_once_where_that_may_be(self) -> None:
        edge = Edge(ahead(trigger=FixedLength(3))).live()
        edge.drafted(7, 8, 9, 10, EOS)

        assert travelled(edge) == [(0, 5, [10, EOS])]


class TestUploads:
    def test_a_plan_is_followed_and_a_question_takes_the_rest_along(self) -> None:
        edge = Edge(ahead(UploadPlanned((1, 2)), trigger=FixedLength(6))).live()
        sent = []
        for token_id in (7, 8, 9, 10, 11, 12):
            edge.drafted(token_id)
            sent += [(draft.token_ids, draft.verify) for draft in edge.sent(Draft)]

        assert sent == [([7], False), ([8, 9], False), ([10], False), ([11, 12], True)]

    def test_the_plan_starts_anew_behind_a_question(self) -> None:
        edge = Edge(ahead(UploadPlanned((1, 3)), trigger=FixedLength(2))).live()
        edge.drafted(7, 8)

        edge.drafted(9)

        assert travelled(edge) == [(0, 4, [9])]

    def test_tokens_wait_for_the_link_and_leave_by_the_timer(self) -> None:
        edge = Edge(ahead(UploadWhenFree(LinkCost(startup_s=1.0, per_token_s=0.0)), trigger=FixedLength(9))).live()
        edge.drafted(7)
        assert travelled(edge) == [(0, 2, [7])]
        edge.now_s = 0.25
        edge.drafted(8)
        assert edge.sent(Draft) == []
        assert edge.commands(SetTimer) == [SetTimer(1.0)]

        edge.now_s = 1.0
        edge.tell(Timer())

        assert travelled(edge) == [(0, 3, [8])]
        assert edge.sent(Resume) == []
        assert edge.commands(SetTimer) == [SetTimer(None)]

    def test_a_timer_for_the_link_is_none_for_silence(self) -> None:
        edge = Edge(flow(assist="none", cost=LinkCost(startup_s=1.0, per_token_s=0.0))).live()
        edge.drafted(7)
        assert edge.commands(SetTimer) == [SetTimer(2.0)]  # what has left is judged unasked, so an answer is due
        edge.now_s = 0.5
        edge.drafted(8)

        edge.now_s = 1.0
        edge.tell(Timer())
        assert edge.sent(Resume) == []
        edge.now_s = 3.0
        edge.tell(Timer())

        assert edge.sent(Resume) != []


class TestAdaption:
    def test_a_trigger_learns_from_every_verdict(self) -> None:
        edge = Edge(edgellm(sequence_threshold=0.5, factor=0.5)).live()
        edge.drafted(7)

        edge.commit(2, [7, 8], 1)

        assert edge.core.strategy.trigger == AdaptiveSequenceConfidence(0.5, factor=0.5, adapted=0.25)
        assert edge.core.settings.strategy.trigger == AdaptiveSequenceConfidence(0.5, factor=0.5)

    def test_it_learns_from_what_was_judged_not_from_what_followed(self) -> None:
        edge = Edge(edgellm(sequence_threshold=0.5)).live()
        edge.drafted(7)
        edge.drafted(8, 9)

        edge.commit(2, [30], 0, num_judged=1, kind=CommitKind.RECOVERED)

        trigger = edge.core.strategy.trigger
        assert isinstance(trigger, AdaptiveSequenceConfidence)
        assert trigger.adapted == pytest.approx(1.0)  # 0.5 / 0.5 for one token, all of it rejected

    def test_a_repeated_commit_teaches_nothing(self) -> None:
        edge = Edge(edgellm(sequence_threshold=0.5)).live()
        edge.drafted(7)
        edge.commit(2, [7, 8], 1)

        edge.commit(2, [7, 8, 9], 1)

        trigger = edge.core.strategy.trigger
        assert isinstance(trigger, AdaptiveSequenceConfidence)
        assert trigger.adapted == 0.25


class TestChange:
    def test_other_numbers_hold_from_the_next_token_on(self) -> None:
        edge = Edge(vanilla(9)).live()
        edge.drafted(7)

        edge.tell(StrategyChanged(vanilla(2)))
        assert (edge.sent(Open), edge.core.counters.num_reopens) == ([], 0)
        edge.drafted(8)

        assert travelled(edge) == [(0, 2, [7, 8])]

    def test_other_terms_open_the_session_anew_and_the_drafts_follow(self) -> None:
        edge = Edge(flow(assist="none", cost=LinkCost(startup_s=0.0, per_token_s=0.0))).live()
        edge.drafted(7)

        edge.tell(StrategyChanged(flow(assist="always", cost=LinkCost(startup_s=0.0, per_token_s=0.0))))

        (opening,) = edge.sent(Open)
        assert (opening.incarnation, opening.assist, opening.eager) == (2, Assist.ALWAYS, True)
        assert travelled(edge) == [(0, 2, [7])]
        assert (edge.core.counters.num_reopens, edge.core.state) == (1, EdgeState.OPENING)

    def test_without_a_link_the_new_terms_wait_for_it(self) -> None:
        edge = Edge(vanilla(2)).live()
        edge.tell(LinkDown())
        edge.tell(StrategyChanged(flow(assist="bubble")))
        assert edge.sent(Open) == []

        edge.tell(LinkUp(channel=2))

        assert edge.sent(Resume) == []
        assert edge.sent(Open)[0].assist is Assist.BUBBLE

    def test_there_and_back_without_a_link_changes_nothing(self) -> None:
        edge = Edge(vanilla(2)).live()
        edge.tell(LinkDown())
        edge.tell(StrategyChanged(flow()))
        edge.tell(StrategyChanged(vanilla(3)))

        edge.tell(LinkUp(channel=2))

        assert edge.sent(Resume) != []

    def test_going_on_without_the_draft_drops_what_it_drafted_and_back_begins_anew(self) -> None:
        edge = Edge(vanilla(9)).live()
        edge.drafted(7, 8)
        edge.tell(StrategyChanged(cloud_only()))
        assert (len(edge.core.tail), edge.core.counters.num_discarded) == (0, 2)
        edge.receive(Opened(channel=1, incarnation=2, committed_length=2))
        edge.commit(2, [7], 0, kind=CommitKind.OWN)
        assert edge.commands(DraftNext) == []

        edge.tell(StrategyChanged(vanilla(2)))

        assert edge.sent(Open)[0].incarnation == 3
        (step,) = edge.commands(DraftNext)
        assert step.position == 3

    def test_what_has_been_asked_is_still_waited_for(self) -> None:
        edge = Edge(vanilla(2)).live()
        edge.drafted(7, 8)

        edge.tell(StrategyChanged(vanilla(3)))

        assert edge.core.asked == [4]
        assert edge.commands(DraftNext) == []

    def test_another_rule_is_refused(self) -> None:
        edge = Edge(vanilla(2)).live()

        with pytest.raises(InvalidRequestError, match="rule is 'ratio'"):
            edge.tell(StrategyChanged(replace(vanilla(2), rule=Rule.RATIO)))

    def test_a_lost_draft_stays_lost(self) -> None:
        edge = Edge(vanilla(2)).live()
        edge.tell(DraftUnavailable("it failed"))

        edge.tell(StrategyChanged(vanilla(5)))

        assert (edge.sent(Open), edge.commands(DraftNext)) == ([], [])
        assert not edge.core.strategy.uses_draft

    def test_nothing_changes_after_the_end(self) -> None:
        edge = Edge(vanilla(2), max_tokens=1).live()
        edge.commit(2, [7], 0)

        assert edge.tell(StrategyChanged(flow())) == []


class TestSecondWay:
    def test_the_draft_turns_to_the_other_choice_where_that_is_likelier(self) -> None:
        edge = Edge(hedging()).live()

        edge.drafted(unsure(7, 17))

        assert edge.step == DraftNext(0, 3, 2, [17], 1, with_second=True)
        assert edge.core.epoch == 0
        assert edge.core.counters.num_drafted == 2

    def test_what_is_drafted_behind_it_travels_under_an_epoch_of_its_own(self) -> None:
        edge = Edge(hedging()).live()
        edge.drafted(unsure(7, 17))
        sent = [*travelled(edge, Draft), *travelled(edge, Hedge)]
        edge.drafted(sure(18))
        sent += travelled(edge, Hedge)

        assert sent[0] == (0, 2, [7])
        assert [epoch for epoch, _, _ in sent[1:]] == [1] * (len(sent) - 1)
        assert [token_id for _, _, ids in sent[1:] for token_id in ids] == [17, 18]
        assert [position for _, position, _ in sent[1:]] in ([2], [2, 3])

    def test_text_that_takes_it_goes_on_under_its_epoch_and_sends_nothing_twice(self) -> None:
        edge = Edge(hedging()).live()
        edge.drafted(unsure(7, 17), sure(18))
        step = edge.step

        edge.commit(2, [17], 0, num_judged=1, kind=CommitKind.RECOVERED)

        assert (edge.core.epoch, edge.core.log, edge.core.counters.num_rollbacks) == (1, [5, 6, 17], 1)
        assert [token.token_id for token in edge.core.tail.tokens] == [18]
        assert edge.sent(Draft) == []
        assert step == edge.step  # the step behind 18 was under way, and still is
        edge.drafted(sure(19))
        assert travelled(edge) == [(1, 4, [19])]

    def test_a_rollback_takes_an_epoch_that_was_never_used(self) -> None:
        edge = Edge(hedging()).live()
        edge.drafted(unsure(7, 17), sure(18))

        edge.commit(2, [30], 0, num_judged=1, kind=CommitKind.RECOVERED)

        assert edge.core.epoch == 2
        assert len(edge.core.tail) == 0

    def test_text_that_goes_the_first_way_drops_it(self) -> None:
        edge = Edge(hedging()).live()
        edge.drafted(sure(6), unsure(7, 17), sure(18))

        edge.commit(2, [6, 7], 1, kind=CommitKind.BONUS)

        assert (edge.core.epoch, edge.core.tail.hedge) == (0, None)
        assert edge.core.counters.num_discarded == 2
        assert edge.step == DraftNext(1, 4, 3, [7], 1, with_second=True)

    def test_it_does_not_outlive_its_connection(self) -> None:
        edge = Edge(hedging()).live()
        edge.drafted(unsure(7, 17), sure(18))
        edge.tell(LinkDown())

        edge.tell(LinkUp(channel=2))
        edge.receive(Resumed(channel=2, incarnation=1, attach=2, committed_length=2))

        assert travelled(edge)[0] == (2, 2, [7])

    def test_taking_it_ends_every_wait(self) -> None:
        edge = Edge(replace(hedging(), trigger=FixedLength(1), max_verdicts_out=2)).live()
        edge.drafted(unsure(7, 17))
        assert edge.core.asked == [3]
        edge.drafted(sure(18))

        edge.commit(2, [17], 0, num_judged=1, kind=CommitKind.RECOVERED)

        assert (edge.core.asked, edge.core.epoch) == ([], 1)

    def test_where_nothing_is_worth_drafting_a_verdict_is_asked_for(self) -> None:
        edge = Edge(hedging(UploadWhole(), least_use=0.5, opens=False)).live()

        edge.drafted(unsure(7, 17))

        (draft,) = edge.sent(Draft)
        assert (draft.token_ids, draft.verify) == ([7], True)
        assert edge.step is None

    def test_it_stays_within_the_length_budget(self) -> None:
        edge = Edge(hedging(), max_tokens=3).live()

        edge.drafted(unsure(7, 17), sure(18))

        assert edge.step is None
        assert edge.core.tail.hedge is not None
        assert edge.core.tail.hedge.position + len(edge.core.tail.hedge.tokens) == 4  # one below max_length

    def test_a_strategy_without_it_goes_back_to_the_tail(self) -> None:
        edge = Edge(hedging()).live()
        edge.drafted(unsure(7, 17))

        edge.tell(StrategyChanged(replace(hedging(), hedging=None)))
        edge.drafted(sure(18))

        assert not edge.core.tail.on_hedge

    def test_it_is_no_longer_than_a_cloud_takes(self) -> None:
        edge = Edge(hedging(), max_tokens=500, max_pending_tokens=20).live()
        edge.drafted(unsure(7, 17))

        while edge.step is not None and edge.core.tail.hedge is not None and len(edge.core.tail.hedge.tokens) < 100:
            edge.drafted(sure(18, 0.999))

        assert edge.core.tail.hedge is not None
        assert len(edge.core.tail.hedge.tokens) <= 20
