"""Cuts a long recording into excerpts that a model can hear, at its pauses."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from edgedraft.caption.mel import HOP_SAMPLES, SAMPLE_RATE_HZ
from edgedraft.caption.recording import Recording
from edgedraft.caption.voice_activity import check
from edgedraft.errors import InvalidRequestError
from edgedraft.speech_features import MAX_SECONDS

PAUSE_S = 0.2
MIN_WINDOW_S, MIN_REST_S = 1.0, 0.5
_STEPS_PER_S = SAMPLE_RATE_HZ // HOP_SAMPLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """Seconds `start_s` to `end_s` of a longer recording. One without speech is to be skipped, and said so."""

    start_s: float
    end_s: float
    recording: Recording
    has_speech: bool


def split_at_pauses(recording: Recording, window_s: float = 30.0) -> list[Excerpt]:
    """The whole recording in order, in excerpts of at most `window_s`, cut where it is quietest.

    A cut lies in the second half of its window, in the middle of the quietest 0.2 s; no rest is shorter than 0.5 s.
    Raises `InvalidRequestError` for a window outside 1 to 60 s.
    """
    if not MIN_WINDOW_S <= window_s <= MAX_SECONDS:
        raise InvalidRequestError(
            f"window_s is {window_s}; legal: {MIN_WINDOW_S:g} to {MAX_SECONDS:g}.", field="window_s"
        )
    cuts_s = [0.0, *_cuts_s(recording, window_s), recording.seconds]
    return [_excerpt(recording, start_s, end_s) for start_s, end_s in itertools.pairwise(cuts_s)]


def _cuts_s(recording: Recording, window_s: float) -> list[float]:
    num_steps = len(recording.waveform) // HOP_SAMPLES
    steps = recording.waveform[: num_steps * HOP_SAMPLES].reshape(num_steps, HOP_SAMPLES)
    power = np.einsum("ij,ij->i", steps, steps, dtype=np.float64)
    width = round(PAUSE_S * _STEPS_PER_S)
    pause_power = np.convolve(power, np.ones(width), mode="same")
    cuts_s: list[float] = []
    start_s = 0.0
    while recording.seconds - start_s > window_s:
        low = round((start_s + window_s / 2) * _STEPS_PER_S)
        high = int(min(start_s + window_s, recording.seconds - MIN_REST_S) * _STEPS_PER_S)
        # The last of equally quiet places: fewer excerpts.
        quietest = high - int(np.argmin(pause_power[low : high + 1][::-1]))
        start_s = quietest / _STEPS_PER_S
        cuts_s.append(start_s)
    return cuts_s


def _excerpt(recording: Recording, start_s: float, end_s: float) -> Excerpt:
    piece = recording.waveform[round(start_s * SAMPLE_RATE_HZ) : round(end_s * SAMPLE_RATE_HZ)]
    part = Recording(
        waveform=piece, source=recording.source, name=recording.name, clipped_share=recording.clipped_share
    )
    return Excerpt(start_s=start_s, end_s=end_s, recording=part, has_speech=check(part).has_speech)
