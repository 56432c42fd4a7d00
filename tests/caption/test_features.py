"""Features: Whisper's own values, pitch of known tones, counts, ranges, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgedraft.caption import prosody
from edgedraft.caption.features import extract, feature_count, feature_values, level_db
from edgedraft.caption.mel import mel_filters, pool_mean
from edgedraft.caption.recording import Recording, Source
from edgedraft.errors import InvalidRequestError, UnsupportedError
from edgedraft.speech_features import (
    LOGMEL_128,
    POOLED_12,
    POOLED_25,
    PROSODY_12,
    PROSODY_25,
    FeatureDtype,
    FeatureKind,
    FeatureSpec,
)
from edgedraft.types import Float32Array

SPECS = (LOGMEL_128, POOLED_25, POOLED_12, PROSODY_25, PROSODY_12)
RATE_HZ = 16_000


def voice(f0_hz: float, seconds: float = 1.0, level: float = 0.1) -> Float32Array:
    """Harmonics of `f0_hz` that fall off like those of a voice."""
    times_s = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    harmonics = range(1, int(4_000 / f0_hz) + 1)
    return (level * sum(np.sin(2 * np.pi * f0_hz * k * times_s + k) / k for k in harmonics)).astype(np.float32)


def noise(seconds: float = 1.0, level: float = 0.1, seed: int = 0) -> Float32Array:
    return (level * np.random.default_rng(seed).standard_normal(round(seconds * RATE_HZ))).astype(np.float32)


def descriptor(waveform: Float32Array, name: str) -> np.ndarray:
    """A descriptor in its own unit, at 25 Hz."""
    place = prosody.DESCRIPTORS.index(name)
    values: np.ndarray = feature_values(waveform, PROSODY_25)[:, place]
    return values * prosody.SPREADS[place] + prosody.CENTRES[place]


@pytest.mark.parametrize("num_samples", [1, 159, 160, 161, 400, 16_000, 48_017])
def test_logmel_is_whispers_own(num_samples: int) -> None:
    transformers = pytest.importorskip("transformers")
    extractor = transformers.WhisperFeatureExtractor(feature_size=128)
    waveform = noise(4.0)[:num_samples] * np.linspace(1e-4, 1.0, num_samples, dtype=np.float32)
    wanted = extractor(waveform, sampling_rate=RATE_HZ, return_attention_mask=True, return_tensors="np")
    count = int(wanted["attention_mask"][0].sum())
    values = feature_values(waveform, LOGMEL_128)
    assert values.shape == (count, 128)
    np.testing.assert_allclose(values, wanted["input_features"][0].T[:count], atol=1e-4)


def test_logmel_floor_is_80_db_under_the_loudest() -> None:
    values = feature_values(np.concatenate([voice(150.0), np.zeros(8_000, np.float32)]), LOGMEL_128)
    assert values.max() - values.min() == pytest.approx(2.0, abs=1e-6)


@settings(max_examples=40)
@given(num_samples=st.integers(1, 9_000), spec=st.sampled_from(SPECS))
def test_count_and_shape_for_any_length(num_samples: int, spec: FeatureSpec) -> None:
    values = feature_values(noise(1.0)[:num_samples], spec)
    assert values.dtype == np.float32
    assert np.isfinite(values).all()
    assert len(values) == feature_count(num_samples, spec) == math.ceil(num_samples * spec.rate_hz / RATE_HZ)
    assert values.shape[1] == spec.dims


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(
    "waveform",
    [
        np.zeros(8_000, np.float32),
        np.ones(8_000, np.float32),
        noise(0.5, 0.3),
        voice(300.0, 0.5, 0.3),
        noise(0.5, 1e-5),
    ],
    ids=["silence", "constant", "noise", "voice", "whisper of a noise"],
)
def test_values_share_one_scale(spec: FeatureSpec, waveform: Float32Array) -> None:
    assert np.abs(feature_values(waveform, spec)).max() <= 4.0


@pytest.mark.parametrize("spec", SPECS)
def test_int8_is_within_half_a_step_of_the_values(spec: FeatureSpec) -> None:
    waveform = np.concatenate([voice(120.0), noise(0.3, 0.01), voice(240.0, level=0.02)])
    features = extract(waveform, spec)
    values = feature_values(waveform, spec)
    assert features.count == len(values)
    assert np.abs(features.values() - values).max() <= features.scale / 2 + 1e-6
    assert features.num_bytes == len(values) * spec.dims


def test_extract_takes_a_recording_too() -> None:
    waveform = voice(150.0)
    recording = Recording(
        waveform=waveform, source=Source(sample_rate_hz=RATE_HZ, channels=1, format="test"), name="secret.wav"
    )
    assert extract(recording, POOLED_12) == extract(waveform, POOLED_12)
    assert "secret" not in repr(extract(recording, POOLED_12))
    assert "secret" not in repr(recording)


def test_float16_keeps_three_digits() -> None:
    waveform = voice(150.0)
    features = extract(waveform, POOLED_25, FeatureDtype.FLOAT16)
    np.testing.assert_allclose(features.values(), feature_values(waveform, POOLED_25), atol=2e-3)


def test_level() -> None:
    assert level_db(np.full(100, 0.1, np.float32)) == pytest.approx(-20.0, abs=1e-4)
    assert level_db(np.zeros(100, np.float32)) == -120.0
    assert level_db(np.full(100, 1e-30, np.float32)) == -120.0
    assert extract(voice(150.0) * np.float32(0.1), PROSODY_12).level_db == pytest.approx(
        extract(voice(150.0), PROSODY_12).level_db - 20.0, abs=1e-3
    )


@pytest.mark.parametrize("spec", [POOLED_25, POOLED_12])
def test_pooled_keeps_the_absolute_level(spec: FeatureSpec) -> None:
    """A step of 1 is 20 dB, away from the floor."""
    louder, softer = (feature_values(noise(1.0, level), spec) for level in (0.3, 0.03))
    assert (louder - softer).mean() == pytest.approx(1.0, abs=0.01)


def test_pooled_at_12_hz_is_the_mean_of_25_hz() -> None:
    waveform = voice(150.0, 0.32 * 5)
    fine, coarse = feature_values(waveform, POOLED_25), feature_values(waveform, POOLED_12)
    np.testing.assert_allclose(fine.reshape(-1, 2, 40).mean(axis=1), coarse, atol=1e-5)


def test_last_group_is_averaged_over_what_is_there() -> None:
    np.testing.assert_array_equal(pool_mean(np.array([1.0, 3.0, 5.0]), 2), [2.0, 5.0])


@pytest.mark.parametrize("num_mels", [40, 128])
def test_filters_cover_the_band_without_holes(num_mels: int) -> None:
    filters = mel_filters(num_mels, 512 if num_mels == 40 else 400)
    assert (filters >= 0).all()
    assert (filters.sum(axis=0) > 0).all()
    assert np.argmax(filters, axis=0).tolist() == sorted(np.argmax(filters, axis=0).tolist())


@pytest.mark.parametrize("f0_hz", [70.0, 110.0, 155.0, 220.0, 330.0, 480.0])
@pytest.mark.parametrize("noise_level", [0.0, 0.01])
def test_pitch_of_a_voice(f0_hz: float, noise_level: float) -> None:
    waveform = voice(f0_hz) + noise(1.0, noise_level)
    octaves = descriptor(waveform, "log_f0_octaves")[2:-2]
    np.testing.assert_allclose(octaves, math.log2(f0_hz / prosody.F0_ORIGIN_HZ), atol=0.03)
    assert descriptor(waveform, "voicing")[2:-2].min() == pytest.approx(1.0)


def test_pitch_that_rises_one_octave_in_a_second() -> None:
    times_s = np.arange(RATE_HZ) / RATE_HZ
    phase = 2 * np.pi * 120.0 * (2**times_s - 1) / math.log(2)
    waveform = (0.1 * sum(np.sin(k * phase) / k for k in range(1, 12))).astype(np.float32)
    assert np.median(descriptor(waveform, "f0_change_octaves")) == pytest.approx(0.01, abs=0.001)
    octaves = descriptor(waveform, "log_f0_octaves")
    assert octaves[-3] - octaves[2] == pytest.approx(0.8, abs=0.05)


def test_one_frame_an_octave_off_does_not_count() -> None:
    np.testing.assert_array_equal(prosody._smoothed(np.array([0.0, 0.0, 1.0, 0.0, 0.0])), np.zeros(5))


def test_noise_has_no_voice() -> None:
    waveform = noise()
    assert descriptor(waveform, "voicing").max() == pytest.approx(0.0, abs=1e-6)
    assert np.abs(descriptor(waveform, "log_f0_octaves")).max() < 1e-6
    assert np.abs(descriptor(waveform, "f0_change_octaves")).max() < 1e-6


def test_breath_lowers_the_harmonic_ratio() -> None:
    ratios = [np.median(descriptor(voice(150.0) + noise(1.0, level), "harmonic_ratio_db")) for level in (0, 0.03, 0.1)]
    assert ratios[0] > ratios[1] + 3 > ratios[2] + 6


def test_spectral_descriptors_of_known_sounds() -> None:
    hiss, low = noise(), voice(100.0) + noise(1.0, 1e-4)
    tone = (0.1 * np.sin(2 * np.pi * 3_000 * np.arange(RATE_HZ) / RATE_HZ)).astype(np.float32)
    inner = slice(2, -2)
    assert descriptor(hiss, "centroid_khz")[inner].mean() == pytest.approx(4.0, abs=0.1)
    assert descriptor(tone, "centroid_khz")[inner].mean() == pytest.approx(3.0, abs=0.1)
    assert descriptor(tone, "zero_crossings_per_sample")[inner].mean() == pytest.approx(6_000 / RATE_HZ, abs=0.01)
    assert descriptor(hiss, "flatness_db")[inner].mean() > -4.0
    assert descriptor(low, "flatness_db")[inner].mean() < -15.0
    assert descriptor(low, "tilt_db")[inner].mean() > 8.0
    assert descriptor(hiss, "tilt_db")[inner].mean() == pytest.approx(10 * math.log10(1 / 7), abs=0.5)
    assert descriptor(tone, "flux")[inner].max() < 0.01 < descriptor(hiss, "flux")[inner].min()
    assert descriptor(hiss, "energy_db")[inner].mean() == pytest.approx(-20.0, abs=0.3)


def test_unknown_spec_is_refused() -> None:
    other = FeatureSpec(kind=FeatureKind.POOLED, encoder_id="somebody-elses", rate_hz=25.0, dims=40)
    with pytest.raises(UnsupportedError, match=r"somebody-elses.*whisper-logmel-128"):
        feature_values(voice(150.0), other)


@pytest.mark.parametrize(
    "waveform",
    [
        np.zeros(0, np.float32),
        np.zeros((2, 100), np.float32),
        np.zeros(100, np.int16),
        np.zeros(100),
        np.array([0.0, np.nan], np.float32),
        np.array([0.0, np.inf], np.float32),
    ],
    ids=["empty", "stereo", "int16", "float64", "nan", "infinity"],
)
def test_what_is_no_waveform_is_refused(waveform: Float32Array) -> None:
    with pytest.raises(InvalidRequestError, match="waveform"):
        feature_values(waveform, POOLED_25)


def test_more_than_a_minute_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"lasts 61\.0 s; legal: at most 60 s.*pauses"):
        extract(np.zeros(61 * RATE_HZ, np.float32), POOLED_12)


def test_recording_is_read_only_and_its_own() -> None:
    waveform = voice(150.0, 0.1)
    recording = Recording(waveform=waveform, source=Source(sample_rate_hz=RATE_HZ, channels=1, format="test"))
    waveform[:] = 0.0
    assert np.abs(recording.waveform).max() > 0.0
    with pytest.raises(ValueError, match="read-only"):
        recording.waveform[0] = 0.0
    assert recording.seconds == pytest.approx(0.1)
