"""A small transformer that hears speech features and writes a caption. numpy only, float32, one position at a time.

Encoder and decoder after A. Vaswani et al., "Attention Is All You Need" (2017), with normalisation before each part
(root mean square, B. Zhang and R. Sennrich 2019) and sinusoidal positions in the decoder only. Two strided
convolutions bring 25 vectors a second down to six.

Every position is computed by itself, with the same operations on the same shapes whether it is drafted, verified or
evaluated again: so rows are bit-identical however they are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgedraft.errors import ContextLengthError
from edgedraft.speech_features import FeatureSpec, SpeechFeatures
from edgedraft.types import Float32Array

NORM_FLOOR = np.float32(1e-6)
CONVOLUTION_WIDTH, CONVOLUTION_STRIDE = 4, 2
_QUANTILES = (0.1, 0.5, 0.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionerConfig:
    """Sizes of a model, as its file holds them.

    `spec`: what it listens to. `sends`: what of a recording it gives to its target, where it is a draft.
    `width`: of its vectors. `num_statistics_tokens`: how many vectors of the encoder stand for statistics of the whole
    recording (0: none). `max_seconds`: the longest recording that it takes.
    """

    spec: FeatureSpec
    sends: FeatureSpec
    width: int
    hidden: int
    num_heads: int
    num_encoder_layers: int
    num_decoder_layers: int
    num_statistics_tokens: int
    num_ids: int
    max_seconds: float


def statistics(values: Float32Array, level_db: float, seconds: float) -> Float32Array:
    """Of `values`, shape (count, dims), each over time: mean, spread, three quantiles, mean step; then level, length.

    Shape (6 * dims + 2,).
    """
    steps = np.abs(np.diff(values, axis=0)).mean(axis=0) if len(values) > 1 else np.zeros(values.shape[1], np.float32)
    parts = [values.mean(axis=0), values.std(axis=0), *np.quantile(values, _QUANTILES, axis=0), steps]
    return np.concatenate([*parts, [level_db, seconds]]).astype(np.float32)


def positions(count: int, width: int) -> Float32Array:
    """Sines and cosines of a position, shape (count, width)."""
    rates = 10_000.0 ** (-np.arange(0, width, 2) / width)
    angles = np.arange(count)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def _normed(values: Float32Array, gain: Float32Array) -> Float32Array:
    mean_square = np.mean(values * values, axis=-1, keepdims=True)
    normed: Float32Array = values / np.sqrt(mean_square + NORM_FLOOR) * gain
    return normed


def _positive(values: Float32Array) -> Float32Array:
    return np.maximum(values, np.float32(0.0))


def _softmax(scores: Float32Array) -> Float32Array:
    weights: Float32Array = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares: Float32Array = weights / weights.sum(axis=-1, keepdims=True)
    return shares


@dataclass(frozen=True, slots=True)
class Heard:
    """A recording, ready for the decoder: `keys` and `values`, float32, shape (layers, heads, count, head_width)."""

    keys: Float32Array
    values: Float32Array


class Captioner:
    """The model. `weights`: float32 arrays by name, as `captioner_file` checks them; matrices map rows to columns."""

    def __init__(self, config: CaptionerConfig, weights: Mapping[str, Float32Array]) -> None:
        self.config = config
        self.weights = weights
        self.head_width = config.width // config.num_heads
        self._scale = np.float32(self.head_width**-0.5)
        self.embedding = weights["embedding"]
        self.token_inputs = self.embedding * np.float32(config.width**0.5)
        self.output = np.ascontiguousarray(self.embedding.T)

    def hear(self, features: SpeechFeatures) -> Heard:
        """Encode a recording. Raises `UnsupportedError` for another spec, `ContextLengthError` for a longer one."""
        self.check(features)
        weights, values = self.weights, features.values()
        frames = (values - weights["frame_mean"]) / weights["frame_spread"]
        for name in ("convolution_0", "convolution_1"):
            frames = self._convolved(frames, name)
        if self.config.num_statistics_tokens:
            frames = np.concatenate([self._statistics_tokens(features, values), frames])
        for layer in range(self.config.num_encoder_layers):
            frames = self._encoder_layer(frames, f"encoder_{layer}")
        frames = _normed(frames, weights["encoder_norm"])
        pairs = [self._heads(frames @ weights[f"decoder_{layer}.heard"], 2) for layer in self._decoder_layers]
        return Heard(np.stack([pair[0] for pair in pairs]), np.stack([pair[1] for pair in pairs]))

    def check(self, features: SpeechFeatures) -> None:
        """Raises what `hear` raises, without running it."""
        self.config.spec.require(features.spec)
        if features.seconds > self.config.max_seconds:
            raise ContextLengthError(
                f"the recording lasts {features.seconds:.1f} s; the model hears at most {self.config.max_seconds:g} s.",
                field="features",
                remedy="Split it at its pauses.",
            )

    @property
    def _decoder_layers(self) -> range:
        return range(self.config.num_decoder_layers)

    def _convolved(self, frames: Float32Array, name: str) -> Float32Array:
        """Windows of four vectors, every second one. Shape (ceil(count / 2), width)."""
        count, dims = -(-len(frames) // CONVOLUTION_STRIDE), frames.shape[1]
        padded = np.zeros((count * CONVOLUTION_STRIDE + CONVOLUTION_WIDTH - CONVOLUTION_STRIDE, dims), np.float32)
        padded[1 : 1 + len(frames)] = frames
        starts = np.arange(count)[:, None] * CONVOLUTION_STRIDE + np.arange(CONVOLUTION_WIDTH)
        windows = padded[starts].reshape(count, CONVOLUTION_WIDTH * dims)
        out: Float32Array = windows @ self.weights[f"{name}.matrix"] + self.weights[f"{name}.bias"]
        return _positive(out)

    def _statistics_tokens(self, features: SpeechFeatures, values: Float32Array) -> Float32Array:
        weights = self.weights
        found = statistics(values, features.level_db, features.seconds)
        found = (found - weights["statistics_mean"]) / weights["statistics_spread"]
        inner = _positive(found @ weights["statistics.up"] + weights["statistics.up_bias"])
        tokens: Float32Array = inner @ weights["statistics.down"] + weights["statistics.down_bias"]
        return tokens.reshape(self.config.num_statistics_tokens, self.config.width)

    def _heads(self, rows: Float32Array, parts: int) -> Float32Array:
        """From (count, parts * width) to (parts, heads, count, head_width), contiguous."""
        split = rows.reshape(len(rows), parts, self.config.num_heads, self.head_width)
        return np.ascontiguousarray(split.transpose(1, 2, 0, 3))

    def _encoder_layer(self, frames: Float32Array, name: str) -> Float32Array:
        weights = self.weights
        inner = _normed(frames, weights[f"{name}.norm_self"])
        queries, keys, values = self._heads(inner @ weights[f"{name}.self"], 3)
        mixed = _softmax(queries @ keys.transpose(0, 2, 1) * self._scale) @ values
        joined = mixed.transpose(1, 0, 2).reshape(len(frames), self.config.width)
        frames = frames + joined @ weights[f"{name}.self_out"]
        return frames + self.feed_forward(frames, name)

    def feed_forward(self, values: Float32Array, name: str) -> Float32Array:
        """What layer `name` adds to `values`, one vector or several."""
        weights = self.weights
        inner = _normed(values, weights[f"{name}.norm_feed"]) @ weights[f"{name}.up"] + weights[f"{name}.up_bias"]
        added: Float32Array = _positive(inner) @ weights[f"{name}.down"] + weights[f"{name}.down_bias"]
        return added

    def attended(self, query: Float32Array, keys: Float32Array, values: Float32Array) -> Float32Array:
        """One position's attention. `query`: (heads, head_width); `keys`, `values`: (heads, count, head_width)."""
        scores = np.matmul(keys, query[:, :, None])[:, :, 0] * self._scale
        mixed: Float32Array = np.matmul(_softmax(scores)[:, None, :], values)[:, 0]
        return mixed.reshape(self.config.width)

    def logits(self, state: Float32Array) -> Float32Array:
        """`state`: what `CaptionerText.append` gives, shape (width,). float32, shape (num_ids,), a new array."""
        return _normed(state, self.weights["decoder_norm"]) @ self.output


