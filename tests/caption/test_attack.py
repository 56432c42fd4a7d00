"""The attack works where it should, and its measures are right."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.caption.attack import (
    attack_voices,
    attack_words,
    envelope_correlation,
    recovered_share,
    word_error_rate,
)
from edgedraft.caption.features import extract, feature_values
from edgedraft.caption.inversion import _stretched, fitted_power, griffin_lim, inverted
from edgedraft.caption.mel import mel_filters, pool_mean, power_spectra
from edgedraft.caption.prosody import DESCRIPTORS
from edgedraft.caption.recogniser import installed_recogniser, open_recogniser
from edgedraft.caption.recording import Recording, Source
from edgedraft.errors import InvalidRequestError, ModelFileError, UnsupportedError
from edgedraft.speech_features import LOGMEL_128, POOLED_12, POOLED_25, PROSODY_12, PROSODY_25, FeatureSpec
from edgedraft.types import Float32Array

RATE_HZ = 16_000


def syllables(seconds: float = 2.0, f0_hz: float = 130.0, size: float = 1.0, seed: int = 0) -> Float32Array:
    """Buzz through two resonances that move every fifth of a second. `size` scales the resonances: another speaker."""
    generator = np.random.default_rng(seed)
    num_samples = RATE_HZ // 5
    bins_hz = np.fft.rfftfreq(num_samples, 1 / RATE_HZ)
    pieces = []
    for _ in range(round(seconds * 5)):
        buzz = np.zeros(num_samples)
        buzz[:: int(RATE_HZ / (f0_hz * generator.uniform(0.9, 1.1)))] = 1.0
        spectrum = np.fft.rfft(buzz + 0.02 * generator.standard_normal(num_samples))
        for centre_hz in (generator.uniform(300, 700), generator.uniform(1_000, 2_500)):
            spectrum *= 0.05 + np.exp(-(((bins_hz - size * centre_hz) / 250) ** 2)) + np.exp(-bins_hz / 500)
        piece = np.fft.irfft(spectrum, num_samples) * np.hanning(num_samples)
        pieces.append(0.1 * piece / np.sqrt(np.mean(piece**2)))
    return np.concatenate(pieces).astype(np.float32)


def recording(waveform: Float32Array) -> Recording:
    return Recording(waveform=waveform, source=Source(sample_rate_hz=RATE_HZ, channels=1, format="test"))


WAVEFORM = syllables(1.4)


@pytest.mark.parametrize("spec", [LOGMEL_128, POOLED_25, POOLED_12, PROSODY_25, PROSODY_12])
def test_inverted_has_the_length_and_is_the_same_each_time(spec: FeatureSpec) -> None:
    features = extract(WAVEFORM, spec)
    waveform = inverted(features)
    assert waveform.dtype == np.float32
    assert len(waveform) == pytest.approx(len(WAVEFORM), abs=RATE_HZ / spec.rate_hz)
    assert np.isfinite(waveform).all()
    assert np.abs(waveform).max() <= 0.9001
    np.testing.assert_array_equal(waveform, inverted(features))


def test_coarser_features_give_less_away() -> None:
    follows = [
        attack_words(recording(WAVEFORM), spec).envelope_correlation
        for spec in (LOGMEL_128, POOLED_25, POOLED_12, PROSODY_12)
    ]
    assert follows == sorted(follows, reverse=True)
    assert follows[0] > 0.95
    assert follows[1] > 0.75
    assert follows[3] < 0.8


def test_logmel_comes_back() -> None:
    values = feature_values(WAVEFORM, LOGMEL_128)
    again = feature_values(inverted(extract(WAVEFORM, LOGMEL_128)), LOGMEL_128)
    loud = values > values.max() - 1.0
    assert np.abs(again - values)[loud].mean() < 0.06


def test_fitted_power_has_the_mel_values() -> None:
    filters = mel_filters(40, 512)
    wanted = power_spectra(WAVEFORM, 400, 512) @ filters
    fitted = fitted_power(wanted, filters) @ filters
    loud = wanted > wanted.max() * 1e-4
    assert (np.abs(fitted - wanted)[loud] / wanted[loud]).max() < 0.1


def test_phases_are_found_and_momentum_helps() -> None:
    wanted = np.sqrt(power_spectra(WAVEFORM, 400, 512))
    found = np.sqrt(power_spectra(griffin_lim(wanted, 512).astype(np.float32), 400, 512))
    assert np.linalg.norm(found - wanted) < 0.2 * np.linalg.norm(wanted)  # 0.21 without momentum


@pytest.mark.parametrize("hops", [4, 8])
def test_pooled_rows_are_stretched_around_their_middles(hops: int) -> None:
    ramp = np.stack([np.arange(80.0), 5.0 - np.arange(80.0)], axis=1)
    again = _stretched(pool_mean(ramp, hops), hops)
    np.testing.assert_allclose(again[hops:-hops], ramp[hops:-hops], atol=1e-9)


def test_prosody_comes_back_as_a_buzz_of_the_same_pitch() -> None:
    times_s = np.arange(2 * RATE_HZ) / RATE_HZ
    phase = 2 * np.pi * (140 * times_s + 10 * times_s**2)
    waveform = (0.1 * sum(np.sin(k * phase) / k for k in range(1, 15))).astype(np.float32)
    place = DESCRIPTORS.index("log_f0_octaves")
    before = feature_values(waveform, PROSODY_25)[3:-3, place]
    after = feature_values(inverted(extract(waveform, PROSODY_25)), PROSODY_25)[3:-3, place]
    np.testing.assert_allclose(after, before, atol=0.05)


def test_envelope_correlation_of_the_same_and_of_others() -> None:
    assert envelope_correlation(WAVEFORM, WAVEFORM) == pytest.approx(1.0)
    assert envelope_correlation(WAVEFORM, 0.1 * WAVEFORM) == pytest.approx(1.0)
    assert envelope_correlation(WAVEFORM, np.roll(syllables(1.4, seed=7), 1_600)) < 0.5
    noise = np.random.default_rng(0).standard_normal(len(WAVEFORM)).astype(np.float32)
    assert abs(envelope_correlation(WAVEFORM, noise)) < 0.15
    assert envelope_correlation(WAVEFORM[:3_000], WAVEFORM[:3_000]) == 0.0


def test_words_are_scored_against_the_known_or_the_original() -> None:
    def recogniser(waveform: Float32Array) -> str:
        return "close the window" if np.array_equal(waveform, WAVEFORM) else "close a window"

    known = attack_words(recording(WAVEFORM), POOLED_25, words="Close the windows!", recogniser=recogniser)
    assert known.word_error_rate == pytest.approx(2 / 3)
    assert known.original_error_rate == pytest.approx(1 / 3)
    assert (known.recovered_share, known.original_recovered_share) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert known.heard == "close a window"
    unknown = attack_words(recording(WAVEFORM), POOLED_25, recogniser=recogniser)
    assert unknown.word_error_rate == pytest.approx(1 / 3)
    assert unknown.original_error_rate == 0.0
    silent = attack_words(recording(WAVEFORM), POOLED_25, recogniser=lambda _: "")
    assert silent.word_error_rate is None
    alone = attack_words(recording(WAVEFORM), POOLED_25)
    assert alone.heard is alone.word_error_rate is None
    report = json.loads(json.dumps(alone.to_dict()))
    assert "waveform" not in report
    assert report["evidence"].startswith("Evidence, not proof")
    assert report["bytes_per_s"] == 1_000


@pytest.mark.parametrize(
    ("reference", "heard", "rate"),
    [
        ("a b c", "a b c", 0.0),
        ("A, b. C!", "a b c", 0.0),
        ("a b c", "", 1.0),
        ("a b", "x a b y", 1.0),
        ("a b c d", "a c d", 0.25),
        ("请把窗户关上", "请把窗关", 2 / 6),
        ("don't go", "dont go", 0.5),
    ],
)
def test_word_error_rate(reference: str, heard: str, rate: float) -> None:
    assert word_error_rate(reference, heard) == pytest.approx(rate)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=5), st.lists(st.sampled_from("abc"), max_size=5))
def test_word_error_rate_is_the_edit_distance(wanted: list[str], got: list[str]) -> None:
    def distance(a: list[str], b: list[str]) -> int:
        if not a or not b:
            return len(a) + len(b)
        return min(distance(a[1:], b) + 1, distance(a, b[1:]) + 1, distance(a[1:], b[1:]) + (a[0] != b[0]))

    assert word_error_rate(" ".join(wanted), " ".join(got)) == pytest.approx(distance(wanted, got) / len(wanted))


@pytest.mark.parametrize(
    ("reference", "heard", "share"),
    [("a b c d", "a x c d and more", 0.75), ("a b", "b a", 0.5), ("a", "", 0.0), ("关上窗", "关窗", 2 / 3)],
)
def test_recovered_share(reference: str, heard: str, share: float) -> None:
    assert recovered_share(reference, heard) == pytest.approx(share)


def test_reference_without_words() -> None:
    with pytest.raises(InvalidRequestError, match="no words"):
        recovered_share("", "a")
    with pytest.raises(InvalidRequestError, match="no words"):
        word_error_rate("...", "a")


@pytest.mark.parametrize("spec", [LOGMEL_128, POOLED_12, PROSODY_12])
def test_speakers_are_told_where_they_differ(spec: FeatureSpec) -> None:
    voices = {"ada": (110.0, 0.85), "bob": (150.0, 1.0), "cai": (210.0, 1.2)}
    clips = [
        (extract(syllables(1.0, f0_hz, size, seed), spec), name)
        for name, (f0_hz, size) in voices.items()
        for seed in range(8)
    ]
    told = attack_voices(clips)
    assert told.accuracy >= 0.9
    assert (told.num_speakers, told.num_clips, told.chance) == (3, 24, pytest.approx(1 / 3))
    assert json.loads(json.dumps(told.to_dict()))["num_clips"] == 24
    # The same voice under three names is not told: no clip helps to tell itself.
    same = [(extract(syllables(1.0, seed=seed), spec), "abc"[seed % 3]) for seed in range(24)]
    assert attack_voices(same).accuracy < 0.65


@pytest.mark.parametrize(
    "labels", [[(POOLED_12, "a")] * 4, [(POOLED_12, "a"), (POOLED_12, "a"), (POOLED_12, "b")], [], "mixed"]
)
def test_too_few_voices(labels: Any) -> None:
    if labels == "mixed":
        labels = [(spec, name) for spec in (POOLED_12, POOLED_25) for name in "aabb"]
    with pytest.raises(InvalidRequestError, match="two speakers or more"):
        attack_voices([(extract(WAVEFORM, spec), name) for spec, name in labels])


class Whisper:
    """As faster-whisper's model."""

    def __init__(self, folder: str, **how: object) -> None:
        assert how["local_files_only"]
        if "damaged" in folder:
            raise RuntimeError("bad model")

    def transcribe(self, _waveform: Float32Array, **how: object) -> tuple[list[SimpleNamespace], None]:
        return [SimpleNamespace(text=f" {how['language']}"), SimpleNamespace(text="words ")], None


def test_recogniser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("model", "damaged"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.bin").touch()
    monkeypatch.setitem(sys.modules, "faster_whisper", SimpleNamespace(WhisperModel=Whisper))
    assert open_recogniser(tmp_path / "model", "en")(WAVEFORM) == "en words"
    with pytest.raises(ModelFileError, match="damaged cannot be read"):
        open_recogniser(tmp_path / "damaged", "en")
    with pytest.raises(InvalidRequestError, match="is not a folder"):
        open_recogniser(tmp_path / "none", "en")
    monkeypatch.setitem(sys.modules, "vosk", None)
    (tmp_path / "other").mkdir()
    with pytest.raises(UnsupportedError, match=r"vosk is not installed.*pip install vosk"):
        open_recogniser(tmp_path / "other", "en")


def test_installed_recogniser(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name == "vosk" else None)
    assert installed_recogniser() == "vosk"
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert installed_recogniser() is None
