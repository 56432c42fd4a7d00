"""A small captioner pair of random weights, as files, and recordings to caption."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np

from edgedraft.backends.captioner_file import save_captioner
from edgedraft.backends.captioner_model import CaptionerConfig, shapes
from edgedraft.caption.synthetic import make_clip, write_wav
from edgedraft.speech_features import POOLED_25
from edgedraft.types import Float32Array

CONFIG = CaptionerConfig(
    spec=POOLED_25,
    sends=POOLED_25,
    width=16,
    hidden=24,
    num_heads=2,
    num_encoder_layers=1,
    num_decoder_layers=2,
    num_statistics_tokens=2,
    num_ids=259,
    max_seconds=60.0,
)

_NEVER_WRITTEN = [token_id for token_id in range(3, 259) if not 32 <= token_id - 3 < 127]
"""All bytes but those of printable ASCII."""


def write_pair(folder: Path) -> tuple[str, str]:
    """Specs of a draft and of a target that often agree, and that are now sure and now not."""
    generator, noise = np.random.default_rng(4), np.random.default_rng(9)
    specs = []
    weights = {name: 0.3 * generator.standard_normal(shape) for name, shape in shapes(CONFIG).items()}
    weights["embedding"] *= 4.0
    for name in weights:
        if name.endswith("spread"):
            weights[name] = np.ones_like(weights[name])
    for role, error in (("draft", 0.03), ("target", 0.0)):
        found = {name: value + error * noise.standard_normal(value.shape) for name, value in weights.items()}
        found["embedding"][_NEVER_WRITTEN] = 0.0
        path = folder / f"{role}.npz"
        save_captioner(path, CONFIG, {name: value.astype(np.float32) for name, value in found.items()}, ())
        specs.append(f"captioner:{path}")
    return specs[0], specs[1]


@functools.cache
def speech(number: int = 0, language: str = "en") -> Float32Array:
    """A synthetic clip, 16 kHz; needs espeakng_loader."""
    return make_clip("dev", language, number, seed=0).waveform


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
