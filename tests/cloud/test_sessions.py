"""The table of sessions, without sockets and without a model."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import msgspec
import pytest

from edgedraft.cloud.sessions import CLOSE_MOVED, Connection, SessionTable
from edgedraft.cloud.worker import TargetCommand
from edgedraft.core.cloud_session import CloudSession
from edgedraft.core.cloud_settings import CloudSessionSettings
from edgedraft.core.events import (
    CancelPass,
    CloseTarget,
    CloudEvent,
    OpenTarget,
    PassDone,
    PrefillDone,
    RunPass,
    TargetFailed,
)
from edgedraft.errors import BackendError
from edgedraft.protocol.codec import decode_from_cloud
from edgedraft.protocol.fingerprint import committed_hash
from edgedraft.protocol.messages import (
    Ack,
    Close,
    Commit,
    CommitKind,
    Error,
    FromCloud,
    Opened,
    OpenIds,
    Resume,
    Resumed,
)
from edgedraft.testing.wire import draft_message, open_message

PROMPT = [1, 2, 3]
A, B, C = (letter.encode() * 16 for letter in "ABC")
SETTINGS = CloudSessionSettings(num_ids=64, eos_ids=frozenset({63}), context_length=100)


@dataclass
class FakeLink:
    frames: list[bytes] = field(default_factory=list)
    closed_with: int | None = None

    def send(self, frame: bytes) -> None:
        self.frames.append(frame)

    def close(self, code: int, reason: str) -> None:
        self.closed_with = code

    def take(self) -> list[FromCloud]:
        messages = [decode_from_cloud(frame) for frame in self.frames]
        self.frames.clear()
        return messages


@dataclass
class FakeWorker:
    ready: bool = True
    num_waiting: int = 0
    submitted: list[tuple[bytes, TargetCommand]] = field(default_factory=list)

    def submit(self, session: bytes, command: TargetCommand) -> None:
        self.submitted.append((session, command))

    def commands(self) -> list[type]:
        return [type(command) for _, command in self.submitted]


class Cloud:
    """A table with one fake worker; `prefilled` and `answer` play the target."""

    def __init__(self, *, max_sessions: int = 2, expiry_s: float = 60.0) -> None:
        self.worker = FakeWorker()
        self.table = SessionTable(SETTINGS, max_sessions=max_sessions, expiry_s=expiry_s)
        self.table.worker = self.worker

    def connect(self, subject: str = "somebody") -> tuple[Connection, FakeLink]:
        link = FakeLink()
        return self.table.connect(subject, link), link

    def key(self) -> bytes:
        """The target's name of the session that submitted last."""
        return self.worker.submitted[-1][0]

    def tell(self, event: CloudEvent, *, incarnation: int = 1) -> None:
        self.table.on_target(self.key(), incarnation, event)


def error_of(link: FakeLink) -> Error:
    (message,) = link.take()
    assert isinstance(message, Error), message
    return message


def resume(session_id: bytes, *, attach: int = 2, channel: int = 1) -> Resume:
    return Resume(
        channel=channel,
        session_id=session_id,
        incarnation=1,
        attach=attach,
        committed_length=len(PROMPT),
        committed_hash=committed_hash(PROMPT),
    )


def test_a_round_goes_from_the_edge_to_the_target_and_back() -> None:
    cloud = Cloud()
    connection, link = cloud.connect()
    cloud.table.receive(connection, open_message(A, PROMPT, channel=9))
    assert cloud.worker.commands() == [OpenTarget]
    cloud.tell(PrefillDone(1))
    cloud.table.receive(connection, draft_message(3, [5, 6], channel=9))
    command = cloud.worker.submitted[-1][1]
    assert isinstance(command, RunPass)
    cloud.tell(PassDone(command.pass_id, 2, 7, CommitKind.BONUS, queue_s=0.0, verify_s=0.0))
    opened, commit = link.take()
    assert opened == Opened(channel=9, incarnation=1, committed_length=3)
    assert isinstance(commit, Commit)
    assert (commit.channel, commit.token_ids) == (9, [5, 6, 7])
    assert cloud.table.stats().num_tokens == 6


def test_an_unknown_channel_is_told_once_and_late_messages_are_dropped() -> None:
    cloud = Cloud()
    connection, link = cloud.connect()
    cloud.table.receive(connection, draft_message(3, [5], channel=4, incarnation=2))
    error = error_of(link)
    assert (error.code, error.channel, error.incarnation) == ("session_lost", 4, 2)
    cloud.table.receive(connection, draft_message(3, [5], channel=4, incarnation=2))
    cloud.table.receive(connection, Close(channel=5, incarnation=1))
    assert link.take() == []


def test_a_closed_sessions_late_messages_are_dropped_and_its_channel_can_be_used_again() -> None:
    cloud = Cloud()
    connection, link = cloud.connect()
    cloud.table.receive(connection, open_message(A, PROMPT))
    cloud.table.receive(connection, Close(channel=1, incarnation=1))
    cloud.table.receive(connection, Ack(channel=1, incarnation=1, committed_length=3))
    assert cloud.worker.commands() == [OpenTarget, CloseTarget]
    assert len(cloud.table) == 0
    link.take()
    cloud.table.receive(connection, open_message(B, PROMPT))
    assert [type(message) for message in link.take()] == [Opened]
    cloud.table.receive(connection, draft_message(3, [5]))
    assert link.take() == []
    assert len(cloud.table) == 1


