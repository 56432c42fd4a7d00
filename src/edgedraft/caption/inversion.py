"""The attacker's side: a waveform back from features, as good as it gets without a trained model.

Log-mel and pooled mel: a spectrum that has these mel values (non-negative least squares by the multiplicative updates
of D. Lee and H. Seung, 2001), then phases that agree with it (fast Griffin-Lim; N. Perraudin, P. Balazs and
P. Soendergaard, 2013). Prosody: a buzz of the same pitch, energy and tilt. A trained inverter would do better.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgedraft.caption.mel import (
    HOP_SAMPLES,
    POOLED_FFT,
    POOLED_FLOOR,
    SAMPLE_RATE_HZ,
    WINDOW_SAMPLES,
    hann,
    mel_filters,
)
from edgedraft.caption.prosody import CENTRES, DESCRIPTORS, F0_ORIGIN_HZ, SPREADS
from edgedraft.errors import UnsupportedError
from edgedraft.speech_features import FeatureKind, SpeechFeatures
from edgedraft.types import Float32Array, Float64Array

FIT_STEPS = 60
PHASE_STEPS = 60
MOMENTUM = 0.99
PEAK = 0.9

Spectra = npt.NDArray[np.complex128]


def inverted(features: SpeechFeatures) -> Float32Array:
    """A 16 kHz waveform whose features are near these. Float32, shape (num_samples,), at most 0.9 in magnitude.

    Raises `UnsupportedError` for a kind that is not known here. The same features give the same waveform.
    """
    values = features.values().astype(np.float64)
    hops = round(SAMPLE_RATE_HZ / features.spec.rate_hz) // HOP_SAMPLES
    match features.spec.kind:
        case FeatureKind.LOGMEL:
            mel_power, fft_samples = 10.0 ** (4.0 * values - 4.0), WINDOW_SAMPLES
        case FeatureKind.POOLED:
            mel_power = np.maximum(10.0 ** (2.0 * _stretched(values, hops) - 4.0) - POOLED_FLOOR, 0.0)
            fft_samples = POOLED_FFT
        case FeatureKind.PROSODY:
            return _normalised(_buzz(_stretched(values * SPREADS + CENTRES, hops)))
        case other:
            raise UnsupportedError(f"features of kind '{other}' cannot be inverted here.", field="features")
    power = fitted_power(mel_power, mel_filters(features.spec.dims, fft_samples))
    return _normalised(griffin_lim(np.sqrt(power), fft_samples))


def _stretched(values: Float64Array, hops: int) -> Float64Array:
    """One row for each 10 ms again: straight lines between the middles of the groups."""
    middles = np.arange(len(values)) * hops + (hops - 1) / 2
    rows = np.arange(len(values) * hops)
    stretched: Float64Array = np.stack([np.interp(rows, middles, column) for column in values.T], axis=1)
    return stretched


def fitted_power(mel_power: Float64Array, filters: Float64Array) -> Float64Array:
    """A non-negative spectrum with these mel values, smooth where they leave it open. Shape (frames, bins)."""
    flat = filters / np.maximum(filters.sum(axis=1, keepdims=True), 1e-12)
    power: Float64Array = (mel_power / filters.sum(axis=0)) @ flat.T + 1e-12
    wanted, square = mel_power @ filters.T, filters @ filters.T
    for _ in range(FIT_STEPS):
        power *= wanted / np.maximum(power @ square, 1e-30)
    return power


def _spectra(waveform: Float64Array, fft_samples: int, count: int) -> Spectra:
    held = np.lib.stride_tricks.sliding_window_view(waveform, WINDOW_SAMPLES)[::HOP_SAMPLES][:count]
    spectra: Spectra = np.fft.rfft(held * hann(WINDOW_SAMPLES), fft_samples)
    return spectra


def _overlapped(spectra: Spectra, fft_samples: int) -> Float64Array:
    """The waveform whose frames are nearest to these. Shape ((frames - 1) * 160 + 400,)."""
    window = hann(WINDOW_SAMPLES)
    pieces = np.fft.irfft(spectra, fft_samples)[:, :WINDOW_SAMPLES] * window
    places = np.arange(len(spectra))[:, None] * HOP_SAMPLES + np.arange(WINDOW_SAMPLES)
    length = int(places[-1, -1]) + 1
    weights = np.bincount(places.ravel(), np.tile(window**2, len(spectra)), length)
    return np.bincount(places.ravel(), pieces.ravel(), length) / np.maximum(weights, 1e-3)


def griffin_lim(magnitudes: Float64Array, fft_samples: int) -> Float64Array:
    """A waveform whose frames have about these magnitudes. Shape (frames, bins) in, (frames * 160,) out."""
    generator = np.random.default_rng(0)
    phases = np.exp(2j * np.pi * generator.random(magnitudes.shape))
    previous = np.zeros_like(phases)
    for _ in range(PHASE_STEPS):
        agreed = _spectra(_overlapped(magnitudes * phases, fft_samples), fft_samples, len(magnitudes))
        ahead = agreed + MOMENTUM * (agreed - previous)
        phases = ahead / np.maximum(np.abs(ahead), 1e-12)
        previous = agreed
    # The frames were centred: the first half window lies before the beginning.
    return _overlapped(magnitudes * phases, fft_samples)[WINDOW_SAMPLES // 2 :][: len(magnitudes) * HOP_SAMPLES]


def _buzz(rows: Float64Array) -> Float64Array:
    """Harmonics where there is voice, hiss elsewhere; loudness and tilt as declared. `rows`: every 10 ms, own units."""
    column = {name: rows[:, place] for place, name in enumerate(DESCRIPTORS)}
    places = np.arange(len(rows) * HOP_SAMPLES) / HOP_SAMPLES

    def smooth(row: Float64Array) -> Float64Array:
        return np.interp(places, np.arange(len(rows)), row)

    voicing = smooth(np.clip(column["voicing"], 0.0, 1.0))
    f0_hz = F0_ORIGIN_HZ * 2.0 ** smooth(column["log_f0_octaves"])
    slope = 1.0 + np.clip(smooth(column["tilt_db"]), 0.0, 20.0) / 20.0
    phase = 2 * np.pi * np.cumsum(f0_hz) / SAMPLE_RATE_HZ
    harmonics = sum(np.sin(k * phase) * k**-slope * (k * f0_hz < SAMPLE_RATE_HZ / 2) for k in range(1, 41))
    hiss = np.random.default_rng(0).standard_normal(len(places))
    sound = voicing * harmonics + (1.0 - voicing) * hiss
    width = HOP_SAMPLES * 4
    level = np.sqrt(np.convolve(sound**2, np.ones(width) / width, mode="same"))
    return np.asarray(sound / np.maximum(level, 1e-6) * 10.0 ** (smooth(column["energy_db"]) / 20.0))


def _normalised(waveform: Float64Array) -> Float32Array:
    peak = float(np.abs(waveform).max(initial=0.0))
    return (waveform * (PEAK / peak if peak > PEAK else 1.0)).astype(np.float32)
