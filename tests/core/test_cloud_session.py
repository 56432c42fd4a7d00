"""The cloud's machine on its own: refusals, and logs that the edge owns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from edgedraft.core.cloud_session import CloudSession
from edgedraft.core.cloud_settings import CloudSessionSettings, CloudState, check_open
from edgedraft.core.events import (
    CancelPass,
    CloseTarget,
    EdgeMessage,
    OpenTarget,
    PassDone,
    PrefillDone,
    RunPass,
    SendToEdge,
)
from edgedraft.errors import InvalidRequestError
from edgedraft.protocol.codec import encode
from edgedraft.protocol.fingerprint import committed_hash
from edgedraft.protocol.messages import (
    Commit,
    CommitKind,
    Draft,
    Error,
    Features,
    Open,
    Opened,
    OpenIds,
    Resume,
    Resumed,
    SessionFromCloud,
)
from edgedraft.speech_features import POOLED_12
from edgedraft.testing.gated_world import FEATURES
from edgedraft.types import Assist, Owner, Rule, SamplingParams

SETTINGS = CloudSessionSettings(num_ids=100, eos_ids=frozenset({0}), context_length=50)


def opening(**changes: Any) -> Open:
    fields: dict[str, Any] = {
        "channel": 3,
        "session_id": b"s" * 16,
        "incarnation": 1,
        "attach": 1,
        "owner": Owner.CLOUD,
        "num_prompt": 2,
        "num_committed": 0,
        "max_length": 20,
        "stop_ids": [],
        "ignore_eos": False,
        "sampling": SamplingParams(),
        "rule": Rule.MATCH,
        "rank": 1,
        "assist": Assist.NONE,
        "eager": False,
        "timings": False,
        "logprobs": False,
        "bonus": False,
        "fork_of": b"",
        "token_ids": [5, 6],
    }
    return Open(**{**fields, **changes})


def draft(position: int, token_ids: list[int], **changes: Any) -> Draft:
    fields: dict[str, Any] = {
        "channel": 3,
        "incarnation": 1,
        "epoch": 0,
        "position": position,
        "token_ids": token_ids,
        "verify": False,
        "committed_length": position,
    }
    return Draft(**{**fields, **changes})


class Session:
    """A session with its worker's side played by hand."""

    def __init__(self, settings: CloudSessionSettings = SETTINGS, *, prefilled: bool = True, **changes: Any) -> None:
        self.core = CloudSession(b"s" * 16, settings)
        self.sent: list[SessionFromCloud] = []
        self.jobs: list[Any] = []
        self.tell(EdgeMessage(opening(**changes), 1))
        if prefilled and self.core.state is CloudState.PREFILLING:
            self.tell(PrefillDone(1))

    def tell(self, event: Any) -> None:
        for command in self.core.handle(event, 0.0):
            if isinstance(command, SendToEdge):
                self.sent.append(command.message)
            else:
                self.jobs.append(command)

    def draft(self, *args: Any, **changes: Any) -> None:
        self.tell(EdgeMessage(draft(*args, **changes), 1))

    def answer(
        self, num_accepted: int, next_id: int | None, kind: CommitKind, logprobs: tuple[float, ...] | None = None
    ) -> Commit:
        job = self.jobs[-1]
        assert isinstance(job, RunPass)
        self.tell(PassDone(job.pass_id, num_accepted, next_id, kind, 0.0, 0.0, logprobs))
        commits = [message for message in self.sent if isinstance(message, Commit)]
        return commits[-1]


