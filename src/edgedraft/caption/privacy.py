"""What left the device: every frame of a captured run, by kind and byte, and a search for the recording in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePath

from edgedraft.caption.caption import PCM_BYTES_PER_S
from edgedraft.caption.capture import CapturedFrame, FrameKind
from edgedraft.caption.recording import Recording
from edgedraft.caption.waveform_search import (
    MAX_CHANCE_CORRELATION,
    Found,
    find_file,
    find_samples,
    strongest_correlation,
)
from edgedraft.errors import InvalidRequestError, ProtocolError
from edgedraft.protocol.codec import decode_from_cloud, decode_from_edge
from edgedraft.protocol.messages import Commit, Draft, Features, FromCloud, FromEdge, Hedge, Open, OpenIds
from edgedraft.sim.network import Way
from edgedraft.speech_features import FeatureDtype, FeatureKind, FeatureSpec
from edgedraft.types import Float32Array

MIN_NAME_CHARS = 3

_HOLDS = {
    "http": "a request or response head: path, host and, where one is set, the token",
    "control": "ping, pong or close of the WebSocket",
    "unknown": "bytes that are no message of this protocol",
    "Hello": "protocol version, name of the program, hashes of the vocabulary",
    "Probe": "a range of vocabulary ids",
    "Open": "ids of the request for a caption, ids of the caption so far, settings",
    "OpenIds": "more ids of an Open",
    "Draft": "ids of caption tokens, and which of them are to be judged",
    "Hedge": "ids of caption tokens",
    "Ack": "a length",
    "Resume": "a session's name, a length and a hash of the caption",
    "Cancel": "the wish to stop",
    "Close": "the end of a session",
    "Welcome": "names of program and model, vocabulary hashes, chat template, limits",
    "Probed": "hashes of vocabulary entries",
    "Opened": "a length",
    "Resumed": "a length",
    "Commit": "ids of caption tokens and how many were accepted",
    "Error": "an error in words",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """All frames of one kind in one direction. `num_ids`: token ids in them. `wire_bytes`: with WebSocket headers."""

    way: str
    kind: str
    count: int
    payload_bytes: int
    wire_bytes: int
    num_ids: int
    holds: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureShare:
    """The features that were declared and sent. `pcm_ratio`: their bytes over those of 16-bit, 16 kHz PCM."""

    kind: str
    encoder_id: str
    rate_hz: float
    dims: int
    dtype: str
    seconds: float
    num_bytes: int
    bytes_per_s: float
    pcm_ratio: float
    level_db: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What was looked for in the payloads that went up, and found. Evidence, not proof.

    `correlation`: the strongest of any 640 numbers in the payloads with the waveform; under 0.95 may be chance.
    """

    searched_bytes: int
    found: tuple[Found, ...]
    correlation: float
    names_found: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        return not self.found and not self.names_found and self.correlation < MAX_CHANCE_CORRELATION


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """`entries`: the account of every byte captured. `search` is None where no recording was given to look for."""

    entries: tuple[LedgerEntry, ...]
    features: tuple[FeatureShare, ...]
    search: Search | None

    @property
    def bytes_up(self) -> int:
        return sum(entry.wire_bytes for entry in self.entries if entry.way == Way.UP)

    @property
    def bytes_down(self) -> int:
        return sum(entry.wire_bytes for entry in self.entries if entry.way == Way.DOWN)

    @property
    def holds_only_declared(self) -> bool:
        """Whether every frame is one of the protocol's."""
        return all(entry.kind != FrameKind.UNKNOWN for entry in self.entries)

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            **asdict(self),
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "holds_only_declared": self.holds_only_declared,
            "search_is_clean": None if self.search is None else self.search.is_clean,
        }


def ledger(
    frames: Sequence[CapturedFrame],
    recording: Recording | None = None,
    *,
    own_samples: Mapping[int, Float32Array] | None = None,
    file: bytes = b"",
) -> Ledger:
    """The account of a captured run, and the search for `recording` in it.

    `own_samples`: the file's own samples by rate, one channel each, where that is not 16 kHz; `file`: its bytes.
    """
    messages = [(frame, _decoded(frame)) for frame in frames]
    search = None
    if recording is not None:
        payloads = b"".join(frame.payload for frame in frames if frame.way is Way.UP)
        features = b"".join(message.data for _, message in messages if isinstance(message, Features))
        search = _search(payloads, features, recording, own_samples or {}, file)
    return Ledger(entries=_entries(messages), features=_feature_shares(messages), search=search)


_Decoded = FromEdge | FromCloud | None


