from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from edgedraft.core.feature_assembly import FeatureAssembly
from edgedraft.errors import EdgedraftError, InvalidRequestError, MalformedFrameError, UnsupportedError
from edgedraft.protocol.messages import Features
from edgedraft.speech_features import LOGMEL_128, POOLED_12, POOLED_25, FeatureDtype, SpeechFeatures

RNG = np.random.default_rng(0)


def pieces(features: SpeechFeatures, size: int) -> list[Features]:
    spec = features.spec
    return [
        Features(
            channel=0,
            incarnation=1,
            kind=spec.kind,
            encoder_id=spec.encoder_id,
            rate_hz=spec.rate_hz,
            dims=spec.dims,
            dtype=features.dtype,
            scale=features.scale,
            count=features.count,
            level_db=features.level_db,
            offset=offset,
            data=features.data[offset : offset + size],
        )
        for offset in range(0, features.num_bytes, size)
    ]


@pytest.mark.parametrize("dtype", list(FeatureDtype))
@pytest.mark.parametrize("size", [1000, 999, 16_000, 10**6])
def test_pieces_of_any_size_give_the_features_again(dtype: FeatureDtype, size: int) -> None:
    features = SpeechFeatures.of(LOGMEL_128, RNG.normal(size=(90, 128)), dtype, -23.5)
    assembly = FeatureAssembly(LOGMEL_128)
    *firsts, last = pieces(features, size)
    assert not any(assembly.take(piece) for piece in firsts)
    assert not assembly.is_complete
    with pytest.raises(InvalidRequestError, match="features are missing"):
        assembly.require_complete()
    assert assembly.take(last)
    assert assembly.is_complete
    assert assembly.features == features


FEATURES = SpeechFeatures.of(POOLED_12, RNG.normal(size=(30, 40)), FeatureDtype.INT8, -20.0)
WHOLE = pieces(FEATURES, 10**6)[0]
HALF = pieces(FEATURES, 600)


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"kind": "waveform"}, UnsupportedError, "waveform"),
        ({"dtype": "float64"}, UnsupportedError, "float64"),
        ({"kind": "logmel"}, UnsupportedError, "listens to pooled"),
        ({"encoder_id": "another-mel-40"}, UnsupportedError, "another-mel-40"),
        ({"rate_hz": 25.0}, UnsupportedError, "25 Hz"),
        ({"dims": 39}, UnsupportedError, "39 values"),
        ({"dims": 41}, InvalidRequestError, "dims is 41"),
        ({"dims": 4}, InvalidRequestError, "dims is 4"),
        ({"rate_hz": 16_000.0}, InvalidRequestError, "rate_hz is 16000"),
        ({"count": 0}, InvalidRequestError, "count is 0"),
        ({"count": 10_000}, InvalidRequestError, "count is 10000"),
        ({"count": 29}, InvalidRequestError, "1160 are declared"),
        ({"offset": 40}, MalformedFrameError, "offset is 40"),
        ({"scale": 0.0}, InvalidRequestError, "scale is 0"),
    ],
)
def test_what_is_refused(changed: dict[str, object], error: type[EdgedraftError], words: str) -> None:
    with pytest.raises(error, match=words):
        FeatureAssembly(POOLED_12).take(msgspec.structs.replace(WHOLE, **changed))


def test_equal_widths_of_another_rate_or_encoder_are_refused_by_the_spec_itself() -> None:
    with pytest.raises(UnsupportedError, match="made for each other"):
        POOLED_12.require(POOLED_25)
    with pytest.raises(UnsupportedError):
        POOLED_12.require(replace(POOLED_12, encoder_id="edgedraft-mel-41"))
    POOLED_12.require(replace(POOLED_12))


def test_a_target_of_text_takes_none() -> None:
    assembly = FeatureAssembly(None)
    assert assembly.is_complete
    with pytest.raises(UnsupportedError, match="takes text only"):
        assembly.take(WHOLE)


def test_pieces_must_agree_and_come_once() -> None:
    assembly = FeatureAssembly(POOLED_12)
    assembly.take(HALF[0])
    with pytest.raises(MalformedFrameError):
        assembly.take(HALF[0])
    with pytest.raises(MalformedFrameError):
        assembly.take(msgspec.structs.replace(HALF[1], scale=2.0))
    assembly.take(HALF[1])
    with pytest.raises(MalformedFrameError, match="twice"):
        assembly.take(HALF[1])
