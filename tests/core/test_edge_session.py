"""The edge's machine on its own: what it asks for, event by event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from edgedraft.core.edge_patience import MAX_REOPENS_WITHOUT_PROGRESS, MAX_RETRIES_WHEN_SATURATED, MAX_SILENCE_S
from edgedraft.core.edge_session import EdgeSession
from edgedraft.core.edge_settings import EdgeSessionSettings, EdgeState
from edgedraft.core.events import (
    CancelRequested,
    DraftNext,
    DraftUnavailable,
    EmitTokens,
    Fail,
    Finish,
    LinkDown,
    LinkUp,
    MessageReceived,
    Notice,
    SendToCloud,
    SetTimer,
    Start,
    StopStringFound,
    TimerFired,
    TokenDrafted,
)
from edgedraft.core.strategy import Strategy, UploadImmediately, UploadPolicy, UploadWhole
from edgedraft.core.triggers import FixedLength
from edgedraft.errors import BackendError, GapError, LinkLostError, ProtocolError, SaturatedError, SessionLostError
from edgedraft.protocol.messages import (
    Ack,
    Cancel,
    Close,
    Commit,
    CommitKind,
    Draft,
    Error,
    Open,
    Opened,
    OpenIds,
    Resume,
    Resumed,
)
from edgedraft.schedule.catalogue import cloud_only, edge_only, vanilla
from edgedraft.types import DraftToken, FinishReason, OnLinkLoss, SamplingParams, TokenKind

EOS = 0


class AnyToken:
    """A trigger that any token may fire."""

    def fires(self, pending: Sequence[DraftToken]) -> bool:
        return pending[-1].confidence < 0.1

    def num_before_firing(self, pending: Sequence[DraftToken]) -> int:
        return 1


class Edge:
    """A session whose commands are kept; `drafted` answers the step that is out."""

    def __init__(self, strategy: Strategy | None = None, **changes: Any) -> None:
        fields: dict[str, Any] = {
            "session_id": b"s" * 16,
            "prompt_ids": (5, 6),
            "max_tokens": 20,
            "sampling": SamplingParams(),
            "strategy": strategy or vanilla(2),
            "eos_ids": frozenset({EOS}),
        }
        self.core = EdgeSession(EdgeSessionSettings(**{**fields, **changes}))
        self.now_s = 0.0
        self.last: list[Any] = []
        self.step: DraftNext | None = None

    def tell(self, event: Any) -> list[Any]:
        self.last = self.core.handle(event, self.now_s)
        steps = [command for command in self.last if isinstance(command, DraftNext)]
        self.step = steps[-1] if steps else self.step
        return self.last

    def live(self) -> Edge:
        self.tell(Start())
        self.tell(LinkUp(channel=1))
        asked_at_once = self.sent(Draft)
        self.receive(Opened(channel=1, incarnation=1, committed_length=2))
        self.last = [*map(SendToCloud, asked_at_once), *self.last]
        return self

    def receive(self, message: Any) -> list[Any]:
        return self.tell(MessageReceived(message))

    def drafted(self, *token_ids: int | None) -> list[Any]:
        for token_id in token_ids:
            assert self.step is not None
            step, self.step = self.step, None
            token = None if token_id is None else DraftToken(token_id, 0.5, 0.5)
            if step.num_tokens > 1 and token_id not in (None, EOS):
                self.step = DraftNext(step.epoch, step.position + 1, step.position, [token_id], step.num_tokens - 1)
            self.tell(TokenDrafted(step.epoch, step.position, token))
        return self.last

    def commit(self, position: int, token_ids: list[int], num_accepted: int, **changes: Any) -> list[Any]:
        fields: dict[str, Any] = {
            "channel": 1,
            "incarnation": self.core.incarnation,
            "epoch": self.core.epoch,
            "kind": CommitKind.BONUS,
            "num_judged": num_accepted,
        }
        return self.receive(
            Commit(position=position, token_ids=token_ids, num_accepted=num_accepted, **{**fields, **changes})
        )

    def sent(self, kind: type) -> list[Any]:
        return [
            command.message
            for command in self.last
            if isinstance(command, SendToCloud) and isinstance(command.message, kind)
        ]

    def commands(self, kind: type) -> list[Any]:
        return [command for command in self.last if isinstance(command, kind)]


def test_it_drafts_before_the_link_is_up() -> None:
    edge = Edge()

    assert edge.tell(Start()) == [DraftNext(0, 2, 0, [5, 6], 2)]


@pytest.mark.parametrize(
    ("strategy", "changes", "num_tokens"),
    [
        (vanilla(5), {}, 5),
        (vanilla(50), {"max_tokens": 9}, 8),
        (vanilla(50), {"max_pending_tokens": 6}, 6),
        (vanilla(5), {"draft_context_length": 4}, 2),
        (Strategy(name="unsure", trigger=AnyToken()), {}, 1),
        (edge_only(), {"max_tokens": 7}, 7),
    ],
)
def test_a_run_ends_where_something_must_be_decided(
    strategy: Strategy, changes: dict[str, Any], num_tokens: int
) -> None:
    edge = Edge(strategy, **changes)

    edge.tell(Start())

    assert edge.step is not None
    assert edge.step.num_tokens == num_tokens


def test_the_rest_of_a_run_is_stale_after_a_contradiction() -> None:
    edge = Edge(Strategy(name="ahead", trigger=FixedLength(2), draft_ahead_tokens=4)).live()
    edge.drafted(7, 8, 9)
    run = edge.step
    edge.commit(2, [7, 44], 1, kind=CommitKind.RECOVERED, num_judged=2)
    assert run is not None

    edge.tell(TokenDrafted(run.epoch, run.position, DraftToken(10, 0.5, 0.5)))

    assert len(edge.core.tail) == 0
    assert edge.core.log == [5, 6, 7, 44]


def test_a_long_prompt_travels_in_pieces() -> None:
    edge = Edge(prompt_ids=tuple(range(1, 7_001)), max_tokens=5)
    edge.tell(Start())
    edge.tell(LinkUp(channel=1))

    (opening,) = edge.sent(Open)
    pieces = edge.sent(OpenIds)

    assert [len(opening.token_ids), *(len(piece.token_ids) for piece in pieces)] == [3_000, 3_000, 1_000]
    assert [piece.offset for piece in pieces] == [3_000, 6_000]


def test_the_trigger_asks_once_with_the_whole_draft() -> None:
    edge = Edge().live()

    edge.drafted(7)
    assert edge.sent(Draft) == []
    edge.drafted(8)

    (draft,) = edge.sent(Draft)
    assert (draft.position, draft.token_ids, draft.verify) == (2, [7, 8], True)
    assert edge.step is None


def test_draft_ahead_goes_on_in_the_same_breath() -> None:
    edge = Edge(Strategy(name="ahead", trigger=FixedLength(2), draft_ahead_tokens=2)).live()

    edge.drafted(7, 8)

    assert edge.commands(DraftNext) == [DraftNext(0, 4, 3, [8], 2)]
    edge.drafted(9)
    edge.drafted(10)
    assert edge.step is None


@pytest.mark.parametrize("upload", [UploadWhole(), UploadImmediately()])
def test_the_trigger_does_not_hold_up_drafting_ahead(upload: UploadPolicy) -> None:
    edge = Edge(Strategy(name="ahead", trigger=FixedLength(1), draft_ahead_tokens=3, upload=upload)).live()

    edge.drafted(7, 8, 9, 10)

    assert len(edge.core.tail) == 4
    assert edge.step is None


def test_tokens_drafted_ahead_survive_a_full_acceptance() -> None:
    edge = Edge(Strategy(name="ahead", trigger=FixedLength(2), draft_ahead_tokens=2, upload=UploadImmediately())).live()
    edge.drafted(7, 8, 9)

    edge.commit(2, [7, 8, 9], 2)

    assert edge.core.log == [5, 6, 7, 8, 9]
    assert edge.core.epoch == 0


def test_a_contradiction_rolls_back_to_the_first_difference_and_raises_the_epoch() -> None:
    edge = Edge().live()
    edge.drafted(7, 8)

    edge.commit(2, [7, 9], 1, kind=CommitKind.RECOVERED, num_judged=2)

    (emitted,) = edge.commands(EmitTokens)
    assert [(token.token_id, token.kind) for token in emitted.tokens] == [
        (7, TokenKind.ACCEPTED),
        (9, TokenKind.RECOVERED),
    ]
    assert edge.core.epoch == 1
    assert edge.commands(DraftNext) == [DraftNext(1, 4, 3, [9], 2)]


def test_a_repeated_commit_changes_nothing() -> None:
    edge = Edge().live()
    edge.drafted(7, 8)
    edge.commit(2, [7, 8, 9], 2)
    counters = (edge.core.counters.num_accepted, edge.core.counters.num_target_passes)

    edge.commit(2, [7, 8, 9], 2)

    assert edge.commands(EmitTokens) == []
    assert (edge.core.counters.num_accepted, edge.core.counters.num_target_passes) == counters


def test_a_commit_that_contradicts_the_text_fails_the_request() -> None:
    edge = Edge().live()
    edge.drafted(7, 8)
    edge.commit(2, [7, 8, 9], 2)

    edge.commit(3, [44], 0)

    (fail,) = edge.commands(Fail)
    assert isinstance(fail.error, ProtocolError)


@pytest.mark.parametrize("max_tokens", [1, 2, 3])
def test_the_budget_forces_the_question(max_tokens: int) -> None:
    edge = Edge(vanilla(8), max_tokens=max_tokens).live()

    edge.drafted(*[7] * (max_tokens - 1))

    (draft,) = edge.sent(Draft)
    assert (len(draft.token_ids), draft.verify) == (max_tokens - 1, True)


def test_a_drafted_end_of_sequence_forces_the_question() -> None:
    edge = Edge(vanilla(8)).live()

    edge.drafted(7, EOS)

    assert edge.sent(Draft)[0].token_ids == [7, EOS]
    assert edge.step is None


def test_no_proposal_asks_with_what_there_is() -> None:
    edge = Edge(vanilla(8)).live()

    edge.drafted(7, None)
    assert edge.sent(Draft)[0].token_ids == [7]

    edge.commit(2, [7, 8], 1)
    edge.drafted(None)
    assert edge.sent(Draft)[0].token_ids == []


def test_the_text_ends_at_a_stop_id_inside_a_run() -> None:
    edge = Edge(vanilla(4)).live()
    edge.drafted(7, 8, 9, 10)

    edge.commit(2, [7, EOS], 1, kind=CommitKind.RECOVERED, num_judged=4)

    assert edge.commands(Finish) == [Finish(FinishReason.STOP)]
    assert edge.sent(Close) != []
    assert edge.core.log == [5, 6, 7, EOS]


def test_a_stop_id_on_the_last_allowed_place_is_a_stop() -> None:
    edge = Edge(vanilla(8), max_tokens=3).live()
    edge.drafted(7, 8)

    edge.commit(2, [7, 8, EOS], 2)

    assert edge.commands(Finish) == [Finish(FinishReason.STOP)]


def test_a_stop_string_ends_the_request_once() -> None:
    edge = Edge().live()
    edge.drafted(7, 8)
    edge.commit(2, [7, 8, 9], 2)

    edge.tell(StopStringFound(4))
    assert edge.commands(Finish) == [Finish(FinishReason.STOP)]
    assert edge.core.counters.num_committed == 2
    assert edge.tell(StopStringFound(4)) == []


def test_nothing_follows_a_cancel() -> None:
    edge = Edge().live()

    edge.tell(CancelRequested())

    assert edge.sent(Cancel) != []
    assert edge.last[-1] == Finish(FinishReason.CANCELLED)
    assert edge.commands(DraftNext) == []
    assert edge.drafted(7) == []


def test_a_draft_that_is_hardly_ever_accepted_is_told_once() -> None:
    edge = Edge(vanilla(8), max_tokens=200).live()
    told = []

    for _ in range(12):
        edge.drafted(*[7] * 8)
        edge.commit(edge.core.length, [9], 0, kind=CommitKind.RECOVERED, num_judged=8)
        told += edge.commands(Notice)

    assert len(told) == 1
    assert "0 of 40" in told[0].text


def test_what_an_eager_cloud_judged_unasked_is_counted_as_drafted_in_its_round() -> None:
    edge = Edge(Strategy(name="eager", trigger=FixedLength(9), upload=UploadImmediately(), eager=True)).live()
    edge.drafted(7, 8)

    edge.commit(2, [7, 8, 9], 2)

    (record,) = edge.core.rounds
    assert (record.num_drafted, record.num_accepted) == (2, 2)


class TestLink:
    def test_a_lost_link_resumes_and_asks_again_from_the_committed_length(self) -> None:
        edge = Edge().live()
        edge.drafted(7, 8)
        edge.tell(LinkDown())

        edge.tell(LinkUp(channel=4))
        (resume,) = edge.sent(Resume)
        assert (resume.channel, resume.committed_length, resume.attach) == (4, 2, 2)

        edge.receive(Resumed(channel=4, incarnation=1, attach=2, committed_length=2))
        (draft,) = edge.sent(Draft)
        assert (draft.epoch, draft.position, draft.token_ids, draft.verify) == (1, 2, [7, 8], True)
        assert edge.core.counters.num_reconnects == 1

    def test_a_lost_session_is_opened_again_with_what_is_committed(self) -> None:
        edge = Edge().live()
        edge.drafted(7, 8)
        edge.commit(2, [7, 8, 9], 2)

        edge.receive(lost(incarnation=1))

        (opening,) = edge.sent(Open)
        assert (opening.incarnation, opening.num_prompt, opening.num_committed) == (2, 2, 3)
        assert opening.token_ids == [5, 6, 7, 8, 9]

    def test_losing_the_session_again_and_again_ends_the_request(self) -> None:
        edge = Edge().live()

        for incarnation in range(1, MAX_REOPENS_WITHOUT_PROGRESS + 2):
            edge.receive(lost(incarnation))

        (fail,) = edge.commands(Fail)
        assert isinstance(fail.error, SessionLostError)

    def test_a_full_cloud_is_asked_again_when_it_said(self) -> None:
        edge = Edge()
        edge.tell(Start())
        edge.tell(LinkUp(channel=1))
        edge.now_s = 10.0

        edge.receive(full(incarnation=1))
        assert edge.commands(SetTimer) == [SetTimer(13.0)]

        edge.tell(TimerFired())
        assert edge.sent(Open)[0].incarnation == 2

    def test_a_lost_link_outdates_the_appointment_with_a_full_cloud(self) -> None:
        edge = Edge()
        edge.tell(Start())
        edge.tell(LinkUp(channel=1))
        edge.receive(full(incarnation=1))

        edge.tell(LinkDown())

        assert edge.tell(TimerFired()) == []
        edge.tell(LinkUp(channel=2))
        assert edge.sent(Resume) != []

    def test_a_cloud_that_is_full_for_ever_ends_the_request(self) -> None:
        edge = Edge()
        edge.tell(Start())
        edge.tell(LinkUp(channel=1))

        for incarnation in range(1, MAX_RETRIES_WHEN_SATURATED + 2):
            edge.receive(full(incarnation))
            if not edge.commands(Fail):
                edge.tell(TimerFired())

        (fail,) = edge.commands(Fail)
        assert isinstance(fail.error, SaturatedError)

    def test_gaps_without_end_end_the_request(self) -> None:
        edge = Edge().live()
        gap = Error(channel=1, incarnation=1, code=GapError.code, message="gap", retryable=True, expected=2)

        for _ in range(MAX_REOPENS_WITHOUT_PROGRESS + 1):
            edge.receive(gap)

        (fail,) = edge.commands(Fail)
        assert isinstance(fail.error, GapError)

    def test_an_answered_resume_is_no_progress(self) -> None:
        """Else a long prefill, during which every resume is answered, would be asked about every two seconds."""
        edge = Edge().live()
        edge.drafted(7, 8)
        waits_s = []
        for _ in range(6):
            edge.tell(TimerFired())
            edge.receive(Resumed(channel=1, incarnation=1, attach=edge.core.attach, committed_length=2))
            waits_s.append(edge.commands(SetTimer)[0].at_s)

        assert waits_s == [4.0, 8.0, 16.0, MAX_SILENCE_S, MAX_SILENCE_S, MAX_SILENCE_S]
        edge.commit(2, [7, 8, 9], 2)
        edge.drafted(10, 11)
        assert edge.commands(SetTimer) == [SetTimer(2.0)]

    def test_silence_resumes_ever_more_patiently(self) -> None:
        edge = Edge().live()
        edge.drafted(7, 8)
        assert edge.commands(SetTimer) == [SetTimer(2.0)]

        edge.tell(TimerFired())
        assert edge.sent(Resume) != []
        assert edge.commands(SetTimer) == [SetTimer(4.0)]

    def test_fail_on_link_loss(self) -> None:
        edge = Edge(on_link_loss=OnLinkLoss.FAIL).live()

        edge.tell(LinkDown())

        (fail,) = edge.commands(Fail)
        assert isinstance(fail.error, LinkLostError)

    def test_local_on_link_loss_commits_the_tail_and_goes_on_alone(self) -> None:
        edge = Edge(on_link_loss=OnLinkLoss.LOCAL).live()
        edge.drafted(7)

        edge.tell(LinkDown())
        edge.drafted(8)

        assert edge.core.log == [5, 6, 7, 8]
        assert edge.core.went_local
        assert edge.tell(LinkUp(channel=2)) == []


class TestWithoutDraft:
    def test_cloud_only_confirms_now_and_then(self) -> None:
        edge = Edge(cloud_only(), max_tokens=100).live()

        for position in range(2, 2 + 16):  # a quarter of how far the target writes ahead
            edge.commit(position, [7], 0, kind=CommitKind.OWN)

        assert edge.sent(Ack) == [Ack(channel=1, incarnation=1, committed_length=2 + 16)]

    def test_a_prompt_beyond_the_drafts_context_goes_on_as_cloud_only(self) -> None:
        edge = Edge(prompt_ids=(1,) * 50, draft_context_length=50)

        edge.tell(Start())
        assert len(edge.commands(Notice)) == 1
        assert edge.step is None
        edge.tell(LinkUp(channel=1))
        assert edge.sent(Open)[0].assist == "always"

    def test_a_draft_whose_context_fills_up_opens_again_as_cloud_only(self) -> None:
        edge = Edge(draft_context_length=4).live()
        edge.drafted(7, 8)

        edge.commit(2, [7, 8, 9], 2)

        assert len(edge.commands(Notice)) == 1
        (opening,) = edge.sent(Open)
        assert (opening.assist, opening.incarnation, opening.num_committed) == ("always", 2, 3)

    def test_a_failed_draft_goes_on_as_cloud_only(self) -> None:
        edge = Edge().live()

        edge.tell(DraftUnavailable("it failed"))

        assert edge.sent(Open)[0].assist == "always"
        assert edge.core.state is EdgeState.OPENING

    def test_edge_only_commits_by_itself(self) -> None:
        edge = Edge(edge_only(), max_tokens=3)
        edge.tell(Start())

        edge.drafted(7, 8, 9)

        assert edge.core.log == [5, 6, 7, 8, 9]
        assert edge.commands(Finish) == [Finish(FinishReason.LENGTH)]
        assert edge.core.went_local

    def test_edge_only_without_a_proposal_says_so(self) -> None:
        edge = Edge(edge_only())
        edge.tell(Start())

        edge.drafted(None)

        (fail,) = edge.commands(Fail)
        assert isinstance(fail.error, BackendError)


class TestLogprobs:
    def test_tokens_carry_them_also_where_a_part_was_known(self) -> None:
        edge = Edge(logprobs=True).live()
        edge.commit(2, [7, 8], 0, logprobs=[-1.0, -2.0])

        edge.commit(3, [8, 9], 0, logprobs=[-2.0, 0.0])

        (emitted,) = edge.commands(EmitTokens)
        assert [(token.token_id, token.logprob) for token in emitted.tokens] == [(9, 0.0)]

    def test_a_commit_without_them_is_a_fault_of_the_cloud(self) -> None:
        edge = Edge(logprobs=True).live()

        edge.commit(2, [7, 8], 0)

        (fail,) = edge.commands(Fail)
        assert isinstance(fail.error, ProtocolError)

    def test_what_the_draft_writes_alone_has_none(self) -> None:
        edge = Edge(logprobs=True, on_link_loss=OnLinkLoss.LOCAL).live()
        edge.drafted(7)

        edge.tell(LinkDown())

        (emitted,) = edge.commands(EmitTokens)
        assert [token.logprob for token in emitted.tokens] == [None]


def full(incarnation: int) -> Error:
    return Error(
        channel=1, incarnation=incarnation, code=SaturatedError.code, message="full", retryable=True, retry_after_s=3.0
    )


def lost(incarnation: int) -> Error:
    return Error(channel=1, incarnation=incarnation, code=SessionLostError.code, message="gone", retryable=True)