@pytest.mark.parametrize(
    ("changes", "code", "named"),
    [
        ({"num_prompt": 0, "token_ids": []}, "invalid_request", "prompt"),
        ({"max_length": 51}, "context_length", "max_length"),
        ({"max_length": 2}, "context_length", "max_length"),
        ({"rule": Rule.RATIO, "assist": Assist.BUBBLE}, "unsupported", "rule"),
        ({"rule": Rule.RATIO, "eager": True}, "unsupported", "rule"),
        ({"rule": Rule.RANK}, "unsupported", "rank"),
        ({"owner": Owner.EDGE, "assist": Assist.ALWAYS}, "unsupported", "owner"),
        ({"fork_of": b"x" * 16}, "unsupported", "fork_of"),
        ({"owner": Owner.EDGE, "logprobs": True}, "unsupported", "owner"),
        ({"token_ids": [5, 100]}, "invalid_request", "token_ids"),
        ({"token_ids": [5, 6, 7]}, "malformed_frame", "Open"),
    ],
)
def test_open_is_refused_with_the_field_named(changes: dict[str, Any], code: str, named: str) -> None:
    session = Session(**changes)

    (error,) = session.sent[-1:]

    assert isinstance(error, Error)
    assert (error.code, error.channel, named in error.message) == (code, 3, True)
    assert session.core.state is CloudState.CLOSED
    assert isinstance(session.jobs[-1], CloseTarget)


def test_a_long_prompt_opens_when_its_last_piece_is_there() -> None:
    session = Session(num_prompt=3, num_committed=1)
    assert session.sent == session.jobs == []

    session.tell(EdgeMessage(OpenIds(channel=3, incarnation=1, offset=2, token_ids=[7, 8]), 1))

    assert session.sent == [Opened(channel=3, incarnation=1, committed_length=4)]
    assert session.jobs == [OpenTarget(1, [5, 6, 7], [8])]


@pytest.mark.parametrize(
    ("changes", "code", "named"),
    [
        ({"position": 1}, "malformed_frame", "position"),
        ({"token_ids": [100]}, "invalid_request", "token_ids"),
        ({"judged": [0]}, "invalid_request", "judged"),
        ({"token_ids": [7] * 257}, "invalid_request", "token_ids"),
        ({"position": 19, "token_ids": [7, 8]}, "invalid_request", "max_length"),
    ],
)
def test_a_bad_draft_ends_its_session(changes: dict[str, Any], code: str, named: str) -> None:
    session = Session()

    session.draft(**{"position": 2, "token_ids": [7], **changes})

    error = session.sent[-1]
    assert isinstance(error, Error)
    assert (error.code, named in error.message) == (code, True)
    assert session.core.state is CloudState.CLOSED


def test_a_gap_names_what_was_expected_and_keeps_the_session() -> None:
    session = Session()

    session.draft(4, [7])

    error = session.sent[-1]
    assert isinstance(error, Error)
    assert (error.code, error.expected, error.retryable) == ("gap", 2, True)
    assert session.core.state is CloudState.LIVE


def test_more_unjudged_ids_than_the_cloud_holds_end_the_session() -> None:
    session = Session(settings=replace(SETTINGS, context_length=1_000), max_length=1_000)

    session.draft(2, [7] * 256)
    assert session.core.state is CloudState.LIVE
    session.draft(258, [7])

    error = session.sent[-1]
    assert isinstance(error, Error)
    assert "257 unjudged ids" in error.message


def test_an_edge_that_missed_a_long_text_gets_it_in_commits_that_fit_a_frame() -> None:
    settings = replace(SETTINGS, context_length=10_000)
    session = Session(settings=settings, max_length=10_000, num_committed=6_999, token_ids=[5, 6, *[7] * 2_998])
    for offset in (3_000, 6_000):
        piece = [7] * min(3_000, 7_001 - offset)
        session.tell(EdgeMessage(OpenIds(channel=3, incarnation=1, offset=offset, token_ids=piece), 1))
    session.tell(PrefillDone(1))

    session.tell(
        EdgeMessage(
            Resume(
                channel=9,
                session_id=b"s" * 16,
                incarnation=1,
                attach=2,
                committed_length=2,
                committed_hash=committed_hash([5, 6]),
            ),
            1,
        )
    )

    commits = [message for message in session.sent if isinstance(message, Commit)]
    assert [(commit.position, len(commit.token_ids)) for commit in commits] == [
        (2, 3_000),
        (3_002, 3_000),
        (6_002, 999),
    ]
    assert all(encode(commit) for commit in commits)


