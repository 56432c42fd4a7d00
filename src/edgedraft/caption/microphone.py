"""Speech from the microphone, through sounddevice (extra `microphone`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgedraft.caption.libraries import library
from edgedraft.caption.mel import SAMPLE_RATE_HZ
from edgedraft.caption.recording import Recording, Source
from edgedraft.errors import InvalidRequestError, UnsupportedError

MIN_SECONDS, MAX_SECONDS = 0.5, 600.0


def record(seconds: float, device: int | str | None = None) -> Recording:
    """Record `seconds` from `device` (a number or part of a name; None is the default) and wait for the end.

    Raises as `check`; `InvalidRequestError` also where the device fails.
    """
    check(seconds, device)
    sounddevice = _sounddevice()
    try:
        taken = sounddevice.rec(
            round(seconds * SAMPLE_RATE_HZ), SAMPLE_RATE_HZ, channels=1, dtype="float32", device=device, blocking=True
        )
    except sounddevice.PortAudioError as error:
        raise InvalidRequestError(
            f"the microphone failed: {error}.",
            field="device",
            remedy="Allow its use, close other programs, or give a file.",
        ) from error
    waveform = np.asarray(taken, np.float32)[:, 0]
    source = Source(sample_rate_hz=SAMPLE_RATE_HZ, channels=1, format="microphone, FLOAT")
    clipped_share = float(np.mean(np.abs(waveform) >= 0.9995))
    return Recording(waveform=waveform, source=source, name="microphone", clipped_share=clipped_share)


def check(seconds: float, device: int | str | None = None) -> None:
    """Whether so long can be recorded, without recording.

    Raises `InvalidRequestError` for a length outside 0.5 to 600 s, `UnsupportedError` where the library, PortAudio or
    any microphone is missing.
    """
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise InvalidRequestError(f"seconds is {seconds}; legal: {MIN_SECONDS:g} to {MAX_SECONDS:g}.", field="seconds")
    sounddevice = _sounddevice()
    try:
        sounddevice.query_devices(device, "input")
    except (sounddevice.PortAudioError, ValueError) as error:
        which = "a microphone" if device is None else f"the microphone {device!r}"
        raise UnsupportedError(
            f"{which} was not found: {error}.", field="device", remedy="Plug one in, name another, or give a file."
        ) from error


def _sounddevice() -> Any:
    try:
        return library("sounddevice", purpose="records from the microphone", extra="microphone")
    except OSError as error:
        raise UnsupportedError(
            f"PortAudio is not installed, which the microphone needs: {error}.",
            field="device",
            remedy="Install it (Debian: libportaudio2), or give a file.",
        ) from error
