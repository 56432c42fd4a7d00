"""From a recording to the features that a model listens to: the only thing of it that may leave the device."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from edgedraft.caption.mel import HOP_SAMPLES, SAMPLE_RATE_HZ, pooled_mel, whisper_logmel
from edgedraft.caption.prosody import prosody
from edgedraft.caption.recording import Recording, checked_waveform
from edgedraft.errors import InvalidRequestError, UnsupportedError
from edgedraft.speech_features import (
    LOGMEL_128,
    MAX_SECONDS,
    POOLED_12,
    POOLED_25,
    PROSODY_12,
    PROSODY_25,
    FeatureDtype,
    FeatureSpec,
    SpeechFeatures,
)
from edgedraft.types import Float32Array, Float64Array

SILENCE_DB = -120.0
"""The level that digital silence is given."""

_EXTRACTORS: dict[FeatureSpec, Callable[[Float32Array], Float64Array]] = {
    LOGMEL_128: functools.partial(whisper_logmel, num_mels=LOGMEL_128.dims),
    POOLED_25: functools.partial(pooled_mel, num_pooled=4),
    POOLED_12: functools.partial(pooled_mel, num_pooled=8),
    PROSODY_25: functools.partial(prosody, num_pooled=4),
    PROSODY_12: functools.partial(prosody, num_pooled=8),
}


def feature_count(num_samples: int, spec: FeatureSpec) -> int:
    """How many vectors a recording of `num_samples` at 16 kHz has: one for each period begun."""
    hops_per_vector = round(SAMPLE_RATE_HZ / spec.rate_hz) // HOP_SAMPLES
    return math.ceil(math.ceil(num_samples / HOP_SAMPLES) / hops_per_vector)


def level_db(waveform: Float32Array) -> float:
    """RMS level, dB relative to full scale, -120 at the least."""
    mean_square = float(np.mean(np.square(waveform, dtype=np.float64)))
    return max(10.0 * math.log10(mean_square), SILENCE_DB) if mean_square > 0.0 else SILENCE_DB


def feature_values(waveform: Float32Array, spec: FeatureSpec) -> Float32Array:
    """The features of a 16 kHz mono waveform, float32, shape (feature_count, spec.dims).

    Raises `UnsupportedError` for a spec that is not made here, `InvalidRequestError` for what is no waveform.
    """
    extractor = _EXTRACTORS.get(spec)
    if extractor is None:
        raise UnsupportedError(
            f"features are {spec}; made here are: {'; '.join(map(str, _EXTRACTORS))}.",
            field="features",
            remedy="Use a model that listens to one of these.",
        )
    return extractor(checked_waveform(waveform)).astype(np.float32)


def extract(
    recording: Recording | Float32Array, spec: FeatureSpec, dtype: FeatureDtype = FeatureDtype.INT8
) -> SpeechFeatures:
    """What is sent of a recording (or of a 16 kHz mono waveform). int8 spans the largest magnitude: nothing is clipped.

    Raises as `feature_values`, and `InvalidRequestError` for more than 60 s.
    """
    waveform = recording.waveform if isinstance(recording, Recording) else recording
    if len(waveform) > MAX_SECONDS * SAMPLE_RATE_HZ:
        raise InvalidRequestError(
            f"the recording lasts {len(waveform) / SAMPLE_RATE_HZ:.1f} s; legal: at most {MAX_SECONDS:g} s at once.",
            field="waveform",
            remedy="Split it at its pauses.",
        )
    values = feature_values(waveform, spec)
    return SpeechFeatures.of(spec, values, dtype, level_db(waveform))
