"""The link itself: who is reached, who is refused, what goes first, and that one request's trouble stays its own."""

from __future__ import annotations

import asyncio
import hashlib
import http
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trustme
from websockets.asyncio.server import Request, Response, ServerConnection, serve

from edgedraft import AsyncEdgeClient
from edgedraft.backends.toy import ToyTarget
from edgedraft.backends.toy_model import ToyModel, ToySettings
from edgedraft.backends.toy_tokenizer import CHAT_TEMPLATE, ToyTokenizer
from edgedraft.config import CloudConfig, EdgeConfig
from edgedraft.core.events import EdgeEvent, LinkDown, LinkUp, MessageReceived, SendToCloud, Uploaded
from edgedraft.edge.connection import CloudConnection, SessionLink
from edgedraft.edge.handshake import Vocabulary, dial, is_loopback
from edgedraft.edge.outbox import Outbox
from edgedraft.errors import (
    AuthError,
    CloudUnreachableError,
    EdgedraftError,
    InvalidRequestError,
    MalformedFrameError,
    ProtocolError,
    SaturatedError,
    VersionError,
)
from edgedraft.protocol.codec import decode_from_edge, encode, error_to_wire, wire_size_bytes
from edgedraft.protocol.fingerprint import fingerprint
from edgedraft.protocol.messages import (
    MAX_FRAME_BYTES,
    Ack,
    Cancel,
    Close,
    Draft,
    ExactnessStatement,
    FromEdge,
    Limits,
    Open,
    Opened,
    OpenIds,
    Welcome,
)
from edgedraft.testing.cloud import RunningCloud, running_cloud
from edgedraft.types import Assist, Exactness, Owner, Rule, SamplingParams

TOKENIZER = ToyTokenizer(300)
VOCABULARY = Vocabulary.of(TOKENIZER)
Script = Callable[[ServerConnection], Awaitable[None]]


def welcome(version: int = 1) -> Welcome:
    return Welcome(
        version=version,
        server="test",
        model="toy",
        fingerprint=fingerprint(TOKENIZER),
        chat_template="",
        limits=Limits(context_length=4096, max_pending_tokens=64, assist_lead_tokens=8, rules=[Rule.MATCH]),
        exactness=ExactnessStatement(exactness=Exactness.BITWISE, depends_on=""),
    )


def with_peer(script: Script, work: Callable[[str], Awaitable[None]], **options: object) -> None:
    """Run `work` against a cloud that does what `script` says on each connection."""

    async def inside() -> None:
        async with serve(script, "127.0.0.1", 0, compression=None, **options) as server:  # type: ignore[arg-type]
            port = next(iter(server.sockets)).getsockname()[1]
            await work(f"ws://127.0.0.1:{port}/v1/edgedraft")

    asyncio.run(inside())


def with_answer(frame: bytes | str) -> Script:
    async def script(peer: ServerConnection) -> None:
        await peer.recv()
        await peer.send(frame)
        await peer.wait_closed()

    return script


def dial_error(script: Script, error: type[EdgedraftError], **options: object) -> EdgedraftError:
    caught: list[EdgedraftError] = []

    async def work(url: str) -> None:
        with pytest.raises(error) as raised:
            await dial(EdgeConfig(url=url), VOCABULARY, timeout_s=2.0)
        caught.append(raised.value)

    with_peer(script, work, **options)
    return caught[0]


# -- the handshake ---------------------------------------------------------------------------------------------------


def test_another_protocol_version_is_told_with_both_numbers() -> None:
    """Version 2 itself cannot be built with this version's types, so its first bytes are written by hand."""
    frame = bytearray(encode(welcome()))
    frame[2] = 2
    error = dial_error(with_answer(bytes(frame)), VersionError)
    assert "2" in str(error)
    assert "1" in str(error)


def test_a_version_error_of_the_cloud_comes_through() -> None:
    error = dial_error(with_answer(encode(error_to_wire(VersionError("version is 1"), None))), VersionError)
    assert "version is 1" in str(error)


@pytest.mark.parametrize(
    "frame", [b"", b"\xc1garbage", "text", encode(Opened(channel=0, incarnation=1, committed_length=1))]
)
def test_an_answer_that_is_no_welcome_is_a_protocol_error(frame: bytes | str) -> None:
    dial_error(with_answer(frame), ProtocolError)


def test_an_oversized_answer_is_not_read() -> None:
    error = dial_error(with_answer(b"\x00" * (MAX_FRAME_BYTES + 1)), CloudUnreachableError)
    assert "handshake" in str(error)


