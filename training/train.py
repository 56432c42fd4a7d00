"""Train one model of the pair: `python -m training.train RECIPE CACHE MERGES.json OUT.npz` (recipes.py)."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor

from edgedraft.backends.captioner_file import save_captioner
from edgedraft.backends.captioner_model import CaptionerConfig, statistics
from edgedraft.backends.captioner_tokenizer import EOS_ID, CaptionerTokenizer
from edgedraft.caption.phrases import LEVELS
from edgedraft.speech_features import SpeechFeatures
from edgedraft.types import Float32Array
from training.data import SPECS, Example, load
from training.model import TorchCaptioner
from training.recipes import RECIPES, Recipe

IGNORED_ID = -1
MAX_SECONDS = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What training needs of one clip. `frames` as they arrive after the link; `ids`: prompt, caption, eos."""

    frames: Float32Array
    statistics: Float32Array
    ids: list[int]
    levels: list[int]


def prepare(examples: Sequence[Example], recipe: Recipe, tokenizer: CaptionerTokenizer) -> list[Prepared]:
    found = []
    for example in examples:
        sent = SpeechFeatures.of(
            SPECS[recipe.features], example.features[recipe.features], recipe.dtype, example.level_db
        )
        caption_ids = tokenizer.encode(example.captions[0], parse_special=False)
        found.append(
            Prepared(
                frames=sent.values(),
                statistics=statistics(sent.values(), sent.level_db, sent.seconds),
                ids=[*tokenizer.caption_prompt(example.language), *caption_ids, EOS_ID],
                levels=[LEVELS[name].index(example.attributes[name]) for name in LEVELS],
            )
        )
    return found


def fixed_arrays(clips: Sequence[Prepared], recipe: Recipe) -> dict[str, Float32Array]:
    frames = np.concatenate([clip.frames for clip in clips[:2000]])
    found = {"frame_mean": frames.mean(0), "frame_spread": frames.std(0) + 1e-3}
    if recipe.num_statistics_tokens:
        held = np.stack([clip.statistics for clip in clips])
        found |= {"statistics_mean": held.mean(0), "statistics_spread": held.std(0) + 1e-3}
    return found


def _augmented(clip: Prepared, recipe: Recipe, spread: Float32Array, generator: np.random.Generator) -> Float32Array:
    """Another microphone, a little noise, a stretch of time hidden."""
    offset = generator.normal(0.0, recipe.offset_noise, clip.frames.shape[1])
    frames = clip.frames + spread * (offset + generator.normal(0.0, recipe.frame_noise, clip.frames.shape))
    if recipe.time_mask_share:
        width = int(generator.uniform(0.0, recipe.time_mask_share) * len(frames))
        start = int(generator.integers(0, len(frames) - width + 1))
        frames[start : start + width] = frames.mean(0)
    return frames.astype(np.float32)


@dataclass(frozen=True, slots=True)
class Batch:
    frames: Tensor
    lengths: Tensor
    statistics: Tensor
    ids: Tensor
    wanted_ids: Tensor
    levels: Tensor


def collate(
    clips: Sequence[Prepared], frames: Sequence[Float32Array], level_of_statistics: Sequence[Float32Array]
) -> Batch:
    lengths = torch.tensor([len(array) for array in frames])
    padded = torch.zeros(len(clips), int(lengths.max()), frames[0].shape[1])
    ids = torch.zeros(len(clips), max(len(clip.ids) for clip in clips) - 1, dtype=torch.long)
    wanted = torch.full_like(ids, IGNORED_ID)
    for row, (clip, array) in enumerate(zip(clips, frames, strict=True)):
        padded[row, : len(array)] = torch.from_numpy(array)
        ids[row, : len(clip.ids) - 1] = torch.tensor(clip.ids[:-1])
        wanted[row, : len(clip.ids) - 1] = torch.tensor(clip.ids[1:])
    found = torch.from_numpy(np.stack(level_of_statistics))
    return Batch(padded, lengths, found, ids, wanted, torch.tensor([clip.levels for clip in clips]))


