"""The account of what left, and that a recording hidden in it is found."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from urllib.parse import urlsplit

import numpy as np
import pytest

from edgedraft import EdgeClient
from edgedraft.backends import registry
from edgedraft.backends.base import BackendOptions
from edgedraft.caption.capture import CapturedFrame, FrameKind, captured_frames
from edgedraft.caption.features import extract
from edgedraft.caption.privacy import ledger
from edgedraft.caption.recording import Recording, Source
from edgedraft.caption.waveform_search import encodings, find_file, find_samples, strongest_correlation
from edgedraft.protocol.codec import encode, wire_size_bytes
from edgedraft.protocol.messages import (
    MAX_FEATURE_BYTES,
    PROTOCOL_VERSION,
    Commit,
    CommitKind,
    Draft,
    Features,
    FromCloud,
    FromEdge,
    Hello,
)
from edgedraft.sim.network import Way
from edgedraft.speech_features import LOGMEL_128, POOLED_12, POOLED_25, PROSODY_25, FeatureSpec, SpeechFeatures
from edgedraft.testing.cloud import running_cloud
from edgedraft.testing.link import running_link
from edgedraft.testing.wire import open_message
from edgedraft.types import Float32Array

RATE_HZ = 16_000


def spoken(seconds: float = 2.0, rate_hz: int = RATE_HZ, seed: int = 0) -> Float32Array:
    """A buzz that wanders, with hiss: nothing in it repeats."""
    generator = np.random.default_rng(seed)
    times_s = np.arange(round(seconds * rate_hz)) / rate_hz
    phase = 2 * np.pi * (120 * times_s + 5 * np.sin(3 * times_s))
    buzz = sum(np.sin(k * phase) / k for k in range(1, 15)) * (0.6 + 0.4 * np.sin(9 * times_s))
    return (0.1 * buzz + 0.01 * generator.standard_normal(len(times_s))).astype(np.float32)


WAVEFORM = spoken(1.2)
RECORDING = Recording(
    waveform=WAVEFORM,
    source=Source(sample_rate_hz=RATE_HZ, channels=1, format="WAV, PCM_16"),
    name="/home/ada/Interview Müller.wav",
)


def feature_messages(features: SpeechFeatures, data: bytes | None = None) -> list[FromEdge]:
    held = features.data if data is None else data
    return [
        Features(
            channel=1,
            incarnation=1,
            kind=features.spec.kind,
            encoder_id=features.spec.encoder_id,
            rate_hz=features.spec.rate_hz,
            dims=features.spec.dims,
            dtype=features.dtype,
            scale=features.scale,
            count=features.count,
            level_db=features.level_db,
            offset=offset,
            data=held[offset : offset + MAX_FEATURE_BYTES],
        )
        for offset in range(0, len(held), MAX_FEATURE_BYTES)
    ]


def frame(message: FromEdge | FromCloud, way: Way = Way.UP) -> CapturedFrame:
    payload = encode(message)
    size = wire_size_bytes(len(payload), masked=way is Way.UP)
    return CapturedFrame(way=way, kind=FrameKind.MESSAGE, payload=payload, wire_bytes=size)


def raw(payload: bytes, kind: FrameKind = FrameKind.MESSAGE) -> CapturedFrame:
    return CapturedFrame(way=Way.UP, kind=kind, payload=payload, wire_bytes=len(payload) + 6)


def run(spec: FeatureSpec = POOLED_12, data: bytes | None = None, client: str = "edgedraft") -> list[CapturedFrame]:
    """A captioning run: greeting, request, features, a draft, its verdict."""
    draft = Draft(
        channel=1,
        incarnation=1,
        epoch=0,
        position=1,
        token_ids=[5, 6, 7, 8, 9],
        verify=True,
        committed_length=1,
        judged=[1, 3],
    )
    commit = Commit(
        channel=1,
        incarnation=1,
        epoch=0,
        position=1,
        token_ids=[5, 6, 7],
        kind=CommitKind.RECOVERED,
        num_judged=2,
        num_accepted=1,
    )
    return [
        frame(Hello(version=PROTOCOL_VERSION, client=client)),
        frame(open_message(b"s" * 16, [1])),
        *map(frame, feature_messages(extract(RECORDING, spec), data)),
        frame(draft),
        frame(commit, Way.DOWN),
    ]


@pytest.mark.parametrize("spec", [LOGMEL_128, POOLED_25, POOLED_12, PROSODY_25])
def test_account_of_a_run(spec: FeatureSpec) -> None:
    frames = run(spec)
    account = ledger(frames, RECORDING)
    assert [(entry.way, entry.kind, entry.num_ids) for entry in account.entries] == [
        ("up", "Hello", 0),
        ("up", "Open", 1),
        ("up", "Features", 0),
        ("up", "Draft", 5),
        ("down", "Commit", 3),
    ]
    assert account.bytes_up + account.bytes_down == sum(one.wire_bytes for one in frames)
    assert account.holds_only_declared
    (share,) = account.features
    assert share.num_bytes == extract(RECORDING, spec).num_bytes
    assert share.bytes_per_s == spec.rate_hz * spec.dims
    assert share.pcm_ratio == pytest.approx(share.bytes_per_s / 32_000)
    assert share.seconds == pytest.approx(1.2, abs=0.08)
    assert account.search is not None
    assert account.search.searched_bytes == sum(one.payload_bytes for one in account.entries if one.way == "up")
    entry = account.entries[2]
    assert f"{spec.dims} values at {spec.rate_hz:g} Hz as int8" in entry.holds
    assert all(one.holds for one in account.entries)


@pytest.mark.parametrize("spec", [LOGMEL_128, POOLED_25, POOLED_12, PROSODY_25])
def test_features_do_not_look_like_the_waveform(spec: FeatureSpec) -> None:
    search = ledger(run(spec), RECORDING).search
    assert search is not None
    assert search.is_clean
    assert search.correlation < 0.9


def test_nothing_escalated_nothing_sent() -> None:
    account = ledger([], RECORDING)
    assert account.entries == account.features == ()
    assert account.bytes_up == 0
    assert account.search is not None
    assert account.search.is_clean


def test_json() -> None:
    account = json.loads(json.dumps(ledger(run(), RECORDING).to_dict()))
    assert account["holds_only_declared"] is True
    assert account["search_is_clean"] is True
    assert account["entries"][2]["kind"] == "Features"
    assert account["features"][0]["kind"] == "pooled"
    assert ledger(run()).to_dict()["search_is_clean"] is None


@pytest.mark.parametrize(
    "bad",
    [
        raw(b"\x93\x01"),
        raw(b"anything", FrameKind.UNKNOWN),
        frame(feature_messages(extract(RECORDING, POOLED_12), bytes(4_000))[0]),
        raw(encode(feature_messages(extract(RECORDING, POOLED_12))[0]).replace(b"int8", b"int9")),
    ],
    ids=["no message", "no frame", "more bytes than declared", "unknown type of value"],
)
def test_what_is_undeclared_is_named(bad: CapturedFrame) -> None:
    account = ledger([*run(), bad], RECORDING)
    assert not account.holds_only_declared
    unknown = next(entry for entry in account.entries if entry.kind == "unknown")
    assert unknown.wire_bytes == bad.wire_bytes


def names() -> Sequence[str]:
    return [name for name, _, _ in encodings(WAVEFORM[:1_000])]


@pytest.mark.parametrize("encoding", names())
def test_20_ms_in_any_encoding_are_found(encoding: str) -> None:
    """At an odd place of the recording and of the bytes, between noise."""
    data, width = next((data, width) for name, data, width in encodings(WAVEFORM) if name == encoding)
    stretch = data[12_345 * width :][: 320 * width]
    noise = np.random.default_rng(1).bytes(501)
    assert encoding in [
        found.what.removesuffix(" at 16,000 Hz") for found in find_samples(noise + stretch + noise, {RATE_HZ: WAVEFORM})
    ]
    assert not find_samples(noise + stretch[: 160 * width - 1] + noise, {RATE_HZ: WAVEFORM})


def test_a_smuggled_waveform_is_found_in_the_run() -> None:
    pcm = (WAVEFORM * 32_768).round().astype("<i2").tobytes()
    search = ledger(run(POOLED_12, pcm[20_000:21_000]), RECORDING).search
    assert search is not None
    assert not search.is_clean
    assert search.found[0].what == "16-bit PCM at 16,000 Hz"


def test_the_files_own_rate_and_bytes_are_looked_for() -> None:
    own = spoken(rate_hz=44_100)
    pcm = (own * 32_768).round().astype("<i2").tobytes()
    found = ledger([*run(), raw(pcm[8_000:12_000])], RECORDING, own_samples={44_100: own}).search
    assert found is not None
    assert [one.what for one in found.found] == ["16-bit PCM at 44,100 Hz"]
    file = np.random.default_rng(2).bytes(5_000)
    assert find_file(b"x" * 31 + file[1_001:1_129], file)
    assert not find_file(file[1_001:1_050], file)


def test_silence_is_not_found_everywhere() -> None:
    assert not find_samples(bytes(10_000), {RATE_HZ: np.zeros(8_000, np.float32)})


@pytest.mark.parametrize("dtype", ["i1", "<i2", "<f4"])
@pytest.mark.parametrize("start", [0, 3])
def test_a_scaled_waveform_is_found_by_correlation(dtype: str, start: int) -> None:
    peak = float(np.abs(WAVEFORM).max())
    scaled = WAVEFORM[5_000:9_000] / peak * {"i1": 100, "<i2": 7_777, "<f4": 0.123}[dtype]
    searched = bytes(range(start)) + scaled.astype(dtype).tobytes()
    assert not find_samples(searched, {RATE_HZ: WAVEFORM})
    assert strongest_correlation(searched, WAVEFORM) > 0.98


def test_chance_correlates_little() -> None:
    assert strongest_correlation(np.random.default_rng(3).bytes(20_000), WAVEFORM) < 0.7
    assert strongest_correlation(b"", WAVEFORM) == 0.0
    assert strongest_correlation(bytes(10_000), WAVEFORM) == 0.0
    assert strongest_correlation(b"x" * 10_000, WAVEFORM[:100]) == 0.0


@pytest.mark.parametrize("name", ["interview müller", "Interview Müller.wav"])
def test_a_file_name_is_found(name: str) -> None:
    for coding in ("utf-8", "utf-16-le"):
        search = ledger([*run(), raw(b"xx" + name.encode(coding))], RECORDING).search
        assert search is not None
        assert search.names_found
        assert not search.is_clean


def test_g711_is_that_of_the_library() -> None:
    soundfile = pytest.importorskip("soundfile")
    buffer = io.BytesIO()
    soundfile.write(buffer, (WAVEFORM * 32_768).round().astype(np.int16), RATE_HZ, format="RAW", subtype="ULAW")
    (ours,) = (data for name, data, _ in encodings(WAVEFORM) if name == "mu-law")
    same = np.frombuffer(ours, np.uint8) == np.frombuffer(buffer.getvalue(), np.uint8)
    assert same.mean() > 0.99


def test_every_byte_of_a_real_connection_is_accounted_for() -> None:
    spec = "toy:vocab=64,seed=3"
    chunks: list[tuple[Way, bytes]] = []
    with (
        running_cloud(registry.open_target(spec, BackendOptions()), registry.open_tokenizer(spec)) as cloud,
        running_link(
            "127.0.0.1", urlsplit(cloud.url).port or 0, tap=lambda way, data: chunks.append((way, bytes(data)))
        ) as link,
        EdgeClient(f"ws://{link.host}:{link.port}/v1/edgedraft", draft=spec + ",agree=0.8") as client,
    ):
        answer = client.generate(prompt_ids=[1, 2, 3], max_tokens=20, ignore_eos=True)
    account = ledger(captured_frames(chunks), RECORDING)
    assert account.holds_only_declared
    assert account.bytes_up == sum(len(data) for way, data in chunks if way is Way.UP)
    assert account.bytes_down == sum(len(data) for way, data in chunks if way is Way.DOWN)
    kinds = {(entry.way, entry.kind) for entry in account.entries}
    assert kinds >= {("up", "http"), ("up", "Hello"), ("up", "Open"), ("down", "Welcome"), ("down", "Commit")}
    assert sum(entry.num_ids for entry in account.entries if entry.kind == "Commit") == len(answer.token_ids)
    assert account.search is not None
    assert account.search.is_clean
