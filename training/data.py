"""Make clips and keep their features: `python -m training.data CACHE` (about ten CPU minutes)."""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgedraft.caption.attributes import caption
from edgedraft.caption.features import feature_values, level_db
from edgedraft.caption.mel import pool_mean
from edgedraft.caption.phrases import LANGUAGES
from edgedraft.caption.synthetic import make_clip
from edgedraft.speech_features import POOLED_12, POOLED_25, PROSODY_12, PROSODY_25, FeatureSpec
from edgedraft.types import Float32Array

SPECS: dict[str, FeatureSpec] = {
    "pooled_25": POOLED_25,
    "pooled_12": POOLED_12,
    "prosody_25": PROSODY_25,
    "prosody_12": PROSODY_12,
}
_KEPT = ("pooled_25", "prosody_25", "prosody_12")
SEED = 1
SHARD_CLIPS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One clip as the models see it. `features`: by name in `SPECS`, float32, shape (count, dims), not quantised."""

    language: str
    attributes: dict[str, str]
    captions: list[str]
    level_db: float
    features: dict[str, Float32Array]


def _make_shard(job: tuple[Path, str, str, int, int]) -> None:
    path, split, language, start, stop = job
    if path.exists():
        return
    records, arrays = [], {}
    for number in range(start, stop):
        clip = make_clip(split, language, number, SEED)
        for name in _KEPT:
            arrays[f"{name}-{number - start}"] = feature_values(clip.waveform, SPECS[name])
        records.append(
            {
                "language": language,
                "attributes": dict(clip.attributes),
                "captions": list(clip.captions),
                "level_db": level_db(clip.waveform),
            }
        )
    np.savez(path, records=np.frombuffer(json.dumps(records).encode(), np.uint8), **arrays)  # type: ignore[arg-type]


def make(cache: Path, sizes: dict[str, int], num_processes: int) -> None:
    """Fill `cache`; what is there is kept. `sizes`: clips a language, by split."""
    cache.mkdir(parents=True, exist_ok=True)
    jobs = [
        (cache / f"{split}-{language}-{start:06d}.npz", split, language, start, min(start + SHARD_CLIPS, size))
        for split, size in sizes.items()
        for start in range(0, size, SHARD_CLIPS)
        for language in LANGUAGES
    ]
    with multiprocessing.get_context("spawn").Pool(num_processes) as pool:
        for number, _ in enumerate(pool.imap_unordered(_make_shard, jobs)):
            print(f"{number + 1} of {len(jobs)} shards", flush=True)


def _features(shard: Mapping[str, Float32Array], name: str, number: int) -> Float32Array:
    """`pooled_12` is pooled from `pooled_25`, which differs from the extractor's only in the last vector of a clip."""
    if name in _KEPT:
        return shard[f"{name}-{number}"]
    return pool_mean(shard[f"pooled_25-{number}"], 2).astype(np.float32)


def load(cache: Path, split: str, names: Sequence[str], max_per_language: int | None = None) -> list[Example]:
    """Examples of a split, languages in turn, with the features of `names`."""
    held: dict[str, list[Example]] = {}
    for language in LANGUAGES:
        found = held.setdefault(language, [])
        for path in sorted(cache.glob(f"{split}-{language}-*.npz")):
            if max_per_language is not None and len(found) >= max_per_language:
                break
            with np.load(path, allow_pickle=False) as shard:
                for number, record in enumerate(json.loads(shard["records"].tobytes())):
                    record["captions"][0] = caption(record["attributes"], language)  # phrases may change, sounds not
                    features = {name: _features(shard, name, number) for name in names}
                    found.append(Example(features=features, **record))
        held[language] = found[:max_per_language]
    return [example for pair in zip(*held.values(), strict=True) for example in pair]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--train", type=int, default=7_500, help="clips a language")
    parser.add_argument("--dev", type=int, default=500)
    parser.add_argument("--test", type=int, default=500)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    make(args.cache, {"dev": args.dev, "test": args.test, "train": args.train}, args.processes)


if __name__ == "__main__":
    main()
