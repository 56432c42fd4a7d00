"""Make a smaller model file from another, in one step that either happens or does not."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from edgedraft.backends.gguf import FILE_TYPES, check_supported, read_header
from edgedraft.backends.llamacpp_engine import engine_words, interruptible, listen, load_library
from edgedraft.errors import InvalidRequestError, ModelFileError

ProgressCallback = Callable[[int, int], None]
"""Called with how much is done and how much there is."""

# Types that need no importance matrix.
QUANTISATIONS = (
    *("F16", "BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0"),
    *("Q4_K_M", "Q4_K_S", "Q4_1", "Q4_0", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K"),
)
_PROGRESS_LINE = re.compile(r"\[\s*(\d+)/\s*(\d+)\]")


def quantize(
    source: Path,
    destination: Path,
    quantisation: str,
    *,
    progress: ProgressCallback | None = None,
    overwrite: bool = False,
    threads: int = 1,
) -> None:
    """Write `source` requantised as `quantisation` to `destination`; `progress` counts tensors.

    The file appears whole or not at all. Raises `InvalidRequestError` for an unknown type or a destination that is
    the source or, unless `overwrite`, exists; `ModelFileError` for what cannot be read or written.
    """
    if quantisation not in QUANTISATIONS:
        raise InvalidRequestError(
            f"type is '{quantisation}'; legal: {', '.join(QUANTISATIONS)}.", field="type", remedy="Use one of these."
        )
    check_supported(read_header(source))
    try:
        _check_destination(source, destination, overwrite=overwrite)
        partial = destination.with_name(f".{destination.name}.{os.getpid()}.partial")
        try:
            _run(source, partial, quantisation, progress, threads)
            with partial.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(partial, destination)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise ModelFileError(
            f"{destination} cannot be written: {error.strerror}.", remedy="Give another name or place."
        ) from error


def _check_destination(source: Path, destination: Path, *, overwrite: bool) -> None:
    if destination.exists():
        if destination.samefile(source):
            reason, remedy = "the source itself", "Give another file name."
        elif not destination.is_file():
            reason, remedy = "no file that could be replaced", "Give another file name."
        else:
            reason, remedy = "" if overwrite else "there already", "Give another file name, or overwrite it."
        if reason:
            raise InvalidRequestError(f"destination {destination} is {reason}.", field="destination", remedy=remedy)
    if not destination.parent.is_dir():
        raise ModelFileError(f"{destination.parent} is not a directory.", remedy="Make it, or give another place.")


def _run(source: Path, partial: Path, quantisation: str, progress: ProgressCallback | None, threads: int) -> None:
    library = load_library()
    params = library.llama_model_quantize_default_params()
    params.nthread = threads
    params.ftype = next(number for number, name in FILE_TYPES.items() if name == quantisation)
    params.allow_requantize = True

    def on_line(line: str) -> None:
        match = _PROGRESS_LINE.match(line)
        if match and progress is not None:
            progress(int(match[1]), int(match[2]))

    stop_listening = listen(on_line)
    try:
        status = interruptible(lambda: library.llama_model_quantize(os.fsencode(source), os.fsencode(partial), params))
    finally:
        stop_listening()
    if status != 0:
        raise ModelFileError(
            f"{source} could not be requantised as {quantisation} into {partial.parent}.{engine_words()}",
            remedy="Check that there is room on the disk, or use another type.",
        )


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the only lock on making `path`, across processes; it ends with the process that holds it."""
    with path.with_name(f".{path.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _checksum_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def write_checksum(path: Path) -> None:
    """Write the SHA-256 of `path` beside it, with size and modification time for the quick check."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    _write_stamp(path, digest)


def _write_stamp(path: Path, digest: str) -> None:
    stat = path.stat()
    partial = path.with_name(f".{path.name}.{os.getpid()}.sha256")
    partial.write_text(f"{digest} {stat.st_size} {stat.st_mtime_ns}\n", encoding="ascii")
    os.replace(partial, _checksum_path(path))


def is_intact(path: Path) -> bool:
    """Whether `path` is what its checksum says: size and time first, the whole content where they differ."""
    try:
        digest, size, time_ns = _checksum_path(path).read_text(encoding="ascii").split()
        stat = path.stat()
        if (stat.st_size, stat.st_mtime_ns) == (int(size), int(time_ns)):
            return True
        with path.open("rb") as file:
            intact = hashlib.file_digest(file, "sha256").hexdigest() == digest
        if intact:
            _write_stamp(path, digest)
    except (OSError, ValueError):  # absent, or a checksum file that is damaged itself
        return False
    return intact
