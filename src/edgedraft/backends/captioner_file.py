"""The file of a captioner model: a numpy archive with its sizes, its tokenizer and its weights in half precision."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from edgedraft.backends.captioner_model import Captioner, CaptionerConfig, shapes
from edgedraft.backends.captioner_tokenizer import CaptionerTokenizer
from edgedraft.errors import InvalidRequestError, ModelFileError
from edgedraft.speech_features import FeatureKind, FeatureSpec
from edgedraft.types import Float32Array

FORMAT = "edgedraft-captioner-1"
_SPECS = ("spec", "sends")


def save_captioner(
    path: Path, config: CaptionerConfig, weights: Mapping[str, Float32Array], merges: Sequence[tuple[int, int]]
) -> None:
    """Write a model that `load_captioner` reads. Raises `ModelFileError` where an array is missing or misshapen."""
    _check_weights(path, config, weights)
    header = json.dumps({"format": FORMAT, "config": asdict(config)})
    arrays: dict[str, Any] = {name: weights[name].astype("<f2") for name in shapes(config)}
    np.savez_compressed(
        path,
        allow_pickle=False,
        header=np.frombuffer(header.encode(), np.uint8),
        merges=np.array(merges, "<u2").reshape(-1, 2),
        **arrays,
    )


def load_captioner(path: Path) -> tuple[Captioner, CaptionerTokenizer]:
    """Raises `ModelFileError` for a file that is missing, cut short, of another kind, or does not fit together."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays.pop("header").tobytes())
        if header["format"] != FORMAT:
            raise ModelFileError(f"'{path}' has format '{header['format']}'; '{FORMAT}' is read here.")
        config = _config(header["config"])
        tokenizer = CaptionerTokenizer([(int(left), int(right)) for left, right in arrays.pop("merges")])
        weights = {name: array.astype(np.float32) for name, array in arrays.items()}
    except FileNotFoundError as error:
        raise ModelFileError(
            f"there is no file '{path}'.", remedy="Write captioner:edge, captioner:cloud or captioner:PATH."
        ) from error
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
        InvalidRequestError,
    ) as error:
        raise ModelFileError(
            f"'{path}' is no captioner model, or not all of it ({type(error).__name__}).", remedy="Copy it again."
        ) from error
    if tokenizer.num_ids != config.num_ids:
        raise ModelFileError(f"'{path}' has {config.num_ids} ids, its tokenizer {tokenizer.num_ids}.")
    _check_weights(path, config, weights)
    return Captioner(config, weights), tokenizer


def _config(fields: dict[str, Any]) -> CaptionerConfig:
    specs = {name: FeatureSpec(**{**fields[name], "kind": FeatureKind(fields[name]["kind"])}) for name in _SPECS}
    return CaptionerConfig(**{**fields, **specs})


def _check_weights(path: Path, config: CaptionerConfig, weights: Mapping[str, Float32Array]) -> None:
    for name, shape in shapes(config).items():
        found = weights.get(name)
        if found is None or found.shape != tuple(shape):
            has = "is missing" if found is None else f"has shape {found.shape}"
            raise ModelFileError(f"'{path}': array '{name}' {has}; legal: shape {tuple(shape)}.")
        if not np.isfinite(found).all():
            raise ModelFileError(f"'{path}': array '{name}' holds NaN or infinity.")
