"""What the tests of `edgedraft caption` share: recordings to give it, and how to read what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgedraft.types import Float32Array

NOBODY = "ws://127.0.0.1:1/v1/edgedraft"
"""Where no cloud is."""


def saved(path: Path, samples: Float32Array, rate_hz: int = 16_000, subtype: str | None = "PCM_16") -> Path:
    import soundfile

    soundfile.write(path, samples, rate_hz, subtype=subtype)
    return path


def rows(outcome: Any) -> list[Any]:
    return [json.loads(line) for line in outcome.out.splitlines()]


def only(outcome: Any) -> Any:
    """The caption of the only excerpt of the only recording."""
    assert outcome.code == 0, outcome.err
    (row,) = rows(outcome)
    (excerpt,) = row["excerpts"]
    return excerpt["caption"]
