"""A recording as everything here takes it: 16 kHz, mono, float32. It stays on the device."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from edgedraft.caption.mel import SAMPLE_RATE_HZ
from edgedraft.errors import InvalidRequestError
from edgedraft.types import Float32Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What was read: its own rate and channels, and the format in words ("WAV, PCM_16").

    `lone_channel`: the one that was taken, from 1, where the channels cancel each other; None: the mix of all.
    """

    sample_rate_hz: int
    channels: int
    format: str
    lone_channel: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recording:
    """`waveform`: float32, shape (num_samples,), 16 kHz mono, nominally within -1 and 1, made read-only.

    `name` is for messages on this device; nothing that is sent holds it. `clipped_share`: of the file's own samples,
    those at the end of their range.
    Raises `InvalidRequestError` for a waveform that is empty, of another shape or type, or not finite.
    """

    waveform: Float32Array = field(repr=False)
    source: Source
    name: str = field(default="recording", repr=False)
    clipped_share: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "waveform", checked_waveform(self.waveform).copy())
        self.waveform.setflags(write=False)

    @property
    def seconds(self) -> float:
        return len(self.waveform) / SAMPLE_RATE_HZ


def checked_waveform(waveform: Float32Array) -> Float32Array:
    """The waveform itself, if it can be one."""
    if waveform.dtype != np.float32 or waveform.ndim != 1 or not len(waveform):
        raise InvalidRequestError(
            f"waveform is {waveform.dtype} of shape {waveform.shape}; legal: float32, shape (num_samples,), not empty.",
            field="waveform",
        )
    if not np.isfinite(waveform).all():
        raise InvalidRequestError("waveform holds NaN or infinity; legal: finite samples.", field="waveform")
    return waveform
