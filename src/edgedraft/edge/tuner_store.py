"""Where a tuner's thresholds are kept between runs: one small file for each draft, target and link."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from edgedraft.errors import InvalidRequestError
from edgedraft.tune.tuner_file import REMEDY, TunerKey, TunerRecord, from_json, record_in, to_json

MAX_FILE_BYTES = 65_536


class TunerStore:
    """Files under `cache_dir`/tuner (`Environment.cache_dir`). Whatever goes wrong is an `InvalidRequestError`."""

    def __init__(self, cache_dir: Path) -> None:
        self._dir = cache_dir / "tuner"

    def path(self, key: TunerKey) -> Path:
        """Where the record of `key` is, or would be. Names may hold any character, so the file's name is a digest."""
        names = "\0".join((key.draft, key.target, key.link))
        digest = hashlib.sha256(names.encode("utf-8", "surrogatepass")).hexdigest()
        return self._dir / f"{digest[:32]}.json"

    def load(self, key: TunerKey) -> TunerRecord | None:
        """What is known of `key`; None where nothing was saved."""
        path = self.path(key)
        text = _read(path)
        if text is None:
            return None
        try:
            return from_json(text, key)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{path}: {error.message}", field=error.field, remedy=error.remedy) from None

    def all(self) -> list[TunerRecord]:
        """Everything that is known and can be read, by draft, target and link."""
        records = []
        for path in self._paths():
            try:
                records.append(record_in(_read(path) or ""))
            except InvalidRequestError:
                continue  # of another version, or damaged: it will be replaced, or reset
        return sorted(records, key=lambda record: (record.key.draft, record.key.target, record.key.link))

    def forget_all(self) -> int:
        """Remove everything, also what cannot be read; how many files that were."""
        paths = self._paths()
        for path in paths:
            _remove(path)
        return len(paths)

    def _paths(self) -> list[Path]:
        try:
            return sorted(self._dir.glob("*.json"))
        except OSError as error:
            raise _refusal(self._dir, f"cannot be read: {error.strerror}") from None

    def save(self, record: TunerRecord) -> None:
        """Replace what is known of the record's key. A reader sees the old file or the new one, never half of one."""
        path = self.path(record.key)
        try:
            self._dir.mkdir(parents=True, exist_ok=True)
            handle, partial = tempfile.mkstemp(dir=self._dir, prefix=path.stem, suffix=".partial")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(to_json(record))
                os.replace(partial, path)
            except BaseException:
                Path(partial).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise InvalidRequestError(
                f"{path} cannot be written: {error.strerror}.",
                field="cache_dir",
                remedy="Set EDGEDRAFT_CACHE to a directory that can be written.",
            ) from None

    def forget(self, key: TunerKey) -> None:
        """Remove what is known of `key`, if anything is."""
        _remove(self.path(key))


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _refusal(path, f"cannot be removed: {error.strerror}") from None


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise _refusal(path, f"is larger than {MAX_FILE_BYTES} bytes")
        return content.decode("utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refusal(path, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _refusal(path, "is damaged: not UTF-8 text") from None


def _refusal(path: Path, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"{path} {what}.", field="tuner_file", remedy=REMEDY)