def test_anothers_session_is_unknown_and_stays_untouched() -> None:
    cloud = Cloud()
    mine, _ = cloud.connect("me")
    other, link = cloud.connect("other")
    cloud.table.receive(mine, open_message(A, PROMPT))
    cloud.table.receive(other, resume(A))
    assert error_of(link).code == "session_lost"
    cloud.table.receive(other, open_message(A, [9, 9], attach=5, incarnation=5))
    assert len(cloud.table) == 2
    names = {key for key, command in cloud.worker.submitted if isinstance(command, OpenTarget)}
    assert len(names) == 2, "two subjects with the same session id must not share a place in the target"


def test_a_full_cloud_with_everybody_connected_refuses_and_says_when_to_come_back() -> None:
    cloud = Cloud(max_sessions=2)
    connection, link = cloud.connect()
    cloud.table.receive(connection, open_message(A, PROMPT, channel=1))
    cloud.table.receive(connection, open_message(B, PROMPT, channel=2))
    link.take()
    assert cloud.table.stats().saturated
    cloud.table.receive(connection, open_message(C, PROMPT, channel=3))
    error = error_of(link)
    assert (error.code, error.channel, error.retryable) == ("saturated", 3, True)
    assert error.retry_after_s
    cloud.table.receive(connection, OpenIds(channel=3, incarnation=1, offset=3, token_ids=[1]))
    assert link.take() == [], "the rest of a refused prompt is dropped"
    assert len(cloud.table) == 2


async def test_room_is_made_from_the_session_that_lost_its_connection_longest_ago() -> None:
    cloud = Cloud(max_sessions=3)
    for session_id in (A, B):
        gone, _ = cloud.connect()
        cloud.table.receive(gone, open_message(session_id, PROMPT))
        cloud.table.disconnect(gone)
    connection, link = cloud.connect()
    cloud.table.receive(connection, open_message(C, PROMPT))
    cloud.table.receive(connection, open_message(b"D" * 16, PROMPT, channel=2))
    link.take()
    assert len(cloud.table) == 3
    cloud.table.receive(connection, resume(A, channel=3))
    assert error_of(link).code == "session_lost"
    assert [type(command) for _, command in cloud.worker.submitted[-2:]] == [CloseTarget, OpenTarget]


async def test_a_bad_open_evicts_nobody() -> None:
    cloud = Cloud(max_sessions=1)
    gone, _ = cloud.connect()
    cloud.table.receive(gone, open_message(A, PROMPT))
    cloud.tell(PrefillDone(1))
    cloud.table.disconnect(gone)
    connection, link = cloud.connect()
    cloud.table.receive(connection, open_message(B, PROMPT, num_new=1000))
    assert error_of(link).code == "context_length"
    cloud.table.receive(connection, resume(A, channel=2))
    assert [type(message) for message in link.take()] == [Resumed]


async def test_a_lost_connection_frees_queued_work_at_once_and_the_session_when_it_expires() -> None:
    cloud = Cloud(expiry_s=0.02)
    connection, _ = cloud.connect()
    cloud.table.receive(connection, open_message(A, PROMPT))
    cloud.tell(PrefillDone(1))
    cloud.table.receive(connection, draft_message(3, [5]))
    cloud.table.disconnect(connection)
    assert cloud.worker.commands() == [OpenTarget, RunPass, CancelPass]
    assert len(cloud.table) == 1
    await asyncio.sleep(0.06)
    assert len(cloud.table) == 0
    assert cloud.worker.commands()[3:] == [CloseTarget]


async def test_a_resumed_session_does_not_expire() -> None:
    cloud = Cloud(expiry_s=0.02)
    connection, _ = cloud.connect()
    cloud.table.receive(connection, open_message(A, PROMPT))
    cloud.tell(PrefillDone(1))
    cloud.table.disconnect(connection)
    second, link = cloud.connect()
    cloud.table.receive(second, resume(A))
    await asyncio.sleep(0.06)
    assert len(cloud.table) == 1
    assert [type(message) for message in link.take()] == [Resumed]


async def test_a_session_that_moved_leaves_its_old_connection_which_is_closed_when_it_carries_no_other() -> None:
    cloud = Cloud(max_sessions=3)
    old, old_link = cloud.connect()
    for number, session_id in enumerate((A, B)):
        cloud.table.receive(old, open_message(session_id, PROMPT, channel=number))
        cloud.tell(PrefillDone(1))
    new, _ = cloud.connect()
    cloud.table.receive(new, resume(A, channel=5))
    assert old_link.closed_with is None, "it still carries the other session"
    cloud.table.receive(new, resume(B, channel=6))
    assert old_link.closed_with == CLOSE_MOVED
    cloud.table.disconnect(old)
    assert cloud.table.stats().num_connected == 2


