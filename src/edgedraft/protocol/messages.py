"""What travels, and nothing else (PROTOCOL, version 1).

Every message is a MessagePack array whose first element is its integer tag; the fields follow in the order below.
Fields are never reordered or removed within a version: the golden vectors of `tests/golden` hold the bytes.

`channel` is the short handle that the edge gives a session on one connection, so that the 16-byte session id
travels only in `Open` and `Resume`. `incarnation` rises with every `Open` of a session.
"""

from __future__ import annotations

import enum

import msgspec

from edgedraft.types import Assist, DraftDistribution, Exactness, Owner, Rule, SamplingParams

PROTOCOL_VERSION = 1
NUM_FINGERPRINT_RANGES = 64
MAX_FRAME_BYTES = 65_536
MAX_IDS_PER_PIECE = 3_000
"""An id takes at most five bytes, so a piece stays under 16 kB."""


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all messages."""


class Fingerprint(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """A tokenizer, short enough for a handshake.

    `num_ids`: the real vocabulary size. `range_hashes`: 64 hashes of 8 bytes, one for each of 64 equal ranges of ids
    over [0, num_ids), the last one shorter. `bos_id` is -1 where there is none.
    """

    num_ids: int
    range_hashes: list[bytes]
    bos_id: int
    eos_ids: list[int]


class Limits(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """What the cloud accepts from one session."""

    context_length: int
    max_pending_tokens: int
    assist_lead_tokens: int
    rules: list[Rule]


class ExactnessStatement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """The class of exactness the target gives, and what that depends on, in words."""

    exactness: Exactness
    depends_on: str


# -- connection ------------------------------------------------------------------------------------------------------


class Hello(Message, frozen=True, tag=1):
    """Edge, first on a connection. `fingerprint` is None only where the edge has no tokenizer (doctor)."""

    version: int
    client: str
    fingerprint: Fingerprint | None = None


class Welcome(Message, frozen=True, tag=2):
    """Cloud, in answer to `Hello`."""

    version: int
    server: str
    model: str
    fingerprint: Fingerprint
    chat_template: str
    limits: Limits
    exactness: ExactnessStatement


class Probe(Message, frozen=True, tag=3):
    """Edge: send me a hash of each id in [start, start + count), to name the first that differs."""

    start: int
    count: int


class Probed(Message, frozen=True, tag=4):
    """Cloud: four bytes for each id from `start` on."""

    start: int
    id_hashes: bytes


# -- session, edge to cloud ------------------------------------------------------------------------------------------


class Open(Message, frozen=True, tag=5):
    """Open a session, or open it again. `token_ids` is the first piece of prompt ids followed by committed ids.

    The session starts when `num_prompt + num_committed` ids have arrived, here and in `OpenIds`. `max_length` bounds
    prompt + output. `stop_ids` end the text beside the target's own end-of-sequence ids (unless `ignore_eos`).
    `eager`: verify whatever has arrived without being asked.
    """

    channel: int
    session_id: bytes
    incarnation: int
    attach: int
    owner: Owner
    num_prompt: int
    num_committed: int
    max_length: int
    stop_ids: list[int]
    ignore_eos: bool
    sampling: SamplingParams
    rule: Rule
    rank: int
    assist: Assist
    eager: bool
    timings: bool
    fork_of: bytes
    token_ids: list[int]


class OpenIds(Message, frozen=True, tag=6):
    """A further piece of an `Open`, from `offset` on."""

    channel: int
    incarnation: int
    offset: int
    token_ids: list[int]


class Features(Message, frozen=True, tag=7):
    """A piece of the declared features of a recording. Its type cannot hold a waveform."""

    channel: int
    incarnation: int
    kind: str
    encoder_id: str
    rate_hz: float
    dims: int
    dtype: str
    scale: float
    count: int
    level_db: float
    offset: int
    data: bytes


class Draft(Message, frozen=True, tag=8):
    """From `position` on I believe these; `verify` asks for a verdict now.

    `committed_length` is the edge's. `judged`: offsets up for judgement (owner edge only; None is all).
    `distributions`: what each id was sampled from (rule *ratio* only).
    """

    channel: int
    incarnation: int
    epoch: int
    position: int
    token_ids: list[int]
    verify: bool
    committed_length: int
    judged: list[int] | None = None
    distributions: list[DraftDistribution] | None = None


class Ack(Message, frozen=True, tag=9):
    """I hold `committed_length` tokens, and draft nothing."""

    channel: int
    incarnation: int
    committed_length: int


class Resume(Message, frozen=True, tag=10):
    """I hold `committed_length` tokens with this hash: go on from there on this connection."""

    channel: int
    session_id: bytes
    incarnation: int
    attach: int
    committed_length: int
    committed_hash: bytes


class Cancel(Message, frozen=True, tag=11):
    """The user no longer wants the answer."""

    channel: int
    incarnation: int


class Close(Message, frozen=True, tag=12):
    """The answer is complete: forget the session."""

    channel: int
    incarnation: int


# -- session, cloud to edge ------------------------------------------------------------------------------------------


class Opened(Message, frozen=True, tag=13):
    channel: int
    incarnation: int
    committed_length: int


class Resumed(Message, frozen=True, tag=14):
    channel: int
    incarnation: int
    attach: int
    committed_length: int


class CommitKind(enum.IntEnum):
    """What the last id of a commit is: an accepted draft id, the recovered or bonus token, or the target's own."""

    ACCEPTED_ONLY = 0
    RECOVERED = 1
    BONUS = 2
    OWN = 3


class Timings(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Differences of the cloud's own clock, in microseconds: no two clocks are ever compared.

    `queue_us`: waiting for the worker. `verify_us`: target pass and acceptance. `turnaround_us`: from the arrival of
    the asking message to this commit's departure, both of the above included.
    """

    queue_us: int
    verify_us: int
    turnaround_us: int


class Commit(Message, frozen=True, tag=15):
    """From `position` on the text is this. `num_accepted` counts draft ids kept, without the next token."""

    channel: int
    incarnation: int
    epoch: int
    position: int
    token_ids: list[int]
    kind: CommitKind
    num_judged: int
    num_accepted: int
    logprobs: list[float] | None = None
    timings: Timings | None = None


class Error(Message, frozen=True, tag=16):
    """`channel` is None where the whole connection is meant. `expected` is the position a gap should have had."""

    channel: int | None
    incarnation: int
    code: str
    message: str
    retryable: bool
    retry_after_s: float | None = None
    expected: int | None = None


FromEdge = Hello | Probe | Open | OpenIds | Features | Draft | Ack | Resume | Cancel | Close
FromCloud = Welcome | Probed | Opened | Resumed | Commit | Error
