"""Tiny Qwen-Omni models of the real classes, with random weights and a small tokenizer, in the folders as published.

Used as `from tests.backends.qwen_omni_fixtures import write_pair` by any test.
"""
# ruff: noqa: RUF001 - Chinese is written with its own punctuation

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgedraft.speech_features import LOGMEL_128, FeatureDtype, SpeechFeatures

SAMPLE_RATE_HZ = 16000
SENTENCES = (
    "The speaker sounds calm and slow, with a low pitch and long pauses.",
    "A bright, fast voice rises at the end: she is happy and a little surprised.",
    "The voice is loud and tense, and he seems angry.",
    "说话人语速缓慢，音调低沉，停顿较长，情绪平静。",
    "她的声音明亮而急促，句末上扬，听起来很高兴。",
    "声音响亮紧张，他似乎很生气。",
)
SHARED_MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# The two lines number what comes after the shared marks differently, as the real ones do.
MARKS_2_5 = ("<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>", "<|vision_bos|>", "<|IMAGE|>", "<|VIDEO|>")
MARKS_3 = ("<|object_ref_start|>", "<|vision_start|>", "<|image_pad|>", "<|video_pad|>")
MARKS_3 += ("<|audio_start|>", "<|audio_end|>", "<|audio_pad|>")
NUM_ROWS = 640
CONTEXT_TOKENS = 2048
SPREAD = 0.2  # of the random weights: rows are lively, and recordings heard

TEXT = {
    "vocab_size": NUM_ROWS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT_TOKENS,
    "initializer_range": SPREAD,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]},
}
AUDIO = {
    "d_model": 32,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 48,
    "output_dim": 32,
    "initializer_range": SPREAD,
}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_heads": 2,
    "depth": 1,
    "out_hidden_size": 32,
    "initializer_range": SPREAD,
}


@dataclass(frozen=True, slots=True)
class TinyPair:
    """Folders of a Qwen2.5-Omni (the edge) and a Qwen3-Omni (the cloud), and the specs that name them."""

    edge_folder: Path
    cloud_folder: Path

    @property
    def draft_spec(self) -> str:
        return f"qwen-omni:{self.edge_folder}"

    @property
    def target_spec(self) -> str:
        return f"qwen-omni:{self.cloud_folder}"


def write_pair(folder: Path, *, seed: int = 5) -> TinyPair:
    """Both models under `folder`: the edge's with `tokenizer.json`, the cloud's with `vocab.json` and `merges.txt`."""
    return TinyPair(write_qwen2_5(folder / "edge", seed=seed), write_qwen3(folder / "cloud", seed=seed + 1))


def write_relatives(folder: Path, *, seed: int = 5, noise: float = 0.03) -> TinyPair:
    """Two Qwen2.5-Omni models that agree at times: the cloud's weights are the edge's and some noise.

    `noise`: as a share of their spread. The choices of both agree in 7 places of 10 at 0.03, in 3 at 0.1.
    """
    edge = write_qwen2_5(folder / "edge", seed=seed)
    return TinyPair(edge, write_qwen2_5(folder / "cloud", seed=seed, noise=noise))


def write_qwen2_5(folder: Path, *, seed: int = 5, whole: bool = False, noise: float = 0.0) -> Path:
    """`whole`: as it is published, with what speaks beside the thinker."""
    ids = write_tokenizer(folder, MARKS_2_5, in_parts=False)
    library = _library()
    thinker = library.Qwen2_5OmniThinkerConfig(
        initializer_range=SPREAD,
        text_config=TEXT,
        audio_config=AUDIO,
        vision_config=VISION,
        audio_token_index=ids["<|AUDIO|>"],
        audio_start_token_id=ids["<|audio_bos|>"],
        audio_end_token_id=ids["<|audio_eos|>"],
        vision_start_token_id=ids["<|vision_bos|>"],
        image_token_index=ids["<|IMAGE|>"],
        video_token_index=ids["<|VIDEO|>"],
    )
    return _write(
        folder, library.Qwen2_5OmniThinkerForConditionalGeneration, thinker, seed, "qwen2_5_omni", whole, noise
    )


