"""GGUF files made on the spot: tiny models with random weights, and files that are wrong in a chosen way."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

WriteGguf = Callable[..., Path]

F32 = 0
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
_NORMAL, _CONTROL, _UNUSED = 1, 3, 5
_ALIGNMENT_BYTES = 32
_WIDTH, _FEED_FORWARD, _HEADS, _LAYERS = 32, 64, 2, 2


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    """A metadata value with its type in front."""
    if isinstance(value, bool):
        return struct.pack("<I?", _BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", _UINT32, value)
    if isinstance(value, float):
        return struct.pack("<If", _FLOAT32, value)
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _string(value)
    if value and isinstance(value[0], int):
        return struct.pack(f"<IIQ{len(value)}i", _ARRAY, _INT32, len(value), *value)
    return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + b"".join(map(_string, value))


def gguf_bytes(metadata: Mapping[str, Any], tensors: Mapping[str, np.ndarray[Any, Any]], version: int = 3) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    head += b"".join(_string(key) + _value(value) for key, value in metadata.items())
    data = b""
    for name, array in tensors.items():
        dims = array.shape[::-1]  # GGUF gives the fastest dimension first
        head += _string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, F32, len(data))
        data += array.astype("<f4").tobytes()
        data += bytes(-len(data) % _ALIGNMENT_BYTES)
    return head + bytes(-len(head) % _ALIGNMENT_BYTES) + data


def _byte_tokens() -> list[str]:
    """The 256 byte symbols of a byte-level BPE vocabulary (the published GPT-2 mapping)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    symbols = {byte: chr(byte) for byte in printable} | {byte: chr(256 + index) for index, byte in enumerate(others)}
    return [symbols[byte] for byte in range(256)]


def _tokenizer(num_padding: int, add_bos: bool) -> dict[str, Any]:
    tokens = [*_byte_tokens(), "<s>", "<|im_end|>", "<|endoftext|>", *(f"[PAD{259 + n}]" for n in range(num_padding))]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [_NORMAL] * 256 + [_CONTROL] * 3 + [_UNUSED] * num_padding,
        "tokenizer.ggml.merges": ["h e", "l l"],
        "tokenizer.ggml.bos_token_id": 256,
        "tokenizer.ggml.eos_token_id": 258,
        "tokenizer.ggml.add_bos_token": add_bos,
    }


def _tensors(architecture: str, num_tokens: int) -> dict[str, np.ndarray[Any, Any]]:
    generator = np.random.default_rng(7)

    def weights(rows: int, columns: int) -> np.ndarray[Any, Any]:
        return generator.normal(0.0, 0.4, (rows, columns))

    norm = np.ones(_WIDTH)
    tensors = {"token_embd.weight": weights(num_tokens, _WIDTH), "output_norm.weight": norm}
    for layer in range(_LAYERS):
        block = {
            "attn_norm": norm,
            **{f"attn_{part}": weights(_WIDTH, _WIDTH) for part in ("q", "k", "v", "output")},
            "ffn_norm": norm,
            "ffn_gate": weights(_FEED_FORWARD, _WIDTH),
            "ffn_up": weights(_FEED_FORWARD, _WIDTH),
            "ffn_down": weights(_WIDTH, _FEED_FORWARD),
        }
        if architecture == "gemma3":
            head_norm = np.ones(_WIDTH // _HEADS)
            block |= {"attn_q_norm": head_norm, "attn_k_norm": head_norm}
            block |= {"post_attention_norm": norm, "post_ffw_norm": norm}
        tensors |= {f"blk.{layer}.{name}.weight": array for name, array in block.items()}
    return tensors


@pytest.fixture
def write_gguf(tmp_path: Path) -> WriteGguf:
    """Write a tiny model of random F32 weights over a byte vocabulary with 256 `<s>`, 257, 258 end tokens.

    `extra`: metadata put over the model's own; `without`: keys or tensors left out.
    """

    def write(
        name: str = "tiny.gguf",
        *,
        architecture: str = "llama",
        num_padding: int = 0,
        add_bos: bool = False,
        extra: Mapping[str, Any] | None = None,
        without: Sequence[str] = (),
        version: int = 3,
    ) -> Path:
        sizes = {"context_length": 256, "embedding_length": _WIDTH, "block_count": _LAYERS}
        sizes |= {"feed_forward_length": _FEED_FORWARD, "attention.head_count": _HEADS}
        metadata = {
            "general.architecture": architecture,
            "general.name": "tiny",
            "general.file_type": 0,
            **{f"{architecture}.{key}": value for key, value in sizes.items()},
            f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
            **_tokenizer(num_padding, add_bos),
            **(extra or {}),
        }
        tensors = _tensors(architecture, 259 + num_padding)
        path = tmp_path / name
        path.write_bytes(
            gguf_bytes(
                {key: value for key, value in metadata.items() if key not in without},
                {key: array for key, array in tensors.items() if key not in without},
                version,
            )
        )
        return path

    return write
