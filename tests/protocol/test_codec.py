"""Bounds of every field, the names in the errors, and errors that travel."""

from __future__ import annotations

import math

import msgspec
import pytest

from edgedraft.errors import (
    BackendError,
    EdgedraftError,
    FrameTooLargeError,
    GapError,
    MalformedFrameError,
    SaturatedError,
    SessionLostError,
    VersionError,
)
from edgedraft.protocol.codec import (
    decode_from_cloud,
    decode_from_edge,
    encode,
    error_from_wire,
    error_to_wire,
    split_ids,
    wire_size_bytes,
)
from edgedraft.protocol.messages import (
    MAX_FRAME_BYTES,
    MAX_IDS_PER_PIECE,
    MAX_LOGIT_BIASES,
    Ack,
    Commit,
    CommitKind,
    Draft,
    Error,
    Features,
    Fingerprint,
    FromCloud,
    FromEdge,
    Hello,
    Open,
    OpenIds,
    Probe,
    Probed,
    Resume,
    Timings,
)
from edgedraft.types import Assist, DraftDistribution, Owner, Rule, SamplingParams

ACK = Ack(channel=1, incarnation=0, committed_length=5)
DRAFT = Draft(channel=1, incarnation=0, epoch=0, position=9, token_ids=[4, 5], verify=True, committed_length=9)
RESUME = Resume(channel=1, session_id=b"s" * 16, incarnation=0, attach=1, committed_length=9, committed_hash=b"h" * 8)
COMMIT = Commit(
    channel=1,
    incarnation=0,
    epoch=0,
    position=9,
    token_ids=[4, 5],
    kind=CommitKind.BONUS,
    num_judged=2,
    num_accepted=2,
)
OPEN = Open(
    channel=1,
    session_id=b"s" * 16,
    incarnation=0,
    attach=0,
    owner=Owner.CLOUD,
    num_prompt=3,
    num_committed=0,
    max_length=10,
    stop_ids=[],
    ignore_eos=False,
    sampling=SamplingParams(),
    rule=Rule.MATCH,
    rank=1,
    assist=Assist.NONE,
    eager=False,
    timings=False,
    logprobs=False,
    bonus=False,
    fork_of=b"",
    token_ids=[1, 2, 3],
)
FEATURES = Features(
    channel=1,
    incarnation=0,
    kind="mel",
    encoder_id="e",
    rate_hz=1.0,
    dims=1,
    dtype="int8",
    scale=1.0,
    count=1,
    level_db=0.0,
    offset=0,
    data=b"x",
)
TOKENIZER = Fingerprint(num_ids=10, range_hashes=[b"h" * 8] * 64, bos_id=1, eos_ids=[2])
HELLO = Hello(version=1, client="test", fingerprint=TOKENIZER)


def distribution(ids: list[int], probs: bytes | None = None) -> list[DraftDistribution]:
    return [DraftDistribution(ids, b"\x00\x38" * len(ids) if probs is None else probs)] * 2


def sent_raw(message: FromEdge | FromCloud) -> FromEdge | FromCloud:
    """What a peer without our encoder's checks could send."""
    data = msgspec.msgpack.encode(message)
    return decode_from_edge(data) if isinstance(message, FromEdge) else decode_from_cloud(data)


