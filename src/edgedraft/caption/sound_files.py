"""Reads sound files block by block: what a file is, is decided by its content, never by its name."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn, Protocol

from edgedraft.caption.containers import CONTAINERS, ContainerStream
from edgedraft.caption.libraries import library
from edgedraft.caption.recording import Source
from edgedraft.errors import InvalidRequestError
from edgedraft.types import Float32Array

BLOCK_SAMPLES = 65_536
READABLE = "wav, flac, ogg, mp3, aiff; with the extra 'containers' also m4a, mp4, mov, webm, mkv, aac, amr"
MAX_MISSING_S = 0.1
"""A file whose header promises this much more than it holds is truncated. Lengths of MP3 files are that inexact."""

_SIZE_UNKNOWN = 0x7FFF_0000
"""Sizes from here on are what programs write that did not know the length when they began."""
_OGG_LAST_PAGE = 4
_OTHER_FILES = {
    b"PK\x03\x04": "a zip archive",
    b"PK\x05\x06": "an empty zip archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!": "a rar archive",
    b"\x1f\x8b": "a gzip archive",
    b"BZh": "a bzip2 archive",
    b"\xfd7zXZ": "an xz archive",
    b"%PDF": "a PDF document",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"GIF8": "a picture",
    b"\xd0\xcf\x11\xe0": "an Office document, or one that a password protects",
    b"Salted__": "encrypted",
    b"-----BEGIN PGP": "encrypted",
}


class SoundStream(Protocol):
    """A sound file, open. `declared_s`: the length its header promises, None where it promises none."""

    source: Source
    declared_s: float | None

    def blocks(self) -> Iterator[Float32Array]:
        """The samples in turn: float32, shape (num_samples, channels). Raises `InvalidRequestError` where damaged."""


def refuse(name: str, what: str, remedy: str) -> NoReturn:
    raise InvalidRequestError(f"{name} {what}.", field="file", remedy=remedy)


def open_stream(handle: BinaryIO, name: str) -> SoundStream:
    """The stream behind `handle`, which must be seekable and stay open. Raises `InvalidRequestError` naming `name`,
    and `UnsupportedError` where a library is missing.
    """
    head = handle.read(64)
    size_bytes = handle.seek(0, 2)
    handle.seek(0)
    if not head:
        refuse(name, "is empty", "Record it again, or copy it again.")
    _refuse_other_files(head, name)
    for is_one, av_format in CONTAINERS:
        if is_one(head):
            return ContainerStream(handle, name, av_format)
    if head[:4] == b"RIFF":
        _refuse_truncated_wav(handle, size_bytes, name)
    if head[:4] == b"FORM" and len(head) >= 8 and int.from_bytes(head[4:8], "big") + 8 > size_bytes:
        refuse(name, "is truncated: it is shorter than it declares", "Copy or record it again.")
    if head[:4] == b"OggS":
        _refuse_truncated_ogg(handle, size_bytes, name)
    handle.seek(0)
    return SoundfileStream(handle, name)


class SoundfileStream:
    """Whatever libsndfile reads."""

    def __init__(self, handle: BinaryIO, name: str) -> None:
        soundfile = library("soundfile", purpose="reads recordings")
        try:
            # An object without a name: libsndfile would otherwise believe a name's ending.
            self._file: Any = soundfile.SoundFile(_Nameless(handle))
        except (soundfile.LibsndfileError, TypeError) as error:
            raise InvalidRequestError(
                f"{name} is not a sound file, or its beginning is damaged.",
                field="file",
                remedy=f"Read are: {READABLE}.",
            ) from error
        self._name = name
        self._error: type[Exception] = soundfile.LibsndfileError
        self.source = Source(
            sample_rate_hz=self._file.samplerate,
            channels=self._file.channels,
            format=f"{self._file.format}, {self._file.subtype}",
        )
        self.declared_s = self._file.frames / self._file.samplerate if self._file.frames < 2**62 else None

    def blocks(self) -> Iterator[Float32Array]:
        try:
            while len(block := self._file.read(BLOCK_SAMPLES, dtype="float32", always_2d=True)):
                yield block
        except self._error as error:
            raise InvalidRequestError(
                f"{self._name} is damaged or truncated: {error}", field="file", remedy="Copy or record it again."
            ) from error


class _Nameless:
    """A file object that does not tell its name."""

    def __init__(self, handle: BinaryIO) -> None:
        self.read, self.seek, self.tell = handle.read, handle.seek, handle.tell
        self.readinto = handle.readinto  # type: ignore[attr-defined]


def _refuse_other_files(head: bytes, name: str) -> None:
    for magic, what in _OTHER_FILES.items():
        if head.startswith(magic):
            is_locked = magic == b"PK\x03\x04" and bool(head[6] & 1)
            refuse(
                name,
                f"is {what}{', protected by a password' if is_locked else ''}, not a sound file",
                "Unpack or convert it first, and give the recording inside.",
            )


def _refuse_truncated_wav(handle: BinaryIO, size_bytes: int, name: str) -> None:
    """libsndfile reads what is left of a cut file without a word."""
    position = 12
    while position + 8 <= size_bytes:
        handle.seek(position)
        kind, declared_bytes = struct.unpack("<4sI", handle.read(8))
        left_bytes = size_bytes - position - 8
        if kind == b"data":
            if left_bytes < declared_bytes < _SIZE_UNKNOWN:
                refuse(
                    name,
                    f"is truncated: {declared_bytes:,} bytes of sound are declared, {left_bytes:,} are there",
                    "Copy or record it again.",
                )
            return
        position += 8 + declared_bytes + declared_bytes % 2
    refuse(name, "is truncated: it ends before its sound begins", "Copy or record it again.")


def _refuse_truncated_ogg(handle: BinaryIO, size_bytes: int, name: str) -> None:
    """The last page of a whole file says that it is the last. A page has at most 65,307 bytes."""
    handle.seek(max(0, size_bytes - 2 * 65_536))
    tail = handle.read()
    last = tail.rfind(b"OggS")
    page = tail[last:] if last >= 0 else b""
    if len(page) < 27 or not page[5] & _OGG_LAST_PAGE or len(page) < 27 + page[26] + sum(page[27 : 27 + page[26]]):
        refuse(name, "is truncated: its last page is missing", "Copy or record it again.")
