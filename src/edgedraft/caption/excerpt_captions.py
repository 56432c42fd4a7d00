"""Recordings of any length, piece by piece: which seconds are captioned, and what came of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgedraft.caption.caption import Caption
from edgedraft.caption.excerpts import Excerpt, split_at_pauses, without_silent_ends
from edgedraft.caption.recording import Recording
from edgedraft.caption.voice_activity import Check
from edgedraft.errors import InvalidRequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcerptCaption:
    """The caption of seconds `start_s` to `end_s`; None where no speech was found there, so that nothing was sent."""

    start_s: float
    end_s: float
    caption: Caption | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingCaption:
    """All that is to be said about one recording."""

    recording: Recording
    check: Check
    excerpts: Sequence[ExcerptCaption]

    @property
    def captions(self) -> list[Caption]:
        return [excerpt.caption for excerpt in self.excerpts if excerpt.caption is not None]

    @property
    def seconds_used(self) -> float:
        return math.fsum(each.end_s - each.start_s for each in self.excerpts if each.caption is not None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON, always in this order."""
        return {
            "file": self.recording.name,
            "format": self.recording.source.format,
            "sample_rate_hz": self.recording.source.sample_rate_hz,
            "channels": self.recording.source.channels,
            "seconds": self.recording.seconds,
            "seconds_used": self.seconds_used,
            "level_db": self.check.level_db,
            "clipped_share": self.check.clipped_share,
            "notices": list(self.check.notices),
            "excerpts": [
                {
                    "start_s": each.start_s,
                    "end_s": each.end_s,
                    "caption": None if each.caption is None else each.caption.to_dict(),
                }
                for each in self.excerpts
            ],
        }


def excerpts_of(recording: Recording, found: Check, max_s: float, window_s: float | None = None) -> list[Excerpt]:
    """What is to be captioned: the recording, or where it is longer than a window its parts, cut at pauses.

    Long silence at the ends of each is left out. `max_s`: what the model takes, which is the window unless a smaller
    one is given. Raises `InvalidRequestError` for a window below 1 s or above that.
    """
    if window_s is not None and window_s > max_s:
        raise InvalidRequestError(
            f"window_s is {window_s:g}; legal: 1 to {max_s:g}, which is what the model takes.", field="window_s"
        )
    parts = split_at_pauses(recording, max_s if window_s is None else window_s)
    if len(parts) == 1:
        parts = [Excerpt(start_s=0.0, end_s=recording.seconds, recording=recording, has_speech=found.has_speech)]
    return [without_silent_ends(part) if part.has_speech else part for part in parts]
