"""The captioner in torch: the arithmetic of `edgedraft.backends.captioner_model`, in batches and with gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from edgedraft.backends.captioner_model import (
    CONVOLUTION_STRIDE,
    CONVOLUTION_WIDTH,
    NORM_FLOOR,
    CaptionerConfig,
    positions,
    shapes,
)
from edgedraft.caption.phrases import LEVELS
from edgedraft.types import Float32Array

_FIXED = ("frame_mean", "frame_spread", "statistics_mean", "statistics_spread")


def initial_weights(config: CaptionerConfig, generator: torch.Generator) -> dict[str, Tensor]:
    """Gains 1, biases 0, matrices scaled to keep the size of what passes through."""
    found = {}
    residual_scale = (2 * (config.num_encoder_layers + config.num_decoder_layers)) ** -0.5
    for name, shape in shapes(config).items():
        last = name.rsplit(".", 1)[-1]
        if last.startswith(("norm", "encoder_norm", "decoder_norm")) or last.endswith("spread"):
            found[name] = torch.ones(*shape)
        elif len(shape) == 1:
            found[name] = torch.zeros(*shape)
        else:
            scale = config.width**-0.5 if name == "embedding" else shape[0] ** -0.5
            scale *= residual_scale if last in ("self_out", "ask_out", "down") else 1.0
            found[name] = torch.randn(*shape, generator=generator) * scale
    return found


class TorchCaptioner(nn.Module):
    """`weights` under the names of `captioner_model.shapes`, and heads that name attributes, used in training only."""

    def __init__(self, config: CaptionerConfig, seed: int, dropout: float) -> None:
        super().__init__()
        self.config = config
        self.dropout = dropout
        self.head_width = config.width // config.num_heads
        drawn = initial_weights(config, torch.Generator().manual_seed(seed))
        self.weights = nn.ParameterDict(
            {name.replace(".", "/"): nn.Parameter(value, name not in _FIXED) for name, value in drawn.items()}
        )
        self.heads = nn.ModuleDict({name: nn.Linear(config.width, len(levels)) for name, levels in LEVELS.items()})
        self.positions = torch.from_numpy(positions(512, config.width))

    def weight(self, name: str) -> Tensor:
        weight: Tensor = self.weights[name.replace(".", "/")]
        return weight

    def set_fixed(self, arrays: Mapping[str, Float32Array]) -> None:
        """Means and spreads, measured on the training clips; rounded as the file will round them."""
        for name, array in arrays.items():
            self.weight(name).data.copy_(torch.from_numpy(array.astype(np.float16).astype(np.float32)))

    def exported(self) -> dict[str, Float32Array]:
        return {name: self.weight(name).detach().numpy().astype(np.float32) for name in shapes(self.config)}

    def num_parameters(self) -> int:
        return sum(math.prod(shape) for shape in shapes(self.config).values())

    def _normed(self, values: Tensor, name: str) -> Tensor:
        return values * torch.rsqrt(values.square().mean(-1, keepdim=True) + float(NORM_FLOOR)) * self.weight(name)

    def _dropped(self, values: Tensor) -> Tensor:
        return functional.dropout(values, self.dropout, self.training)

    def _convolved(self, frames: Tensor, lengths: Tensor, name: str) -> tuple[Tensor, Tensor]:
        count = -(-frames.shape[1] // CONVOLUTION_STRIDE)
        after = count * CONVOLUTION_STRIDE + CONVOLUTION_WIDTH - CONVOLUTION_STRIDE - 1 - frames.shape[1]
        padded = functional.pad(frames, (0, 0, 1, after))
        windows = padded.unfold(1, CONVOLUTION_WIDTH, CONVOLUTION_STRIDE).transpose(2, 3).flatten(2)
        out = torch.relu(windows @ self.weight(f"{name}.matrix") + self.weight(f"{name}.bias"))
        lengths = -(-lengths // CONVOLUTION_STRIDE)
        return out * _mask(lengths, count)[:, :, None], lengths

    def _heads(self, rows: Tensor, parts: int) -> Tensor:
        """(batch, count, parts * width) to (parts, batch, heads, count, head_width)."""
        split = rows.reshape(*rows.shape[:2], parts, self.config.num_heads, self.head_width)
        return split.permute(2, 0, 3, 1, 4)

    def _attended(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, is_causal=mask is None)
        return mixed.transpose(1, 2).flatten(2)

    def _feed_forward(self, values: Tensor, name: str) -> Tensor:
        inner = self._normed(values, f"{name}.norm_feed") @ self.weight(f"{name}.up") + self.weight(f"{name}.up_bias")
        return self._dropped(torch.relu(inner) @ self.weight(f"{name}.down") + self.weight(f"{name}.down_bias"))

    def hear(self, frames: Tensor, lengths: Tensor, statistics: Tensor) -> tuple[Tensor, Tensor]:
        """Memory, shape (batch, count, width), and its mask, shape (batch, count)."""
        config = self.config
        values = (frames - self.weight("frame_mean")) / self.weight("frame_spread")
        values = self._dropped(values * _mask(lengths, frames.shape[1])[:, :, None])
        for name in ("convolution_0", "convolution_1"):
            values, lengths = self._convolved(values, lengths, name)
        mask = _mask(lengths, values.shape[1])
        if config.num_statistics_tokens:
            found = (statistics - self.weight("statistics_mean")) / self.weight("statistics_spread")
            inner = torch.relu(self._dropped(found) @ self.weight("statistics.up") + self.weight("statistics.up_bias"))
            tokens = inner @ self.weight("statistics.down") + self.weight("statistics.down_bias")
            values = torch.cat([tokens.reshape(len(frames), config.num_statistics_tokens, config.width), values], 1)
            mask = torch.cat([torch.ones(len(frames), config.num_statistics_tokens, dtype=torch.bool), mask], 1)
        for number in range(config.num_encoder_layers):
            name = f"encoder_{number}"
            inner = self._normed(values, f"{name}.norm_self")
            queries, keys, held = self._heads(inner @ self.weight(f"{name}.self"), 3)
            mixed = self._attended(queries, keys, held, mask[:, None, None, :])
            values = values + self._dropped(mixed @ self.weight(f"{name}.self_out"))
            values = values + self._feed_forward(values, name)
        return self._normed(values, "encoder_norm"), mask

    def attribute_logits(self, memory: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """From the statistics tokens, or from the mean of the memory where there are none."""
        count = self.config.num_statistics_tokens
        counted = memory[:, :count] if count else memory * mask[:, :, None]
        pooled = counted.sum(1) / (count or mask.sum(1, keepdim=True))
        return {name: head(pooled) for name, head in self.heads.items()}

    def forward(self, memory: Tensor, mask: Tensor, token_ids: Tensor) -> Tensor:
        """Logits of the position after each id: (batch, count, num_ids)."""
        config, embedding = self.config, self.weight("embedding")
        state = embedding[token_ids] * config.width**0.5 + self.positions[: token_ids.shape[1]]
        state = self._dropped(state)
        for number in range(config.num_decoder_layers):
            name = f"decoder_{number}"
            inner = self._normed(state, f"{name}.norm_self")
            queries, keys, values = self._heads(inner @ self.weight(f"{name}.self"), 3)
            state = state + self._dropped(self._attended(queries, keys, values, None) @ self.weight(f"{name}.self_out"))
            (queries,) = self._heads(self._normed(state, f"{name}.norm_ask") @ self.weight(f"{name}.ask"), 1)
            keys, values = self._heads(memory @ self.weight(f"{name}.heard"), 2)
            answer = self._attended(queries, keys, values, mask[:, None, None, :])
            state = state + self._dropped(answer @ self.weight(f"{name}.ask_out"))
            state = state + self._feed_forward(state, name)
        return self._normed(state, "decoder_norm") @ embedding.T


def _mask(lengths: Tensor, count: int) -> Tensor:
    return torch.arange(count)[None, :] < lengths[:, None]
