"""Recordings of a dataset by the names that its captions file gives them."""

from __future__ import annotations

import functools
import os
from pathlib import Path

SOUND = frozenset({".wav", ".flac", ".ogg", ".opus", ".mp3", ".m4a", ".aac"})
VIDEO = frozenset({".mp4", ".webm", ".avi", ".mkv", ".mov"})


class RecordingFiles:
    """Files below `folder`. A name may leave out the suffix and the folder between, as in MER2024's tables.

    Where that leaves a sound and a video to choose from, the sound is meant.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = Path(os.path.abspath(folder))

    def find(self, name: str, wrong: list[str]) -> Path | None:
        """The recording, or nothing and a complaint. Never a file outside the folder; links are followed."""
        path = Path(os.path.normpath(self._folder / name))
        if not path.is_relative_to(self._folder):
            wrong.append(f"'{name}' is outside the dataset's folder")
            return None
        try:
            if path.is_file():
                return path
        except OSError as error:
            wrong.append(f"'{name}' cannot be read: {error.strerror}")
            return None
        found = self._by_name.get(name, [])
        found = [each for each in found if each.suffix.lower() in SOUND] or found
        if len(found) == 1:
            return found[0]
        if found:
            places = ", ".join(str(each.relative_to(self._folder)) for each in found[:3])
            wrong.append(f"'{name}' may be any of {len(found)} files: {places}")
        else:
            wrong.append(f"'{name}' does not exist")
        return None

    @functools.cached_property
    def _by_name(self) -> dict[str, list[Path]]:
        """Every recording below the folder, under its name with and without suffix."""
        found: dict[str, list[Path]] = {}
        # Folders may be links to where the recordings really are; links further down are not followed.
        for path in sorted(path for child in self._folder.iterdir() for path in (child, *child.rglob("*"))):
            if path.suffix.lower() in SOUND | VIDEO:
                for name in (path.name, path.stem):
                    found.setdefault(name, []).append(path)
        return found