def test_a_cloud_that_says_nothing_times_out() -> None:
    async def script(peer: ServerConnection) -> None:
        await peer.wait_closed()

    async def work(url: str) -> None:
        with pytest.raises(CloudUnreachableError, match=r"within 0\.2 s"):
            await dial(EdgeConfig(url=url), VOCABULARY, timeout_s=0.2)

    with_peer(script, work)


@pytest.mark.parametrize(
    ("status", "error"), [(401, AuthError), (403, AuthError), (503, SaturatedError), (404, CloudUnreachableError)]
)
def test_a_refused_upgrade_is_explained(status: int, error: type[EdgedraftError]) -> None:
    def refuse(peer: ServerConnection, request: Request) -> Response:
        response = peer.respond(http.HTTPStatus(status), "no")
        response.headers["Retry-After"] = "7"
        return response

    async def script(peer: ServerConnection) -> None:
        raise AssertionError("never reached")

    raised = dial_error(script, error, process_request=refuse)
    assert isinstance(raised, SaturatedError) or raised.remedy
    assert not isinstance(raised, SaturatedError) or raised.retry_after_s == 7


def test_a_peer_that_speaks_no_http_is_explained() -> None:
    async def inside() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 mail.example ESMTP\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(CloudUnreachableError):
                await dial(EdgeConfig(url=f"ws://127.0.0.1:{port}/"), VOCABULARY, timeout_s=2.0)

    asyncio.run(inside())


@pytest.mark.parametrize(
    "url", ["ws://127.0.0.1:1/", "ws://no-such-host.invalid/", "ws://[::1]:1/", "wss://127.0.0.1:1/"]
)
def test_nobody_there_names_the_url(url: str) -> None:
    async def work() -> None:
        with pytest.raises(CloudUnreachableError) as caught:
            await dial(EdgeConfig(url=url), VOCABULARY, timeout_s=5.0)
        assert url in str(caught.value)
        assert caught.value.remedy

    asyncio.run(work())


@pytest.mark.parametrize(
    "url",
    [
        "ws://[::1/x",
        "ws://127.0.0.1:99999/",
        "ws://127.0.0.1:port/",
        "ws://",
        "ws://\udcff/",
        "ws://:80/",
        "ws://127.0.0.1/#x",
    ],
)
def test_what_is_no_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        AsyncEdgeClient(url)
    assert caught.value.field == "url"
    assert caught.value.remedy


@pytest.mark.parametrize("token", ["secret\r\nX-More: 1", "secret\n", "s\u00e9cret", "secret\udcff"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        AsyncEdgeClient("ws://127.0.0.1:1/", token=token)
    assert caught.value.field == "token"
    assert "cret" not in str(caught.value)


def test_tokens(target_spec: str, draft_spec: str) -> None:
    config = CloudConfig(port=0, token_sha256=(hashlib.sha256(b"right").hexdigest(),))
    target = ToyTarget(ToyModel(ToySettings.parse(target_spec.partition(":")[2])))
    with running_cloud(target, TOKENIZER, CHAT_TEMPLATE, config) as cloud:

        async def ask(token: str | None) -> int:
            async with AsyncEdgeClient(cloud.url, draft=draft_spec, token=token) as client:
                return (await client.generate(prompt_ids=[1], max_tokens=3)).usage.completion_tokens

        assert asyncio.run(ask("right")) == 3
        for token in (None, "wrong", ""):
            with pytest.raises(AuthError) as caught:
                asyncio.run(ask(token))
            assert "--token" in caught.value.remedy
            assert "EDGEDRAFT_TOKEN" in caught.value.remedy
            assert "wrong" not in str(caught.value)


def test_url_and_token_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEDRAFT_URL", "wss://cloud.example/v1/edgedraft")
    monkeypatch.setenv("EDGEDRAFT_TOKEN", "secret")
    assert AsyncEdgeClient().config.url == "wss://cloud.example/v1/edgedraft"
    assert AsyncEdgeClient().config.token == "secret"
    assert AsyncEdgeClient("ws://other/", token="mine").config == EdgeConfig(url="ws://other/", token="mine")


def test_a_proxy_in_the_environment_does_not_break_a_local_cloud(
    shared_cloud: RunningCloud, draft_spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "ws_proxy", "wss_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.setenv(name.upper(), "http://127.0.0.1:1")

    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            assert (await client.generate(prompt_ids=[1], max_tokens=3)).usage.completion_tokens == 3

    asyncio.run(work())


def test_a_proxy_is_used_elsewhere_and_named_when_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    async def work() -> None:
        with pytest.raises(CloudUnreachableError):
            await dial(EdgeConfig(url="ws://cloud.invalid/"), VOCABULARY, timeout_s=5.0)

    asyncio.run(work())


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("ws://127.0.0.1:8765/", True),
        ("ws://127.3.2.1/", True),
        ("ws://localhost:1/", True),
        ("ws://[::1]:1/", True),
        ("wss://cloud.example/", False),
        ("ws://10.0.0.1/", False),
    ],
)
def test_loopback_hosts(url: str, local: bool) -> None:
    assert is_loopback(url) is local


def test_tls_with_an_own_authority(tmp_path: Path) -> None:
    authority = trustme.CA()
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server_tls)
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))

    async def work(url: str) -> None:
        url = url.replace("ws://", "wss://")
        dialled = await dial(EdgeConfig(url=url, tls_ca=ca_file), VOCABULARY, timeout_s=5.0)
        await dialled.socket.close()
        with pytest.raises(CloudUnreachableError) as caught:
            await dial(EdgeConfig(url=url), VOCABULARY, timeout_s=5.0)
        assert "--tls-ca" in caught.value.remedy
        with pytest.raises(CloudUnreachableError, match="tls_ca"):
            await dial(EdgeConfig(url=url, tls_ca=tmp_path / "none.pem"), VOCABULARY, timeout_s=5.0)

    with_peer(with_answer(encode(welcome())), work, ssl=server_tls)


