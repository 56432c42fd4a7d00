"""Recordings in: every format and rate of the matrix, and one clear error for every file that is none."""

from __future__ import annotations

import contextlib
import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgedraft.caption import libraries
from edgedraft.caption.audio import from_bytes, load, mix_weights, own_samples
from edgedraft.caption.recording import Recording, Source
from edgedraft.caption.voice_activity import check
from edgedraft.errors import InvalidRequestError, UnsupportedError
from edgedraft.types import Float32Array

soundfile = pytest.importorskip("soundfile")
pytest.importorskip("soxr")

SECONDS = 1.5
PITCH_HZ = 300.0
LEVEL = 0.3

# format, subtype, rate, channels
MATRIX = [
    ("WAV", "PCM_U8", 8_000, 1),
    ("WAV", "PCM_16", 16_000, 1),
    ("WAV", "PCM_16", 44_100, 2),
    ("WAV", "PCM_24", 48_000, 2),
    ("WAVEX", "PCM_24", 48_000, 6),
    ("WAV", "PCM_32", 96_000, 1),
    ("WAV", "FLOAT", 192_000, 2),
    ("WAV", "DOUBLE", 11_025, 1),
    ("WAV", "ULAW", 8_000, 1),
    ("FLAC", "PCM_16", 22_050, 2),
    ("FLAC", "PCM_24", 48_000, 3),
    ("OGG", "VORBIS", 44_100, 1),
    ("OGG", "VORBIS", 48_000, 6),
    ("OGG", "OPUS", 48_000, 2),
    ("MP3", "MPEG_LAYER_III", 44_100, 2),
    ("MP3", "MPEG_LAYER_III", 16_000, 1),
    ("AIFF", "PCM_16", 32_000, 1),
]
CONTAINERS = [("mp4", "aac", 44_100), ("ipod", "aac", 48_000), ("webm", "libopus", 48_000), ("adts", "aac", 32_000)]


def tone(rate_hz: int, seconds: float = SECONDS, channels: int = 1) -> Float32Array:
    one = LEVEL * np.sin(2 * np.pi * PITCH_HZ * np.arange(round(seconds * rate_hz)) / rate_hz)
    return np.repeat(one[:, None], channels, axis=1).astype(np.float32)


def written(
    samples: Float32Array, rate_hz: int = 16_000, file_format: str = "WAV", subtype: str | None = "PCM_16"
) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate_hz, format=file_format, subtype=subtype)
    return buffer.getvalue()


def in_container(container: str, codec: str, rate_hz: int) -> bytes:
    av = pytest.importorskip("av")
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container) as output:
        track = output.add_stream(codec, rate=rate_hz)
        track.layout = "stereo"
        frame = av.AudioFrame.from_ndarray(tone(rate_hz, channels=2).T.copy(), format="fltp", layout="stereo")
        frame.sample_rate = rate_hz
        size = track.codec_context.frame_size or None
        resampler = av.AudioResampler(format=track.format, layout="stereo", rate=rate_hz, frame_size=size)
        for piece in [*resampler.resample(frame), *resampler.resample(None)]:
            output.mux(track.encode(piece))
        output.mux(track.encode(None))
    return buffer.getvalue()


def assert_tone(recording: Recording, level: float = LEVEL) -> None:
    middle = recording.waveform[4_000:20_000]
    assert recording.seconds == pytest.approx(SECONDS, abs=0.06)
    assert np.sqrt(np.mean(middle**2) * 2) == pytest.approx(level, rel=0.05)
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle))))
    assert np.argmax(spectrum) * 16_000 / len(middle) == pytest.approx(PITCH_HZ, abs=2)
    assert np.sum(spectrum[295:306] ** 2) > 0.99 * np.sum(spectrum**2)


def refusal(data: bytes) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        from_bytes(data, "take 1.wav")
    assert caught.value.field == "file"
    assert str(caught.value).startswith("take 1.wav")
    assert caught.value.remedy
    return str(caught.value)


@pytest.mark.parametrize(("file_format", "subtype", "rate_hz", "channels"), MATRIX)
def test_matrix(file_format: str, subtype: str, rate_hz: int, channels: int, tmp_path: Path) -> None:
    path = tmp_path / "recording.with.a.wrong.ending.raw"
    path.write_bytes(written(tone(rate_hz, channels=channels), rate_hz, file_format, subtype))
    recording = load(path)
    samples = tone(rate_hz, channels=channels)
    assert_tone(recording, level=LEVEL * float(np.ones(channels) @ mix_weights(recording.source)))
    assert recording.source == Source(sample_rate_hz=rate_hz, channels=channels, format=f"{file_format}, {subtype}")
    assert len(recording.waveform) == pytest.approx(len(samples) * 16_000 / rate_hz, abs=2)
    assert recording.clipped_share == 0.0