BAD_FIELDS = [
    ("Ack.channel", ACK, {"channel": -1}),
    ("Ack.incarnation", ACK, {"incarnation": 2**32}),
    ("Ack.committed_length", ACK, {"committed_length": 2**31}),
    ("Ack.committed_length", ACK, {"committed_length": "5"}),
    ("Ack.committed_length", ACK, {"committed_length": 5.5}),
    ("Ack.committed_length", ACK, {"committed_length": None}),
    ("Draft.epoch", DRAFT, {"epoch": 2**32}),
    ("Draft.position", DRAFT, {"position": -9}),
    ("Draft.token_ids", DRAFT, {"token_ids": [2**31]}),
    ("Draft.token_ids", DRAFT, {"token_ids": [3, -1]}),
    ("Draft.token_ids", DRAFT, {"token_ids": b"ab"}),
    ("Draft.verify", DRAFT, {"verify": 1}),
    ("Draft.judged", DRAFT, {"judged": [2]}),
    ("Draft.judged", DRAFT, {"judged": [1, 0]}),
    ("Draft.judged", DRAFT, {"judged": [0, 0]}),
    ("Draft.distributions", DRAFT, {"distributions": distribution([4])[:1]}),
    ("Draft.distributions.token_ids", DRAFT, {"distributions": distribution([])}),
    ("Draft.distributions.token_ids", DRAFT, {"distributions": distribution([5, 4])}),
    ("Draft.distributions.token_ids", DRAFT, {"distributions": distribution([-1, 4])}),
    ("Draft.distributions.token_ids", DRAFT, {"distributions": distribution([2**31])}),
    ("Draft.distributions.probs_fp16", DRAFT, {"distributions": distribution([4], b"\x00")}),
    ("Draft.distributions.probs_fp16", DRAFT, {"distributions": [[[4], 0]] * 2}),
    ("Resume.session_id", RESUME, {"session_id": b"s" * 15}),
    ("Resume.committed_hash", RESUME, {"committed_hash": b""}),
    ("Open.owner", OPEN, {"owner": "moon"}),
    ("Open.rule", OPEN, {"rule": "guess"}),
    ("Open.fork_of", OPEN, {"fork_of": b"s"}),
    ("Open.token_ids", OPEN, {"token_ids": [1, 2, 3, 4]}),
    ("Open.sampling", OPEN, {"sampling": [-1.0]}),
    ("Open.sampling", OPEN, {"sampling": [math.nan]}),
    ("Features.scale", FEATURES, {"scale": math.nan}),
    ("Features.level_db", FEATURES, {"level_db": -math.inf}),
    ("Hello.fingerprint.range_hashes", HELLO, {"fingerprint": [10, [b"h" * 8] * 63, 1, [2]]}),
    ("Hello.fingerprint.range_hashes", HELLO, {"fingerprint": [10, [b"h" * 7] * 64, 1, [2]]}),
    ("Hello.fingerprint.bos_id", HELLO, {"fingerprint": [10, [b"h" * 8] * 64, -2, [2]]}),
    ("Hello.fingerprint.eos_ids", HELLO, {"fingerprint": [10, [b"h" * 8] * 64, 1, [-2]]}),
    ("Probe.count", Probe(start=0, count=1), {"count": 0}),
    ("Probe.count", Probe(start=0, count=1), {"count": 8_193}),
    ("Probed.id_hashes", Probed(start=0, id_hashes=b""), {"id_hashes": b"abc"}),
    ("Commit.kind", COMMIT, {"kind": 9}),
    ("Commit.num_accepted", COMMIT, {"num_accepted": 3}),
    ("Commit.logprobs", COMMIT, {"logprobs": [-0.5]}),
    ("Commit.logprobs", COMMIT, {"logprobs": [-0.5, -math.inf]}),
    ("Commit.timings.verify_us", COMMIT, {"timings": Timings(1, -2, 3, 4, 5)}),
    ("Error.retry_after_s", error_to_wire(SaturatedError("full"), 1), {"retry_after_s": math.inf}),
    ("Error.retry_after_s", error_to_wire(SaturatedError("full"), 1), {"retry_after_s": -1.0}),
]


@pytest.mark.parametrize(("field", "message", "change"), BAD_FIELDS, ids=[str(case[::2]) for case in BAD_FIELDS])
def test_bad_value_is_refused_by_name_both_ways(
    field: str, message: FromEdge | FromCloud, change: dict[str, object]
) -> None:
    sent_raw(message)
    bad = msgspec.structs.replace(message, **change)
    for refuse in (sent_raw, encode):
        with pytest.raises(MalformedFrameError, match=f"^{field} is refused") as caught:
            refuse(bad)
        assert caught.value.__cause__ is None
        assert "$" not in str(caught.value)