def batches(clips: Sequence[Prepared], recipe: Recipe, spread: Float32Array) -> Iterator[Batch]:
    """Without end. Batches hold one language and clips of similar length, which wastes little on padding."""
    generator = np.random.default_rng(recipe.seed)
    while True:
        order = generator.permutation(len(clips))
        keys = [(clips[number].ids[0], len(clips[number].frames) // 24) for number in order]
        order = order[sorted(range(len(order)), key=lambda place: keys[place])]
        groups = [order[start : start + recipe.batch_clips] for start in range(0, len(order), recipe.batch_clips)]
        for group in generator.permutation(len(groups)):
            chosen = [clips[number] for number in groups[group]]
            frames = [_augmented(clip, recipe, spread, generator) for clip in chosen]
            yield collate(chosen, frames, [clip.statistics for clip in chosen])


def losses(model: TorchCaptioner, batch: Batch, recipe: Recipe, with_caption: bool) -> tuple[Tensor, Tensor]:
    """Of the caption and of the attributes (means over what counts)."""
    memory, mask = model.hear(batch.frames, batch.lengths, batch.statistics)
    attribute_loss = torch.zeros(())
    if recipe.attribute_weight:
        named = model.attribute_logits(memory, mask)
        parts = [functional.cross_entropy(named[name], batch.levels[:, place]) for place, name in enumerate(LEVELS)]
        attribute_loss = torch.stack(parts).mean()
    if not with_caption:
        return torch.zeros(()), attribute_loss
    logits = model(memory, mask, batch.ids)
    caption_loss = functional.cross_entropy(
        logits.flatten(0, 1),
        batch.wanted_ids.flatten(),
        ignore_index=IGNORED_ID,
        label_smoothing=recipe.label_smoothing,
    )
    return caption_loss, attribute_loss


def train(model: TorchCaptioner, clips: Sequence[Prepared], dev: Sequence[Prepared], recipe: Recipe) -> None:
    optimiser = torch.optim.AdamW(model.parameters(), lr=1.0, betas=(0.9, 0.98), weight_decay=recipe.weight_decay)
    spread = model.weight("frame_spread").detach().numpy()
    stream, began_s, shown = batches(clips, recipe, spread), time.perf_counter(), [0.0, 0.0]
    total = recipe.listening_steps + recipe.steps
    for step in range(total):
        writing = step >= recipe.listening_steps
        first, last = (recipe.listening_steps, total) if writing else (0, recipe.listening_steps)
        along = (step - first) / (last - first)
        warm = min(1.0, (step - first + 1) / 100)
        optimiser.param_groups[0]["lr"] = (
            recipe.learning_rate * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * along)))
        )
        model.train()
        caption_loss, attribute_loss = losses(model, next(stream), recipe, writing)
        optimiser.zero_grad()
        (caption_loss + (recipe.attribute_weight if writing else 1.0) * attribute_loss).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        shown = [
            0.98 * old + 0.02 * float(new.detach())
            for old, new in zip(shown, (caption_loss, attribute_loss), strict=True)
        ]
        if (step + 1) % 250 == 0 or step + 1 == total:
            print(f"step {step + 1}: {shown[0]:.4f} {shown[1]:.4f} {check(model, dev)} "
                  f"{time.perf_counter() - began_s:.0f} s", flush=True)  # fmt: skip


@torch.no_grad()
def check(model: TorchCaptioner, dev: Sequence[Prepared]) -> str:
    """Dev: loss of the next token, share of right ids where they are in doubt, attributes by the heads."""
    model.eval()
    total, count, right, named_right = 0.0, 0, dict.fromkeys(LEVELS, 0), 0
    for start in range(0, len(dev), 100):
        chosen = dev[start : start + 100]
        batch = collate(chosen, [clip.frames for clip in chosen], [clip.statistics for clip in chosen])
        memory, mask = model.hear(batch.frames, batch.lengths, batch.statistics)
        logits = model(memory, mask, batch.ids)
        kept = batch.wanted_ids != IGNORED_ID
        total += float(functional.cross_entropy(logits[kept], batch.wanted_ids[kept], reduction="sum"))
        count += int(kept.sum())
        named_right += int((logits[kept].argmax(-1) == batch.wanted_ids[kept]).sum())
        for place, (name, guessed) in enumerate(model.attribute_logits(memory, mask).items()):
            right[name] += int((guessed.argmax(-1) == batch.levels[:, place]).sum())
    shares = " ".join(f"{name[:4]} {100 * value / len(dev):.0f}" for name, value in right.items())
    return f"dev {total / count:.4f} right {100 * named_right / count:.2f} | {shares} |"


def config_of(recipe: Recipe, num_ids: int) -> CaptionerConfig:
    return CaptionerConfig(
        spec=SPECS[recipe.features],
        sends=SPECS[recipe.sends],
        width=recipe.width,
        hidden=recipe.hidden,
        num_heads=recipe.num_heads,
        num_encoder_layers=recipe.num_encoder_layers,
        num_decoder_layers=recipe.num_decoder_layers,
        num_statistics_tokens=recipe.num_statistics_tokens,
        num_ids=num_ids,
        max_seconds=MAX_SECONDS,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", choices=sorted(RECIPES))
    parser.add_argument("cache", type=Path)
    parser.add_argument("merges", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    recipe = RECIPES[args.recipe]
    torch.manual_seed(recipe.seed)
    torch.set_num_threads(1)
    merges: Sequence[tuple[int, int]] = [tuple(pair) for pair in json.loads(args.merges.read_text())]
    tokenizer = CaptionerTokenizer(merges)
    clips = prepare(load(args.cache, "train", [recipe.features], recipe.clips_per_language), recipe, tokenizer)
    dev = prepare(load(args.cache, "dev", [recipe.features], 200), recipe, tokenizer)
    model = TorchCaptioner(config_of(recipe, tokenizer.num_ids), recipe.seed, recipe.dropout)
    fixed: Mapping[str, Float32Array] = fixed_arrays(clips, recipe)
    model.set_fixed(fixed)
    print(f"{args.recipe}: {model.num_parameters()} numbers, {len(clips)} clips", flush=True)
    train(model, clips, dev, recipe)
    save_captioner(args.out, model.config, model.exported(), merges)
    print(f"{args.out}: {args.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
