"""What a capture of a connection holds: WebSocket frames (RFC 6455), unmasked, from the bytes that passed.

chunks: list[tuple[Way, bytes]] = []
with running_link(host, port, tap=lambda way, data: chunks.append((way, bytes(data)))) as link: ...
frames = captured_frames(chunks)
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from edgedraft.sim.network import Way

_HTTP_BEGINNINGS = (b"GET ", b"POST ", b"HTTP/1.")
_TEXT, _BINARY, _CONTINUATION = 1, 2, 0


class FrameKind(enum.StrEnum):
    """`http`: a request or response head. `message`: one of ours. `control`: ping, pong, close. `unknown`: the rest."""

    HTTP = "http"
    MESSAGE = "message"
    CONTROL = "control"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedFrame:
    """`payload`: unmasked. `wire_bytes`: with its header, as it passed (without TCP and TLS)."""

    way: Way
    kind: FrameKind
    payload: bytes
    wire_bytes: int


def captured_frames(chunks: Iterable[tuple[Way, bytes]]) -> list[CapturedFrame]:
    """The frames of each way, up first; no byte is left out: what is no whole frame is `unknown`.

    One connection after another may be in the capture, not two at a time.
    """
    streams = {way: bytearray() for way in Way}
    for way, data in chunks:
        streams[way] += data
    return [frame for way in (Way.UP, Way.DOWN) for frame in _frames(way, bytes(streams[way]))]


def _frames(way: Way, stream: bytes) -> Iterator[CapturedFrame]:
    position = 0
    while position < len(stream):
        kind, payload, end = _next(stream, position)
        yield CapturedFrame(way=way, kind=kind, payload=payload, wire_bytes=end - position)
        position = end


def _next(stream: bytes, start: int) -> tuple[FrameKind, bytes, int]:
    """Kind, payload and end of what begins at `start`."""
    rest = FrameKind.UNKNOWN, stream[start:], len(stream)
    if stream.startswith(_HTTP_BEGINNINGS, start):
        end = stream.find(b"\r\n\r\n", start)
        return rest if end < 0 else (FrameKind.HTTP, stream[start : end + 4], end + 4)
    frame = _frame_at(stream, start)
    if frame is None:
        return rest
    is_last, opcode, payload, end = frame
    while not is_last and opcode in (_TEXT, _BINARY):
        frame = _frame_at(stream, end)
        if frame is None or frame[1] != _CONTINUATION:
            return rest
        is_last, _, more, end = frame
        payload += more
    kind = FrameKind.MESSAGE if opcode == _BINARY else FrameKind.CONTROL if opcode >= 8 else FrameKind.UNKNOWN
    return kind, payload, end


def _frame_at(stream: bytes, start: int) -> tuple[bool, int, bytes, int] | None:
    """Whether it is the last of its message, opcode, payload and end; None where no whole plain frame is there."""
    if len(stream) < start + 2 or stream[start] & 0x70:  # a reserved bit: compressed
        return None
    size, position = stream[start + 1] & 0x7F, start + 2
    if size >= 126:
        width = 2 if size == 126 else 8
        size, position = int.from_bytes(stream[position : position + width], "big"), position + width
    mask = b""
    if stream[start + 1] & 0x80:
        mask, position = stream[position : position + 4], position + 4
    end = position + size
    if end > len(stream):
        return None
    return bool(stream[start] & 0x80), stream[start] & 0x0F, _unmasked(stream[position:end], mask), end


def _unmasked(payload: bytes, mask: bytes) -> bytes:
    if not mask or not payload:
        return payload
    pattern = (mask * (len(payload) // 4 + 1))[: len(payload)]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(pattern, "big")).to_bytes(len(payload), "big")
