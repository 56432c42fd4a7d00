from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.errors import InvalidRequestError
from edgedraft.speech_features import (
    LOGMEL_128,
    POOLED_12,
    POOLED_25,
    PROSODY_12,
    PROSODY_25,
    FeatureDtype,
    FeatureKind,
    FeatureSpec,
    SpeechFeatures,
)

SPECS = (LOGMEL_128, POOLED_25, POOLED_12, PROSODY_25, PROSODY_12)


@given(st.sampled_from(SPECS), st.sampled_from(list(FeatureDtype)), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_values_come_back_as_near_as_the_type_allows(
    spec: FeatureSpec, dtype: FeatureDtype, count: int, seed: int
) -> None:
    values = np.random.default_rng(seed).normal(size=(count, spec.dims))
    features = SpeechFeatures.of(spec, values, dtype, -20.0)
    assert features.num_bytes == count * spec.dims * (1 if dtype is FeatureDtype.INT8 else 2)
    step = features.scale / 2 if dtype is FeatureDtype.INT8 else 0.002
    assert np.abs(features.values() - values).max() <= step * 1.001
    assert features.values().dtype == np.float32
    assert features.seconds == count / spec.rate_hz


def test_silence_has_a_scale() -> None:
    assert not SpeechFeatures.of(POOLED_12, np.zeros((3, 40)), FeatureDtype.INT8, -90.0).values().any()


@pytest.mark.parametrize("kind", list(FeatureKind))
def test_a_waveform_has_no_place_in_it(kind: FeatureKind) -> None:
    """Samples fit neither the rate nor the width of any kind, whatever they are called."""
    with pytest.raises(InvalidRequestError, match=f"rate_hz is 8000.0; legal for {kind}"):
        FeatureSpec(kind=kind, encoder_id="pcm", rate_hz=8_000.0, dims=8)
    with pytest.raises(InvalidRequestError, match=f"dims is 320; legal for {kind}"):
        FeatureSpec(kind=kind, encoder_id="pcm", rate_hz=25.0, dims=320)
    with pytest.raises(InvalidRequestError, match="dims is 1;"):
        FeatureSpec(kind=kind, encoder_id="pcm", rate_hz=25.0, dims=1)


def test_a_second_holds_too_few_values_for_samples_of_speech() -> None:
    """Telephone speech is 8,000 samples a second. Log-mel has that room: only its producer keeps them out."""
    room = {kind: kind.max_rate_hz * kind.max_dims for kind in FeatureKind}
    assert room == {FeatureKind.LOGMEL: 12_800, FeatureKind.POOLED: 1_000, FeatureKind.PROSODY: 250}
    with pytest.raises(InvalidRequestError, match="legal for pooled"):
        FeatureSpec(kind=FeatureKind.POOLED, encoder_id="pcm", rate_hz=100.0, dims=40)
    with pytest.raises(InvalidRequestError, match="legal for prosody"):
        FeatureSpec(kind=FeatureKind.PROSODY, encoder_id="pcm", rate_hz=25.0, dims=40)


def test_samples_are_no_vectors() -> None:
    with pytest.raises(InvalidRequestError, match="values have shape"):
        SpeechFeatures.of(LOGMEL_128, np.zeros(16_000, dtype=np.float32), FeatureDtype.FLOAT16, 0.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("count", 0),
        ("count", 10**6),
        ("data", b""),
        ("scale", 0.0),
        ("scale", math.nan),
        ("level_db", math.inf),
    ],
)
def test_fields_that_do_not_fit(field: str, value: object) -> None:
    features = SpeechFeatures.of(PROSODY_12, np.ones((3, 10)), FeatureDtype.INT8, -20.0)
    with pytest.raises(InvalidRequestError, match=field):
        dataclasses.replace(features, **{field: value})


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_values_that_are_no_numbers(bad: float) -> None:
    values = np.zeros((3, 10))
    values[1, 1] = bad
    with pytest.raises(InvalidRequestError, match="NaN or infinity"):
        SpeechFeatures.of(PROSODY_12, values, FeatureDtype.INT8, -20.0)
