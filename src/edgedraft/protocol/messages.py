"""What travels, and nothing else (docs/protocol.md, version 1).

Every message is a MessagePack array whose first element is its integer tag; the fields follow in the order below.
Fields are never reordered or removed within a version: the golden vectors of `tests/golden` hold the bytes.

`channel` is the short handle that the edge gives a session on one connection, so that the 16-byte session id
travels only in `Open` and `Resume`. `incarnation` rises with every `Open` of a session.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from msgspec import Meta

from edgedraft.types import Assist, DraftDistribution, Exactness, Owner, Rule, SamplingParams

PROTOCOL_VERSION = 1
NUM_FINGERPRINT_RANGES = 64
MAX_FRAME_BYTES = 65_536
MAX_IDS_PER_PIECE = 3_000
"""An id takes at most five bytes, so a piece stays under 16 kB."""
MAX_PROBE_IDS = 8_192
MAX_STOP_IDS = 256
MAX_LOGIT_BIASES = 1_024
MAX_FEATURE_BYTES = 16_000
MAX_NAME_CHARS = 256
MAX_TEXT_CHARS = 2_000
MAX_TEMPLATE_CHARS = 49_152

# What a field may hold; the decoder refuses the rest, and so does the encoder.
UInt32 = Annotated[int, Meta(ge=0, lt=2**32)]
Length = Annotated[int, Meta(ge=0, lt=2**31)]
TokenId = Annotated[int, Meta(ge=0, lt=2**31)]
TokenIds = Annotated[list[TokenId], Meta(max_length=MAX_IDS_PER_PIECE)]
StopIds = Annotated[list[TokenId], Meta(max_length=MAX_STOP_IDS)]
SessionId = Annotated[bytes, Meta(min_length=16, max_length=16)]
Hash = Annotated[bytes, Meta(min_length=8, max_length=8)]
Name = Annotated[str, Meta(max_length=MAX_NAME_CHARS)]
Text = Annotated[str, Meta(max_length=MAX_TEXT_CHARS)]


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all messages."""


