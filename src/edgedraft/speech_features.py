"""What of a recording may leave the device: declared features, of a kind, rate and width that are told."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgedraft.errors import InvalidRequestError, UnsupportedError

MIN_DIMS = 8
MAX_SECONDS = 60.0
MAX_SCALE = 1e6
MAX_LEVEL_DB = 1000.0


class FeatureKind(enum.StrEnum):
    """`logmel`: log-mel spectrogram. `pooled`: a coarse one, averaged over time. `prosody`: a few descriptors."""

    LOGMEL = "logmel"
    POOLED = "pooled"
    PROSODY = "prosody"

    @property
    def max_rate_hz(self) -> float:
        """Vectors a second at the most."""
        return 100.0 if self is FeatureKind.LOGMEL else 25.0

    @property
    def max_dims(self) -> int:
        """Values in a vector at the most: 1,000 and 250 a second hold no speech. Log-mel's 12,800 would have room for
        samples; what keeps those out is that `caption.features.extract` alone fills the type."""
        return {FeatureKind.LOGMEL: 128, FeatureKind.POOLED: 40, FeatureKind.PROSODY: 10}[self]


class FeatureDtype(enum.StrEnum):
    """How a value travels: a signed byte times `scale`, or a half-precision float (`scale` 1)."""

    INT8 = "int8"
    FLOAT16 = "float16"

    @property
    def numpy(self) -> np.dtype[np.int8] | np.dtype[np.float16]:
        return np.dtype("int8") if self is FeatureDtype.INT8 else np.dtype("<f2")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSpec:
    """What a model listens to. Equal widths of unrelated encoders mean nothing, so `encoder_id` counts as well.

    `rate_hz`: vectors a second. `dims`: values in a vector. Raises `InvalidRequestError` for what no kind can be.
    """

    kind: FeatureKind
    encoder_id: str
    rate_hz: float
    dims: int

    def __post_init__(self) -> None:
        if not 0.0 < self.rate_hz <= self.kind.max_rate_hz:
            raise InvalidRequestError(
                f"rate_hz is {self.rate_hz}; legal for {self.kind}: above 0, at most {self.kind.max_rate_hz:g}.",
                field="rate_hz",
            )
        if not MIN_DIMS <= self.dims <= self.kind.max_dims:
            raise InvalidRequestError(
                f"dims is {self.dims}; legal for {self.kind}: {MIN_DIMS} to {self.kind.max_dims}.", field="dims"
            )

    def __str__(self) -> str:
        return f"{self.kind} from '{self.encoder_id}', {self.dims} values at {self.rate_hz:g} Hz"

    def require(self, other: FeatureSpec) -> None:
        """Raises `UnsupportedError` where features of `other` are not what is listened to here."""
        if other != self:
            raise UnsupportedError(
                f"features are {other}; the target listens to {self}.",
                field="features",
                remedy="Use a draft and a target that were made for each other, or another feature kind.",
            )


LOGMEL_128 = FeatureSpec(kind=FeatureKind.LOGMEL, encoder_id="whisper-logmel-128", rate_hz=100.0, dims=128)
POOLED_25 = FeatureSpec(kind=FeatureKind.POOLED, encoder_id="edgedraft-mel-40", rate_hz=25.0, dims=40)
POOLED_12 = FeatureSpec(kind=FeatureKind.POOLED, encoder_id="edgedraft-mel-40", rate_hz=12.5, dims=40)
PROSODY_25 = FeatureSpec(kind=FeatureKind.PROSODY, encoder_id="edgedraft-prosody-10", rate_hz=25.0, dims=10)
PROSODY_12 = FeatureSpec(kind=FeatureKind.PROSODY, encoder_id="edgedraft-prosody-10", rate_hz=12.5, dims=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechFeatures:
    """A recording as a model hears it. `data` holds `count` vectors of `spec.dims` values of `dtype`, times `scale`.

    `level_db`: RMS level of the recording, dB relative to full scale. Made by `of`; read with `values`. Raises
    `InvalidRequestError` where the fields do not fit each other.
    """

    spec: FeatureSpec
    dtype: FeatureDtype
    scale: float
    count: int
    level_db: float
    data: bytes

    def __post_init__(self) -> None:
        wanted = self.count * self.spec.dims * self.dtype.numpy.itemsize
        if self.count < 1 or self.seconds > MAX_SECONDS:
            raise InvalidRequestError(
                f"count is {self.count} at {self.spec.rate_hz:g} Hz; legal: 1 to {MAX_SECONDS:g} s of it.",
                field="count",
            )
        if len(self.data) != wanted:
            raise InvalidRequestError(f"data has {len(self.data)} bytes; {wanted} are declared.", field="data")
        if not 0.0 < self.scale <= MAX_SCALE:  # which no NaN fulfils
            raise InvalidRequestError(f"scale is {self.scale}; legal: above 0, at most {MAX_SCALE:g}.", field="scale")
        if not abs(self.level_db) <= MAX_LEVEL_DB:
            raise InvalidRequestError(
                f"level_db is {self.level_db}; legal: {-MAX_LEVEL_DB:g} to {MAX_LEVEL_DB:g}.", field="level_db"
            )
        if self.dtype is FeatureDtype.FLOAT16 and not np.isfinite(np.frombuffer(self.data, "<f2")).all():
            raise InvalidRequestError("data holds NaN or infinity.", field="data")

    @property
    def seconds(self) -> float:
        return self.count / self.spec.rate_hz

    @property
    def num_bytes(self) -> int:
        return len(self.data)

    @classmethod
    def of(
        cls, spec: FeatureSpec, values: npt.NDArray[np.floating], dtype: FeatureDtype, level_db: float
    ) -> SpeechFeatures:
        """Quantise `values`, shape (count, spec.dims): int8 to the largest magnitude, float16 by rounding."""
        if values.ndim != 2 or values.shape[1] != spec.dims:
            raise InvalidRequestError(f"values have shape {values.shape}; legal: (count, {spec.dims}).", field="values")
        if not np.isfinite(values).all():
            raise InvalidRequestError("values hold NaN or infinity.", field="values")
        if dtype is FeatureDtype.FLOAT16:
            return cls(
                spec=spec,
                dtype=dtype,
                scale=1.0,
                count=len(values),
                level_db=level_db,
                data=values.astype("<f2").tobytes(),
            )
        scale = float(np.abs(values).max(initial=0.0)) / 127 or 1.0
        data = np.round(values / scale).astype(np.int8).tobytes()
        return cls(spec=spec, dtype=dtype, scale=scale, count=len(values), level_db=level_db, data=data)

    def values(self) -> npt.NDArray[np.float32]:
        """Shape (count, spec.dims), float32."""
        held = np.frombuffer(self.data, self.dtype.numpy).reshape(self.count, self.spec.dims)
        return held.astype(np.float32) * np.float32(self.scale)