# -- the shared connection -------------------------------------------------------------------------------------------


class Listener:
    """One request's view of the link."""

    def __init__(self, connection: CloudConnection) -> None:
        self.events: list[EdgeEvent] = []
        self.failures: list[EdgedraftError] = []
        self.changed = asyncio.Event()
        self.link: SessionLink = connection.attach(self._on_event, self._on_failure)

    def _on_event(self, event: EdgeEvent) -> None:
        self.events.append(event)
        self.changed.set()

    def _on_failure(self, error: EdgedraftError) -> None:
        self.failures.append(error)
        self.changed.set()

    async def until(self, kind: type) -> EdgeEvent:
        while not any(isinstance(event, kind) for event in self.events):
            self.changed.clear()
            await self.changed.wait()
        return next(event for event in self.events if isinstance(event, kind))

    async def until_true(self, condition: Callable[[], bool]) -> None:
        while not (self.events and condition()):
            self.changed.clear()
            await self.changed.wait()

    async def failed(self) -> EdgedraftError:
        while not self.failures:
            self.changed.clear()
            await self.changed.wait()
        return self.failures[0]


def test_messages_reach_their_own_request_and_bytes_are_counted_for_it() -> None:
    async def script(peer: ServerConnection) -> None:
        await peer.recv()
        await peer.send(encode(welcome()))
        async for frame in peer:
            message = decode_from_edge(frame)
            assert isinstance(message, Ack)
            for channel in (message.channel, 99):
                await peer.send(encode(Opened(channel=channel, incarnation=1, committed_length=5)))

    async def work(url: str) -> None:
        connection = CloudConnection(EdgeConfig(url=url), VOCABULARY)
        await connection.welcome()
        one, two = Listener(connection), Listener(connection)
        assert one.events == []
        await one.until(LinkUp)
        await two.until(LinkUp)
        ups = [event for listener in (one, two) for event in listener.events if isinstance(event, LinkUp)]
        assert ups[0].channel != ups[1].channel
        ack = Ack(channel=ups[0].channel, incarnation=1, committed_length=5)
        one.link.send(SendToCloud(ack, asks=True))
        received = await one.until(MessageReceived)
        assert isinstance(received, MessageReceived)
        assert received.message == Opened(channel=ups[0].channel, incarnation=1, committed_length=5)
        assert any(isinstance(event, Uploaded) for event in one.events)
        assert one.link.bytes_up == wire_size_bytes(len(encode(ack)), masked=True)
        assert one.link.bytes_down == wire_size_bytes(len(encode(received.message)), masked=False)
        assert (two.link.bytes_up, two.link.bytes_down) == (0, 0)
        await connection.close()

    with_peer(script, work)


def test_a_channel_is_not_used_again_on_a_connection() -> None:
    """A late message of a finished request must find nobody."""

    async def work(url: str) -> None:
        connection = CloudConnection(EdgeConfig(url=url), VOCABULARY)
        channels = set()
        for _ in range(5):
            listener = Listener(connection)
            up = await listener.until(LinkUp)
            assert isinstance(up, LinkUp)
            channels.add(up.channel)
            listener.link.detach()
            listener.link.detach()
        assert len(channels) == 5
        await connection.close()

    with_peer(with_answer(encode(welcome())), work)