class Fingerprint(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """A tokenizer, short enough for a handshake.

    `num_ids`: the real vocabulary size. `range_hashes`: 64 hashes of 8 bytes, one for each of 64 equal ranges of ids
    over [0, num_ids), the last one shorter. `bos_id` is -1 where there is none.
    """

    num_ids: Length
    range_hashes: Annotated[list[Hash], Meta(min_length=NUM_FINGERPRINT_RANGES, max_length=NUM_FINGERPRINT_RANGES)]
    bos_id: Annotated[int, Meta(ge=-1, lt=2**31)]
    eos_ids: StopIds


class Limits(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """What the cloud accepts from one session."""

    context_length: Length
    max_pending_tokens: Length
    assist_lead_tokens: Length
    rules: Annotated[list[Rule], Meta(max_length=16)]


class ExactnessStatement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """The class of exactness the target gives, and what that depends on, in words."""

    exactness: Exactness
    depends_on: Text


class Listening(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """What of a recording a target listens to; `speech_features.FeatureSpec` as it travels."""

    kind: Name
    encoder_id: Name
    rate_hz: float
    dims: Length


# -- connection ------------------------------------------------------------------------------------------------------


class Hello(Message, frozen=True, tag=1):
    """Edge, first on a connection. `fingerprint` is None only where the edge has no tokenizer (doctor)."""

    version: UInt32
    client: Name
    fingerprint: Fingerprint | None = None


class Welcome(Message, frozen=True, tag=2):
    """Cloud, in answer to `Hello`. `features`: what of a recording the target listens to; None: it takes text."""

    version: UInt32
    server: Name
    model: Name
    fingerprint: Fingerprint
    chat_template: Annotated[str, Meta(max_length=MAX_TEMPLATE_CHARS)]
    limits: Limits
    exactness: ExactnessStatement
    features: Listening | None = None


class Probe(Message, frozen=True, tag=3):
    """Edge: send me a hash of each id in [start, start + count), to name the first that differs."""

    start: Length
    count: Annotated[int, Meta(ge=1, le=MAX_PROBE_IDS)]


class Probed(Message, frozen=True, tag=4):
    """Cloud: four bytes for each id from `start` on."""

    start: Length
    id_hashes: Annotated[bytes, Meta(max_length=4 * MAX_PROBE_IDS)]


# -- session, edge to cloud ------------------------------------------------------------------------------------------


class Open(Message, frozen=True, tag=5):
    """Open a session, or open it again. `token_ids` is the first piece of prompt ids followed by committed ids.

    The session starts when `num_prompt + num_committed` ids have arrived, here and in `OpenIds`. `max_length` bounds
    prompt + output. `stop_ids` end the text beside the target's own end-of-sequence ids (unless `ignore_eos`).
    `eager`: verify whatever has arrived without being asked. `timings`, `logprobs`: what commits are to carry. `bonus`:
    with rule *rank*, a next token after full acceptance too.
    """

    channel: UInt32
    session_id: SessionId
    incarnation: UInt32
    attach: UInt32
    owner: Owner
    num_prompt: Length
    num_committed: Length
    max_length: Length
    stop_ids: StopIds
    ignore_eos: bool
    sampling: SamplingParams
    rule: Rule
    rank: Length
    assist: Assist
    eager: bool
    timings: bool
    logprobs: bool
    bonus: bool
    fork_of: Annotated[bytes, Meta(max_length=16)]
    token_ids: TokenIds


class OpenIds(Message, frozen=True, tag=6):
    """A further piece of an `Open`, from `offset` on."""

    channel: UInt32
    incarnation: UInt32
    offset: Length
    token_ids: TokenIds


class Features(Message, frozen=True, tag=7):
    """A piece of the declared features of a recording, never of its waveform."""

    channel: UInt32
    incarnation: UInt32
    kind: Name
    encoder_id: Name
    rate_hz: float
    dims: Length
    dtype: Name
    scale: float
    count: Length
    level_db: float
    offset: Length
    data: Annotated[bytes, Meta(max_length=MAX_FEATURE_BYTES)]


class Draft(Message, frozen=True, tag=8):
    """From `position` on I believe these; `verify` asks for a verdict now.

    `committed_length` is the edge's. `judged`: offsets up for judgement (owner edge only; None is all).
    `distributions`: what each id was sampled from (rule *ratio* only).
    """

    channel: UInt32
    incarnation: UInt32
    epoch: UInt32
    position: Length
    token_ids: TokenIds
    verify: bool
    committed_length: Length
    judged: Annotated[list[Length], Meta(max_length=MAX_IDS_PER_PIECE)] | None = None
    distributions: Annotated[list[DraftDistribution], Meta(max_length=MAX_IDS_PER_PIECE)] | None = None


class Hedge(Message, frozen=True, tag=17):
    """Beside the drafts of the present epoch: if the text has `token_ids[0]` at `position`, I believe these.

    `epoch` is newer than that of any draft, and the session goes on under it from the moment the text takes this way.
    A hedge of a newer epoch replaces an older one; one of the same epoch goes on where that ended.
    """

    channel: UInt32
    incarnation: UInt32
    epoch: UInt32
    position: Length
    token_ids: TokenIds
    committed_length: Length


class Ack(Message, frozen=True, tag=9):
    """I hold `committed_length` tokens, and draft nothing."""

    channel: UInt32
    incarnation: UInt32
    committed_length: Length


class Resume(Message, frozen=True, tag=10):
    """I hold `committed_length` tokens with this hash: go on from there on this connection."""

    channel: UInt32
    session_id: SessionId
    incarnation: UInt32
    attach: UInt32
    committed_length: Length
    committed_hash: Hash


class Cancel(Message, frozen=True, tag=11):
    """The user no longer wants the answer."""

    channel: UInt32
    incarnation: UInt32


class Close(Message, frozen=True, tag=12):
    """The answer is complete: forget the session."""

    channel: UInt32
    incarnation: UInt32


# -- session, cloud to edge ------------------------------------------------------------------------------------------


class Opened(Message, frozen=True, tag=13):
    """All ids of the `Open` are here: `committed_length` tokens, prompt included."""

    channel: UInt32
    incarnation: UInt32
    committed_length: Length


class Resumed(Message, frozen=True, tag=14):
    """The text is the same up to the edge's length; the cloud's own length is `committed_length`."""

    channel: UInt32
    incarnation: UInt32
    attach: UInt32
    committed_length: Length


class CommitKind(enum.IntEnum):
    """What the last id of a commit is: an accepted draft id, the recovered or bonus token, or the target's own."""

    ACCEPTED_ONLY = 0
    RECOVERED = 1
    BONUS = 2
    OWN = 3


class Timings(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Differences of the cloud's own clock, in microseconds: no two clocks are ever compared.

    `queue_us`: waiting for the worker. `verify_us`: target pass and acceptance. `arrival_us`: when the newest `Draft`
    arrived, counted from the first of this incarnation, modulo 2^32; `arrival_end` is the position behind its last id,
    0 where none has come. `turnaround_us`: from that arrival to this commit's departure.
    """

    queue_us: UInt32
    verify_us: UInt32
    turnaround_us: UInt32
    arrival_us: UInt32
    arrival_end: Length


class Commit(Message, frozen=True, tag=15):
    """From `position` on the text is this. `num_accepted` counts draft ids kept, without the next token.

    `logprobs`: where the `Open` asked for them, one for each id (see "Log-probabilities").
    """

    channel: UInt32
    incarnation: UInt32
    epoch: UInt32
    position: Length
    token_ids: TokenIds
    kind: CommitKind
    num_judged: Length
    num_accepted: Length
    logprobs: Annotated[list[float], Meta(max_length=MAX_IDS_PER_PIECE)] | None = None
    timings: Timings | None = None


class Error(Message, frozen=True, tag=16):
    """`channel` is None where the whole connection is meant. `expected` is the position a gap should have had."""

    channel: UInt32 | None
    incarnation: UInt32
    code: Name
    message: Text
    retryable: bool
    retry_after_s: float | None = None
    expected: Length | None = None


SessionFromEdge = Open | OpenIds | Features | Draft | Hedge | Ack | Resume | Cancel | Close
SessionFromCloud = Opened | Resumed | Commit | Error
FromEdge = Hello | Probe | SessionFromEdge
FromCloud = Welcome | Probed | SessionFromCloud