def write_qwen3(folder: Path, *, seed: int = 6, whole: bool = False) -> Path:
    ids = write_tokenizer(folder, MARKS_3, in_parts=True)
    library = _library()
    experts = {"moe_intermediate_size": 24, "num_experts": 8, "num_experts_per_tok": 2, "head_dim": 8}
    audio = {**AUDIO, "downsample_hidden_size": 8}
    vision = {**VISION, "deepstack_visual_indexes": [0]}
    thinker = library.Qwen3OmniMoeThinkerConfig(
        initializer_range=SPREAD,
        text_config={**TEXT, **experts},
        audio_config=audio,
        vision_config=vision,
        audio_token_id=ids["<|audio_pad|>"],
        audio_start_token_id=ids["<|audio_start|>"],
        audio_end_token_id=ids["<|audio_end|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
    )
    model_class = library.Qwen3OmniMoeThinkerForConditionalGeneration
    return _write(folder, model_class, thinker, seed, "qwen3_omni_moe", whole)


def write_tokenizer(folder: Path, marks: Sequence[str], *, in_parts: bool) -> Mapping[str, int]:
    """A byte-level BPE trained on `SENTENCES`, and control tokens behind it; the ids of the latter."""
    from tokenizers import AddedToken, Tokenizer

    folder.mkdir(parents=True)
    tokenizer = Tokenizer.from_str(_trained_tokenizer())
    texts = [*SHARED_MARKS, *marks]
    tokenizer.add_tokens([AddedToken(text, special=True, normalized=False) for text in texts])
    ids = {text: int(tokenizer.token_to_id(text)) for text in texts}
    settings: dict[str, Any] = {"tokenizer_class": "Qwen2Tokenizer", "bos_token": None, "eos_token": "<|im_end|>"}
    settings |= {"pad_token": "<|endoftext|>", "add_prefix_space": False}
    if in_parts:
        model = json.loads(_trained_tokenizer())["model"]
        (folder / "vocab.json").write_text(json.dumps(model["vocab"], ensure_ascii=False), encoding="utf-8")
        merges = "".join(f"{left} {right}\n" for left, right in model["merges"])
        (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}", encoding="utf-8")
        flags = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
        settings["added_tokens_decoder"] = {str(number): {"content": text, **flags} for text, number in ids.items()}
    else:
        tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return ids


def waveform(seconds: float, *, seed: int = 0) -> npt.NDArray[np.float32]:
    """A gliding tone with breath noise at 16 kHz: nothing like speech, but no two seeds sound alike."""
    generator = np.random.default_rng(seed)
    times_s = np.arange(int(seconds * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
    pitch_hz = generator.uniform(90, 300) + generator.uniform(-40, 40) * np.sin(2 * np.pi * times_s)
    tone = np.sin(2 * np.pi * np.cumsum(pitch_hz) / SAMPLE_RATE_HZ) * generator.uniform(0.1, 0.5)
    return (tone + generator.normal(0, 0.02, len(times_s))).astype(np.float32)


def extracted(seconds: float, *, seed: int = 0) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """What the models' own feature extractor makes of it: `input_features` (1, 128, 3000) and their mask."""
    extractor = _library().WhisperFeatureExtractor(feature_size=128)
    found = extractor(
        waveform(seconds, seed=seed), sampling_rate=SAMPLE_RATE_HZ, return_attention_mask=True, return_tensors="np"
    )
    return found["input_features"], found["attention_mask"]


def logmel(seconds: float, *, seed: int = 0, dtype: FeatureDtype = FeatureDtype.INT8) -> SpeechFeatures:
    features, mask = extracted(seconds, seed=seed)
    return SpeechFeatures.of(LOGMEL_128, features[0, :, mask[0] == 1], dtype, -20.0)


@cache
def _library() -> Any:
    import transformers

    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    return transformers


@cache
def _trained_tokenizer() -> str:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return str(tokenizer.to_str())


def _write(folder: Path, model_class: Any, thinker: Any, seed: int, kind: str, whole: bool, noise: float = 0.0) -> Path:
    import torch
    from safetensors.torch import load_file, save_file

    torch.manual_seed(seed)
    model = model_class(thinker)
    with torch.no_grad():
        for weights in model.parameters() if noise else ():
            weights += noise * SPREAD * torch.randn_like(weights)
    model.save_pretrained(folder)
    if whole:
        tensors = {f"thinker.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
        tensors["talker.codec_head.weight"] = torch.zeros(3)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({"model_type": kind, "thinker_config": config}))
    return folder
