"""A client that speaks the protocol by hand, one message at a time, for tests of the cloud."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from edgedraft.errors import LinkLostError
from edgedraft.protocol.codec import decode_from_cloud, encode
from edgedraft.protocol.messages import (
    PROTOCOL_VERSION,
    Draft,
    Fingerprint,
    FromCloud,
    FromEdge,
    Hello,
    Open,
    Welcome,
)
from edgedraft.types import Assist, Owner, Rule, SamplingParams

ANSWER_TIMEOUT_S = 10.0


class WireClient:
    """One open connection. Blocking; each call waits a few seconds at most."""

    def __init__(self, websocket: ClientConnection) -> None:
        self.websocket = websocket

    def send(self, message: FromEdge) -> None:
        self.websocket.send(encode(message))

    def receive(self, timeout_s: float = ANSWER_TIMEOUT_S) -> FromCloud:
        """The next message. Raises `LinkLostError` where the connection ends, `TimeoutError` where nothing comes."""
        try:
            return decode_from_cloud(self.websocket.recv(timeout=timeout_s))
        except ConnectionClosed as error:
            raise LinkLostError(f"the cloud closed the connection: {error}.") from None

    def close_code(self) -> int | None:
        """Wait for the end of the connection; the code the cloud closed it with, None where it just vanished."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                self.websocket.recv(timeout=ANSWER_TIMEOUT_S)
        rcvd = self.websocket.protocol.close_rcvd
        return None if rcvd is None else rcvd.code

    def greet(self, fingerprint: Fingerprint | None = None) -> Welcome:
        """The handshake."""
        self.send(Hello(version=PROTOCOL_VERSION, client="wire test", fingerprint=fingerprint))
        welcome = self.receive()
        assert isinstance(welcome, Welcome), welcome  # noqa: S101
        return welcome

    def vanish(self) -> None:
        """End the connection as a dead process does: no close frame."""
        with contextlib.suppress(OSError):
            self.websocket.socket.shutdown(socket.SHUT_RDWR)
        self.websocket.socket.close()


@contextlib.contextmanager
def wire_client(url: str, *, token: str | None = None, greet: bool = True) -> Iterator[WireClient]:
    """Connect, by default with the handshake done. Raises websockets' own errors where the cloud refuses."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with connect(
        url, additional_headers=headers, compression=None, proxy=None, close_timeout=1, max_size=None
    ) as websocket:
        client = WireClient(websocket)
        if greet:
            client.greet()
        yield client


def open_message(
    session_id: bytes,
    token_ids: Sequence[int],
    *,
    channel: int = 1,
    incarnation: int = 1,
    attach: int = 1,
    num_new: int = 64,
    assist: Assist = Assist.NONE,
    num_prompt: int | None = None,
) -> Open:
    """A greedy session in exact mode; `num_new`: how many ids may follow the prompt."""
    length = len(token_ids) if num_prompt is None else num_prompt
    return Open(
        channel=channel,
        session_id=session_id,
        incarnation=incarnation,
        attach=attach,
        owner=Owner.CLOUD,
        num_prompt=length,
        num_committed=0,
        max_length=length + num_new,
        stop_ids=[],
        ignore_eos=False,
        sampling=SamplingParams(),
        rule=Rule.MATCH,
        rank=1,
        assist=assist,
        eager=False,
        timings=False,
        logprobs=False,
        bonus=False,
        fork_of=b"",
        token_ids=list(token_ids),
    )


def draft_message(
    position: int, token_ids: Sequence[int], *, channel: int = 1, incarnation: int = 1, epoch: int = 0
) -> Draft:
    """A draft that asks for a verdict."""
    return Draft(
        channel=channel,
        incarnation=incarnation,
        epoch=epoch,
        position=position,
        token_ids=list(token_ids),
        verify=True,
        committed_length=position,
    )
