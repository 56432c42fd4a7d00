"""Messages to bytes and back, with every bound checked; errors to messages and back.

Whatever the bytes, decoding gives a message or raises `ProtocolError`, and takes memory in proportion to the frame,
whose size is checked first. Encoding runs the same checks: what one side sends, the other accepts.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Sequence
from typing import Annotated, Union, get_args, get_origin

import msgspec

from edgedraft.errors import (
    EdgedraftError,
    FrameTooLargeError,
    GapError,
    MalformedFrameError,
    SaturatedError,
    error_class,
)
from edgedraft.protocol.messages import (
    MAX_FRAME_BYTES,
    MAX_IDS_PER_PIECE,
    MAX_LOGIT_BIASES,
    MAX_TEXT_CHARS,
    PROTOCOL_VERSION,
    Commit,
    Draft,
    Error,
    Features,
    FromCloud,
    FromEdge,
    Hello,
    Open,
    Probed,
    Welcome,
)
from edgedraft.protocol.version import version_error
from edgedraft.types import SESSION_ID_BYTES, DraftDistribution

_ENCODER = msgspec.msgpack.Encoder()
_FROM_EDGE: msgspec.msgpack.Decoder[FromEdge] = msgspec.msgpack.Decoder(FromEdge)
_FROM_CLOUD: msgspec.msgpack.Decoder[FromCloud] = msgspec.msgpack.Decoder(FromCloud)

EDGE_MESSAGES: dict[int, type[msgspec.Struct]] = {cls.__struct_config__.tag: cls for cls in get_args(FromEdge)}
CLOUD_MESSAGES: dict[int, type[msgspec.Struct]] = {cls.__struct_config__.tag: cls for cls in get_args(FromCloud)}

_MAX_ID = 2**31 - 1


def encode(message: FromEdge | FromCloud) -> bytes:
    """The bytes of one binary WebSocket frame.

    Raises `MalformedFrameError` or `FrameTooLargeError` for a message that the peer would refuse.
    """
    name = type(message).__name__
    try:
        data = _ENCODER.encode(message)
    except (OverflowError, TypeError, ValueError) as error:
        raise MalformedFrameError(f"{name} cannot be encoded: {error}.") from None
    if type(message) in EDGE_MESSAGES.values():
        decode_from_edge(data)
    else:
        decode_from_cloud(data)
    return data


def decode_from_edge(data: bytes | str) -> FromEdge:
    """The message in one frame that came from an edge.

    Raises `FrameTooLargeError`, `MalformedFrameError`, or `VersionError` for the `Hello` of another version.
    """
    frame = _checked_frame(data)
    try:
        message = _FROM_EDGE.decode(frame)
    except msgspec.MsgspecError as error:
        raise _fault(frame, str(error), EDGE_MESSAGES, "edge") from None
    _check_fields(message)
    return message


def decode_from_cloud(data: bytes | str) -> FromCloud:
    """The message in one frame that came from a cloud. Raises like `decode_from_edge`."""
    frame = _checked_frame(data)
    try:
        message = _FROM_CLOUD.decode(frame)
    except msgspec.MsgspecError as error:
        raise _fault(frame, str(error), CLOUD_MESSAGES, "cloud") from None
    _check_fields(message)
    return message


def wire_size_bytes(payload_bytes: int, *, masked: bool) -> int:
    """WebSocket header and payload of one unfragmented frame (RFC 6455, 5.2). Frames from the edge are masked."""
    extended = 0 if payload_bytes < 126 else 2 if payload_bytes < 65_536 else 8
    return 2 + extended + (4 if masked else 0) + payload_bytes


def split_ids(token_ids: Sequence[int]) -> list[list[int]]:
    """Pieces for `Open` (the first) and `OpenIds` (the others, at offset i * MAX_IDS_PER_PIECE); at least one."""
    starts = range(0, max(len(token_ids), 1), MAX_IDS_PER_PIECE)
    return [list(token_ids[start : start + MAX_IDS_PER_PIECE]) for start in starts]


# -- errors ----------------------------------------------------------------------------------------------------------


def error_to_wire(error: BaseException, channel: int | None, incarnation: int = 0) -> Error:
    """What the peer is told of an error; nothing but its kind where it is not one of ours."""
    if not isinstance(error, EdgedraftError):
        error = EdgedraftError("The other side failed; its log has the details.")
    text = str(error).encode("utf-8", "replace").decode()
    return Error(
        channel=channel,
        incarnation=incarnation,
        code=error.code,
        message=text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 3] + "...",
        retryable=error.retryable,
        retry_after_s=error.retry_after_s if isinstance(error, SaturatedError) else None,
        expected=error.expected if isinstance(error, GapError) else None,
    )


def error_from_wire(message: Error) -> EdgedraftError:
    """The exception that a peer's `Error` stands for; `EdgedraftError` itself for a code this version lacks."""
    text = "".join(char if char.isprintable() else " " for char in message.message)
    cls = error_class(message.code)
    if issubclass(cls, GapError):
        return cls(text, expected=message.expected or 0)
    if issubclass(cls, SaturatedError) and message.retry_after_s is not None:
        return cls(text, retry_after_s=message.retry_after_s)
    return cls(text)


# -- checks ----------------------------------------------------------------------------------------------------------


