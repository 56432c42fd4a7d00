"""The life of one WebSocket: the handshake, then messages in and out until either side ends it.

One task reads, one writes; neither waits for the target. What a single session does wrong is answered on its channel.
What breaks the connection itself (bytes that are no message, no `Hello`) gets one `Error`, then the close code.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from fastapi import WebSocket, WebSocketDisconnect

from edgedraft.backends.base import Tokenizer
from edgedraft.cloud.sessions import Connection, SessionTable
from edgedraft.cloud.worker import log_failure
from edgedraft.errors import FrameTooLargeError, LinkLostError, ProtocolError, VocabularyMismatchError
from edgedraft.protocol.codec import decode_from_edge, encode, error_to_wire
from edgedraft.protocol.fingerprint import Difference, compare, id_hashes
from edgedraft.protocol.messages import Fingerprint, FromEdge, Hello, Open, Probe, Probed
from edgedraft.protocol.version import check_version

HELLO_TIMEOUT_S = 10.0
FLUSH_TIMEOUT_S = 2.0
MAX_QUEUED_BYTES = 262_144
"""What may wait for a slow reader, beyond the transport's own buffer. A verdict takes about 60 bytes."""

CLOSE_PROTOCOL = 1002
CLOSE_TOO_BIG = 1009


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """What every connection is told. `welcome`: the encoded `Welcome`, which is the same for all."""

    welcome: bytes
    fingerprint: Fingerprint
    tokenizer: Tokenizer


class Outbox:
    """Frames on their way to one edge, in order. A reader so slow that they pile up is cut off."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._num_bytes = 0
        self._close: tuple[int, str] | None = None
        self._overflowed = False
        self._wake = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None

    def send(self, frame: bytes) -> None:
        """Queue a frame; nothing is taken after `close`."""
        if self._close is not None or self._overflowed:
            return
        self._frames.append(frame)
        self._num_bytes += len(frame)
        if self._num_bytes > MAX_QUEUED_BYTES:
            self._cut_off()
        self._wake.set()

    def close(self, code: int, reason: str) -> None:
        """Close the connection once what is queued has left."""
        self._close = self._close or (code, reason)
        self._wake.set()

    def _cut_off(self) -> None:
        self._overflowed = True
        self._frames.clear()
        if self._writer is not None:
            self._writer.cancel()

    def start(self, websocket: WebSocket) -> asyncio.Task[None]:
        """The task that writes; it ends after `close`, and is cancelled for a reader that is too slow."""
        self._writer = asyncio.create_task(self._write(websocket))
        return self._writer

    async def _write(self, websocket: WebSocket) -> None:
        while True:
            while self._frames:
                frame = self._frames.popleft()
                await websocket.send_bytes(frame)
                self._num_bytes -= len(frame)
            if self._close is not None:
                await websocket.close(*self._close)
                return
            self._wake.clear()
            await self._wake.wait()


async def serve_connection(websocket: WebSocket, subject: str, greeting: Greeting, table: SessionTable) -> None:
    """Serve one accepted connection to its end. Its sessions learn of the end at once."""
    outbox = Outbox()
    connection = table.connect(subject, outbox)
    writer = outbox.start(websocket)
    reader = asyncio.create_task(_read(websocket, outbox, connection, greeting, table))
    try:
        await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
        table.disconnect(connection)
        if reader.done() and reader.exception() is None and reader.result():
            await asyncio.wait({writer}, timeout=FLUSH_TIMEOUT_S)
    finally:
        table.disconnect(connection)
        for task in (reader, writer):
            task.cancel()
        ended = await asyncio.gather(reader, writer, return_exceptions=True)
        for result in ended:
            if isinstance(result, Exception) and not isinstance(result, WebSocketDisconnect):
                log_failure("a connection failed", result)


async def _read(
    websocket: WebSocket, outbox: Outbox, connection: Connection, greeting: Greeting, table: SessionTable
) -> bool:
    """Read until the end. True: there is a last word to send, false: the edge has gone."""
    try:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            difference = await _greet(websocket, outbox, greeting)
        while True:
            message = await _next_message(websocket)
            if isinstance(message, Probe):
                hashes = await asyncio.to_thread(id_hashes, greeting.tokenizer, message.start, message.count)
                outbox.send(encode(Probed(start=message.start, id_hashes=hashes)))
            elif isinstance(message, Hello):
                raise ProtocolError("Hello came twice on one connection.")
            elif isinstance(message, Open) and difference is not None:
                table.refuse(connection, message, _mismatch(difference))
            else:
                table.receive(connection, message)
    except LinkLostError:
        return False
    except (ProtocolError, TimeoutError) as error:
        code = CLOSE_TOO_BIG if isinstance(error, FrameTooLargeError) else CLOSE_PROTOCOL
        if isinstance(error, TimeoutError):
            error = ProtocolError(f"No Hello came within {HELLO_TIMEOUT_S:g} s.")
        outbox.send(encode(error_to_wire(error, None)))
        outbox.close(code, error.code)
        return True


async def _greet(websocket: WebSocket, outbox: Outbox, greeting: Greeting) -> Difference | None:
    """Take `Hello`, answer `Welcome`; how the edge's vocabulary differs from the target's, if it does."""
    hello = await _next_message(websocket)
    if not isinstance(hello, Hello):
        raise ProtocolError(f"{type(hello).__name__} came before Hello.")
    check_version(hello.version)
    outbox.send(greeting.welcome)
    return None if hello.fingerprint is None else compare(hello.fingerprint, greeting.fingerprint)


async def _next_message(websocket: WebSocket) -> FromEdge:
    """Raises `LinkLostError` at the end of the connection and `ProtocolError` for a frame that is no message."""
    event = await websocket.receive()
    if event["type"] == "websocket.disconnect":
        raise LinkLostError("The edge has gone.")
    data = event.get("bytes")
    return decode_from_edge(event["text"] if data is None else data)


def _mismatch(difference: Difference) -> VocabularyMismatchError:
    return VocabularyMismatchError(
        f"Draft and target do not share a vocabulary: {difference.description}.",
        first_id=difference.start,
        remedy="Use a draft of the target's own family, with the same tokenizer.",
    )