def test_an_older_attach_does_not_take_the_session_away() -> None:
    cloud = Cloud()
    old, old_link = cloud.connect()
    cloud.table.receive(old, open_message(A, PROMPT, attach=5))
    cloud.tell(PrefillDone(1))
    new, new_link = cloud.connect()
    cloud.table.receive(new, resume(A, attach=5))
    assert (new.channels, new_link.take()) == ({}, [])
    assert list(old.channels) == [1]
    assert old_link.closed_with is None


def test_a_channel_in_use_is_not_taken_by_another_session() -> None:
    cloud = Cloud()
    connection, link = cloud.connect()
    cloud.table.receive(connection, open_message(A, PROMPT))
    link.take()
    cloud.table.receive(connection, open_message(B, PROMPT))
    assert error_of(link).code == "protocol"
    assert len(cloud.table) == 1
    assert list(connection.channels) == [1]


def test_an_open_without_incarnation_leaves_no_session_behind() -> None:
    cloud = Cloud()
    connection, link = cloud.connect()
    cloud.table.receive(connection, open_message(A, PROMPT, incarnation=0))
    assert error_of(link).code == "protocol"
    assert len(cloud.table) == 0


def test_results_of_another_incarnation_or_of_a_session_that_is_gone_are_dropped() -> None:
    cloud = Cloud()
    connection, link = cloud.connect()
    cloud.table.receive(connection, open_message(A, PROMPT))
    cloud.table.receive(connection, open_message(A, PROMPT, incarnation=2, attach=2))
    link.take()
    cloud.tell(TargetFailed(BackendError("old")), incarnation=1)
    assert len(cloud.table) == 1
    assert link.take() == []
    cloud.tell(TargetFailed(BackendError("new")), incarnation=2)
    assert error_of(link).code == "session_lost"
    cloud.tell(PrefillDone(2), incarnation=2)
    assert len(cloud.table) == 0


def test_a_late_failure_of_an_older_incarnation_does_not_end_one_that_is_being_opened() -> None:
    cloud = Cloud()
    connection, link = cloud.connect()
    cloud.table.receive(connection, open_message(A, PROMPT))
    again = msgspec.structs.replace(open_message(A, PROMPT), incarnation=2, attach=2, num_prompt=len(PROMPT) + 1)
    cloud.table.receive(connection, again)
    link.take()

    cloud.tell(TargetFailed(BackendError("late")), incarnation=1)

    assert link.take() == []
    cloud.table.receive(connection, OpenIds(channel=again.channel, incarnation=2, offset=len(PROMPT), token_ids=[4]))
    assert [type(message) for message in link.take()] == [Opened]


def test_a_fault_of_ours_costs_one_session(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    cloud = Cloud()
    connection, link = cloud.connect()
    cloud.table.receive(connection, open_message(A, PROMPT, channel=1))
    cloud.table.receive(connection, open_message(B, PROMPT, channel=2))
    link.take()
    victim = connection.channels[2].session

    def broken(event: CloudEvent, now_s: float) -> None:
        raise KeyError(*PROMPT)

    monkeypatch.setattr(victim, "handle", broken)
    cloud.table.receive(connection, draft_message(3, [5], channel=2))
    error = error_of(link)
    assert (error.code, error.channel) == ("session_lost", 2)
    assert list(connection.channels) == [1]
    assert "KeyError" in caplog.text
    assert "1, 2, 3" not in caplog.text


def test_a_fault_of_ours_in_opening_costs_that_session_only(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud()
    connection, link = cloud.connect()
    cloud.table.receive(connection, open_message(A, PROMPT, channel=1))
    link.take()

    def broken(self: CloudSession, event: CloudEvent, now_s: float) -> None:
        raise KeyError(*PROMPT)

    monkeypatch.setattr(CloudSession, "handle", broken)
    cloud.table.receive(connection, open_message(B, PROMPT, channel=2))
    error = error_of(link)
    assert (error.code, error.channel, error.retryable) == ("internal", 2, False)
    assert list(connection.channels) == [1]
    assert len(cloud.table) == 1


def test_after_a_crash_every_session_is_told_and_new_ones_are_refused() -> None:
    cloud = Cloud()
    connection, link = cloud.connect()
    cloud.table.receive(connection, open_message(A, PROMPT))
    link.take()
    cloud.worker.ready = False
    cloud.table.on_crash()
    assert error_of(link).code == "session_lost"
    cloud.table.receive(connection, open_message(B, PROMPT))
    assert error_of(link).code == "backend"
    assert len(cloud.table) == 0


def test_eviction_is_pushed_to_a_connected_edge() -> None:
    cloud = Cloud()
    connection, link = cloud.connect()
    cloud.table.receive(connection, open_message(A, PROMPT))
    link.take()
    cloud.table.evict_all("Room was needed.")
    assert error_of(link).code == "session_lost"
    assert cloud.worker.commands() == [OpenTarget, CloseTarget]
    assert not connection.channels