def resume(attach: int, text: list[int], incarnation: int = 1) -> EdgeMessage:
    message = Resume(
        channel=9,
        session_id=b"s" * 16,
        incarnation=incarnation,
        attach=attach,
        committed_length=len(text),
        committed_hash=committed_hash(text),
    )
    return EdgeMessage(message, attach)


class TestLogprobs:
    def test_they_are_asked_of_the_target_and_sent_only_where_the_edge_asked(self) -> None:
        for wanted, expected in ((True, [-0.5, -1.5]), (False, None)):
            session = Session(logprobs=wanted)
            session.draft(2, [7], verify=True)
            assert session.jobs[-1].logprobs is wanted

            commit = session.answer(1, 44, CommitKind.BONUS, (-0.5, -1.5) if wanted else None)

            assert (commit.token_ids, commit.logprobs) == ([7, 44], expected)
            assert encode(commit)

    @pytest.mark.parametrize("changes", [{"stop_ids": [8]}, {"max_length": 4}])
    def test_they_end_with_the_text(self, changes: dict[str, Any]) -> None:
        session = Session(logprobs=True, **changes)
        session.draft(2, [7, 8], verify=True)

        commit = session.answer(2, 44, CommitKind.BONUS, (-1.0, -2.0, -3.0))

        assert (commit.token_ids, commit.logprobs) == ([7, 8], [-1.0, -2.0])

    def test_an_answer_without_ids_has_none(self) -> None:
        session = Session(logprobs=True)
        session.draft(2, [7, 8], verify=True)
        session.answer(0, 44, CommitKind.RECOVERED, (-3.0,))

        session.draft(4, [9], verify=True)  # of an epoch that is dead

        assert isinstance(session.sent[-1], Commit)
        assert (session.sent[-1].token_ids, session.sent[-1].logprobs) == ([], [])

    def test_a_commit_that_catches_up_has_them_from_any_position(self) -> None:
        session = Session(logprobs=True, num_committed=1, token_ids=[5, 6, 10])
        session.draft(3, [7, 8], verify=True)
        session.answer(2, 44, CommitKind.BONUS, (-1.0, -2.0, -3.0))

        for attach, held in ((2, [5, 6, 10]), (3, [5, 6, 10, 7, 8])):
            session.tell(resume(attach, held))

            commit = session.sent[-1]
            assert isinstance(commit, Commit)
            lacking = {7: -1.0, 8: -2.0, 44: -3.0}
            for token_id in held:
                lacking.pop(token_id, None)
            assert dict(zip(commit.token_ids, commit.logprobs or [], strict=True)) == lacking

    def test_an_edge_without_the_ids_it_opened_with_has_to_open_again(self) -> None:
        """Nobody knows the log-probabilities of those."""
        session = Session(logprobs=True, num_committed=1, token_ids=[5, 6, 10])

        session.tell(resume(2, [5, 6]))

        error = session.sent[-1]
        assert isinstance(error, Error)
        assert error.code == "session_lost"

    def test_a_session_opened_again_begins_anew(self) -> None:
        session = Session(logprobs=True)
        session.draft(2, [7], verify=True)
        session.answer(1, 44, CommitKind.BONUS, (-1.0, -2.0))
        again = opening(logprobs=True, incarnation=2, attach=2, num_committed=1, token_ids=[5, 6, 7])
        session.tell(EdgeMessage(again, 1))
        session.tell(PrefillDone(2))

        session.draft(3, [44], incarnation=2, verify=True)
        commit = session.answer(1, 9, CommitKind.BONUS, (-4.0, -5.0))

        assert (commit.position, commit.token_ids, commit.logprobs) == (3, [44, 9], [-4.0, -5.0])