@pytest.mark.parametrize(("container", "codec", "rate_hz"), CONTAINERS)
def test_containers(container: str, codec: str, rate_hz: int) -> None:
    recording = from_bytes(in_container(container, codec, rate_hz))
    assert_tone(recording)
    assert recording.source.sample_rate_hz == rate_hz
    assert recording.source.channels == 2


@pytest.mark.parametrize(("container", "codec", "rate_hz"), CONTAINERS[:3])
@pytest.mark.parametrize("share", [0.02, 0.5])
def test_cut_containers(container: str, codec: str, rate_hz: int, share: float) -> None:
    data = in_container(container, codec, rate_hz)
    assert "truncated" in refusal(data[: int(len(data) * share)])


@pytest.mark.parametrize(
    "case",
    [("WAV", "PCM_16"), ("WAV", "DOUBLE"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("AIFF", "PCM_16")],
)
@pytest.mark.parametrize("share", [0.5, 0.95])
def test_truncated(case: tuple[str, str], share: float) -> None:
    data = written(tone(48_000, channels=2), 48_000, *case)
    assert "truncated" in refusal(data[: int(len(data) * share)])


def test_truncated_mp3(capfd: pytest.CaptureFixture[str]) -> None:
    data = written(tone(44_100), 44_100, "MP3", "MPEG_LAYER_III")
    assert "truncated: 1.50 s are declared" in refusal(data[: len(data) // 2])
    capfd.readouterr()  # libmpg123 remarks on it


def test_wav_cut_before_its_sound() -> None:
    assert "ends before its sound begins" in refusal(written(tone(16_000))[:30])


def test_wav_of_unknown_length_is_whole() -> None:
    data = bytearray(written(tone(16_000)))
    data[4:8] = data[40:44] = b"\xff" * 4
    assert_tone(from_bytes(bytes(data)))


def archive(*, is_locked: bool) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as held:
        held.writestr("take 1.wav", written(tone(16_000)))
    data = bytearray(buffer.getvalue())
    data[6] |= is_locked
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"RIFF", "truncated"),
        (b"We met at noon.\n" * 100, "is not a sound file"),
        (bytes(range(256)) * 20, "is not a sound file"),
        (b"\x00", "is not a sound file"),
        (archive(is_locked=False), "is a zip archive, not a sound file"),
        (archive(is_locked=True), "is a zip archive, protected by a password"),
        (b"%PDF-1.7\n" * 20, "is a PDF document"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "is a picture"),
        (written(np.zeros((0, 1), np.float32)), "holds no samples"),
        (written(tone(16_000)[:1]), "holds one sample;"),
        (written(tone(16_000, 0.05)), r"holds 800 samples (0.050 s); legal: at least 0.1 s"),
        (written(tone(4_000), 4_000), "4,000 samples a second; legal: 8,000 to 192,000"),
        (written(tone(384_000, 0.2), 384_000), "384,000 samples a second"),
        (written(tone(16_000, channels=8)), "has 8 channels; legal: 1 to 6"),
        (written(tone(16_000) * 3e4, subtype="FLOAT"), "full scale is 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_input(data: bytes, words: str) -> None:
    assert words in refusal(data)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_samples_that_are_no_finite_number(bad: float) -> None:
    samples = tone(16_000).astype(np.float64)
    samples[8_000] = bad
    assert "no finite number, at 0.500 s" in refusal(written(samples, subtype="DOUBLE"))


def test_two_hours_are_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "long.wav"
    header = bytearray(written(np.zeros(8_000, np.float32), 8_000, subtype="PCM_U8")[:44])
    num_bytes = 2 * 3_600 * 8_000
    header[4:8], header[40:44] = (num_bytes + 36).to_bytes(4, "little"), num_bytes.to_bytes(4, "little")
    path.write_bytes(header)
    os.truncate(path, num_bytes + 44)
    with pytest.raises(InvalidRequestError, match=r"lasts 7,200 s; legal: at most 600 s.*Cut"):
        load(path)
    with pytest.raises(InvalidRequestError, match="at most 100 s"):
        load(path, max_s=100)


def test_length_is_bounded_where_the_header_is_silent() -> None:
    data = in_container("adts", "aac", 32_000)
    with pytest.raises(InvalidRequestError, match=r"lasts more than 1\.2 s"):
        from_bytes(data, max_s=1.2)


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequestError, match=r"missing\.wav does not exist"):
        load(tmp_path / "missing.wav")
    with pytest.raises(InvalidRequestError, match="is a directory"):
        load(tmp_path)
    os.mkfifo(tmp_path / "pipe.wav")
    with pytest.raises(InvalidRequestError, match="is not a regular file"):
        load(tmp_path / "pipe.wav")
    path = tmp_path / "locked.wav"
    path.write_bytes(written(tone(16_000)))

    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(InvalidRequestError, match=r"locked\.wav may not be read by you"):
        load(path)


def test_container_without_sound() -> None:
    av = pytest.importorskip("av")
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as output:
        track = output.add_stream("mpeg4", rate=5)
        track.width = track.height = 32
        for _ in range(3):
            frame = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")
            output.mux(track.encode(frame))
        output.mux(track.encode(None))
    assert "has no sound track" in refusal(buffer.getvalue())


@pytest.mark.parametrize(("name", "extra"), [("soundfile", "caption"), ("soxr", "caption"), ("av", "containers")])
def test_missing_library_names_its_extra(name: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = in_container("mp4", "aac", 44_100) if name == "av" else written(tone(8_000), 8_000)
    real = libraries.importlib.import_module

    def import_module(wanted: str) -> Any:
        if wanted == name:
            raise ModuleNotFoundError(wanted)
        return real(wanted)

    monkeypatch.setattr(libraries.importlib, "import_module", import_module)
    with pytest.raises(UnsupportedError, match=rf"{name} is not installed.*edgedraft\[{extra}\]"):
        from_bytes(data)


def test_clipping_is_counted_on_the_files_own_samples() -> None:
    samples = np.clip(tone(44_100) * 5, -1, 1)
    for subtype in ("PCM_16", "PCM_U8", "FLOAT"):
        share = from_bytes(written(samples, 44_100, subtype=subtype)).clipped_share
        assert share == pytest.approx(np.mean(np.abs(samples) >= 1), abs=0.02)


def test_surround_hears_the_centre_and_not_the_effects() -> None:
    samples = tone(48_000, channels=6)
    for place, weight in enumerate([0.5, 0.5, 2**-0.5, 0.0, 2**-1.5, 2**-1.5]):
        alone = np.zeros_like(samples)
        alone[:, place] = samples[:, place]
        waveform = from_bytes(written(alone, 48_000, "WAVEX", "PCM_24")).waveform
        assert np.sqrt(np.mean(waveform**2) * 2) == pytest.approx(LEVEL * weight, abs=0.002)


@pytest.mark.parametrize("rate_hz", [16_000, 44_100])
def test_channels_that_cancel_each_other_are_not_mixed(rate_hz: int) -> None:
    """The louder one is taken, and said so; a channel that is merely silent cancels nothing."""
    left, right = np.hsplit(tone(rate_hz, channels=2), 2)
    recording = from_bytes(written(np.hstack([-0.95 * left, right]), rate_hz))
    assert recording.source.lone_channel == 2
    assert_tone(recording)
    assert check(recording).notices[-1].endswith("cancel each other in the mix, so only channel 2 was taken")
    for other in (left, 0 * left, -0.7 * left):
        mixed = from_bytes(written(np.hstack([other, right]), rate_hz))
        assert mixed.source.lone_channel is None
        assert not any("cancel" in notice for notice in check(mixed).notices)
    assert from_bytes(written(np.zeros((8_000, 2), np.float32))).source.lone_channel is None


def test_name_stays_out_of_sight() -> None:
    recording = from_bytes(written(tone(16_000)), "my secret.wav")
    assert recording.name == "my secret.wav"
    assert "secret" not in repr(recording)


def test_protected_sound_is_named() -> None:
    data = in_container("mp4", "aac", 44_100).replace(b"mp4a", b"xxxx").replace(b"esds", b"xxxx")
    with pytest.raises(InvalidRequestError, match="the sound of take cannot be decoded; it may be protected"):
        from_bytes(data, "take")


@pytest.mark.parametrize("seed", range(10))
def test_damage_gives_a_recording_or_a_clear_error(seed: int, capfd: pytest.CaptureFixture[str]) -> None:
    generator = np.random.default_rng(seed)
    file_format, subtype, rate_hz, channels = MATRIX[int(generator.integers(len(MATRIX)))]
    whole = written(tone(rate_hz, 0.3, channels), rate_hz, file_format, subtype)
    for _ in range(8):
        data = bytearray(whole)
        for place in generator.integers(0, min(len(data), 400), generator.integers(1, 8)):
            data[place] = generator.integers(256)
        with contextlib.suppress(InvalidRequestError):
            assert np.isfinite(from_bytes(bytes(data)).waveform).all()
    capfd.readouterr()  # libmpg123 remarks on it


def test_the_files_own_samples_are_those_of_the_channel_that_was_heard() -> None:
    channels = np.stack([np.linspace(-0.5, 0.5, 4_000), np.linspace(0.9, -0.9, 4_000)], axis=1).astype(np.float32)
    for number in (1, 2):
        ((rate, samples),) = own_samples(written(channels, 8_000, "WAV", "FLOAT"), channel=number).items()
        assert rate == 8_000
        np.testing.assert_array_equal(samples, channels[:, number - 1])
