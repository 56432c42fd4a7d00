"""Dead edges, slow edges, floods and strangers: what they cost, and that nobody else notices."""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from blockbuster import BlockBuster, BlockingError
from websockets.client import ClientProtocol
from websockets.uri import parse_uri

from edgedraft.backends.toy_model import ToyModel, ToySettings
from edgedraft.backends.toy_tokenizer import ToyTokenizer
from edgedraft.cloud.auth import hash_token
from edgedraft.config import CloudConfig
from edgedraft.errors import LinkLostError
from edgedraft.protocol.codec import encode
from edgedraft.protocol.fingerprint import committed_hash
from edgedraft.protocol.messages import (
    Ack,
    Close,
    Commit,
    Error,
    FromEdge,
    Hello,
    Opened,
    Probe,
    Resume,
    Resumed,
)
from edgedraft.testing.cloud import RunningCloud, running_cloud
from edgedraft.testing.gates import GatedTarget
from edgedraft.testing.wire import draft_message, open_message, wire_client
from edgedraft.types import Assist

SETTINGS = ToySettings(vocab=64, seed=3)
TOKENIZER = ToyTokenizer(SETTINGS.num_ids)
PROMPT = [1, 2, 3]
A, B, C = (letter.encode() * 16 for letter in "ABC")


@contextlib.contextmanager
def gated_cloud(config: CloudConfig) -> Iterator[tuple[RunningCloud, GatedTarget]]:
    target = GatedTarget(ToyModel(SETTINGS), prefill_chunk_tokens=8, max_sessions=32)
    with running_cloud(target, TOKENIZER, "", config) as cloud:
        try:
            yield cloud, target
        finally:
            target.prefill_gate.open()
            target.score_gate.open()


def resume_message(session_id: bytes, token_ids: list[int], *, attach: int, channel: int = 1) -> Resume:
    return Resume(
        channel=channel,
        session_id=session_id,
        incarnation=1,
        attach=attach,
        committed_length=len(token_ids),
        committed_hash=committed_hash(token_ids),
    )


class SilentPeer:
    """Speaks just enough to send messages; never reads again, so it answers no ping and takes no bytes."""

    def __init__(self, url: str, receive_buffer_bytes: int | None = None) -> None:
        address = urlsplit(url)
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(10)
        self.socket.connect((address.hostname, address.port))
        self._protocol = ClientProtocol(parse_uri(url), max_size=None)
        self._protocol.send_request(self._protocol.connect())
        self._flush()
        while not self._protocol.events_received():
            self._protocol.receive_data(self.socket.recv(4096))
        self.send(Hello(version=1, client="silent"))

    def send(self, message: FromEdge) -> None:
        self._protocol.send_binary(encode(message))
        self._flush()

    def _flush(self) -> None:
        self.socket.sendall(b"".join(self._protocol.data_to_send()))

    def count_until_end(self) -> int:
        """Read on, to the end of the connection; how many bytes came."""
        total = 0
        with contextlib.suppress(ConnectionError):
            while data := self.socket.recv(65_536):
                total += len(data)
        return total


# -- dead edges ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["assembling", "prefill", "verify", "idle"])
def test_a_killed_edge_frees_its_session_in_every_phase(phase: str) -> None:
    with gated_cloud(CloudConfig(port=0, session_expiry_s=0.2)) as (cloud, target):
        if phase == "prefill":
            target.prefill_gate.shut()
        if phase == "verify":
            target.score_gate.shut()
        with wire_client(cloud.url) as client:
            client.send(open_message(A, PROMPT, num_prompt=10 if phase == "assembling" else None))
            if phase == "prefill":
                assert target.prefill_gate.entered.wait(10)
            if phase in ("verify", "idle"):
                assert isinstance(client.receive(), Opened)
                client.send(draft_message(3, [5]))
            if phase == "verify":
                assert target.score_gate.entered.wait(10)
            if phase == "idle":
                assert isinstance(client.receive(), Commit)
            cloud.until(lambda sessions: len(sessions) == 1)
            client.vanish()
            cloud.until(lambda sessions: sessions.stats().num_connected == 0)
            target.prefill_gate.open()
            target.score_gate.open()
            cloud.until(lambda sessions: len(sessions) == 0 and sessions.stats().num_waiting == 0)
        assert_serves(cloud)
        cloud.until(lambda sessions: target.num_sessions == 0)


