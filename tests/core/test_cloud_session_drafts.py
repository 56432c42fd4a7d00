"""The cloud's machine and what drafts may ask of it: unasked verdicts, two questions, a second way."""

from __future__ import annotations

from typing import Any

import pytest

from edgedraft.core.cloud_settings import CloudSessionSettings, CloudState
from edgedraft.core.events import EAGER, OWN, REQUESTED, EdgeMessage, PassDone, PrefillDone, RunPass
from edgedraft.protocol.messages import Commit, CommitKind, Error, Hedge
from edgedraft.types import Assist, DraftDistribution, Owner, Rule

from .test_cloud_session import Session, draft, resume

ALL = DraftDistribution(token_ids=[7, 8, 9], probs_fp16=b"\x00\x38" * 3)


def hedge(position: int, token_ids: list[int], **changes: Any) -> EdgeMessage:
    fields: dict[str, Any] = {"channel": 3, "incarnation": 1, "epoch": 1, "committed_length": 2, **changes}
    return EdgeMessage(Hedge(position=position, token_ids=token_ids, **fields), 1)


def passes(session: Session) -> list[tuple[int, tuple[int, ...]]]:
    """Priority and draft ids of every pass that was asked for."""
    return [(int(job.priority), tuple(job.draft_ids)) for job in session.jobs if isinstance(job, RunPass)]


def commits(session: Session) -> list[Commit]:
    return [message for message in session.sent if isinstance(message, Commit)]


def with_hedge(**changes: Any) -> Session:
    """7 is being judged, 8 came behind it, and 17 would be the other choice for 7, with 18 behind it."""
    session = Session(eager=True, **changes)
    session.draft(2, [7])
    session.draft(3, [8])
    session.tell(hedge(2, [17, 18]))
    return session


def test_drafts_right_behind_the_opening_wait_for_the_prefill() -> None:
    session = Session(prefilled=False, eager=True)
    session.draft(2, [7])
    session.draft(3, [8], verify=True)
    assert passes(session) == []

    session.tell(PrefillDone(1))

    assert passes(session) == [(REQUESTED, (7, 8))]


class TestTwoQuestions:
    def test_one_pass_may_answer_both(self) -> None:
        session = Session(prefilled=False)
        session.draft(2, [7, 8], verify=True)
        session.draft(4, [9, 10], verify=True)
        session.tell(PrefillDone(1))

        session.answer(4, 11, CommitKind.BONUS)

        assert passes(session) == [(REQUESTED, (7, 8, 9, 10))]
        assert session.core.pending.questions == []

    def test_the_second_stays_until_the_text_has_passed_it(self) -> None:
        session = Session()
        session.draft(2, [7, 8], verify=True)
        session.draft(4, [9, 10], verify=True)

        session.answer(2, 9, CommitKind.BONUS)

        assert session.core.pending.questions == [6]
        assert passes(session) == [(REQUESTED, (7, 8)), (REQUESTED, (10,))]
        session.answer(1, 11, CommitKind.BONUS)
        assert session.core.pending.questions == []

    def test_a_wrong_guess_ends_both_and_the_next_question_gets_an_answer(self) -> None:
        session = Session()
        session.draft(2, [7, 8], verify=True)
        session.draft(4, [9, 10], verify=True)

        session.answer(2, 30, CommitKind.BONUS)
        assert (session.core.pending.questions, len(commits(session))) == ([], 1)
        session.draft(6, [11], verify=True)

        assert commits(session)[-1].token_ids == []

    def test_rule_ratio_judges_up_to_the_first_question_only(self) -> None:
        session = Session(prefilled=False, rule=Rule.RATIO)
        session.draft(2, [7, 8], verify=True, distributions=[ALL] * 2)
        session.draft(4, [9, 8], verify=True, distributions=[ALL] * 2)
        session.tell(PrefillDone(1))

        session.answer(2, 9, CommitKind.BONUS)

        assert passes(session) == [(REQUESTED, (7, 8)), (REQUESTED, (8,))]
        assert len(session.jobs[-1].distributions) == 1


