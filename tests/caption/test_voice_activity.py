"""Speech is told from noise, in any synthetic voice; long recordings are cut at pauses."""

from __future__ import annotations

import numpy as np
import pytest

from edgedraft.caption.excerpts import Excerpt, split_at_pauses, spoken_part, without_silent_ends
from edgedraft.caption.recording import Recording, Source
from edgedraft.caption.voice_activity import Check, check, speech_steps
from edgedraft.errors import InvalidRequestError
from edgedraft.types import Float32Array

RATE_HZ = 16_000


def recording(waveform: Float32Array, clipped_share: float = 0.0) -> Recording:
    source = Source(sample_rate_hz=RATE_HZ, channels=1, format="test")
    return Recording(waveform=waveform.astype(np.float32), source=source, clipped_share=clipped_share)


def checked(waveform: Float32Array) -> Check:
    return check(recording(waveform))


def coloured_noise(exponent: float, seconds: float, seed: int = 0) -> Float32Array:
    """RMS 1; power falls with frequency to the power of `exponent`: 0 white, 1 pink, 2 brown."""
    samples = np.random.default_rng(seed).standard_normal(round(seconds * RATE_HZ))
    spectrum = np.fft.rfft(samples)
    spectrum[1:] /= np.arange(1, len(spectrum)) ** (exponent / 2)
    shaped = np.fft.irfft(spectrum, len(samples))
    return (shaped / np.sqrt(np.mean(shaped**2))).astype(np.float32)


def syllables(seconds: float, voiced: float = 1.0, seed: int = 0) -> Float32Array:
    """Four syllables a second, each with another colour: buzz and hiss through two resonances. RMS about 0.1."""
    generator = np.random.default_rng(seed)
    num_samples = RATE_HZ // 4
    pieces = []
    for _ in range(round(seconds * 4)):
        buzz = np.zeros(num_samples)
        buzz[:: int(RATE_HZ / generator.uniform(90, 250))] = 1.0
        sound = voiced * buzz + 0.1 * generator.standard_normal(num_samples)
        spectrum = np.fft.rfft(sound)
        bins_hz = np.fft.rfftfreq(num_samples, 1 / RATE_HZ)
        for centre_hz in (generator.uniform(250, 800), generator.uniform(900, 2_800)):
            spectrum *= 0.03 + np.exp(-(((bins_hz - centre_hz) / 200) ** 2)) + np.exp(-bins_hz / 300)
        piece = np.fft.irfft(spectrum, num_samples) * np.hanning(num_samples)
        pieces.append(0.1 * piece / np.sqrt(np.mean(piece**2)))
    return np.concatenate(pieces).astype(np.float32)


TIMES_S = np.arange(5 * RATE_HZ) / RATE_HZ
HUM = sum(np.sin(2 * np.pi * 50 * k * TIMES_S + k) / k for k in range(1, 12)) * 0.1
CLICK = np.zeros(5 * RATE_HZ)
CLICK[40_000] = 1.0

NOISES = {
    "white": 0.1 * coloured_noise(0, 5),
    "pink": 0.1 * coloured_noise(1, 5),
    "brown": 0.1 * coloured_noise(2, 5),
    "short": 0.1 * coloured_noise(1, 0.3),
    "loud": 0.9 * np.clip(coloured_noise(0, 5), -1, 1),
    "hum": HUM,
    "hum with hiss": HUM + 0.003 * coloured_noise(0, 5),
    "tone": 0.3 * np.sin(2 * np.pi * 440 * TIMES_S),
    "beep in hiss": 0.3 * np.sin(2 * np.pi * 800 * TIMES_S) * (np.abs(TIMES_S - 2) < 0.3) + 5e-3 * coloured_noise(0, 5),
    "constant": np.full(5 * RATE_HZ, 0.5),
    "click": CLICK + 3e-3 * coloured_noise(0, 5),
    "swelling": 0.1 * coloured_noise(1, 5) * (1 + 0.8 * np.sin(np.pi * TIMES_S)),
}


@pytest.mark.parametrize("name", NOISES)
def test_noise_is_no_speech(name: str) -> None:
    found = checked(NOISES[name])
    assert not found.has_speech
    assert found.notices == ("no speech found: the recording holds steady noise or tones",)


@pytest.mark.parametrize("level", [0.0, 1e-5, 5e-4])
def test_silence_is_no_speech(level: float) -> None:
    found = checked(level * coloured_noise(0, 2))
    assert not found.has_speech
    assert "silent" in found.notices[0]


@pytest.mark.parametrize("voiced", [1.0, 0.0], ids=["voiced", "whispered"])
@pytest.mark.parametrize("exponent", [0, 1])
@pytest.mark.parametrize("noise_db", [-200, -20, -10])
def test_syllables_are_speech(voiced: float, exponent: float, noise_db: float) -> None:
    waveform = syllables(3.0, voiced)
    found = checked(waveform + 0.1 * 10 ** (noise_db / 20) * coloured_noise(exponent, 3.0))
    assert found.has_speech
    assert found.notices == ()
    assert found.speech_s > 1.0


@pytest.mark.parametrize("language", ["en", "zh"])
def test_synthetic_voices_are_speech(language: str) -> None:
    """As they are, and under noise 10 dB below them."""
    pytest.importorskip("espeakng_loader")
    from edgedraft.caption.synthetic import make_clip

    for number in range(12):
        waveform = make_clip("dev", language, number, 5).waveform
        level = float(np.sqrt(np.mean(waveform**2))) * 10**-0.5
        noisy = waveform + level * coloured_noise(1, len(waveform) / RATE_HZ, number)
        assert checked(waveform).has_speech
        assert checked(noisy).has_speech


