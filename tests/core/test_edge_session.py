"""The edge's machine on its own: what it asks for, event by event."""

from __future__ import annotations

from typing import Any

import pytest

from edgedraft.core.edge_settings import EdgeState
from edgedraft.core.events import (
    CancelRequested,
    DraftNext,
    DraftUnavailable,
    EmitTokens,
    Fail,
    Finish,
    LinkDown,
    LinkUp,
    Notice,
    Start,
    StopStringFound,
    TokenDrafted,
)
from edgedraft.core.strategy import Strategy, UploadImmediately, UploadPolicy, UploadWhole
from edgedraft.core.triggers import FixedLength, TokenConfidence
from edgedraft.errors import BackendError, ProtocolError
from edgedraft.protocol.messages import (
    Ack,
    Cancel,
    Close,
    CommitKind,
    Draft,
    Open,
    OpenIds,
)
from edgedraft.schedule.catalogue import cloud_only, edge_only, vanilla
from edgedraft.types import DraftToken, FinishReason, OnLinkLoss, TokenKind

from .conftest import EOS, Edge


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
        (Strategy(name="unsure", trigger=TokenConfidence(0.1)), {}, 1),
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
def test_drafting_ahead_ends_where_the_next_question_is_ready(upload: UploadPolicy) -> None:
    """One level of look-ahead: 8 is the guess, and 9 fires the trigger."""
    edge = Edge(Strategy(name="ahead", trigger=FixedLength(1), draft_ahead_tokens=9, upload=upload)).live()

    edge.drafted(7, 8, 9)

    assert len(edge.core.tail) == 3
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