class TestSecondWay:
    @pytest.mark.parametrize(
        ("changes", "sent", "code"),
        [
            ({"eager": False}, {}, "unsupported"),
            ({"rule": Rule.RATIO}, {}, "unsupported"),
            ({"owner": Owner.EDGE, "rule": Rule.RANK}, {}, "unsupported"),
            ({"eager": True}, {"position": 1}, "malformed_frame"),
            ({"eager": True}, {"position": 19}, "invalid_request"),
            ({"eager": True}, {"token_ids": [17, 100]}, "invalid_request"),
        ],
    )
    def test_one_that_cannot_be_is_refused(self, changes: dict[str, Any], sent: dict[str, Any], code: str) -> None:
        session = Session(**changes)

        session.tell(hedge(**{"position": 2, "token_ids": [17, 18], **sent}))

        error = session.sent[-1]
        assert isinstance(error, Error)
        assert error.code == code
        assert session.core.state is CloudState.CLOSED

    def test_it_starts_no_pass_by_itself(self) -> None:
        session = Session(eager=True)

        session.tell(hedge(2, [17, 18]))

        assert passes(session) == []

    def test_where_the_target_chooses_so_its_ids_are_judged_next(self) -> None:
        session = with_hedge()

        commit = session.answer(0, 17, CommitKind.RECOVERED)

        assert (commit.epoch, commit.token_ids, commit.num_judged) == (0, [17], 1)
        assert passes(session) == [(EAGER, (7,)), (EAGER, (18,))]
        assert session.answer(1, 19, CommitKind.BONUS).epoch == 1
        assert session.core.log == [5, 6, 17, 18, 19]

    def test_what_the_edge_sends_under_its_epoch_is_joined_to_it(self) -> None:
        session = with_hedge()
        session.answer(0, 17, CommitKind.RECOVERED)

        session.tell(hedge(4, [19]))
        session.draft(5, [20], epoch=1)

        assert session.core.pending.ids == [18, 19, 20]

    def test_where_the_target_agrees_with_the_draft_it_is_dropped(self) -> None:
        session = with_hedge()

        session.answer(1, 8, CommitKind.BONUS)

        assert session.core.pending.hedge is None
        assert (session.core.pending.epoch, session.core.pending.num_dropped) == (0, 2)
        assert not session.core.pending.is_dead(0)

    def test_where_the_target_chooses_a_third_way_both_are_dropped(self) -> None:
        session = with_hedge()

        session.answer(0, 30, CommitKind.RECOVERED)
        session.draft(3, [9])  # the edge has not heard of it yet
        session.tell(hedge(4, [19]))

        assert (session.core.pending.ids, session.core.pending.hedge) == ([], None)
        assert session.core.pending.is_dead(0)
        assert passes(session) == [(EAGER, (7,))]

    def test_a_taken_one_leaves_no_bubble_to_write_in(self) -> None:
        session = with_hedge(assist=Assist.BUBBLE)
        session.answer(0, 17, CommitKind.RECOVERED)
        session.answer(1, 19, CommitKind.BONUS)
        assert passes(session)[-1] == (EAGER, (18,))

        session.draft(5, [30], epoch=1)
        session.answer(0, 31, CommitKind.RECOVERED)

        assert passes(session)[-1] == (OWN, ())

    def test_the_question_about_the_first_way_is_not_left_behind(self) -> None:
        """The edge's wait ends with the epoch; what it asks next is answered."""
        session = with_hedge()
        session.draft(4, [], verify=True)

        session.answer(0, 17, CommitKind.RECOVERED)
        assert session.core.pending.questions == []
        session.draft(4, [], epoch=1, verify=True)

        assert session.core.pending.questions == [4]

    def test_it_tells_how_far_the_edge_is(self) -> None:
        session = Session(eager=True, assist=Assist.ALWAYS)
        length = session.core.edge_length

        session.tell(hedge(4, [17], committed_length=4))

        assert (length, session.core.edge_length) == (2, 4)

    @pytest.mark.parametrize("changes", [{"incarnation": 9}, {"epoch": 0}])
    def test_one_of_another_time_is_dropped(self, changes: dict[str, int]) -> None:
        session = Session(eager=True)

        session.tell(hedge(2, [17, 18], **changes))

        assert (session.core.pending.hedge, session.sent[1:]) == (None, [])
        assert session.core.state is CloudState.LIVE

    def test_it_does_not_outlive_a_resume_or_the_connection(self) -> None:
        session = with_hedge()
        session.tell(resume(2, [5, 6]))
        assert session.core.pending.hedge is None

        session.tell(EdgeMessage(draft(2, [7], epoch=2), 2))
        session.tell(EdgeMessage(hedge(2, [17], epoch=1).message, 2))  # from before the cut

        assert session.core.pending.hedge is None

    def test_drafts_of_one_that_the_text_has_left_are_dropped_and_answered(self) -> None:
        """The edge took it up from a commit that ended where both still agreed."""
        session = Session(eager=True, assist=Assist.ALWAYS)
        session.draft(2, [7])
        session.answer(0, 17, CommitKind.RECOVERED)
        session.answer(0, 30, CommitKind.OWN)
        session.tell(hedge(2, [17, 18]))

        session.draft(4, [19], epoch=1, verify=True)

        assert isinstance(session.sent[-1], Commit)
        assert (session.sent[-1].token_ids, session.core.pending.ids) == ([], [])

    def test_it_is_no_use_once_the_text_has_ended(self) -> None:
        session = Session(eager=True, max_length=4)
        session.draft(2, [7])
        session.answer(1, 8, CommitKind.BONUS)

        session.tell(hedge(3, [8]))

        assert (session.core.pending.hedge, session.core.pending.epoch) == (None, 0)