def assert_serves(cloud: RunningCloud) -> None:
    """A newcomer gets a verdict."""
    with wire_client(cloud.url) as client:
        client.send(open_message(C, PROMPT))
        client.send(draft_message(3, [5]))
        assert isinstance(client.receive(), Opened)
        assert isinstance(client.receive(), Commit)
        client.send(Close(channel=1, incarnation=1))


def test_two_hundred_opened_and_aborted_connections_leave_nothing() -> None:
    with gated_cloud(CloudConfig(port=0, session_expiry_s=0.05, max_sessions=4)) as (cloud, target):
        for number in range(200):
            with wire_client(cloud.url) as client:
                client.send(open_message(number.to_bytes(16, "big"), PROMPT, assist=Assist.ALWAYS))
                if number % 3 == 0:
                    client.receive()
                client.vanish()
        cloud.until(lambda sessions: len(sessions) == 0 and sessions.stats().num_waiting == 0)
        cloud.until(lambda sessions: target.num_sessions == 0)
        assert cloud.call(cloud.sessions.stats).num_connected == 0
        assert_serves(cloud)


def test_a_peer_that_answers_no_ping_is_found() -> None:
    config = CloudConfig(port=0, ping_interval_s=0.2, ping_timeout_s=0.2, session_expiry_s=0.1)
    with gated_cloud(config) as (cloud, _):
        peer = SilentPeer(cloud.url)
        peer.send(open_message(A, PROMPT))
        cloud.until(lambda sessions: len(sessions) == 1)
        cloud.until(lambda sessions: len(sessions) == 0)
        peer.socket.close()


def test_twenty_edges_stay_connected_through_a_prefill_of_many_ping_timeouts() -> None:
    config = CloudConfig(port=0, ping_interval_s=0.2, ping_timeout_s=0.2, max_sessions=20)
    with gated_cloud(config) as (cloud, target), contextlib.ExitStack() as stack:
        target.prefill_gate.shut()
        clients = [stack.enter_context(wire_client(cloud.url)) for _ in range(20)]
        for number, client in enumerate(clients):
            client.send(open_message(bytes([number]) * 16, PROMPT))
            assert isinstance(client.receive(), Opened)
        time.sleep(1.5)
        assert cloud.call(cloud.sessions.stats).num_connected == 20
        target.prefill_gate.open()
        for client in clients:
            client.send(draft_message(3, [5]))
            assert isinstance(client.receive(), Commit)


# -- slow edges ------------------------------------------------------------------------------------------------------


def test_a_reader_that_is_too_slow_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_bytes, num_probes = 32_000, 400
    monkeypatch.setattr("edgedraft.cloud.connection.id_hashes", lambda *_: bytes(answer_bytes))
    with gated_cloud(CloudConfig(port=0, session_expiry_s=0.1)) as (cloud, _):
        peer = SilentPeer(cloud.url, receive_buffer_bytes=8192)
        peer.send(open_message(A, PROMPT))
        cloud.until(lambda sessions: len(sessions) == 1)
        with contextlib.suppress(OSError):
            for _ in range(num_probes):
                peer.send(Probe(start=0, count=1))
        cloud.until(lambda sessions: len(sessions) == 0)
        assert_serves(cloud)
        assert peer.count_until_end() < answer_bytes * num_probes
        peer.socket.close()


# -- strangers and repeats -------------------------------------------------------------------------------------------


def test_another_subjects_session_can_be_neither_resumed_nor_seen() -> None:
    config = CloudConfig(port=0, token_sha256=(hash_token("one"), hash_token("two")))
    with gated_cloud(config) as (cloud, _), wire_client(cloud.url, token="one") as mine:
        mine.send(open_message(A, PROMPT))
        assert isinstance(mine.receive(), Opened)
        with wire_client(cloud.url, token="two") as other:
            other.send(resume_message(A, PROMPT, attach=9))
            answer = other.receive()
            assert isinstance(answer, Error)
            assert answer.code == "session_lost"
            other.send(open_message(A, [9, 8], channel=2))
            assert isinstance(other.receive(), Opened)
            other.send(draft_message(2, [5], channel=2))
            theirs = other.receive()
        mine.send(draft_message(3, [5]))
        ours = mine.receive()
        assert isinstance(ours, Commit)
        assert isinstance(theirs, Commit)
        assert (ours.position, theirs.position) == (3, 2)
        with wire_client(cloud.url, token="one") as again:
            text = [*PROMPT, *ours.token_ids]
            again.send(resume_message(A, text, attach=2))
            assert isinstance(again.receive(), Resumed)
            with pytest.raises(LinkLostError):
                mine.receive()