def test_a_dead_epochs_ids_are_dropped_and_counted() -> None:
    session = Session()
    session.draft(2, [7, 8], verify=True)
    session.answer(0, 44, CommitKind.RECOVERED)

    session.draft(4, [9, 9, 9])

    assert session.core.pending.num_dropped == 5
    assert session.core.log == [5, 6, 44]


def test_a_session_ended_by_the_edge_is_freed_once() -> None:
    session = Session()
    session.draft(2, [7], verify=True)

    session.tell(EdgeMessage(draft(2, [], incarnation=9), 1))  # another incarnation: dropped
    assert session.core.state is CloudState.LIVE


class TestEdgeOwned:
    """Captioning: the edge commits by itself and asks for a verdict on some ids only."""

    def open(self, *, prefilled: bool = True) -> Session:
        return Session(prefilled=prefilled, owner=Owner.EDGE, rule=Rule.RANK, rank=3)

    def test_ids_that_are_not_judged_are_committed_without_a_pass(self) -> None:
        session = self.open()

        session.draft(2, [7, 8, 9], judged=[])

        assert session.core.log == [5, 6, 7, 8, 9]
        assert session.jobs[1:] == []

    def test_ids_behind_a_judged_one_wait_for_its_verdict(self) -> None:
        session = self.open()

        session.draft(2, [7, 8, 9], judged=[1], verify=True)

        assert session.core.log == [5, 6, 7]
        job = session.jobs[-1]
        assert (job.position, job.draft_ids, job.judged, job.rule, job.rank) == (3, (8, 9), (0,), Rule.RANK, 3)

    def test_full_acceptance_commits_the_block_without_a_next_token(self) -> None:
        session = self.open()
        session.draft(2, [7, 8, 9], judged=[1], verify=True)

        commit = session.answer(2, None, CommitKind.ACCEPTED_ONLY)

        assert (commit.position, commit.token_ids, commit.kind) == (3, [8, 9], CommitKind.ACCEPTED_ONLY)
        assert session.core.log == [5, 6, 7, 8, 9]
        assert session.core.pending.questions == []

    def test_a_rejection_drops_the_rest_and_echoes_the_epoch(self) -> None:
        session = self.open()
        session.draft(2, [7, 8, 9], judged=[0, 2], verify=True, epoch=4)

        commit = session.answer(0, 44, CommitKind.RECOVERED)

        assert (commit.epoch, commit.position, commit.token_ids) == (4, 2, [44])
        assert session.core.log == [5, 6, 44]
        session.draft(3, [8], epoch=4, judged=[])
        assert session.core.log == [5, 6, 44]

    def test_a_newer_epoch_truncates_the_log_to_its_position(self) -> None:
        session = self.open()
        session.draft(2, [7, 8, 9], judged=[])

        session.draft(3, [50], judged=[0], epoch=1, verify=True)

        assert session.core.log == [5, 6, 7]
        job = session.jobs[-1]
        assert (job.length, job.committed_ids, job.position, job.draft_ids) == (2, [7], 3, (50,))

    def test_each_id_keeps_whether_it_was_up_for_judgement(self) -> None:
        session = self.open()

        session.draft(2, [7, 8])
        session.draft(4, [9, 10], judged=[1], verify=True)

        job = session.jobs[-1]
        assert (job.draft_ids, job.judged) == ((7, 8, 9, 10), (0, 1, 3))

    def test_ids_committed_during_the_prefill_reach_the_target_with_the_next_pass(self) -> None:
        session = self.open(prefilled=False)

        session.draft(2, [7], judged=[])
        session.draft(3, [8], verify=True)
        session.tell(PrefillDone(1))

        job = session.jobs[-1]
        assert (job.length, job.committed_ids, job.position, job.draft_ids) == (2, [7], 3, (8,))

    def test_a_new_epoch_that_takes_nothing_back_keeps_the_prefills_row(self) -> None:
        session = self.open()

        session.draft(2, [7], epoch=1, verify=True)

        job = session.jobs[-1]
        assert (job.length, job.committed_ids) == (2, [])

    def test_the_target_never_writes_by_itself(self) -> None:
        session = self.open()

        session.draft(2, [7], judged=[0], verify=True)
        session.answer(1, None, CommitKind.ACCEPTED_ONLY)

        assert len([job for job in session.jobs if isinstance(job, RunPass)]) == 1

    def test_a_stop_id_does_not_cut_what_the_edge_owns(self) -> None:
        session = Session(owner=Owner.EDGE, rule=Rule.RANK, rank=60, stop_ids=[7])
        session.draft(2, [8, 7, 9], verify=True)

        commit = session.answer(3, None, CommitKind.ACCEPTED_ONLY)

        assert commit.token_ids == [8, 7, 9]
        assert len([job for job in session.jobs if isinstance(job, RunPass)]) == 1

    def test_a_newer_epoch_cancels_the_pass_on_ids_that_it_takes_back(self) -> None:
        session = self.open()
        session.draft(2, [7, 8, 9], judged=[2], verify=True)
        running = session.jobs[-1]

        session.draft(3, [50], judged=[0], epoch=1, verify=True)

        assert session.jobs[-2] == CancelPass(running.pass_id)
        assert session.jobs[-1].draft_ids == (50,)
        session.tell(PassDone(running.pass_id, 1, None, CommitKind.ACCEPTED_ONLY, 0.0, 0.0))
        assert session.core.log == [5, 6, 7]

    def test_an_edge_that_resumes_is_told_nothing_of_a_text_that_it_owns(self) -> None:
        session = self.open()
        session.draft(2, [7, 8, 9], judged=[])
        resume = Resume(
            channel=4,
            session_id=b"s" * 16,
            incarnation=1,
            attach=2,
            committed_length=3,
            committed_hash=committed_hash([5, 6, 7]),
        )

        session.tell(EdgeMessage(resume, 2))

        assert isinstance(session.sent[-1], Resumed)
        assert session.core.log == [5, 6, 7, 8, 9]

    def test_a_bonus_is_asked_of_the_target(self) -> None:
        session = Session(owner=Owner.EDGE, rule=Rule.RANK, rank=3, bonus=True)

        session.draft(2, [7], verify=True)

        assert session.jobs[-1].bonus
        commit = session.answer(1, 44, CommitKind.BONUS)
        assert (commit.token_ids, commit.kind, commit.num_accepted) == ([7, 44], CommitKind.BONUS, 1)


