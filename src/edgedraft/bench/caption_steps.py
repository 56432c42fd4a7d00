"""The steps of a caption bench, each kept in the run's directory as it ends, so that a run that was cut can go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edgedraft.bench.caption_results import RESULTS_FILE, decoded
from edgedraft.bench.run_folder import (
    append_lines,
    check_is_same,
    check_may_begin,
    read_lines,
    write_lines,
    write_manifest,
    writing,
)

STEPS_FILE = "steps.jsonl"

Found = TypeVar("Found")


class Step(msgspec.Struct, frozen=True):
    """`name`: no other step of the run has it. `found`: what came of it, as JSON."""

    name: str
    found: msgspec.Raw


class Steps:
    """Of a run that keeps nothing: every step is taken."""

    def begin(self, manifest: Mapping[str, Any]) -> None:
        """Told what the figures depend on, before the first step."""

    def once(self, name: str, kind: type[Found], take: Callable[[], Found]) -> Found:
        """What the step found: from before, or by taking it now."""
        return take()


NOTHING_KEPT = Steps()


class KeptSteps(Steps):
    """Of a run with a directory, which the caller has to itself: what it holds of the same run is not done again.

    `resume`: go on with a run that was cut; without it the directory must hold none. Raises `InvalidRequestError` where
    it does, in `begin` where it is another run (the field is named), and whenever the directory cannot be written.
    """

    def __init__(self, path: Path, *, resume: bool) -> None:
        self._path = path
        self._found: dict[str, msgspec.Raw] = {}
        check_may_begin(path, (STEPS_FILE, RESULTS_FILE), resume=resume)

    def begin(self, manifest: Mapping[str, Any]) -> None:
        plain = msgspec.json.decode(msgspec.json.encode(manifest))  # as it will come back
        check_is_same(self._path, plain)
        steps = read_lines(self._path / STEPS_FILE, Step)
        with writing(self._path):
            self._path.mkdir(parents=True, exist_ok=True)
            write_manifest(self._path, plain)
            write_lines(self._path / STEPS_FILE, steps)
        self._found = {step.name: step.found for step in steps}

    def once(self, name: str, kind: type[Found], take: Callable[[], Found]) -> Found:
        if name in self._found:
            return decoded(self._found[name], kind, f"{self._path / STEPS_FILE}, step '{name}'")
        found = take()
        with writing(self._path):
            append_lines(self._path / STEPS_FILE, [Step(name, msgspec.Raw(msgspec.json.encode(found)))])
        return found
