"""Looks for a recording in bytes: as samples of any usual encoding, as the file's own bytes, or scaled and requantised.

A search that finds nothing is evidence, not proof: a waveform that is encrypted or coded by a vocoder is not found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from edgedraft.types import Float32Array, Float64Array

STRETCH_S = 0.02
MIN_DISTINCT_BYTES = 8
"""Stretches of fewer different byte values are left out: digital silence is found in anything."""
FILE_STRETCH_BYTES = 64
CORRELATION_SAMPLES = 640
MAX_STRETCHES = 64
"""Of each reading, evenly spread: the search of a minute takes seconds, not minutes."""
MAX_CHANCE_CORRELATION = 0.95
"""At 640 samples. Measured on 48 synthetic clips: their own log-mel, the worst case, stays below 0.84; their samples,
scaled and rounded to bytes or 16 bits, are above 0.99."""

_MU = 255.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Something of the recording at byte `offset` of the bytes searched. `what`: in which form."""

    what: str
    offset: int


def encodings(samples: Float32Array) -> Iterator[tuple[str, bytes, int]]:
    """Name, bytes and bytes per sample of each encoding in which samples may travel."""
    clipped = np.clip(samples.astype(np.float64), -1.0, 1.0)
    counts = np.clip(np.round(clipped * 32768.0), -32768, 32767)
    yield "16-bit PCM", counts.astype("<i2").tobytes(), 2
    yield "16-bit PCM, big-endian", counts.astype(">i2").tobytes(), 2
    yield "16-bit PCM, times 32767", np.round(clipped * 32767.0).astype("<i2").tobytes(), 2
    yield "24-bit PCM", _three_bytes(clipped), 3
    yield "32-bit float", samples.astype("<f4").tobytes(), 4
    yield "32-bit float, big-endian", samples.astype(">f4").tobytes(), 4
    yield "16-bit float", samples.astype("<f2").tobytes(), 2
    yield "64-bit float", samples.astype("<f8").tobytes(), 8
    yield "8-bit PCM", np.clip(np.round(clipped * 128.0) + 128, 0, 255).astype(np.uint8).tobytes(), 1
    yield "8-bit PCM, signed", np.clip(np.round(clipped * 128.0), -128, 127).astype(np.int8).tobytes(), 1
    yield "8-bit PCM, cut off", (np.floor(counts / 256.0) + 128).astype(np.uint8).tobytes(), 1
    yield "mu-law", _mu_law(counts), 1


def _three_bytes(clipped: Float64Array) -> bytes:
    counts = np.clip(np.round(clipped * 2**23), -(2**23), 2**23 - 1).astype("<i4")
    return counts.view(np.uint8).reshape(-1, 4)[:, :3].tobytes()


def _mu_law(counts: Float64Array) -> bytes:
    """ITU-T G.711: segments of sixteen steps, bits inverted."""
    magnitude = np.minimum(np.abs(counts), 32_635).astype(np.int64) + 132
    segment = np.floor(np.log2(magnitude)).astype(np.int64) - 7
    step = (magnitude >> (segment + 3)) & 0x0F
    return (~(((counts < 0).astype(np.int64) << 7) | (segment << 4) | step) & 0xFF).astype(np.uint8).tobytes()


def find_samples(searched: bytes, samples: Mapping[int, Float32Array]) -> list[Found]:
    """Any stretch of 20 ms of `samples` (waveforms by their rate in Hz), wherever it begins, in `searched`.

    Any 20 ms hold 10 ms that begin at a multiple of 10 ms: those are looked up at every byte. One `Found` for each
    encoding.
    """
    found = []
    for rate_hz, waveform in samples.items():
        for name, data, width in encodings(waveform):
            offset = _first(searched, data, round(rate_hz * STRETCH_S / 2) * width)
            if offset is not None:
                found.append(Found(what=f"{name} at {rate_hz:,} Hz", offset=offset))
    return found


def find_file(searched: bytes, file: bytes) -> list[Found]:
    """Any 128 bytes of the file itself, which may be compressed sound."""
    offset = _first(searched, file, FILE_STRETCH_BYTES)
    return [] if offset is None else [Found(what="bytes of the file itself", offset=offset)]


def _first(searched: bytes, data: bytes, size: int) -> int | None:
    """Where the first of the aligned stretches of `size` bytes of `data` lies in `searched`."""
    stretches = {data[start : start + size] for start in range(0, len(data) - size + 1, size)}
    stretches = {stretch for stretch in stretches if len(set(stretch)) >= MIN_DISTINCT_BYTES}
    return next((at for at in range(len(searched) - size + 1) if searched[at : at + size] in stretches), None)


def strongest_correlation(searched: bytes, waveform: Float32Array) -> float:
    """How well any 640 numbers in a row, read from `searched` in ten ways, follow any place of the waveform.

    Normalised, of first differences (a waveform's slow swings resemble anything), 0 to 1. Zero where there are too few
    numbers.
    """
    target = np.diff(waveform.astype(np.float64), append=waveform[-1])
    if len(target) < CORRELATION_SAMPLES:
        return 0.0
    size = 1 << (len(target) + CORRELATION_SAMPLES - 1).bit_length()
    spectrum = np.fft.rfft(target, size)
    sums = np.concatenate([[0.0], np.cumsum(target**2)])
    energy = np.maximum(sums[CORRELATION_SAMPLES:] - sums[:-CORRELATION_SAMPLES], 0.0)
    # Where the waveform is silent nothing can follow it.
    scale = np.sqrt(np.where(energy > 1e-4 * energy.max(initial=0.0), energy, np.inf))
    return max((_correlation(numbers, spectrum, size, scale) for numbers in _readings(searched)), default=0.0)


def _readings(searched: bytes) -> Iterator[Float64Array]:
    """Stretches of 640 numbers, as bytes, 16-bit integers and 32-bit floats at each alignment."""
    for kind, width in (("i1", 1), ("u1", 1), ("<i2", 2), (">i2", 2), ("<f4", 4)):
        for start in range(width):
            count = (len(searched) - start) // (width * CORRELATION_SAMPLES) * CORRELATION_SAMPLES
            if count <= 0:
                continue
            stretches = np.frombuffer(searched, kind, count, start).reshape(-1, CORRELATION_SAMPLES)
            for stretch in stretches[:: -(-len(stretches) // MAX_STRETCHES)]:
                with np.errstate(invalid="ignore"):  # bytes read as floats may be any NaN
                    numbers = stretch.astype(np.float64)
                yield np.where(np.abs(numbers) < 1e6, numbers, 0.0)


def _correlation(
    numbers: Float64Array, spectrum: np.ndarray[tuple[int], np.dtype[np.complex128]], size: int, scale: Float64Array
) -> float:
    steps = np.diff(numbers, append=numbers[-1])
    norm = float(np.sqrt(steps @ steps))
    if not norm > 0.0:
        return 0.0
    products = np.fft.irfft(spectrum * np.conj(np.fft.rfft(steps, size)), size)[: len(scale)]
    return float(np.max(np.abs(products) / (norm * scale)))
