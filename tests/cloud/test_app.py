"""The cloud over real sockets: the handshake, bad frames, tokens, /health."""

from __future__ import annotations

import dataclasses
import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from edgedraft.backends.toy import ToyTarget
from edgedraft.backends.toy_model import ToyModel, ToySettings
from edgedraft.backends.toy_tokenizer import CHAT_TEMPLATE, ToyTokenizer
from edgedraft.cloud.app import create_app
from edgedraft.cloud.auth import hash_token
from edgedraft.cloud.serve import MAX_READ_BYTES
from edgedraft.config import CloudConfig
from edgedraft.errors import InvalidRequestError, LinkLostError
from edgedraft.protocol.codec import encode
from edgedraft.protocol.fingerprint import compare, fingerprint, first_difference, id_hashes
from edgedraft.protocol.messages import MAX_FRAME_BYTES, Commit, Error, Hello, Opened, Probe, Probed
from edgedraft.testing.cloud import RunningCloud, running_cloud
from edgedraft.testing.gates import GatedTarget
from edgedraft.testing.wire import WireClient, draft_message, open_message, wire_client
from edgedraft.types import Exactness, Rule

SETTINGS = ToySettings(vocab=64, seed=3)
TOKENIZER = ToyTokenizer(SETTINGS.num_ids)
PROMPT = [1, 2, 3]
A, B = b"A" * 16, b"B" * 16


def toy_cloud_target() -> GatedTarget:
    return GatedTarget(ToyModel(SETTINGS))


@pytest.fixture(scope="module")
def cloud() -> Iterator[RunningCloud]:
    with running_cloud(toy_cloud_target(), TOKENIZER, CHAT_TEMPLATE) as running:
        yield running


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningCloud]:
    config = CloudConfig(port=0, token_sha256=(hash_token("open sesame"),))
    with running_cloud(toy_cloud_target(), TOKENIZER, CHAT_TEMPLATE, config) as running:
        yield running