class CaptionerText:
    """The tokens written so far about one recording, with their keys and values."""

    def __init__(self, model: Captioner, context_length: int) -> None:
        config = model.config
        self.model = model
        self.token_ids: list[int] = []
        self._positions = positions(context_length, config.width)
        shape = (config.num_decoder_layers, config.num_heads, context_length, model.head_width)
        self._keys, self._values = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self.last_state: Float32Array | None = None
        """Of the last token, unless it was rolled back to."""

    def rollback(self, length: int) -> None:
        """Forget everything from `length` on."""
        if length < len(self.token_ids):
            del self.token_ids[length:]
            self.last_state = None

    def append(self, token_id: int, heard: Heard) -> Float32Array:
        """Take one token; the state of its position, shape (width,)."""
        model, position = self.model, len(self.token_ids)
        state: Float32Array = model.token_inputs[token_id] + self._positions[position]
        for layer in range(model.config.num_decoder_layers):
            state = self._layer(state, layer, position, heard)
        self.token_ids.append(token_id)
        self.last_state = state
        return state

    def last_row(self, heard: Heard) -> Float32Array:
        """Logits after the last token, which is computed again where it was rolled back to. Needs a token."""
        if self.last_state is None:
            self.append(self.token_ids.pop(), heard)
        assert self.last_state is not None  # noqa: S101
        return self.model.logits(self.last_state)

    def _layer(self, state: Float32Array, layer: int, position: int, heard: Heard) -> Float32Array:
        model, name = self.model, f"decoder_{layer}"
        weights, config = model.weights, model.config
        inner = _normed(state, weights[f"{name}.norm_self"]) @ weights[f"{name}.self"]
        query, key, value = inner.reshape(3, config.num_heads, model.head_width)
        keys, values = self._keys[layer, :, : position + 1], self._values[layer, :, : position + 1]
        keys[:, position], values[:, position] = key, value
        state = state + model.attended(query, keys, values) @ weights[f"{name}.self_out"]
        asked = _normed(state, weights[f"{name}.norm_ask"]) @ weights[f"{name}.ask"]
        query = asked.reshape(config.num_heads, model.head_width)
        answer = model.attended(query, heard.keys[layer], heard.values[layer])
        state = state + answer @ weights[f"{name}.ask_out"]
        return state + model.feed_forward(state, name)


