"""The scripts that made the demo pair: torch and numpy agree, and a few steps learn something."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")
pytest.importorskip("espeakng_loader")

from training.data import SPECS, load  # noqa: E402
from training.model import TorchCaptioner  # noqa: E402
from training.recipes import RECIPES, Recipe  # noqa: E402
from training.tokenizer import canonical_captions, learn_merges  # noqa: E402
from training.train import collate, config_of, fixed_arrays, prepare, train  # noqa: E402

from edgedraft.backends.captioner_file import load_captioner, save_captioner  # noqa: E402
from edgedraft.backends.captioner_model import CaptionerText  # noqa: E402
from edgedraft.backends.captioner_tokenizer import CaptionerTokenizer  # noqa: E402
from edgedraft.speech_features import FeatureDtype, SpeechFeatures  # noqa: E402
from training import data  # noqa: E402

SMALL = replace(RECIPES["smoke"], features="prosody_25", width=16, hidden=16, batch_clips=4, learning_rate=0.02)


@pytest.fixture(scope="module")
def merges() -> list[tuple[int, int]]:
    return learn_merges(canonical_captions(60), 500)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    for split in ("train", "dev"):
        for language in ("en", "zh"):
            data._make_shard((folder / f"{split}-{language}-000000.npz", split, language, 0, 4))
    return folder


def trained(cache: Path, merges: list[tuple[int, int]], recipe: Recipe, steps: int) -> TorchCaptioner:
    recipe = replace(recipe, steps=steps)
    tokenizer = CaptionerTokenizer(merges)
    clips = prepare(load(cache, "train", [recipe.features]), recipe, tokenizer)
    torch.manual_seed(0)
    model = TorchCaptioner(config_of(recipe, tokenizer.num_ids), 0, recipe.dropout)
    model.set_fixed(fixed_arrays(clips, recipe))
    train(model, clips, clips[:2], recipe)
    return model.eval()


def test_merges_are_ours() -> None:
    texts = canonical_captions(60)
    tokenizer = CaptionerTokenizer(learn_merges(texts, 600))
    assert tokenizer.num_ids == 600
    for text in texts:
        ids = tokenizer.encode(text, parse_special=False)
        assert len(ids) < 0.6 * len(text.encode())
        assert b"".join(map(tokenizer.token_bytes, ids)).decode() == text


@pytest.mark.parametrize("statistics_tokens", [0, 2])
def test_torch_and_numpy_agree(
    cache: Path, merges: list[tuple[int, int]], tmp_path: Path, statistics_tokens: int
) -> None:
    recipe = replace(SMALL, num_statistics_tokens=statistics_tokens, dtype=FeatureDtype.INT8)
    model = trained(cache, merges, recipe, 2)
    save_captioner(tmp_path / "small.npz", model.config, model.exported(), merges)
    numpy_model, tokenizer = load_captioner(tmp_path / "small.npz")
    for name, array in numpy_model.weights.items():
        model.weight(name).data.copy_(torch.from_numpy(array))
    examples = load(cache, "dev", [recipe.features])
    clips = prepare(examples, recipe, tokenizer)
    batch = collate(clips, [clip.frames for clip in clips], [clip.statistics for clip in clips])
    with torch.no_grad():
        memory, mask = model.hear(batch.frames, batch.lengths, batch.statistics)
        expected = model(memory, mask, batch.ids).numpy()
    for row, (clip, example) in enumerate(zip(clips, examples, strict=True)):
        sent = SpeechFeatures.of(SPECS["prosody_25"], example.features["prosody_25"], recipe.dtype, example.level_db)
        heard, text = numpy_model.hear(sent), CaptionerText(numpy_model, 256)
        rows = np.stack([numpy_model.logits(text.append(token_id, heard)) for token_id in clip.ids[:-1]])
        np.testing.assert_allclose(rows, expected[row, : len(rows)], atol=2e-4)


def test_a_few_steps_learn_and_are_the_same_again(cache: Path, merges: list[tuple[int, int]]) -> None:
    few = trained(cache, merges, SMALL, 2)
    again = trained(cache, merges, SMALL, 2)
    assert all(np.array_equal(array, again.exported()[name]) for name, array in few.exported().items())
    more = trained(cache, merges, SMALL, 60)
    clips = prepare(load(cache, "train", ["prosody_25"]), SMALL, CaptionerTokenizer(merges))
    batch = collate(clips, [clip.frames for clip in clips], [clip.statistics for clip in clips])

    def loss(model: TorchCaptioner) -> float:
        with torch.no_grad():
            logits = model(*model.hear(batch.frames, batch.lengths, batch.statistics), batch.ids)
        return float(
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.wanted_ids.flatten(), ignore_index=-1)
        )

    assert loss(more) < loss(few) - 0.5
