"""Two captioners with random weights that often agree, as files, and recordings to caption."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from edgedraft.backends.captioner_file import save_captioner
from edgedraft.backends.captioner_model import CaptionerConfig, shapes
from edgedraft.caption.synthetic import write_wav
from edgedraft.speech_features import POOLED_12

CONFIG = CaptionerConfig(
    spec=POOLED_12,
    sends=POOLED_12,
    width=16,
    hidden=32,
    num_heads=2,
    num_encoder_layers=1,
    num_decoder_layers=1,
    num_statistics_tokens=0,
    num_ids=3 + 256,
    max_seconds=20.0,
)
UNLIKE = 0.25
"""How much of the draft's weights is its own."""


def write_pair(directory: Path) -> tuple[str, str]:
    """Specs of draft and target."""
    target = _random_weights(1)
    own = _random_weights(2)
    draft = {name: array + UNLIKE * own[name] for name, array in target.items()}
    for name, weights in (("draft", draft), ("target", target)):
        save_captioner(directory / f"{name}.npz", CONFIG, weights, [])
    return f"captioner:{directory / 'draft.npz'}", f"captioner:{directory / 'target.npz'}"


def _random_weights(seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    weights = {}
    for name, shape in shapes(CONFIG).items():
        plain = name == "frame_spread" or "norm" in name
        drawn = generator.normal(size=shape) / np.sqrt(shape[0] if len(shape) > 1 else 4.0)
        weights[name] = (np.ones(shape) if plain else drawn).astype(np.float32)
    weights["embedding"] *= 16.0
    return weights


def write_dataset(directory: Path, num_per_language: int = 2) -> Path:
    """Tones in noise of different lengths, with captions in English and Chinese."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = []
    for language, caption in (("en", "A calm voice speaks slowly."), ("zh", "一个平静的声音慢慢说话。")):
        for number in range(num_per_language):
            generator = np.random.default_rng([number, len(language), ord(caption[0])])
            seconds = np.arange(int(16_000 * (0.8 + 0.2 * number))) / 16_000
            tone = 0.2 * np.sin(2 * np.pi * generator.uniform(100, 300) * seconds)
            write_wav(
                directory / f"{language}{number}.wav", (tone + 0.02 * generator.normal(size=len(tone))).astype("f4")
            )
            lines.append(json.dumps({"file": f"{language}{number}.wav", "language": language, "captions": [caption]}))
    (directory / "captions.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return directory
