"""The bytes of protocol version 1. `python tests/protocol/test_golden.py` appends vectors for what `MESSAGES` has new.

Append-only: a vector that no longer fits means that old and new peers no longer understand each other, which takes a
new version, not a new vector.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from edgedraft.protocol.codec import decode_from_cloud, decode_from_edge, encode
from edgedraft.protocol.messages import (
    Ack,
    Cancel,
    Close,
    Commit,
    CommitKind,
    Draft,
    Error,
    ExactnessStatement,
    Features,
    Fingerprint,
    FromCloud,
    FromEdge,
    Hedge,
    Hello,
    Limits,
    Listening,
    Open,
    Opened,
    OpenIds,
    Probe,
    Probed,
    Resume,
    Resumed,
    Timings,
    Welcome,
)
from edgedraft.types import Assist, DraftDistribution, Exactness, Owner, Rule, SamplingParams

PATH = Path(__file__).resolve().parents[1] / "golden" / "protocol_v1.json"
UINT32, INT31 = 2**32 - 1, 2**31 - 1
SESSION = bytes(range(16))
HASHES = [bytes([index] * 8) for index in range(64)]
TOKENIZER = Fingerprint(num_ids=49_152, range_hashes=HASHES, bos_id=1, eos_ids=[2, 0])
NO_BOS = Fingerprint(num_ids=152_000, range_hashes=HASHES[::-1], bos_id=-1, eos_ids=[])
SAMPLED = SamplingParams(
    temperature=0.8,
    top_k=40,
    top_p=0.95,
    min_p=0.05,
    seed=2**63 - 1,
    choice=3,
    repetition_penalty=1.1,
    presence_penalty=-0.5,
    frequency_penalty=0.25,
    logit_bias={0: -100.0, 151_999: 1.5},
)

MESSAGES: dict[str, FromEdge | FromCloud] = {
    "hello": Hello(version=1, client="edgedraft 0.1.0", fingerprint=TOKENIZER),
    "hello_without_tokenizer": Hello(version=1, client=""),
    "hello_no_bos": Hello(version=1, client="é", fingerprint=NO_BOS),
    "hello_other_version": Hello(version=2, client="edgedraft 9"),
    "welcome": Welcome(
        version=1,
        server="edgedraft 0.1.0",
        model="demo:target",
        fingerprint=TOKENIZER,
        chat_template="{% for message in messages %}{{ message.content }}{% endfor %}",
        limits=Limits(context_length=2048, max_pending_tokens=256, assist_lead_tokens=8, rules=[Rule.MATCH]),
        exactness=ExactnessStatement(exactness=Exactness.BITWISE, depends_on="engine build, Q8_0, 1 thread"),
    ),
    "welcome_least": Welcome(
        version=1,
        server="",
        model="",
        fingerprint=NO_BOS,
        chat_template="",
        limits=Limits(context_length=0, max_pending_tokens=0, assist_lead_tokens=0, rules=[]),
        exactness=ExactnessStatement(exactness=Exactness.UP_TO_NUMERICS, depends_on=""),
    ),
    "welcome_all_rules": Welcome(
        version=1,
        server="s",
        model="m",
        fingerprint=NO_BOS,
        chat_template="日本語",
        limits=Limits(context_length=INT31, max_pending_tokens=INT31, assist_lead_tokens=INT31, rules=list(Rule)),
        exactness=ExactnessStatement(exactness=Exactness.DISTRIBUTION, depends_on="batch"),
        features=Listening(kind="pooled", encoder_id="edgedraft-mel-40", rate_hz=12.5, dims=40),
    ),
    "probe": Probe(start=768, count=768),
    "probe_most": Probe(start=INT31, count=8_192),
    "probed": Probed(start=768, id_hashes=bytes(range(16))),
    "probed_nothing": Probed(start=0, id_hashes=b""),
    "open": Open(
        channel=1,
        session_id=SESSION,
        incarnation=0,
        attach=0,
        owner=Owner.CLOUD,
        num_prompt=3,
        num_committed=2,
        max_length=67,
        stop_ids=[],
        ignore_eos=False,
        sampling=SamplingParams(),
        rule=Rule.MATCH,
        rank=1,
        assist=Assist.NONE,
        eager=False,
        timings=True,
        logprobs=False,
        bonus=False,
        fork_of=b"",
        token_ids=[1, 9906, 151_999, 0, 300],
    ),
    "open_sampled": Open(
        channel=UINT32,
        session_id=SESSION[::-1],
        incarnation=UINT32,
        attach=UINT32,
        owner=Owner.EDGE,
        num_prompt=30_000,
        num_committed=0,
        max_length=INT31,
        stop_ids=[2, 49_151],
        ignore_eos=True,
        sampling=SAMPLED,
        rule=Rule.RANK,
        rank=10,
        assist=Assist.ALWAYS,
        eager=True,
        timings=False,
        logprobs=True,
        bonus=False,
        fork_of=SESSION,
        token_ids=[],
    ),
    "open_ids": OpenIds(channel=1, incarnation=0, offset=3_000, token_ids=[5, 128, 65_536]),
    "open_ids_last": OpenIds(channel=1, incarnation=300, offset=INT31, token_ids=[INT31]),
    "features": Features(
        channel=2,
        incarnation=0,
        kind="mel",
        encoder_id="encoder",
        rate_hz=12.5,
        dims=4,
        dtype="int8",
        scale=0.03125,
        count=2,
        level_db=-20.0,
        offset=0,
        data=b"\x00\x7f\x80\xff\x01\x02\x03\x04",
    ),
    "features_empty": Features(
        channel=2,
        incarnation=1,
        kind="",
        encoder_id="",
        rate_hz=0.0,
        dims=0,
        dtype="",
        scale=1.0,
        count=0,
        level_db=0.0,
        offset=9,
        data=b"",
    ),
    "draft": Draft(
        channel=1,
        incarnation=0,
        epoch=127,
        position=65_535,
        token_ids=[151_992, 151_993, 151_994, 151_995, 151_996, 151_997, 151_998, 151_999],
        verify=True,
        committed_length=65_535,
    ),
    "draft_asks_only": Draft(
        channel=1, incarnation=0, epoch=UINT32, position=10, token_ids=[], verify=True, committed_length=10
    ),
    "draft_judged": Draft(
        channel=1,
        incarnation=2,
        epoch=3,
        position=10,
        token_ids=[7, 8, 9],
        verify=True,
        committed_length=10,
        judged=[1],
    ),
    "draft_judges_none": Draft(
        channel=1, incarnation=2, epoch=3, position=10, token_ids=[7], verify=False, committed_length=9, judged=[]
    ),
    "draft_ratio": Draft(
        channel=1,
        incarnation=0,
        epoch=0,
        position=10,
        token_ids=[7],
        verify=True,
        committed_length=10,
        distributions=[DraftDistribution(token_ids=[7, 300], probs_fp16=b"\x00\x3a\x00\x34")],
    ),
    "ack": Ack(channel=1, incarnation=0, committed_length=128),
    "ack_most": Ack(channel=UINT32, incarnation=UINT32, committed_length=INT31),
    "resume": Resume(
        channel=1, session_id=SESSION, incarnation=0, attach=1, committed_length=40, committed_hash=b"\x01" * 8
    ),
    "resume_most": Resume(
        channel=UINT32,
        session_id=b"\xff" * 16,
        incarnation=UINT32,
        attach=UINT32,
        committed_length=INT31,
        committed_hash=b"\xff" * 8,
    ),
    "cancel": Cancel(channel=1, incarnation=0),
    "cancel_most": Cancel(channel=UINT32, incarnation=UINT32),
    "close": Close(channel=1, incarnation=0),
    "close_most": Close(channel=UINT32, incarnation=UINT32),
    "opened": Opened(channel=1, incarnation=0, committed_length=5),
    "opened_most": Opened(channel=UINT32, incarnation=UINT32, committed_length=INT31),
    "resumed": Resumed(channel=1, incarnation=0, attach=1, committed_length=44),
    "resumed_most": Resumed(channel=UINT32, incarnation=UINT32, attach=UINT32, committed_length=INT31),
    "commit_bonus": Commit(
        channel=1,
        incarnation=0,
        epoch=127,
        position=65_535,
        token_ids=[151_991, 151_992, 151_993, 151_994, 151_995, 151_996, 151_997, 151_998, 151_999],
        kind=CommitKind.BONUS,
        num_judged=8,
        num_accepted=8,
        timings=Timings(120, 95_000, 95_400, 1_204_000, 131),
    ),
    "commit_recovered": Commit(
        channel=1,
        incarnation=0,
        epoch=0,
        position=10,
        token_ids=[3, 4],
        kind=CommitKind.RECOVERED,
        num_judged=5,
        num_accepted=1,
    ),
    "commit_empty": Commit(
        channel=1,
        incarnation=0,
        epoch=4,
        position=10,
        token_ids=[],
        kind=CommitKind.ACCEPTED_ONLY,
        num_judged=0,
        num_accepted=0,
    ),
    "commit_own_logprobs": Commit(
        channel=1,
        incarnation=0,
        epoch=0,
        position=10,
        token_ids=[3],
        kind=CommitKind.OWN,
        num_judged=0,
        num_accepted=0,
        logprobs=[-0.25],
        timings=Timings(UINT32, UINT32, UINT32, UINT32, INT31),
    ),
    "error_gap": Error(channel=1, incarnation=0, code="gap", message="position is 9.", retryable=True, expected=7),
    "error_saturated": Error(
        channel=1, incarnation=0, code="saturated", message="full", retryable=True, retry_after_s=2.5
    ),
    "error_connection": Error(channel=None, incarnation=0, code="malformed_frame", message="", retryable=False),
    "hedge": Hedge(
        channel=1, incarnation=0, epoch=128, position=65_533, token_ids=[151_999, 300], committed_length=65_530
    ),
    "hedge_most": Hedge(
        channel=UINT32, incarnation=UINT32, epoch=UINT32, position=INT31, token_ids=[INT31], committed_length=INT31
    ),
}


def decode(name: str, data: bytes) -> FromEdge | FromCloud:
    return decode_from_edge(data) if isinstance(MESSAGES[name], FromEdge) else decode_from_cloud(data)


def readable(value: Any) -> Any:
    """The message as JSON: fields by name, bytes in hex."""
    if isinstance(value, msgspec.Struct):
        return {name: readable(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [readable(item) for item in value]
    if isinstance(value, dict):
        return {str(key): readable(item) for key, item in value.items()}
    return value


def load() -> dict[str, dict[str, Any]]:
    return {vector["name"]: vector for vector in json.loads(PATH.read_text(encoding="utf-8"))}


VECTORS = load() if PATH.exists() else {}


def test_every_message_has_its_vector_and_every_type_several() -> None:
    assert list(MESSAGES) == list(VECTORS)
    for cls in (*get_args(FromEdge), *get_args(FromCloud)):
        assert sum(vector["type"] == cls.__name__ for vector in VECTORS.values()) >= 2


@pytest.mark.parametrize("name", VECTORS)
def test_encoding_gives_the_recorded_bytes(name: str) -> None:
    assert encode(MESSAGES[name]).hex() == VECTORS[name]["hex"]


@pytest.mark.parametrize("name", VECTORS)
def test_decoding_gives_the_recorded_message(name: str) -> None:
    message = decode(name, bytes.fromhex(VECTORS[name]["hex"]))
    assert message == MESSAGES[name]
    assert readable(message) == VECTORS[name]["fields"]


def append() -> None:
    vectors = list(load().values()) if PATH.exists() else []
    known = {vector["name"] for vector in vectors}
    vectors += [
        {"name": name, "type": type(message).__name__, "fields": readable(message), "hex": encode(message).hex()}
        for name, message in MESSAGES.items()
        if name not in known
    ]
    PATH.write_text("[\n" + ",\n".join(json.dumps(vector) for vector in vectors) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    append()
