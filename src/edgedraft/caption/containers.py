"""Sound inside m4a, mp4, mov, webm, mkv, aac and amr files, through PyAV (extra `containers`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np

from edgedraft.caption.libraries import library
from edgedraft.caption.recording import Source
from edgedraft.errors import InvalidRequestError
from edgedraft.types import Float32Array

# The format is named to the library, so that no file can pass for a play list that leads elsewhere.
CONTAINERS: tuple[tuple[Callable[[bytes], bool], str], ...] = (
    (lambda head: head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"skip"), "mov"),
    (lambda head: head[:4] == b"\x1a\x45\xdf\xa3", "matroska"),
    (lambda head: head[0] == 0xFF and len(head) > 1 and head[1] & 0xF6 == 0xF0, "aac"),
    (lambda head: head[:5] == b"#!AMR", "amr"),
)
"""How each kind begins, and what FFmpeg calls it."""


class ContainerStream:
    """The first sound track of a container."""

    def __init__(self, handle: BinaryIO, name: str, av_format: str) -> None:
        self._av = library("av", purpose="reads m4a, mp4, webm and the like", extra="containers")
        self._name = name
        try:
            self._container: Any = self._av.open(handle, format=av_format, metadata_errors="replace")
        except self._av.FFmpegError as error:
            raise self._damaged(error) from error
        if not self._container.streams.audio:
            raise InvalidRequestError(f"{name} has no sound track.", field="file", remedy="Give a file with sound.")
        self._track: Any = self._container.streams.audio[0]
        codec = self._track.codec_context
        if codec is None or not codec.sample_rate or not codec.channels:  # None: a codec that nobody here knows
            raise InvalidRequestError(
                f"the sound of {name} cannot be decoded; it may be protected or damaged.",
                field="file",
                remedy="Convert it to wav or flac with the program that plays it.",
            )
        self.source = Source(
            sample_rate_hz=codec.sample_rate, channels=codec.channels, format=f"{av_format}, {codec.name}"
        )
        self.declared_s = self._declared_s(av_format)

    def _declared_s(self, av_format: str) -> float | None:
        if self._track.duration and av_format in ("mov", "matroska"):
            return float(self._track.duration * self._track.time_base)
        if self._container.duration and av_format == "matroska" and not self._container.streams.video:
            return float(self._container.duration / self._av.time_base)
        return None  # Bare streams: a guess from their first frames. With pictures: those may outlast the sound.

    def blocks(self) -> Iterator[Float32Array]:
        resampler = self._av.AudioResampler(format="fltp")
        try:
            for decoded in self._container.decode(self._track):
                for frame in resampler.resample(decoded):
                    yield self._samples(frame)
        except self._av.FFmpegError as error:
            raise self._damaged(error) from error

    def _samples(self, frame: Any) -> Float32Array:
        if frame.sample_rate != self.source.sample_rate_hz or frame.layout.nb_channels != self.source.channels:
            raise InvalidRequestError(
                f"{self._name} changes its rate or channels in the middle.", field="file", remedy="Convert it to wav."
            )
        block: Float32Array = np.ascontiguousarray(frame.to_ndarray().T, dtype=np.float32)
        return block

    def _damaged(self, error: OSError) -> InvalidRequestError:
        return InvalidRequestError(
            f"{self._name} is damaged or truncated: {error.strerror}.", field="file", remedy="Copy or record it again."
        )
