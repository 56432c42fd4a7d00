"""Recordings in: a file of any usual kind becomes a `Recording`, or one clear error.

Nothing here holds more than one block of a file and its 16 kHz result, so that long files are refused, not swallowed.
"""

from __future__ import annotations

import io
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from edgedraft.caption.libraries import library
from edgedraft.caption.mel import SAMPLE_RATE_HZ
from edgedraft.caption.recording import Recording, Source
from edgedraft.caption.sound_files import MAX_MISSING_S, SoundStream, open_stream, refuse
from edgedraft.types import Float32Array

MAX_FILE_S = 600.0
MIN_FILE_S = 0.1
MIN_RATE_HZ, MAX_RATE_HZ = 8_000, 192_000
MAX_CHANNELS = 6
MAX_PEAK = 8.0
"""Floats may pass full scale a little; beyond this they are counts, not samples."""
FULL_SCALE = {"PCM_U8": 0.992, "PCM_S8": 0.992}
"""From which magnitude a sample is at the end of its range; 0.9995 for all other formats."""

MAX_CANCELLED = 0.01
"""A mix with less than this share of the power that one channel gives it has lost that channel to another: 20 dB."""

# Left, right, centre, low-frequency effects, two surrounds. ITU-R BS.775-3, table 2, and the mean of its two channels.
_SURROUND = {"left": 0.5, "right": 0.5, "centre": 2**-0.5, "effects": 0.0, "surround": 0.5 * 2**-0.5}
_ORDER = ("left", "right", "centre", "effects", "surround", "surround")
_ORDER_VORBIS = ("left", "centre", "right", "surround", "surround", "effects")


def load(path: Path | str, *, max_s: float = MAX_FILE_S) -> Recording:
    """The recording in a file, as 16 kHz mono float32.

    Rates from 8 to 192 kHz, up to six channels. Raises `InvalidRequestError` (field "file") naming the file, what is
    wrong and the remedy; `UnsupportedError` where a library is not installed.
    """
    if not str(path):  # as a path it would be the working directory
        refuse("the name of the recording", "is empty", "Name a file.")
    path = Path(path)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            refuse(str(path), "is a directory", "Give a sound file; a folder of them is a dataset for `bench caption`.")
        if not stat.S_ISREG(mode):
            refuse(str(path), "is not a regular file", "Give a sound file.")
        with path.open("rb") as handle:
            return _read(handle, str(path), max_s)
    except FileNotFoundError:
        if str(path) == "-":
            refuse("-", "is no file, and stdin is not read", "Name a file.")
        refuse(str(path), "does not exist", "Check the path.")
    except PermissionError:
        refuse(str(path), "may not be read by you", "Change its permissions, or copy it.")
    except OSError as error:
        refuse(str(path), f"cannot be read: {error.strerror or error}", "Check the path and the disk.")


def from_bytes(data: bytes, name: str = "recording", *, max_s: float = MAX_FILE_S) -> Recording:
    """The recording in the bytes of a sound file; otherwise as `load`."""
    return _read(io.BytesIO(data), name, max_s)


def own_samples(data: bytes, name: str = "recording", channel: int = 1) -> dict[int, Float32Array]:
    """A channel, from 1, of a sound file as it is stored, by its own rate in Hz. Raises as `load`."""
    stream = open_stream(io.BytesIO(data), name)
    return {stream.source.sample_rate_hz: np.concatenate([block[:, channel - 1] for block in stream.blocks()])}


def _read(handle: BinaryIO, name: str, max_s: float, lone_channel: int | None = None) -> Recording:
    """`lone_channel`: take this one, from 1, instead of the mix."""
    handle.seek(0)
    stream = open_stream(handle, name)
    source = replace(stream.source, lone_channel=lone_channel)
    _check_source(source, name)
    if stream.declared_s is not None and stream.declared_s > max_s:
        _refuse_long(name, f"{stream.declared_s:,.0f} s", max_s)
    tally = _Tally(name, source, max_s)
    pieces = list(_at_16_khz((tally.mono(block) for block in stream.blocks()), source.sample_rate_hz))
    _check_length(tally.num_samples / source.sample_rate_hz, tally.num_samples, stream, name)
    if tally.cancels:
        return _read(handle, name, max_s, tally.loudest_channel)
    return Recording(
        waveform=np.concatenate(pieces),
        source=source,
        name=name,
        clipped_share=tally.num_clipped / tally.num_samples,
    )