def _decoded(frame: CapturedFrame) -> _Decoded:
    if frame.kind is not FrameKind.MESSAGE:
        return None
    try:
        message = decode_from_edge(frame.payload) if frame.way is Way.UP else decode_from_cloud(frame.payload)
    except ProtocolError:
        return None
    return None if isinstance(message, Features) and not _is_as_declared(message) else message


def _is_as_declared(message: Features) -> bool:
    """Whether these can be features, and no byte lies beyond what they declare."""
    try:
        kind, dtype = FeatureKind(message.kind), FeatureDtype(message.dtype)
        FeatureSpec(kind=kind, encoder_id=message.encoder_id, rate_hz=message.rate_hz, dims=message.dims)
    except (ValueError, InvalidRequestError):
        return False
    declared_bytes = message.count * message.dims * dtype.numpy.itemsize
    return message.count > 0 and message.offset + len(message.data) <= declared_bytes


def _entries(messages: Iterable[tuple[CapturedFrame, _Decoded]]) -> tuple[LedgerEntry, ...]:
    groups: dict[tuple[Way, str], list[tuple[CapturedFrame, _Decoded]]] = {}
    for frame, message in messages:
        kind = str(frame.kind) if frame.kind is not FrameKind.MESSAGE else FrameKind.UNKNOWN.value
        groups.setdefault((frame.way, kind if message is None else type(message).__name__), []).append((frame, message))
    return tuple(
        LedgerEntry(
            way=str(way),
            kind=kind,
            count=len(held),
            payload_bytes=sum(len(frame.payload) for frame, _ in held),
            wire_bytes=sum(frame.wire_bytes for frame, _ in held),
            num_ids=sum(_num_ids(message) for _, message in held),
            holds=_HOLDS.get(kind, "") if kind != "Features" else _described(_feature_shares(held)),
        )
        for (way, kind), held in groups.items()
    )


def _num_ids(message: _Decoded) -> int:
    return len(message.token_ids) if isinstance(message, Open | OpenIds | Draft | Hedge | Commit) else 0


def _feature_shares(messages: Iterable[tuple[CapturedFrame, _Decoded]]) -> tuple[FeatureShare, ...]:
    """One for each recording; pieces that were sent again count again in its bytes."""
    shares: dict[tuple[int, int], tuple[Features, int]] = {}
    for _, message in messages:
        if isinstance(message, Features):
            key = message.channel, message.incarnation
            first, num_bytes = shares.get(key, (message, 0))
            shares[key] = first, num_bytes + len(message.data)
    return tuple(_feature_share(first, num_bytes) for first, num_bytes in shares.values())


def _feature_share(message: Features, num_bytes: int) -> FeatureShare:
    seconds = message.count / message.rate_hz
    bytes_per_s = message.rate_hz * message.dims * FeatureDtype(message.dtype).numpy.itemsize
    return FeatureShare(
        kind=message.kind,
        encoder_id=message.encoder_id,
        rate_hz=message.rate_hz,
        dims=message.dims,
        dtype=message.dtype,
        seconds=seconds,
        num_bytes=num_bytes,
        bytes_per_s=bytes_per_s,
        pcm_ratio=bytes_per_s / PCM_BYTES_PER_S,
        level_db=message.level_db,
    )


def _described(shares: Sequence[FeatureShare]) -> str:
    return "; ".join(
        f"{share.kind} of {share.seconds:.2f} s: {share.dims} values at {share.rate_hz:g} Hz as {share.dtype}, "
        f"{share.bytes_per_s:,.0f} bytes/s, {share.pcm_ratio:.1%} of PCM; level {share.level_db:.1f} dB"
        for share in shares
    )


def _search(
    payloads: bytes, features: bytes, recording: Recording, own_samples: Mapping[int, Float32Array], file: bytes
) -> Search:
    """`features`: those of the payloads once more and in one piece, for messages cut them anywhere."""
    searched = payloads + features
    waveforms = {**own_samples, 16_000: recording.waveform}
    return Search(
        searched_bytes=len(payloads),
        found=(*find_samples(searched, waveforms), *find_file(searched, file)),
        correlation=strongest_correlation(searched, recording.waveform),
        names_found=_names_found(searched, recording.name),
    )


def _names_found(searched: bytes, name: str) -> tuple[str, ...]:
    path = PurePath(name)
    names = {part for part in (path.name, path.stem) if len(part) >= MIN_NAME_CHARS}
    lowered = searched.lower()
    return tuple(
        sorted(
            part
            for part in names
            if any(part.lower().encode(coding) in lowered for coding in ("utf-8", "utf-16-le", "utf-16-be"))
        )
    )