def get(cloud: RunningCloud, path: str, *, token: str | None = None, method: str = "GET") -> tuple[int, Any]:
    address = urlsplit(cloud.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
    try:
        connection.request(method, path, headers={} if token is None else {"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        body = response.read()
        return response.status, json.loads(body) if body else None
    finally:
        connection.close()


def last_word(client: WireClient) -> tuple[Error, int | None]:
    """The one `Error` before the close, and the close code."""
    message = client.receive()
    assert isinstance(message, Error)
    assert message.channel is None
    return message, client.close_code()


# -- handshake -------------------------------------------------------------------------------------------------------


def test_welcome_says_what_an_edge_must_know(cloud: RunningCloud) -> None:
    with wire_client(cloud.url, greet=False) as client:
        welcome = client.greet(fingerprint(TOKENIZER))
    assert welcome.model.startswith("toy:")
    assert welcome.server.startswith("edgedraft/")
    assert welcome.chat_template == CHAT_TEMPLATE
    assert compare(welcome.fingerprint, fingerprint(TOKENIZER)) is None
    assert welcome.exactness.exactness is Exactness.BITWISE
    assert welcome.exactness.depends_on
    assert welcome.limits.context_length == SETTINGS.context
    assert welcome.limits.rules == list(Rule)


def test_a_probe_names_the_first_differing_id(cloud: RunningCloud) -> None:
    class Changed(ToyTokenizer):
        def identity(self, token_id: int) -> bytes:
            return b"other" if token_id >= 40 else super().identity(token_id)

    mine = Changed(SETTINGS.num_ids)
    with wire_client(cloud.url, greet=False) as client:
        welcome = client.greet(fingerprint(mine))
        difference = compare(fingerprint(mine), welcome.fingerprint)
        assert difference is not None
        client.send(Probe(start=difference.start, count=difference.count))
        probed = client.receive()
        assert isinstance(probed, Probed)
        hashes = id_hashes(mine, difference.start, difference.count)
        assert first_difference(hashes, probed.id_hashes, probed.start) == 40
        client.send(open_message(A, PROMPT))
        refused = client.receive()
        assert isinstance(refused, Error)
        assert (refused.code, refused.channel) == ("vocabulary_mismatch", 1)
    assert len(cloud.sessions) == 0


@pytest.mark.parametrize("fields", [[1, 2, "client", None], [1, 99, "client", None, "a new field", 5]])
def test_another_version_is_told_both_versions(cloud: RunningCloud, fields: list[object]) -> None:
    with wire_client(cloud.url, greet=False) as client:
        client.websocket.send(msgspec.msgpack.encode(fields))
        error, code = last_word(client)
    assert (error.code, code) == ("version", 1002)
    assert str(fields[1]) in error.message
    assert "version 1" in error.message


def test_anything_before_hello_is_refused(cloud: RunningCloud) -> None:
    with wire_client(cloud.url, greet=False) as client:
        client.send(open_message(A, PROMPT))
        error, code = last_word(client)
    assert (error.code, code) == ("protocol", 1002)
    assert len(cloud.sessions) == 0


def test_a_second_hello_is_refused(cloud: RunningCloud) -> None:
    with wire_client(cloud.url) as client:
        client.send(Hello(version=1, client="again"))
        error, code = last_word(client)
    assert (error.code, code) == ("protocol", 1002)


def test_a_connection_that_says_nothing_is_closed(cloud: RunningCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgedraft.cloud.connection.HELLO_TIMEOUT_S", 0.05)
    with wire_client(cloud.url, greet=False) as client:
        error, code = last_word(client)
    assert (error.code, code) == ("protocol", 1002)
    assert "Hello" in error.message


# -- frames ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "code", "close_code"),
    [
        (b"", "malformed_frame", 1002),
        (b"\xff\xff\xff", "malformed_frame", 1002),
        (msgspec.msgpack.encode([200, 1, 2]), "malformed_frame", 1002),
        (msgspec.msgpack.encode([9, 1, 1, 3, "one field too many"]), "malformed_frame", 1002),
        (encode(open_message(A, PROMPT))[:-4], "malformed_frame", 1002),
        ("a text frame", "malformed_frame", 1002),
        (bytes(MAX_FRAME_BYTES + 1), "frame_too_large", 1009),
    ],
    ids=["empty", "noise", "unknown tag", "extra field", "truncated", "text", "oversized"],
)
def test_a_bad_frame_gets_one_error_and_the_close_code_and_others_go_on(
    cloud: RunningCloud, frame: bytes | str, code: str, close_code: int
) -> None:
    with wire_client(cloud.url) as other, wire_client(cloud.url) as client:
        other.send(open_message(B, PROMPT))
        assert isinstance(other.receive(), Opened)
        client.websocket.send(frame)
        error, closed_with = last_word(client)
        assert (error.code, closed_with) == (code, close_code)
        other.send(draft_message(3, [5]))
        assert isinstance(other.receive(), Commit)
    cloud.call(lambda: cloud.sessions.evict_all("end of test"))


def test_a_frame_far_too_large_is_not_even_read(cloud: RunningCloud) -> None:
    with wire_client(cloud.url) as client:
        client.websocket.send(bytes(MAX_READ_BYTES + 1))
        with pytest.raises(LinkLostError):
            client.receive()
        assert client.close_code() == 1009


def test_an_error_in_one_session_leaves_the_connection_and_its_other_sessions(cloud: RunningCloud) -> None:
    with wire_client(cloud.url) as client:
        client.send(open_message(A, PROMPT, channel=1))
        client.send(open_message(B, [63_000], channel=2))
        client.send(draft_message(9, [5], channel=7))
        first, second, third = (client.receive() for _ in range(3))
        assert isinstance(first, Opened)
        assert isinstance(second, Error)
        assert (second.code, second.channel) == ("invalid_request", 2)
        assert isinstance(third, Error)
        assert (third.code, third.channel) == ("session_lost", 7)
        client.send(draft_message(3, [5], channel=1))
        assert isinstance(client.receive(), Commit)
    cloud.call(lambda: cloud.sessions.evict_all("end of test"))


# -- tokens ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, "", "wrong", "open sesam", "open sesame2"])
def test_without_the_token_every_route_answers_401(guarded: RunningCloud, token: str | None) -> None:
    with pytest.raises(InvalidStatus) as caught, wire_client(guarded.url, token=token):
        pass
    assert caught.value.response.status_code == 401
    body = caught.value.response.body
    assert body is not None
    assert json.loads(body)["error"]["code"] == "unauthorized"
    unknown = guarded.url.replace("/v1/edgedraft", "/v1/other")
    with pytest.raises(InvalidStatus) as caught, wire_client(unknown, token=token):
        pass
    assert caught.value.response.status_code == 401
    for path in ("/health", "/", "/docs", "/openapi.json", "/v1/edgedraft", "/../../etc/passwd"):
        status, answer = get(guarded, path, token=token)
        assert (status, answer["error"]["code"]) == (401, "unauthorized"), path


def test_with_the_token_both_routes_answer(guarded: RunningCloud) -> None:
    with wire_client(guarded.url, token="open sesame") as client:
        client.send(open_message(A, PROMPT))
        assert isinstance(client.receive(), Opened)
    assert get(guarded, "/health", token="open sesame")[0] == 200


def test_there_is_no_other_route_and_nothing_to_choose(cloud: RunningCloud) -> None:
    for path in ("/", "/docs", "/redoc", "/openapi.json", "/v1/models", "/v1/edgedraft"):
        assert get(cloud, path)[0] == 404, path
    assert get(cloud, "/health", method="POST")[0] == 405


def test_a_token_instead_of_a_digest_fails_at_once() -> None:
    config = CloudConfig(token_sha256=("open sesame",))
    with pytest.raises(InvalidRequestError, match="token_sha256"):
        create_app(config, toy_cloud_target(), TOKENIZER, "", model_name="toy")


# -- health ----------------------------------------------------------------------------------------------------------


def test_health_tells_state_versions_and_sessions(cloud: RunningCloud) -> None:
    with wire_client(cloud.url) as client:
        client.send(open_message(A, PROMPT))
        assert isinstance(client.receive(), Opened)
        status, health = get(cloud, "/health")
    assert status == 200
    assert (health["ready"], health["saturated"]) == (True, False)
    assert health["model"].startswith("toy:")
    assert health["energy"]["kind"] in ("measured", "modelled")
    assert health["energy"]["busy_s"] >= 0 <= health["energy"]["energy_j"]
    assert health["versions"]["protocol"] == 1
    assert health["versions"]["engine"] == "toy"
    assert health["versions"]["edgedraft"]
    assert health["sessions"] == {"open": 1, "connected": 1, "max": 8}
    assert health["tokens"]["held"] == 3
    assert health["exactness"]["class"] == "bitwise"
    cloud.call(lambda: cloud.sessions.evict_all("end of test"))


def test_health_answers_while_the_target_is_stuck_in_a_prefill() -> None:
    target = toy_cloud_target()
    with running_cloud(target, TOKENIZER) as cloud:
        target.prefill_gate.shut()
        try:
            with wire_client(cloud.url) as client:
                client.send(open_message(A, PROMPT))
                assert isinstance(client.receive(), Opened)
                assert target.prefill_gate.entered.wait(10)
                status, health = get(cloud, "/health")
                assert (status, health["ready"], health["queue"]["waiting"]) == (200, True, 1)
        finally:
            target.prefill_gate.open()


def test_health_tells_that_the_target_died(caplog: pytest.LogCaptureFixture) -> None:
    class Mortal(ToyTarget):
        def prefill(self, session_id: bytes) -> int:
            raise SystemExit("the engine is gone")

    with running_cloud(Mortal(ToyModel(SETTINGS)), TOKENIZER) as cloud:
        with wire_client(cloud.url) as client:
            client.send(open_message(A, PROMPT))
            assert isinstance(client.receive(), Opened)
            lost = client.receive()
            assert isinstance(lost, Error)
            assert lost.code == "session_lost"
            client.send(open_message(A, PROMPT, incarnation=2, attach=2))
            refused = client.receive()
            assert isinstance(refused, Error)
            assert refused.code == "backend"
        status, health = get(cloud, "/health")
        assert (status, health["ready"], health["sessions"]["open"]) == (503, False, 0)
    assert "thread ended: SystemExit" in caplog.text


def test_an_engine_that_batches_says_so() -> None:
    target = toy_cloud_target()
    target.info = dataclasses.replace(target.info, deterministic=False, exactness_note="depends on the batch")
    with running_cloud(target, TOKENIZER) as cloud, wire_client(cloud.url, greet=False) as client:
        statement = client.greet().exactness
        assert (statement.exactness, statement.depends_on) == (Exactness.UP_TO_NUMERICS, "depends on the batch")


def test_a_wrong_path_is_not_found_rather_than_forbidden(cloud: RunningCloud) -> None:
    with pytest.raises(InvalidStatus) as refused, connect(cloud.url + "/more", proxy=None):
        pass

    assert refused.value.response.status_code == 404
