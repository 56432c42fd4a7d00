"""The directory of a bench run: a manifest of what its figures depend on, and files of JSON lines that grow.

Everything here raises `InvalidRequestError` for what cannot be read or written.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edgedraft.errors import InvalidRequestError

MANIFEST_FILE, LOCK_FILE = "manifest.json", ".lock"


@contextmanager
def exclusively(path: Path) -> Iterator[None]:
    """Make the directory, and keep other bench runs out of it while the block lasts. Raises where one is in it."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / LOCK_FILE).open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with the process, however that ends
        except BlockingIOError as error:
            raise InvalidRequestError(
                f"out is {path}, which another bench run writes to.",
                field="out",
                remedy="Wait for its end, or give another --out.",
            ) from error
        except OSError:  # a file system without locks
            pass
        yield


@contextmanager
def writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidRequestError(
            f"out is {path}, which cannot be written: {error.strerror}.",
            field="out",
            remedy="Make room there and go on with --resume, or give another --out.",
        ) from error


def holds_run(path: Path) -> bool:
    return os.path.lexists(path / MANIFEST_FILE)  # False for a name that no file can have


def check_may_begin(path: Path, files: Iterable[str], *, resume: bool) -> None:
    """Raises where a run is there and not to be gone on with, and where `files` are there without their manifest."""
    if holds_run(path):
        if not resume:
            raise InvalidRequestError(
                f"{path} already holds a bench run.",
                field="out",
                remedy="Use --resume to go on with it, or another --out.",
            )
        return
    for name in files:
        if (path / name).exists():
            raise InvalidRequestError(
                f"{path} holds {name}, but no {MANIFEST_FILE} that says of which run.",
                field="out",
                remedy="Give another --out.",
            )


def check_is_same(path: Path, manifest: Mapping[str, Any]) -> None:
    """Raises where a run is there that depends on something else; the field is named."""
    if not holds_run(path):
        return
    before = read_manifest(path)
    differing = [field for field in {**before, **manifest} if before.get(field) != manifest.get(field)]
    if differing:
        field = differing[0]
        shown = f": {before.get(field)!r} there, {manifest.get(field)!r} now"
        if field == "cells":
            there, here = dict(before.get(field) or {}), dict(manifest.get(field) or {})
            cells = sorted(name for name in {**there, **here} if there.get(name) != here.get(name))
            shown = f", first cell {cells[0]}"
        raise InvalidRequestError(
            f"{path} holds a run with another '{field}'{shown}.",
            field=field,
            remedy="Repeat that run's command to resume it, or use another --out.",
        )


# -- reading ---------------------------------------------------------------------------------------------------------


def read_manifest(path: Path) -> dict[str, Any]:
    file = path / MANIFEST_FILE
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidRequestError(f"{file} cannot be read: {error}.", field="directory") from error
    if not isinstance(value, dict):
        raise InvalidRequestError(f"{file} holds no manifest.", field="directory")
    return value


Line = TypeVar("Line", bound=msgspec.Struct)


def read_lines(path: Path, kind: type[Line]) -> list[Line]:
    """Whole lines: the last one of a run that was cut may have no end, and is not counted."""
    try:
        data = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise InvalidRequestError(f"{path} cannot be read: {error.strerror}.", field="directory") from error
    found = []
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            if line:
                found.append(msgspec.json.decode(line, type=kind))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidRequestError(
                f"{path}, line {number} is no {kind.__name__.lower()}: {error}.",
                field="directory",
                remedy="Delete the line, then resume.",
            ) from error
    return found


# -- writing ---------------------------------------------------------------------------------------------------------


def write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    write_whole(path / MANIFEST_FILE, json.dumps(manifest, indent=2) + "\n")


def write_lines(path: Path, values: Iterable[msgspec.Struct]) -> None:
    """All lines of a file, whole ones alone: what is appended must not be glued to one that was cut in the middle."""
    write_whole(path, "".join(map(_line, values)))


def append_lines(path: Path, values: Iterable[msgspec.Struct]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(map(_line, values))


def write_whole(path: Path, text: str) -> None:
    """Whole or not at all."""
    draft = path.with_suffix(path.suffix + ".tmp")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


def _line(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode() + "\n"
