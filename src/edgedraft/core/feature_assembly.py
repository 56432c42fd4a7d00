"""A recording's features, put together in the cloud from the pieces that arrive."""

from __future__ import annotations

from edgedraft.errors import InvalidRequestError, MalformedFrameError, UnsupportedError
from edgedraft.protocol.messages import Features
from edgedraft.speech_features import MAX_SECONDS, FeatureDtype, FeatureKind, FeatureSpec, SpeechFeatures


class FeatureAssembly:
    """`spec`: what the target listens to; None where it takes text only. `features`: complete, or None so far."""

    def __init__(self, spec: FeatureSpec | None) -> None:
        self._spec = spec
        self._first: Features | None = None
        self._data = bytearray()
        self.features: SpeechFeatures | None = None

    @property
    def is_complete(self) -> bool:
        """Whether nothing more is needed: a target of text never needs any."""
        return self._spec is None or self.features is not None

    def require_complete(self) -> None:
        """Raises `InvalidRequestError` where ids are to be judged before there is a recording to judge them by."""
        if not self.is_complete:
            raise InvalidRequestError(
                f"features are missing; this target listens to {self._spec}.",
                field="features",
                remedy="Send them after Open, or use a target of text.",
            )

    def take(self, piece: Features) -> bool:
        """A further piece; whether it was the last.

        Raises `UnsupportedError` for features that the target does not listen to, `MalformedFrameError` for pieces that
        do not fit each other, `InvalidRequestError` for features that cannot be.
        """
        if self._spec is None:
            raise UnsupportedError(
                f"features of kind '{piece.kind}' were sent; this target takes text only.",
                field="features",
                remedy="Use a target made for captioning.",
            )
        if self.features is not None:
            raise MalformedFrameError("Features came twice.")
        if self._first is None:
            self._begin(piece, self._spec)
        if piece.offset != len(self._data) or _header(piece) != _header(self._first or piece):
            raise MalformedFrameError(f"Features.offset is {piece.offset}; expected {len(self._data)}.")
        self._data += piece.data
        spec, dtype = self._spec, FeatureDtype(piece.dtype)
        num_missing = piece.count * spec.dims * dtype.numpy.itemsize - len(self._data)
        if num_missing > 0 and piece.data:
            return False
        self.features = SpeechFeatures(
            spec=spec,
            dtype=dtype,
            scale=piece.scale,
            count=piece.count,
            level_db=piece.level_db,
            data=bytes(self._data),
        )
        return True

    def _begin(self, piece: Features, spec: FeatureSpec) -> None:
        try:
            kind, _ = FeatureKind(piece.kind), FeatureDtype(piece.dtype)
        except ValueError:
            raise UnsupportedError(
                f"features are of kind '{piece.kind}' and dtype '{piece.dtype}'; the target listens to {spec}.",
                field="features",
            ) from None
        spec.require(FeatureSpec(kind=kind, encoder_id=piece.encoder_id, rate_hz=piece.rate_hz, dims=piece.dims))
        if not 1 <= piece.count <= MAX_SECONDS * spec.rate_hz:
            raise InvalidRequestError(
                f"count is {piece.count}; legal: 1 to {MAX_SECONDS * spec.rate_hz:g}.", field="features"
            )
        self._first = piece


def _header(piece: Features) -> tuple[object, ...]:
    """All that every piece repeats."""
    return (piece.kind, piece.encoder_id, piece.rate_hz, piece.dims, piece.dtype, piece.scale, piece.count)