class TestListening:
    """A target that needs a recording begins when it has one."""

    def open(self) -> Session:
        return Session(
            prefilled=False, settings=replace(SETTINGS, features=POOLED_12), owner=Owner.EDGE, rule=Rule.RANK, rank=3
        )

    def pieces(self) -> list[Features]:
        whole = FEATURES
        return [
            Features(
                channel=3,
                incarnation=1,
                kind=whole.spec.kind,
                encoder_id=whole.spec.encoder_id,
                rate_hz=whole.spec.rate_hz,
                dims=whole.spec.dims,
                dtype=whole.dtype,
                scale=whole.scale,
                count=whole.count,
                level_db=whole.level_db,
                offset=offset,
                data=whole.data[offset : offset + 500],
            )
            for offset in range(0, whole.num_bytes, 500)
        ]

    def test_it_opens_with_the_last_piece(self) -> None:
        session = self.open()
        assert session.sent == session.jobs == []
        for piece in self.pieces():
            session.tell(EdgeMessage(piece, 1))
        assert [type(message) for message in session.sent] == [Opened]
        assert session.jobs == [OpenTarget(1, [5, 6], [], FEATURES)]

    def test_a_draft_before_that_is_refused(self) -> None:
        session = self.open()
        session.draft(2, [7], verify=True)
        error = session.sent[-1]
        assert isinstance(error, Error)
        assert (error.code, "features are missing" in error.message) == ("invalid_request", True)
        assert session.core.state is CloudState.CLOSED

    def test_another_encoder_ends_the_session_naming_both(self) -> None:
        session = self.open()
        other = msgspec.structs.replace(self.pieces()[0], encoder_id="another-mel-40")
        session.tell(EdgeMessage(other, 1))
        error = session.sent[-1]
        assert isinstance(error, Error)
        assert error.code == "unsupported"
        assert "another-mel-40" in error.message
        assert "edgedraft-mel-40" in error.message

    def test_a_new_incarnation_needs_them_again(self) -> None:
        session = self.open()
        for piece in self.pieces():
            session.tell(EdgeMessage(piece, 1))
        again = opening(owner=Owner.EDGE, rule=Rule.RANK, rank=3, incarnation=2, attach=2)
        session.tell(EdgeMessage(again, 1))
        assert len(session.jobs) == 1