def test_an_idle_edge_does_not_hammer_a_cloud_that_went_away() -> None:
    num_connections = 0

    async def script(peer: ServerConnection) -> None:
        nonlocal num_connections
        num_connections += 1
        await peer.recv()
        await peer.send(encode(welcome()))

    async def work(url: str) -> None:
        connection = CloudConnection(EdgeConfig(url=url), VOCABULARY)
        await connection.welcome()
        await asyncio.sleep(0.3)
        assert num_connections == 1
        await connection.welcome()
        assert num_connections == 2
        await connection.close()

    with_peer(script, work)


def test_a_cloud_that_says_nothing_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not again by each request that follows, until it is worth another try."""
    monkeypatch.setattr("edgedraft.edge.connection.HOLD_OFF_S", 0.6)
    num_connections, answers = 0, False

    async def script(peer: ServerConnection) -> None:
        nonlocal num_connections
        num_connections += 1
        await peer.recv()
        if answers:
            await peer.send(encode(welcome()))
        async for _ in peer:
            pass

    async def work(url: str) -> None:
        nonlocal answers
        connection = CloudConnection(EdgeConfig(url=url, connect_timeout_s=0.6), VOCABULARY)
        first = await Listener(connection).failed()
        assert isinstance(first, CloudUnreachableError)
        assert num_connections == 1
        for _ in range(3):
            assert "has just not answered" in str(await Listener(connection).failed())
            with pytest.raises(CloudUnreachableError):
                await connection.welcome()
        assert num_connections == 1
        answers = True
        await asyncio.sleep(0.7)
        await Listener(connection).until(LinkUp)
        await connection.close()

    with_peer(script, work)


def test_a_cloud_that_was_there_is_dialled_again_by_every_request(own_cloud: RunningCloud) -> None:
    """However long the one before waited in vain: it may be back."""

    async def work() -> None:
        connection = CloudConnection(
            EdgeConfig(url=own_cloud.url, connect_timeout_s=0.3, reconnect_timeout_s=0.3), None
        )
        await connection.welcome()
        await asyncio.to_thread(own_cloud.stop)
        assert isinstance(await Listener(connection).failed(), EdgedraftError)
        await asyncio.to_thread(own_cloud.restart)
        await Listener(connection).until(LinkUp)
        await connection.close()

    asyncio.run(work())


def test_requests_hear_of_a_lost_link_and_of_the_next_one() -> None:
    num_connections = 0

    async def script(peer: ServerConnection) -> None:
        nonlocal num_connections
        num_connections += 1
        await peer.recv()
        await peer.send(encode(welcome()))
        if num_connections > 1:
            await peer.wait_closed()

    async def work(url: str) -> None:
        connection = CloudConnection(EdgeConfig(url=url), VOCABULARY)
        listener = Listener(connection)
        await listener.until_true(lambda: num_connections == 2 and isinstance(listener.events[-1], LinkUp))
        assert [type(event) for event in listener.events] in ([LinkUp, LinkDown, LinkUp], [LinkUp])
        await connection.close()

    with_peer(script, work)


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (b"\xc1", MalformedFrameError),
        (encode(welcome()), ProtocolError),
        (encode(error_to_wire(ProtocolError("broken rule"), None)), ProtocolError),
        (encode(error_to_wire(SaturatedError("draining", retry_after_s=9.0), None)), SaturatedError),
    ],
)
def test_a_cloud_that_breaks_the_rules_fails_the_requests(frame: bytes, error: type[EdgedraftError]) -> None:
    async def script(peer: ServerConnection) -> None:
        await peer.recv()
        await peer.send(encode(welcome()))
        await peer.recv()
        await peer.send(frame)
        await peer.wait_closed()

    async def work(url: str) -> None:
        connection = CloudConnection(EdgeConfig(url=url), VOCABULARY)
        listener = Listener(connection)
        await listener.until(LinkUp)
        listener.link.send(SendToCloud(Ack(channel=0, incarnation=1, committed_length=5)))
        assert isinstance(await listener.failed(), error)
        await connection.close()

    with_peer(script, work)


def test_what_is_queued_leaves_before_the_client_does() -> None:
    received: list[FromEdge] = []

    async def script(peer: ServerConnection) -> None:
        await peer.recv()
        await peer.send(encode(welcome()))
        received.extend([decode_from_edge(frame) async for frame in peer])

    async def work(url: str) -> None:
        connection = CloudConnection(EdgeConfig(url=url), VOCABULARY)
        listener = Listener(connection)
        await listener.until(LinkUp)
        listener.link.send(SendToCloud(Cancel(channel=0, incarnation=1)))
        listener.link.detach()
        await connection.close()
        assert received == [Cancel(channel=0, incarnation=1)]

    with_peer(script, work)


def test_a_long_queue_leaves_before_the_client_does() -> None:
    """More than fits between the two: closing waits until the link has taken it."""
    num_received = 0
    all_read = asyncio.Event()

    async def script(peer: ServerConnection) -> None:
        nonlocal num_received
        await peer.recv()
        await peer.send(encode(welcome()))
        async for _ in peer:
            await asyncio.sleep(0)
            num_received += 1
        all_read.set()

    async def work(url: str) -> None:
        connection = CloudConnection(EdgeConfig(url=url), VOCABULARY)
        listener = Listener(connection)
        await listener.until(LinkUp)
        piece = OpenIds(channel=0, incarnation=1, offset=0, token_ids=[100_000] * 3000)
        for _ in range(600):
            listener.link.send(SendToCloud(piece))
        listener.link.detach()
        await connection.close()
        await all_read.wait()
        assert num_received == 600

    with_peer(script, work)


def test_a_saturated_cloud_is_dialled_again_when_it_says() -> None:
    num_connections = 0

    async def script(peer: ServerConnection) -> None:
        nonlocal num_connections
        num_connections += 1
        await peer.recv()
        full = error_to_wire(SaturatedError("full", retry_after_s=0.05), None)
        await peer.send(encode(full if num_connections < 3 else welcome()))
        await peer.wait_closed()

    async def work(url: str) -> None:
        connection = CloudConnection(EdgeConfig(url=url), VOCABULARY)
        assert (await connection.welcome()).model == "toy"
        assert num_connections == 3
        await connection.close()

    with_peer(script, work)


def test_saturation_that_outlasts_the_callers_patience_is_an_error() -> None:
    script = with_answer(encode(error_to_wire(SaturatedError("full", retry_after_s=60.0), None)))

    async def work(url: str) -> None:
        connection = CloudConnection(EdgeConfig(url=url), VOCABULARY)
        with pytest.raises(SaturatedError) as caught:
            await connection.welcome()
        assert caught.value.retry_after_s == 60.0
        await connection.close()

    with_peer(script, work)


# -- what goes first -------------------------------------------------------------------------------------------------


def opening(channel: int, num_pieces: int) -> list[FromEdge]:
    first = Open(
        channel=channel,
        session_id=bytes(16),
        incarnation=1,
        attach=1,
        owner=Owner.CLOUD,
        num_prompt=num_pieces,
        num_committed=0,
        max_length=100,
        stop_ids=[],
        ignore_eos=False,
        sampling=SamplingParams(),
        rule=Rule.MATCH,
        rank=1,
        assist=Assist.NONE,
        eager=False,
        timings=True,
        logprobs=False,
        bonus=False,
        fork_of=b"",
        token_ids=[1],
    )
    pieces = [OpenIds(channel=channel, incarnation=1, offset=at, token_ids=[1]) for at in range(1, num_pieces)]
    return [first, *pieces]


def draft(channel: int) -> Draft:
    return Draft(channel=channel, incarnation=1, epoch=0, position=5, token_ids=[1], verify=True, committed_length=5)


def order_of(messages: list[FromEdge]) -> list[tuple[int, str]]:
    async def work() -> list[tuple[int, str]]:
        outbox = Outbox()
        for message in messages:
            outbox.put(message.channel, message, lambda: None, lambda _: None)  # type: ignore[union-attr]
        taken = []
        for _ in messages:
            if outbox.empty:
                break
            outgoing = await outbox.take()
            if outgoing.heavy:
                outbox.answered(0.0)
            taken.append((outgoing.channel, type(decode_from_edge(outgoing.payload)).__name__))
        return taken

    return asyncio.run(work())


def test_a_draft_overtakes_the_prompts_of_others() -> None:
    assert order_of([*opening(1, 3), draft(2)]) == [(2, "Draft"), (1, "Open"), (1, "OpenIds"), (1, "OpenIds")]


def test_a_request_keeps_its_own_order() -> None:
    assert order_of([*opening(1, 2), draft(1)]) == [(1, "Open"), (1, "OpenIds"), (1, "Draft")]


def test_cancelling_drops_the_rest_of_the_own_prompt() -> None:
    messages = [*opening(1, 3), *opening(2, 2), Close(channel=1, incarnation=1)]
    assert order_of(messages) == [(1, "Open"), (2, "Open"), (2, "OpenIds"), (1, "Close")]
