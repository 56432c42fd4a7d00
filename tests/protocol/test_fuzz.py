"""Whatever bytes come in: a message or one of our errors, in memory that the frame's size bounds."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgedraft.errors import ProtocolError
from edgedraft.protocol.codec import decode_from_cloud, decode_from_edge, encode
from edgedraft.protocol.messages import MAX_FRAME_BYTES, FromCloud, FromEdge

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "protocol_v1.json"
FRAMES = [bytes.fromhex(vector["hex"]) for vector in json.loads(GOLDEN.read_text(encoding="utf-8"))]
DECODERS: list[Callable[[bytes | str], FromEdge | FromCloud]] = [decode_from_edge, decode_from_cloud]


def survive(data: bytes) -> None:
    """Both decoders refuse `data` with `ProtocolError`, or give a message that is sent and read back equal."""
    for decode in DECODERS:
        try:
            message = decode(data)
        except ProtocolError:
            continue
        assert decode(encode(message)) == message


@given(st.binary(max_size=300))
@example(b"")
@example(b"\xc1")
def test_random_bytes(data: bytes) -> None:
    survive(data)


@given(st.sampled_from(FRAMES), st.data())
def test_mutated_frames(frame: bytes, data: st.DataObject) -> None:
    mutated = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(mutated) - 1))
        match data.draw(st.sampled_from(["flip", "set", "insert", "delete"])):
            case "flip":
                mutated[place] ^= 1 << data.draw(st.integers(0, 7))
            case "set":
                mutated[place] = data.draw(st.integers(0, 255))
            case "insert":
                mutated[place:place] = data.draw(st.binary(min_size=1, max_size=9))
            case "delete" if len(mutated) > 1:
                del mutated[place]
    survive(bytes(mutated))


def test_truncated_and_spliced_frames() -> None:
    for index, frame in enumerate(FRAMES):
        other = FRAMES[(index * 7 + 3) % len(FRAMES)]
        for cut in range(0, len(frame), max(1, len(frame) // 40)):
            survive(frame[:cut])
            survive(frame[:cut] + other[cut:])


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.integers(-3, 3) | st.text(max_size=3), inner),
    max_leaves=20,
)


@given(st.integers(0, 18), st.lists(VALUES, max_size=19))
def test_well_formed_arrays_of_wrong_values(tag: int, fields: list[object]) -> None:
    survive(msgspec.msgpack.encode([tag, *fields]))


def hostile_frames() -> dict[str, bytes]:
    """Frames that declare far more than they hold, or hold as much as they can."""
    deep = MAX_FRAME_BYTES - 10
    open_ids = b"\x95\x06\x01\x00\x00"
    hello = b"\x94\x01\x01\xa1x\x94\x0a"
    draft_head = b"\x9a\x08\x01\x00\x00\x00\x90\xc3\x00\xc0"
    return {
        "nested arrays": b"\x91" * deep,
        "nested arrays in a field": open_ids + b"\x91" * deep,
        "nested maps": b"\x81\x01" * (deep // 2),
        "nested distributions": draft_head + b"\x91" * deep,
        "huge array": b"\xdd\xff\xff\xff\xff\x06",
        "huge array in a field": open_ids + b"\xdd\xff\xff\xff\xff\x01\x02",
        "huge map": b"\xdf\xff\xff\xff\xff",
        "huge text": b"\x93\x01\x01\xdb\xff\xff\xff\xff",
        "huge bytes": b"\x93\x04\x00\xc6\xff\xff\xff\xff",
        "huge hashes": hello + b"\xdd\xff\xff\xff\xff",
        "full of ids": open_ids + b"\xdd\x00\x00\xff\x00" + b"\x01" * 65_280,
        "full of hashes": hello + b"\xdd\x00\x00\x18\x00" + (b"\xc4\x08" + b"h" * 8) * 6_144,
        "full of distributions": draft_head + b"\xdd\x00\x00\x3e\x80" + b"\x92\x90\xc4\x00" * 16_000,
        "full of empty arrays": b"\xdd\x00\x00\xff\x00" + b"\x90" * 65_280,
        "bad text": b"\x93\x01\x01\xa2\xff\xfe",
        "extension type": b"\x93\x01\x01\xc7\x04\x05abcd",
    }


@pytest.mark.parametrize("name", hostile_frames())
def test_hostile_frames_are_refused_in_bounded_memory(name: str) -> None:
    data = hostile_frames()[name]
    assert len(data) <= MAX_FRAME_BYTES
    for decode in DECODERS:
        tracemalloc.start()
        try:
            with pytest.raises(ProtocolError):
                decode(data)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes < 64 * MAX_FRAME_BYTES