def _checked_frame(data: bytes | str) -> bytes:
    if isinstance(data, str):
        raise MalformedFrameError(
            "A text frame came in; legal: binary frames.", remedy="Is the other side an edgedraft client or server?"
        )
    if len(data) > MAX_FRAME_BYTES:
        raise FrameTooLargeError(f"A frame has {len(data)} bytes; legal: at most {MAX_FRAME_BYTES}.")
    return data


def _check_fields(message: FromEdge | FromCloud) -> None:
    """What types alone cannot say."""
    match message:
        case Open():
            _check_open(message)
        case Draft():
            _check_draft(message)
        case Features():
            for field in ("rate_hz", "scale", "level_db"):
                _require(math.isfinite(getattr(message, field)), f"Features.{field}", "a finite number")
        case Commit(logprobs=logprobs):
            _require(message.num_accepted <= message.num_judged, "Commit.num_accepted", "at most num_judged")
            if logprobs is not None:
                _require(len(logprobs) == len(message.token_ids), "Commit.logprobs", "one for each id")
                _require(all(map(math.isfinite, logprobs)), "Commit.logprobs", "finite numbers")
        case Probed():
            _require(len(message.id_hashes) % 4 == 0, "Probed.id_hashes", "four bytes for each id")
        case Error(retry_after_s=float(wait_s)):
            _require(0 <= wait_s < math.inf, "Error.retry_after_s", "0 or more seconds")


def _check_open(message: Open) -> None:
    _require(len(message.fork_of) in (0, SESSION_ID_BYTES), "Open.fork_of", f"empty or {SESSION_ID_BYTES} bytes")
    fits = len(message.token_ids) <= message.num_prompt + message.num_committed
    _require(fits, "Open.token_ids", "at most num_prompt + num_committed ids")
    num_biases = len(message.sampling.logit_bias)
    if num_biases > MAX_LOGIT_BIASES:
        raise FrameTooLargeError(f"Open.sampling.logit_bias has {num_biases} ids; legal: at most {MAX_LOGIT_BIASES}.")


def _check_draft(message: Draft) -> None:
    if message.judged is not None:
        inside = not message.judged or message.judged[-1] < len(message.token_ids)
        _require(inside and _ascending(message.judged), "Draft.judged", "ascending offsets into token_ids")
    if message.distributions is not None:
        same = len(message.distributions) == len(message.token_ids)
        _require(same, "Draft.distributions", "one for each id")
        for distribution in message.distributions:
            _check_distribution(distribution)


def _check_distribution(distribution: DraftDistribution) -> None:
    ids = distribution.token_ids
    field = "Draft.distributions.token_ids"
    _require(bool(ids) and ids[0] >= 0 and ids[-1] <= _MAX_ID and _ascending(ids), field, "ascending ids below 2^31")
    two_each = len(distribution.probs_fp16) == 2 * len(ids)
    _require(two_each, "Draft.distributions.probs_fp16", "two bytes for each id")


def _ascending(values: Sequence[int]) -> bool:
    return all(map(int.__lt__, values, values[1:]))


def _require(legal: bool, field: str, rule: str) -> None:
    if not legal:
        raise MalformedFrameError(f"{field} is refused; legal: {rule}.")


# -- naming the fault ------------------------------------------------------------------------------------------------


def _fault(frame: bytes, reason: str, messages: dict[int, type[msgspec.Struct]], sender: str) -> EdgedraftError:
    """The error for bytes that the decoder refused with `reason`, which ends in a path such as "- at `$[3][1]`"."""
    tag, version = _head(frame)
    handshake = tag in (Hello.__struct_config__.tag, Welcome.__struct_config__.tag)
    if handshake and version is not None and version != PROTOCOL_VERSION:
        return version_error(version)
    what, _, path = reason.partition(" - at ")
    cls = messages.get(tag) if tag is not None else None
    if cls is None:
        return MalformedFrameError(f"A frame from the {sender} is not a message of this version: {what}.")
    field = _field_name(cls, [int(index) for index in re.findall(r"\[(\d+)\]", path)])
    too_large = "of length <= " in what
    return (FrameTooLargeError if too_large else MalformedFrameError)(f"{field} is refused: {what.rstrip('.')}.")


def _head(frame: bytes) -> tuple[int | None, int | None]:
    """Tag and first field where both are small integers, without decoding the rest."""
    header_bytes = {0xDC: 3, 0xDD: 5}.get(frame[0], 1) if frame else 1
    small = [byte if byte < 0x80 else None for byte in frame[header_bytes : header_bytes + 2]]
    tag, first = [*small, None, None][:2]
    return tag, first


def _field_name(cls: type[msgspec.Struct], path: Sequence[int]) -> str:
    """`Hello.fingerprint.eos_ids` for Hello and the path 3, 3, 0. Indexes into lists are left out."""
    name, kind = cls.__name__, _unwrapped(cls)
    for index in path:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            skip = 0 if kind.__struct_config__.tag is None else 1
            fields = msgspec.structs.fields(kind)
            if not skip <= index < len(fields) + skip:
                break
            name = f"{name}.{fields[index - skip].name}"
            kind = _unwrapped(fields[index - skip].type)
        else:
            kind = _unwrapped(next(iter(get_args(kind)), None))
    return name


def _unwrapped(annotation: object) -> object:
    """The type inside `Annotated` and `| None`."""
    if get_origin(annotation) is Annotated:
        return _unwrapped(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return _unwrapped(next(arg for arg in get_args(annotation) if arg is not type(None)))
    return annotation
