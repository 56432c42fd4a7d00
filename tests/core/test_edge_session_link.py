"""The edge's machine while links break, sessions are lost and clouds are full."""

from __future__ import annotations

from edgedraft.core.edge_patience import MAX_REOPENS_WITHOUT_PROGRESS, MAX_RETRIES_WHEN_SATURATED, MAX_SILENCE_S
from edgedraft.core.events import Fail, LinkDown, LinkUp, SetTimer, Start, TimerFired
from edgedraft.errors import GapError, LinkLostError, SaturatedError, SessionLostError
from edgedraft.protocol.messages import Draft, Error, Open, Resume, Resumed
from edgedraft.types import OnLinkLoss

from .conftest import Edge


def test_a_lost_link_resumes_and_asks_again_from_the_committed_length() -> None:
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


def test_a_lost_session_is_opened_again_with_what_is_committed() -> None:
    edge = Edge().live()
    edge.drafted(7, 8)
    edge.commit(2, [7, 8, 9], 2)

    edge.receive(lost(incarnation=1))

    (opening,) = edge.sent(Open)
    assert (opening.incarnation, opening.num_prompt, opening.num_committed) == (2, 2, 3)
    assert opening.token_ids == [5, 6, 7, 8, 9]


def test_losing_the_session_again_and_again_ends_the_request() -> None:
    edge = Edge().live()

    for incarnation in range(1, MAX_REOPENS_WITHOUT_PROGRESS + 2):
        edge.receive(lost(incarnation))

    (fail,) = edge.commands(Fail)
    assert isinstance(fail.error, SessionLostError)


def test_a_full_cloud_is_asked_again_when_it_said() -> None:
    edge = Edge()
    edge.tell(Start())
    edge.tell(LinkUp(channel=1))
    edge.now_s = 10.0

    edge.receive(full(incarnation=1))
    assert edge.commands(SetTimer) == [SetTimer(13.0)]

    edge.tell(TimerFired())
    assert edge.sent(Open)[0].incarnation == 2


def test_a_lost_link_outdates_the_appointment_with_a_full_cloud() -> None:
    edge = Edge()
    edge.tell(Start())
    edge.tell(LinkUp(channel=1))
    edge.receive(full(incarnation=1))

    edge.tell(LinkDown())

    assert edge.tell(TimerFired()) == []
    edge.tell(LinkUp(channel=2))
    assert edge.sent(Resume) != []


def test_a_cloud_that_is_full_for_ever_ends_the_request() -> None:
    edge = Edge()
    edge.tell(Start())
    edge.tell(LinkUp(channel=1))

    for incarnation in range(1, MAX_RETRIES_WHEN_SATURATED + 2):
        edge.receive(full(incarnation))
        if not edge.commands(Fail):
            edge.tell(TimerFired())

    (fail,) = edge.commands(Fail)
    assert isinstance(fail.error, SaturatedError)


def test_gaps_without_end_end_the_request() -> None:
    edge = Edge().live()
    gap = Error(channel=1, incarnation=1, code=GapError.code, message="gap", retryable=True, expected=2)

    for _ in range(MAX_REOPENS_WITHOUT_PROGRESS + 1):
        edge.receive(gap)

    (fail,) = edge.commands(Fail)
    assert isinstance(fail.error, GapError)


def test_an_answered_resume_is_no_progress() -> None:
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


def test_silence_resumes_ever_more_patiently() -> None:
    edge = Edge().live()
    edge.drafted(7, 8)
    assert edge.commands(SetTimer) == [SetTimer(2.0)]

    edge.tell(TimerFired())
    assert edge.sent(Resume) != []
    assert edge.commands(SetTimer) == [SetTimer(4.0)]


def test_fail_on_link_loss() -> None:
    edge = Edge(on_link_loss=OnLinkLoss.FAIL).live()

    edge.tell(LinkDown())

    (fail,) = edge.commands(Fail)
    assert isinstance(fail.error, LinkLostError)


def test_local_on_link_loss_commits_the_tail_and_goes_on_alone() -> None:
    edge = Edge(on_link_loss=OnLinkLoss.LOCAL).live()
    edge.drafted(7)

    edge.tell(LinkDown())
    edge.drafted(8)

    assert edge.core.log == [5, 6, 7, 8]
    assert edge.core.went_local
    assert edge.tell(LinkUp(channel=2)) == []


def full(incarnation: int) -> Error:
    return Error(
        channel=1, incarnation=incarnation, code=SaturatedError.code, message="full", retryable=True, retry_after_s=3.0
    )


def lost(incarnation: int) -> Error:
    return Error(channel=1, incarnation=incarnation, code=SessionLostError.code, message="gone", retryable=True)
