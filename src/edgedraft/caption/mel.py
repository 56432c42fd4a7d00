"""Mel spectrograms: Whisper's own front end, and a coarse one pooled over time. numpy only; 16 kHz mono waveforms.

Mel scale and area-normalised triangles after M. Slaney, "Auditory Toolbox" (1998); the scaling of `whisper_logmel`
after A. Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision" (2022), section 2.2.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from edgedraft.types import Float32Array, Float64Array

SAMPLE_RATE_HZ = 16_000
HOP_SAMPLES = 160
"""10 ms: all frames are centred on multiples of this."""
WINDOW_SAMPLES = 400

POOLED_MELS = 40
POOLED_FFT = 512
POOLED_FLOOR = 1e-8
"""Added to every band: digital silence and the hiss of a quiet room look the same."""

_LINEAR_HZ_PER_MEL = 200 / 3
_BREAK_HZ = 1_000.0
_LOG_STEP = np.log(6.4) / 27


def mel_to_hz(mels: Float64Array) -> Float64Array:
    """Slaney's scale: linear up to 1 kHz (15 mel), logarithmic above."""
    above = _BREAK_HZ * np.exp(_LOG_STEP * (mels - _BREAK_HZ / _LINEAR_HZ_PER_MEL))
    below = mels * _LINEAR_HZ_PER_MEL
    hz: Float64Array = np.where(below < _BREAK_HZ, below, above)
    return hz


@functools.cache
def mel_filters(num_mels: int, fft_samples: int) -> Float64Array:
    """Triangles of area 1, evenly spaced in mel from 0 to 8 kHz. Shape (fft_samples // 2 + 1, num_mels); read-only."""
    top_mel = _BREAK_HZ / _LINEAR_HZ_PER_MEL + np.log(SAMPLE_RATE_HZ / 2 / _BREAK_HZ) / _LOG_STEP
    edges_hz = mel_to_hz(np.linspace(0.0, top_mel, num_mels + 2))
    bins_hz = np.linspace(0.0, SAMPLE_RATE_HZ / 2, fft_samples // 2 + 1)[:, None]
    low_hz, centre_hz, high_hz = edges_hz[:-2], edges_hz[1:-1], edges_hz[2:]
    rising = (bins_hz - low_hz) / (centre_hz - low_hz)
    falling = (high_hz - bins_hz) / (high_hz - centre_hz)
    filters: Float64Array = np.maximum(0.0, np.minimum(rising, falling)) * 2.0 / (high_hz - low_hz)
    filters.setflags(write=False)
    return filters


@functools.cache
def hann(num_samples: int) -> Float64Array:
    """Periodic Hann window; read-only."""
    window: Float64Array = np.hanning(num_samples + 1)[:-1]
    window.setflags(write=False)
    return window


def frames(waveform: npt.NDArray[np.floating], width: int) -> Float64Array:
    """Overlapping stretches of `width` samples, one for each 10 ms begun. Shape (ceil(num_samples / 160), width).

    Each is centred on a multiple of 10 ms. Before the beginning the waveform is mirrored, after the end it is zero.
    """
    count, half = -(-len(waveform) // HOP_SAMPLES), width // 2
    held = np.zeros(max((count - 1) * HOP_SAMPLES + width - half, half + 1, len(waveform)))
    held[: len(waveform)] = waveform
    mirrored = np.concatenate([held[half:0:-1], held])
    stretches: Float64Array = np.lib.stride_tricks.sliding_window_view(mirrored, width)[::HOP_SAMPLES][:count]
    return stretches


def power_spectra(waveform: npt.NDArray[np.floating], width: int, fft_samples: int) -> Float64Array:
    """Power of each Hann-windowed frame. Shape (frames, fft_samples // 2 + 1)."""
    spectra = np.fft.rfft(frames(waveform, width) * hann(width), fft_samples)
    power: Float64Array = spectra.real**2 + spectra.imag**2
    return power


def pool_mean(values: npt.NDArray[np.floating], num_pooled: int) -> Float64Array:
    """Means of `num_pooled` rows at a time; the last group may be shorter. Shape (ceil(rows / num_pooled), ...)."""
    starts = np.arange(0, len(values), num_pooled)
    sizes = np.minimum(num_pooled, len(values) - starts)
    sums = np.add.reduceat(values, starts, axis=0)
    means: Float64Array = sums / sizes.reshape(-1, *[1] * (values.ndim - 1))
    return means


def whisper_logmel(waveform: Float32Array, num_mels: int) -> Float64Array:
    """What Whisper hears, without its padding to 30 s. Shape (ceil(num_samples / 160), num_mels), within 2 units.

    The floor is 80 dB under the loudest value of the clip; 0 is a power of 1e-4, a step of 1 is 40 dB.
    """
    power = power_spectra(waveform, WINDOW_SAMPLES, WINDOW_SAMPLES) @ mel_filters(num_mels, WINDOW_SAMPLES)
    levels = np.log10(np.maximum(power, 1e-10))
    scaled: Float64Array = (np.maximum(levels, levels.max() - 8.0) + 4.0) / 4.0
    return scaled


def pooled_mel(waveform: Float32Array, num_pooled: int) -> Float64Array:
    """40 mel bands, averaged in the logarithm over `num_pooled` frames of 10 ms. Shape (groups, 40), about -2 to 3.

    Levels are absolute: 0 is a power of 1e-4, a step of 1 is 20 dB, and nothing is relative to the clip.
    """
    power = power_spectra(waveform, WINDOW_SAMPLES, POOLED_FFT) @ mel_filters(POOLED_MELS, POOLED_FFT)
    return pool_mean((np.log10(power + POOLED_FLOOR) + 4.0) / 2.0, num_pooled)