class TestTakenBack:
    """An edge that owns its text may take back all of it: the prompt is prefilled anew for the row that is gone."""

    def test_the_prompt_is_prefilled_again(self) -> None:
        session = Session(owner=Owner.EDGE, rule=Rule.RANK, rank=3)
        session.draft(2, [7], verify=True)
        session.answer(0, 44, CommitKind.RECOVERED)

        session.draft(2, [50], epoch=1, verify=True)

        assert session.core.log == [5, 6]
        assert session.jobs[-1] == OpenTarget(1, [5, 6], [])
        session.tell(PrefillDone(1))
        job = session.jobs[-1]
        assert (job.length, job.committed_ids, job.position, job.draft_ids) == (2, [], 2, (50,))

    def test_during_the_prefill_of_the_prompt_nothing_is_lost(self) -> None:
        session = Session(prefilled=False, owner=Owner.EDGE, rule=Rule.RANK, rank=3)
        session.draft(2, [7], judged=[])

        session.draft(2, [50], epoch=1, verify=True)
        session.tell(PrefillDone(1))

        assert len([job for job in session.jobs if isinstance(job, OpenTarget)]) == 1
        assert session.jobs[-1].draft_ids == (50,)

    def test_during_the_prefill_of_more_the_session_is_lost(self) -> None:
        session = Session(
            prefilled=False, owner=Owner.EDGE, rule=Rule.RANK, rank=3, num_committed=1, token_ids=[5, 6, 7]
        )

        session.draft(2, [50], epoch=1, verify=True)

        error = session.sent[-1]
        assert isinstance(error, Error)
        assert error.code == "session_lost"


def test_rule_rank_needs_a_rank() -> None:
    """Rank 0 would reject every token and give each of them back as its own correction."""
    request = Open(
        channel=1, session_id=b"S" * 16, incarnation=1, attach=1, owner=Owner.EDGE, num_prompt=1, num_committed=0,
        max_length=9, stop_ids=[], ignore_eos=False, sampling=SamplingParams(), rule=Rule.RANK, rank=0,
        assist=Assist.NONE, eager=False, timings=False, logprobs=False, bonus=False, fork_of=b"", token_ids=[1],
    )  # fmt: skip
    with pytest.raises(InvalidRequestError, match="rank is 0"):
        check_open(request, 100)


def test_an_edge_that_sends_no_recording_is_told_so_when_it_asks() -> None:
    """A client of text at a captioner's cloud: not "lost", which it would try to mend for ever."""
    session = Session(prefilled=False, settings=replace(SETTINGS, features=POOLED_12))
    resume = Resume(
        channel=3,
        session_id=b"s" * 16,
        incarnation=1,
        attach=2,
        committed_length=2,
        committed_hash=committed_hash([5, 6]),
    )

    session.tell(EdgeMessage(resume, 1))

    error = session.sent[-1]
    assert isinstance(error, Error)
    assert (error.code, error.retryable) == ("invalid_request", False)
    assert "features are missing" in error.message