TOO_LARGE = [
    ("OpenIds.token_ids", OpenIds(channel=1, incarnation=0, offset=0, token_ids=[1] * (MAX_IDS_PER_PIECE + 1))),
    ("Draft.token_ids", msgspec.structs.replace(DRAFT, token_ids=[1] * (MAX_IDS_PER_PIECE + 1))),
    ("Resume.session_id", msgspec.structs.replace(RESUME, session_id=b"s" * 17)),
    ("Open.stop_ids", msgspec.structs.replace(OPEN, stop_ids=[1] * 257)),
    (
        "Open.sampling.logit_bias",
        msgspec.structs.replace(
            OPEN, sampling=SamplingParams(logit_bias=dict.fromkeys(range(MAX_LOGIT_BIASES + 1), 1.0))
        ),
    ),
    ("Features.data", msgspec.structs.replace(FEATURES, data=b"x" * 16_001)),
    ("Hello.client", Hello(version=1, client="x" * 257)),
    (
        "Hello.fingerprint.range_hashes",
        Hello(version=1, client="", fingerprint=msgspec.structs.replace(TOKENIZER, range_hashes=[b"h" * 8] * 65)),
    ),
    ("Error.message", Error(channel=1, incarnation=0, code="x", message="x" * 2_001, retryable=False)),
]


@pytest.mark.parametrize(("field", "message"), TOO_LARGE, ids=[case[0] for case in TOO_LARGE])
def test_field_above_its_size_is_refused_by_name_both_ways(field: str, message: FromEdge | FromCloud) -> None:
    for refuse in (sent_raw, encode):
        with pytest.raises(FrameTooLargeError, match=f"^{field} (is refused|has)"):
            refuse(message)


def test_largest_legal_pieces_fit_a_frame() -> None:
    largest_id = 2**31 - 1
    for message in (
        OpenIds(channel=1, incarnation=0, offset=0, token_ids=[largest_id] * MAX_IDS_PER_PIECE),
        Probed(start=0, id_hashes=b"h" * 4 * 8_192),
    ):
        assert sent_raw(message) == message
        encode(message)
    ids = OpenIds(channel=1, incarnation=0, offset=0, token_ids=[largest_id] * MAX_IDS_PER_PIECE)
    assert len(encode(ids)) <= 16_000


@pytest.mark.parametrize("decode", [decode_from_edge, decode_from_cloud])
def test_frame_size_is_checked_before_decoding(decode: object) -> None:
    for data in (b"\xff" * (MAX_FRAME_BYTES + 1), msgspec.msgpack.encode(ACK) + b"\x00" * MAX_FRAME_BYTES):
        with pytest.raises(FrameTooLargeError, match=str(len(data))):
            decode(data)  # type: ignore[operator]


@pytest.mark.parametrize("decode", [decode_from_edge, decode_from_cloud])
def test_text_frame_is_refused(decode: object) -> None:
    with pytest.raises(MalformedFrameError, match="text frame"):
        decode('{"a": 1}')  # type: ignore[operator]


def test_messages_of_the_other_side_are_refused() -> None:
    with pytest.raises(MalformedFrameError, match="from the cloud"):
        decode_from_cloud(encode(ACK))
    with pytest.raises(MalformedFrameError, match="from the edge"):
        decode_from_edge(encode(COMMIT))


def test_missing_and_extra_fields_are_refused() -> None:
    fields = msgspec.msgpack.decode(encode(ACK))
    for wrong in (fields[:-1], [*fields, 0]):
        with pytest.raises(MalformedFrameError, match=r"^Ack is refused"):
            decode_from_edge(msgspec.msgpack.encode(wrong))


def test_truncated_and_trailing_bytes_are_refused() -> None:
    data = encode(DRAFT)
    for wrong in [*(data[:length] for length in range(len(data))), data + b"\x00"]:
        with pytest.raises(MalformedFrameError):
            decode_from_edge(wrong)