def _check_source(source: Source, name: str) -> None:
    if not MIN_RATE_HZ <= source.sample_rate_hz <= MAX_RATE_HZ:
        refuse(
            name,
            f"has {source.sample_rate_hz:,} samples a second; legal: {MIN_RATE_HZ:,} to {MAX_RATE_HZ:,}",
            "Convert it to 16 kHz.",
        )
    if not 1 <= source.channels <= MAX_CHANNELS:
        refuse(name, f"has {source.channels} channels; legal: 1 to {MAX_CHANNELS}", "Mix it down to mono or stereo.")


def _refuse_long(name: str, length: str, max_s: float) -> None:
    refuse(name, f"lasts {length}; legal: at most {max_s:g} s", "Cut out the part that matters, or split it.")


def _check_length(read_s: float, num_samples: int, stream: SoundStream, name: str) -> None:
    declared_s = stream.declared_s or 0.0
    if declared_s - read_s > MAX_MISSING_S:
        refuse(name, f"is truncated: {declared_s:.2f} s are declared, {read_s:.2f} s are there", "Copy it again.")
    if read_s < MIN_FILE_S:
        count = {0: "no samples", 1: "one sample"}.get(num_samples, f"{num_samples} samples ({read_s:.3f} s)")
        refuse(name, f"holds {count}; legal: at least {MIN_FILE_S} s", "Record at least a word.")


class _Tally:
    """Mixes blocks down and checks them on the way: length, finite samples, clipping, channels that cancel out."""

    def __init__(self, name: str, source: Source, max_s: float) -> None:
        self.num_samples = 0
        self.num_clipped = 0
        self._name = name
        self._source = source
        self._max_s = max_s
        self._weights = mix_weights(source)
        self._mix_energy = 0.0
        self._energies = np.zeros(source.channels)
        self._full_scale = FULL_SCALE.get(source.format.rpartition(" ")[2], 0.9995)

    def mono(self, block: Float32Array) -> Float32Array:
        rate_hz = self._source.sample_rate_hz
        peaks = np.abs(block).max(axis=1)
        if not np.isfinite(peaks).all():
            at_s = (self.num_samples + int(np.argmin(np.isfinite(peaks)))) / rate_hz
            refuse(self._name, f"holds a sample that is no finite number, at {at_s:.3f} s", "Export it again.")
        if peaks.max(initial=0.0) > MAX_PEAK:
            refuse(self._name, f"has a sample of {peaks.max():g}; full scale is 1", "Normalise it, or export integers.")
        self.num_samples += len(block)
        self.num_clipped += int((peaks >= self._full_scale).sum())
        if self.num_samples > self._max_s * rate_hz:
            _refuse_long(self._name, f"more than {self._max_s:g} s", self._max_s)
        mixed: Float32Array = block @ self._weights
        self._mix_energy += float(np.square(mixed, dtype=np.float64).sum())
        self._energies += np.square(block * self._weights, dtype=np.float64).sum(axis=0)
        return mixed

    @property
    def loudest_channel(self) -> int:
        """Of what is mixed, from 1."""
        return int(np.argmax(self._energies)) + 1

    @property
    def cancels(self) -> bool:
        """Whether the loudest channel is hardly there in the mix, for another is its opposite."""
        return self._mix_energy < MAX_CANCELLED * float(self._energies.max())


def mix_weights(source: Source) -> Float32Array:
    """What each channel counts in the mono mix. Shape (channels,). Up to five channels count the same."""
    if source.lone_channel is not None:
        return np.array([channel == source.lone_channel for channel in range(1, source.channels + 1)], np.float32)
    if source.channels < MAX_CHANNELS:
        return np.full(source.channels, 1 / source.channels, np.float32)
    order = _ORDER_VORBIS if source.format.startswith("OGG") else _ORDER
    return np.array([_SURROUND[place] for place in order], np.float32)


def _at_16_khz(blocks: Iterator[Float32Array], rate_hz: int) -> Iterator[Float32Array]:
    if rate_hz == SAMPLE_RATE_HZ:
        yield from blocks
        return
    soxr = library("soxr", purpose="brings recordings to 16 kHz")
    resampler = soxr.ResampleStream(rate_hz, SAMPLE_RATE_HZ, 1, dtype="float32")
    for block in blocks:
        yield resampler.resample_chunk(block)
    yield resampler.resample_chunk(np.zeros(0, np.float32), last=True)