def shapes(config: CaptionerConfig) -> dict[str, Sequence[int]]:
    """Name and shape of every array of a model."""
    width, hidden = config.width, config.hidden
    feed = {"norm_feed": [width], "up": [width, hidden], "up_bias": [hidden], "down": [hidden, width]}
    layer = {**feed, "down_bias": [width], "norm_self": [width], "self": [width, 3 * width], "self_out": [width, width]}
    asking = {
        "norm_ask": [width],
        "ask": [width, width],
        "ask_out": [width, width],
        "heard": [width, 2 * width],
    }
    found: dict[str, Sequence[int]] = {
        "frame_mean": [config.spec.dims],
        "frame_spread": [config.spec.dims],
        "convolution_0.matrix": [CONVOLUTION_WIDTH * config.spec.dims, width],
        "convolution_0.bias": [width],
        "convolution_1.matrix": [CONVOLUTION_WIDTH * width, width],
        "convolution_1.bias": [width],
        "encoder_norm": [width],
        "embedding": [config.num_ids, width],
        "decoder_norm": [width],
    }
    if config.num_statistics_tokens:
        size, out = 6 * config.spec.dims + 2, config.num_statistics_tokens * width
        found |= {"statistics_mean": [size], "statistics_spread": [size], "statistics.up": [size, hidden]}
        found |= {"statistics.up_bias": [hidden], "statistics.down": [hidden, out], "statistics.down_bias": [out]}
    for number in range(config.num_encoder_layers):
        found |= {f"encoder_{number}.{name}": shape for name, shape in layer.items()}
    for number in range(config.num_decoder_layers):
        found |= {f"decoder_{number}.{name}": shape for name, shape in {**layer, **asking}.items()}
    return found
