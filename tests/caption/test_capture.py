"""WebSocket frames out of captured bytes, against the frames of the library that sends them."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from edgedraft.caption.capture import FrameKind, captured_frames
from edgedraft.sim.network import Way

HEAD = b"GET /v1/edgedraft HTTP/1.1\r\nHost: x\r\n\r\n"


def sent(payload: bytes, opcode: Opcode = Opcode.BINARY, *, is_last: bool = True, masked: bool = True) -> bytes:
    return Frame(opcode, payload, is_last).serialize(mask=masked)


def kinds_and_payloads(stream: bytes) -> list[tuple[FrameKind, bytes]]:
    return [(frame.kind, frame.payload) for frame in captured_frames([(Way.UP, stream)])]


@given(payloads=st.lists(st.binary(max_size=300), max_size=5), seed=st.integers(0, 99))
def test_any_cutting_of_the_stream_gives_the_frames(payloads: list[bytes], seed: int) -> None:
    stream = HEAD + b"".join(sent(payload) for payload in payloads)
    cuts = sorted(np.random.default_rng(seed).integers(0, len(stream) + 1, 6).tolist())
    chunks = [(Way.UP, stream[a:b]) for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    frames = captured_frames(chunks)
    assert [frame.payload for frame in frames] == [HEAD, *payloads]
    assert [frame.kind for frame in frames] == [FrameKind.HTTP, *[FrameKind.MESSAGE] * len(payloads)]
    assert sum(frame.wire_bytes for frame in frames) == len(stream)


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536, 70_001])
@pytest.mark.parametrize("masked", [True, False])
def test_sizes(size: int, masked: bool) -> None:
    payload = os.urandom(size)
    assert kinds_and_payloads(sent(payload, masked=masked)) == [(FrameKind.MESSAGE, payload)]


def test_both_ways_are_kept_apart() -> None:
    first, second = sent(b"up"), sent(b"down", masked=False)
    frames = captured_frames([(Way.DOWN, second[:3]), (Way.UP, first), (Way.DOWN, second[3:])])
    assert [(frame.way, frame.payload) for frame in frames] == [(Way.UP, b"up"), (Way.DOWN, b"down")]


def test_fragments_and_control_frames() -> None:
    stream = sent(b"a", is_last=False) + sent(b"b", Opcode.CONT, is_last=False) + sent(b"c", Opcode.CONT)
    stream += sent(b"p", Opcode.PING) + sent(b"\x03\xe8", Opcode.CLOSE)
    assert kinds_and_payloads(stream) == [
        (FrameKind.MESSAGE, b"abc"),
        (FrameKind.CONTROL, b"p"),
        (FrameKind.CONTROL, b"\x03\xe8"),
    ]


def test_a_second_connection_begins_with_its_head() -> None:
    stream = HEAD + sent(b"one") + HEAD + sent(b"two")
    assert [payload for _, payload in kinds_and_payloads(stream)] == [HEAD, b"one", HEAD, b"two"]


@pytest.mark.parametrize(
    "stream",
    [
        b"\x82",
        sent(b"whole")[:-1],
        sent(b"long" * 50)[:3],
        b"\xc2" + sent(b"compressed")[1:],
        b"GET / HTTP/1.1\r\nHost",
        sent(b"a", is_last=False) + sent(b"another"),
        sent(b"a", is_last=False),
        sent(b"text", Opcode.TEXT),
        sent(b"stray", Opcode.CONT),
    ],
    ids=["begun", "cut", "cut header", "compressed", "cut head", "interrupted", "unfinished", "text", "stray"],
)
def test_the_rest_is_unknown_and_counted(stream: bytes) -> None:
    frames = captured_frames([(Way.UP, sent(b"before") + stream)])
    assert [frame.kind for frame in frames] == [FrameKind.MESSAGE, FrameKind.UNKNOWN]
    assert frames[-1].wire_bytes == len(stream)