def test_speech_is_found_where_it_is() -> None:
    waveform = 1e-3 * coloured_noise(1, 20)
    waveform[8 * RATE_HZ : 10 * RATE_HZ] += syllables(2.0)
    steps = np.flatnonzero(speech_steps(waveform)) * 0.04
    assert 7.0 <= steps[0] <= 8.5
    assert 9.5 <= steps[-1] <= 11.0
    assert checked(waveform).speech_s == pytest.approx(3.0, abs=0.8)


def test_notices_about_level_and_clipping() -> None:
    quiet = checked(syllables(2.0) * 0.03)
    assert quiet.has_speech
    assert quiet.notices[0].startswith("the recording is very quiet (-50 dB")
    clipped = check(recording(syllables(2.0), clipped_share=0.034))
    assert clipped.notices == ("the recording clips in 3.4 % of its samples",)
    assert clipped.peak == pytest.approx(float(np.abs(syllables(2.0)).max()))


def test_shortest_recording_is_checked() -> None:
    assert not checked(np.zeros(1_600)).has_speech
    assert not checked(0.1 * coloured_noise(0, 0.1)).has_speech


@pytest.mark.parametrize("num_samples", [1, 159, 160])
def test_less_than_a_step_is_a_recording_too(num_samples: int) -> None:
    whole = recording(np.full(num_samples, 0.3))
    assert not check(whole).has_speech
    (part,) = split_at_pauses(whole)
    assert (part.end_s, part.has_speech) == (whole.seconds, False)
    assert spoken_part(whole).seconds == whole.seconds


def spoken_with_pauses() -> Float32Array:
    """25 s: two seconds of syllables, half a second of room, and so on."""
    parts = [np.concatenate([syllables(2.0, seed=i), np.zeros(RATE_HZ // 2, np.float32)]) for i in range(10)]
    return np.concatenate(parts) + 1e-4 * coloured_noise(0, 25.0)


def test_cuts_lie_in_pauses() -> None:
    waveform = spoken_with_pauses()
    excerpts = split_at_pauses(recording(waveform), 6.0)
    assert [part.start_s for part in excerpts] == [0.0, *(part.end_s for part in excerpts[:-1])]
    assert excerpts[-1].end_s == 25.0
    assert all(part.end_s - part.start_s <= 6.0 and part.has_speech for part in excerpts)
    for part in excerpts[1:]:
        assert 2.05 <= part.start_s % 2.5 <= 2.45
    np.testing.assert_array_equal(np.concatenate([part.recording.waveform for part in excerpts]), waveform)


def test_short_recordings_stay_whole() -> None:
    waveform = syllables(6.0)
    (whole,) = split_at_pauses(recording(waveform), 6.0)
    assert (whole.start_s, whole.end_s) == (0.0, 6.0)


@pytest.mark.parametrize("seconds", [6.01, 9.0, 12.0, 12.5])
def test_no_rest_is_tiny(seconds: float) -> None:
    parts = split_at_pauses(recording(0.1 * coloured_noise(0, seconds)), 6.0)
    assert all(0.45 <= part.end_s - part.start_s <= 6.0 for part in parts)


def test_excerpts_without_speech_say_so() -> None:
    waveform = np.concatenate([syllables(5.0), 1e-3 * coloured_noise(0, 10.0), syllables(5.0)])
    parts = split_at_pauses(recording(waveform), 5.0)
    assert parts[0].has_speech
    assert parts[-1].has_speech
    assert not all(part.has_speech for part in parts)


@pytest.mark.parametrize("window_s", [0.0, 0.9, 61.0, float("nan")])
def test_window_out_of_range(window_s: float) -> None:
    with pytest.raises(InvalidRequestError, match=r"window_s is .*; legal: 1 to 60"):
        split_at_pauses(recording(syllables(2.0)), window_s)


def trimmed(waveform: Float32Array) -> Excerpt:
    whole = recording(waveform)
    return without_silent_ends(Excerpt(start_s=10.0, end_s=10.0 + whole.seconds, recording=whole, has_speech=True))


@pytest.mark.parametrize("noise", [0.0, 0.003])
def test_long_silence_at_the_ends_is_left_out(noise: float) -> None:
    speech, silence = 0.1 * syllables(3.0), np.zeros(2 * RATE_HZ)
    excerpt = trimmed(np.concatenate([silence, speech, silence]) + noise * coloured_noise(0, 7.0))
    assert excerpt.has_speech
    assert (excerpt.start_s, excerpt.end_s) == pytest.approx((12.0, 15.0), abs=0.3)
    assert excerpt.recording.seconds == pytest.approx(excerpt.end_s - excerpt.start_s)


@pytest.mark.parametrize("silence_s", [0.0, 0.3])
def test_short_silence_at_the_ends_is_kept(silence_s: float) -> None:
    silence = np.zeros(round(silence_s * RATE_HZ))
    excerpt = trimmed(np.concatenate([silence, 0.1 * syllables(3.0), silence]))
    assert excerpt.recording.seconds == pytest.approx(3.0 + 2 * silence_s)


def test_silence_alone_stays_as_it_is() -> None:
    assert trimmed(np.zeros(3 * RATE_HZ)).end_s == 13.0
