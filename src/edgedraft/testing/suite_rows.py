"""What the suites share: ids to feed, and when two rows of logits count as the same."""
# ruff: noqa: S101 - asserts are what a suite is made of

from __future__ import annotations

import numpy as np

from edgedraft.types import Float32Array, ModelInfo


def sample_ids(info: ModelInfo, count: int, salt: int = 0) -> list[int]:
    """`count` real ids without an obvious pattern, the same for equal arguments; never an end of sequence."""
    legal = [token_id for token_id in range(min(info.num_ids, 4096)) if token_id not in info.eos_ids]
    return [legal[(salt * 7919 + index * index * 31 + index * 17 + 5) % len(legal)] for index in range(count)]


def other_id(info: ModelInfo, token_id: int) -> int:
    """A real id that is not `token_id`."""
    return (token_id + 1) % info.num_ids


def _widened(row: Float32Array, width: int) -> Float32Array:
    return np.concatenate([row, np.full(width - row.shape[-1], -np.inf, dtype=np.float32)])


def assert_same_row(actual: Float32Array, expected: Float32Array, info: ModelInfo, tolerance: float) -> None:
    """Bit-equal where the engine says that it is deterministic, else within `tolerance` logits.

    A row narrower than the other counts as -inf from its end on.
    """
    width = max(actual.shape[-1], expected.shape[-1])
    left, right = _widened(actual, width)[: info.num_ids], _widened(expected, width)[: info.num_ids]
    if info.deterministic:
        assert np.array_equal(left, right), f"{info.engine}: rows differ, yet info.deterministic is true"
    else:
        np.testing.assert_allclose(left, right, rtol=0.0, atol=tolerance)