def test_hello_of_another_version_says_so_although_its_fields_are_unknown() -> None:
    with pytest.raises(VersionError, match="version is 2"):
        decode_from_edge(msgspec.msgpack.encode([1, 2, {"some": "later"}, "fields", 7]))
    with pytest.raises(VersionError, match="version is 2"):
        decode_from_cloud(msgspec.msgpack.encode([2, 2, {"some": "later"}, "fields", 7]))
    with pytest.raises(MalformedFrameError, match=r"^Hello\.client"):
        decode_from_edge(msgspec.msgpack.encode([1, 1, {"some": "wrong"}, None]))


def test_what_cannot_be_encoded_is_one_of_our_errors() -> None:
    for bad in (2**70, "\ud800", object()):
        with pytest.raises(MalformedFrameError, match=r"^Hello cannot be encoded"):
            encode(Hello(version=1, client=bad))  # type: ignore[arg-type]


@pytest.mark.parametrize(("payload_bytes", "header_bytes"), [(0, 2), (125, 2), (126, 4), (65_535, 4), (65_536, 10)])
def test_wire_size_adds_the_websocket_header(payload_bytes: int, header_bytes: int) -> None:
    assert wire_size_bytes(payload_bytes, masked=False) == payload_bytes + header_bytes
    assert wire_size_bytes(payload_bytes, masked=True) == payload_bytes + header_bytes + 4


@pytest.mark.parametrize(("num_ids", "sizes"), [(0, [0]), (1, [1]), (3_000, [3_000]), (6_001, [3_000, 3_000, 1])])
def test_split_ids_gives_pieces_that_join_again(num_ids: int, sizes: list[int]) -> None:
    pieces = split_ids(range(num_ids))
    assert [len(piece) for piece in pieces] == sizes
    assert [token_id for piece in pieces for token_id in piece] == list(range(num_ids))


# -- errors ----------------------------------------------------------------------------------------------------------


def _classes(cls: type[EdgedraftError]) -> list[type[EdgedraftError]]:
    return [cls, *(deeper for child in cls.__subclasses__() for deeper in _classes(child))]


@pytest.mark.parametrize("cls", _classes(EdgedraftError), ids=lambda cls: cls.__name__)
def test_every_error_comes_back_as_its_own_class(cls: type[EdgedraftError]) -> None:
    sent = error_to_wire(cls("field is 3.", remedy="Use 2."), 7, 4)
    assert (sent.channel, sent.incarnation, sent.retryable) == (7, 4, cls.retryable)
    received = error_from_wire(sent_raw(sent))  # type: ignore[arg-type]
    assert type(received) is cls
    assert str(received) == "field is 3. Use 2."


def test_gap_and_saturation_keep_their_figures() -> None:
    gap = error_from_wire(error_to_wire(GapError("x", expected=17), 1))
    assert isinstance(gap, GapError)
    assert gap.expected == 17
    full = error_from_wire(error_to_wire(SaturatedError("x", retry_after_s=2.5), 1))
    assert isinstance(full, SaturatedError)
    assert full.retry_after_s == 2.5
    assert error_to_wire(SessionLostError("x"), None).expected is None


def test_foreign_exceptions_travel_without_their_details() -> None:
    wire = error_to_wire(RuntimeError("secret prompt at /home/user"), 1)
    assert (wire.code, wire.retryable) == ("internal", False)
    assert "secret" not in wire.message
    assert "/home" not in wire.message
    assert type(error_from_wire(wire)) is EdgedraftError


def test_long_and_odd_texts_travel_clipped() -> None:
    wire = error_to_wire(BackendError("\ud800" + "x" * 5_000), 1)
    assert len(wire.message) == 2_000
    assert wire.message.endswith("...")
    encode(wire)


def test_unknown_code_and_terminal_escapes_are_harmless() -> None:
    wire = Error(channel=None, incarnation=0, code="of_tomorrow", message="\x1b[2Jhi\r\nthere", retryable=True)
    error = error_from_wire(wire)
    assert type(error) is EdgedraftError
    assert str(error) == "[2Jhi  there"