def test_timings_tell_when_the_newest_draft_came_and_how_long_that_is_ago() -> None:
    session = Session(timings=True, eager=True)
    core = session.core
    core.handle(EdgeMessage(draft(2, [7]), 1), 10.0)
    core.handle(EdgeMessage(draft(3, [8]), 1), 10.5)
    job = core._pass
    assert job is not None

    (command, *_) = core.handle(PassDone(job.pass_id, 1, 8, CommitKind.BONUS, 0.125, 0.25), 11.25)

    timings = command.message.timings  # type: ignore[union-attr]
    assert (timings.queue_us, timings.verify_us) == (125_000, 250_000)
    assert (timings.arrival_us, timings.arrival_end, timings.turnaround_us) == (500_000, 4, 750_000)


class TestEcho:
    """Where the target writes by itself it takes along what the text said before."""

    def test_a_repeat_is_judged_and_told_as_the_targets_own(self) -> None:
        session = Session(assist=Assist.ALWAYS, eager=True, num_prompt=6, token_ids=[5, 6, 7, 8, 5, 6])
        assert passes(session) == [(OWN, (7, 8, 5, 6))]

        commit = session.answer(2, 9, CommitKind.RECOVERED)

        assert (commit.position, commit.token_ids, commit.kind) == (6, [7, 8, 9], CommitKind.OWN)
        assert (commit.num_judged, commit.num_accepted) == (0, 0), "the draft has no part in it"

    def test_cloud_only_is_plain(self) -> None:
        session = Session(assist=Assist.ALWAYS, num_prompt=6, token_ids=[5, 6, 7, 8, 5, 6])
        assert passes(session) == [(OWN, ())]

    def test_it_stays_within_the_budget_and_the_lead(self) -> None:
        text = {"num_prompt": 6, "token_ids": [5, 6, 7, 8, 5, 6], "assist": Assist.ALWAYS, "eager": True}
        short = Session(**text, max_length=8)
        assert passes(short) == [(OWN, (7,))]
        settings = CloudSessionSettings(num_ids=100, eos_ids=frozenset({0}), context_length=50, assist_lead_tokens=3)
        assert passes(Session(settings, **text)) == [(OWN, (7, 8))]