def test_a_repeated_draft_is_judged_once_and_answered_alike() -> None:
    with gated_cloud(CloudConfig(port=0)) as (cloud, _), wire_client(cloud.url) as client:
        client.send(open_message(A, PROMPT))
        assert isinstance(client.receive(), Opened)
        client.send(draft_message(3, [5, 6]))
        first = client.receive()
        assert isinstance(first, Commit)
        assert first.num_judged == 2
        client.send(draft_message(3, [5, 6]))
        client.send(Ack(channel=1, incarnation=1, committed_length=3 + len(first.token_ids)))
        second = client.receive()
        assert isinstance(second, Commit)
        assert (second.token_ids, second.num_judged) == ([], 0)
        assert second.position == 3 + len(first.token_ids)


def test_a_full_cloud_says_so_and_serves_again_when_room_is_free() -> None:
    with (
        gated_cloud(CloudConfig(port=0, max_sessions=1)) as (cloud, _),
        wire_client(cloud.url) as first,
        wire_client(cloud.url) as second,
    ):
        first.send(open_message(A, PROMPT))
        assert isinstance(first.receive(), Opened)
        second.send(open_message(B, PROMPT))
        refused = second.receive()
        assert isinstance(refused, Error)
        assert (refused.code, refused.retryable) == ("saturated", True)
        assert refused.retry_after_s
        assert cloud.call(cloud.sessions.stats).saturated
        first.send(Close(channel=1, incarnation=1))
        cloud.until(lambda sessions: len(sessions) == 0)
        second.send(open_message(B, PROMPT, incarnation=2, attach=2))
        assert isinstance(second.receive(), Opened)


def test_after_a_restart_sessions_are_gone_and_can_be_opened_again() -> None:
    with gated_cloud(CloudConfig(port=0)) as (cloud, target):
        url = cloud.url
        with wire_client(url) as client:
            client.send(open_message(A, PROMPT))
            assert isinstance(client.receive(), Opened)
            cloud.restart()
            assert client.close_code() == 1012
        assert (cloud.url, len(cloud.sessions), target.num_sessions) == (url, 0, 0)
        with wire_client(url) as client:
            client.send(resume_message(A, PROMPT, attach=2))
            lost = client.receive()
            assert isinstance(lost, Error)
            assert lost.code == "session_lost"
            client.send(open_message(A, PROMPT, incarnation=2, attach=3))
            assert isinstance(client.receive(), Opened)


# -- care ------------------------------------------------------------------------------------------------------------


def test_the_event_loop_makes_no_blocking_call() -> None:
    detector = BlockBuster(scanned_modules=["edgedraft.cloud", "edgedraft.core", "edgedraft.protocol"])
    with gated_cloud(CloudConfig(port=0, session_expiry_s=0.05)) as (cloud, _):
        detector.activate()
        try:
            assert_serves(cloud)
            with wire_client(cloud.url) as client:
                client.send(open_message(A, PROMPT, assist=Assist.ALWAYS))
                client.send(Probe(start=0, count=8))
                for _ in range(8):
                    client.receive()
                client.vanish()
            cloud.until(lambda sessions: len(sessions) == 0)
            with pytest.raises(BlockingError):
                cloud.call(lambda: provoke_a_blocking_call(cloud))
        finally:
            detector.deactivate()


def provoke_a_blocking_call(cloud: RunningCloud) -> None:
    """The control: what the detector must see, from inside the table."""

    class SleepyLink:
        def send(self, frame: bytes) -> None:
            time.sleep(0.001)

        def close(self, code: int, reason: str) -> None:
            raise NotImplementedError

    connection = cloud.sessions.connect("somebody", SleepyLink())
    try:
        cloud.sessions.receive(connection, draft_message(3, [5]))
    finally:
        cloud.sessions.disconnect(connection)


def test_no_log_holds_ids_of_a_prompt(caplog: pytest.LogCaptureFixture) -> None:
    settings = ToySettings(vocab=60_000)
    target = GatedTarget(ToyModel(settings))
    secret = [54_321, 54_322, 54_323]
    with (
        caplog.at_level(logging.DEBUG),
        running_cloud(target, ToyTokenizer(settings.num_ids)) as cloud,
        wire_client(cloud.url) as client,
    ):
        client.send(open_message(A, secret))
        client.send(draft_message(3, [54_324, 54_325]))
        client.receive()
        client.receive()
        client.websocket.send(encode(open_message(A, secret))[:-2])
        client.close_code()
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("websockets.client")]
    assert not [line for line in ours if "5432" in line or encode(open_message(A, secret)).hex()[:12] in line]
