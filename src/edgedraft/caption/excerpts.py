"""Cuts a long recording into excerpts that a model can hear, at its pauses, and silence off their ends."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from edgedraft.caption.mel import HOP_SAMPLES, SAMPLE_RATE_HZ
from edgedraft.caption.recording import Recording
from edgedraft.caption.voice_activity import check
from edgedraft.errors import InvalidRequestError
from edgedraft.speech_features import MAX_SECONDS
from edgedraft.types import Float64Array

PAUSE_S = 0.2
MIN_WINDOW_S, MIN_REST_S = 1.0, 0.5
_STEPS_PER_S = SAMPLE_RATE_HZ // HOP_SAMPLES
KEPT_SILENCE_S, LONG_SILENCE_S = 0.2, 0.5
"""Of silence before and after speech so much is kept, where there is more than the second. The embedded pair has learnt
from clips with at most 0.3 s of it, and with more it hears another pace and other pauses."""
BELOW_LOUDEST_DB, OVER_FLOOR_DB = 40.0, 6.0
"""Silence: so far below the loudest steps, or no further than the second above the quietest."""


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


def without_silent_ends(excerpt: Excerpt) -> Excerpt:
    """The excerpt from shortly before its first sound to shortly after its last; itself where little is cut off."""
    levels_db = 10 * np.log10(_step_power(excerpt.recording) + 1e-12)
    floor_db, loudest_db = np.percentile(levels_db, [5, 95])
    loud = np.flatnonzero(levels_db > max(loudest_db - BELOW_LOUDEST_DB, floor_db + OVER_FLOOR_DB))
    if not len(loud):
        return excerpt
    seconds = excerpt.recording.seconds
    first_s, last_s = float(loud[0]) / _STEPS_PER_S, float(loud[-1] + 1) / _STEPS_PER_S
    start_s = first_s - KEPT_SILENCE_S if first_s > LONG_SILENCE_S else 0.0
    end_s = last_s + KEPT_SILENCE_S if seconds - last_s > LONG_SILENCE_S else seconds
    if end_s - start_s == seconds:
        return excerpt
    cut = _excerpt(excerpt.recording, start_s, end_s)
    return replace(cut, start_s=excerpt.start_s + start_s, end_s=excerpt.start_s + end_s) if cut.has_speech else excerpt


def spoken_part(recording: Recording) -> Recording:
    """What a model is given of a recording that fits its window: all but long silence at its ends."""
    whole = Excerpt(start_s=0.0, end_s=recording.seconds, recording=recording, has_speech=True)
    return without_silent_ends(whole).recording


def _step_power(recording: Recording) -> Float64Array:
    """Energy of every whole 10 ms, or of what there is where it is less. Shape (steps,), never empty."""
    num_steps = max(1, len(recording.waveform) // HOP_SAMPLES)
    steps = recording.waveform[: num_steps * HOP_SAMPLES].reshape(num_steps, -1)
    power: Float64Array = np.einsum("ij,ij->i", steps, steps, dtype=np.float64)
    return power


def _cuts_s(recording: Recording, window_s: float) -> list[float]:
    power = _step_power(recording)
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
