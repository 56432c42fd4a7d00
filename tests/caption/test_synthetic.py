"""Synthetic recordings: the same from the same seed, as they are described, and disjoint between splits."""

from __future__ import annotations

import hashlib
import itertools
import json
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest

from edgedraft.caption.attributes import caption, read_attributes
from edgedraft.caption.phrases import LANGUAGES, LEVELS
from edgedraft.caption.sentences import SENTENCES
from edgedraft.caption.synthetic import AFFECTS, NUM_SPEAKERS, Clip, make_clip, make_clips, speaker
from edgedraft.errors import InvalidRequestError, UnsupportedError

pytest.importorskip("espeakng_loader")

DIGEST = (
    "import hashlib; from edgedraft.caption.synthetic import make_clip; "
    "print(hashlib.sha256(b''.join(make_clip(s, l, n, 7).waveform.tobytes() "
    "for s, l, n in [('test', 'zh', 1), ('train', 'en', 2), ('dev', 'en', 3)])).hexdigest())"
)


def clips(count: int) -> list[Clip]:
    return [make_clip("dev", language, number, 3) for language in LANGUAGES for number in range(count)]


def test_another_process_and_another_order_make_the_same_samples() -> None:
    other = subprocess.run([sys.executable, "-c", DIGEST], capture_output=True, text=True, check=True).stdout.strip()
    wanted = [("test", "zh", 1), ("train", "en", 2), ("dev", "en", 3)]
    made = {key: make_clip(*key, 7).waveform.tobytes() for key in [*reversed(wanted), ("train", "zh", 9), *wanted]}
    assert hashlib.sha256(b"".join(made[key] for key in wanted)).hexdigest() == other


def test_a_seed_and_a_number_make_another_clip() -> None:
    first = make_clip("dev", "en", 0, 0)
    for other in (make_clip("dev", "en", 1, 0), make_clip("dev", "en", 0, 1)):
        assert not np.array_equal(first.waveform, other.waveform)


def test_a_clip_is_a_short_recording_of_16_bits() -> None:
    for clip in clips(15):
        assert clip.waveform.dtype == np.float32
        assert 1.0 < len(clip.waveform) / 16_000 < 8.0
        samples = clip.waveform.astype(np.float64) * 32768
        assert np.array_equal(samples, np.round(samples))
        assert 0.003 < np.abs(clip.waveform).max() <= 1.0


def test_captions_say_what_was_drawn() -> None:
    for clip in clips(10):
        assert clip.captions[0] == caption(clip.attributes, clip.language)
        assert len(clip.captions) == 5
        assert all(read_attributes(text, clip.language) == clip.attributes for text in clip.captions)


def test_loudness_rate_and_noise_are_heard() -> None:
    made = clips(40)
    level = {name: [] for name in LEVELS["loudness"]}
    for clip in made:
        level[clip.attributes["loudness"]].append(20 * np.log10(np.sqrt(np.mean(clip.waveform.astype(float) ** 2))))
    assert max(level["soft"]) < min(level["medium"])
    assert max(level["medium"]) < min(level["loud"])
    seconds = {rate: [len(c.waveform) for c in made if c.attributes["rate"] == rate] for rate in ("slow", "fast")}
    assert np.median(seconds["slow"]) > 1.3 * np.median(seconds["fast"])
    quiet, noisy = (
        np.median([np.std(c.waveform[:400]) / np.std(c.waveform) for c in made if c.attributes["noise"] == noise])
        for noise in ("quiet", "noisy")
    )
    assert noisy > 10 * quiet


def test_splits_share_neither_sentences_nor_speakers() -> None:
    for language in LANGUAGES:
        for one, other in itertools.combinations(SENTENCES[language], 2):
            for part in (0, 1):
                assert not set(SENTENCES[language][one][part]) & set(SENTENCES[language][other][part])
    voices = [speaker(split, number, "en") for split in NUM_SPEAKERS for number in range(NUM_SPEAKERS[split])]
    assert len({voice.formants for voice in voices}) == len(voices)
    assert NUM_SPEAKERS["train"] >= 40


def test_affects_are_distributions_over_levels() -> None:
    assert tuple(AFFECTS) == LEVELS["affect"]
    for attributes in AFFECTS.values():
        for attribute, likely in attributes.items():
            assert len(likely) == len(LEVELS[attribute])
            assert sum(likely) == pytest.approx(1.0)


def test_a_folder_is_made(tmp_path: Path) -> None:
    listing = make_clips(tmp_path / "set", "test", 2, seed=5)
    records = [json.loads(line) for line in listing.read_text(encoding="utf-8").splitlines()]
    assert [record["language"] for record in records] == ["en", "en", "zh", "zh"]
    for record in records:
        with wave.open(str(listing.parent / record["file"])) as file:
            assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16_000, 1, 2)
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        number = int(record["file"][-9:-4])
        clip = make_clip("test", record["language"], number, 5)
        assert np.array_equal(samples, clip.waveform * 32768)
        assert record["captions"] == list(clip.captions)
        assert record["affect"] == record["attributes"]["affect"] == clip.attributes["affect"]


def test_what_stands_in_a_folder_is_not_overwritten(tmp_path: Path) -> None:
    listing = make_clips(tmp_path, "test", 2, seed=5)
    before = listing.read_bytes()
    for split, seed in (("dev", 5), ("test", 6)):
        with pytest.raises(InvalidRequestError, match=rf"{listing} is there already.*'{split}' of seed {seed}"):
            make_clips(tmp_path, split, 2, seed)
    assert listing.read_bytes() == before
    assert len(list(tmp_path.glob("*.wav"))) == 4
    own = tmp_path / "own" / "captions.jsonl"
    own.parent.mkdir()
    own.write_bytes(b"\xff not ours")
    with pytest.raises(InvalidRequestError, match="is there already"):
        make_clips(own.parent, "test", 1)
    assert own.read_bytes() == b"\xff not ours"


def test_the_same_dataset_is_made_again_and_longer(tmp_path: Path) -> None:
    listing = make_clips(tmp_path, "test", 1, seed=5)
    before = listing.read_bytes()
    make_clips(tmp_path, "test", 1, seed=5)
    assert listing.read_bytes() == before
    make_clips(tmp_path, "test", 2, seed=5)
    assert len(listing.read_bytes().splitlines()) == 4
    listing.write_bytes(b"")  # as a run leaves it that was ended at its first clip
    make_clips(tmp_path, "test", 1, seed=5)
    assert listing.read_bytes() == before


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="split is 'valid'; legal: train, dev, test"):
        make_clip("valid", "en", 0, 0)
    with pytest.raises(InvalidRequestError, match="language is 'fr'"):
        make_clip("dev", "fr", 0, 0)
    with pytest.raises(InvalidRequestError, match="num_per_language is 0"):
        make_clips(tmp_path, "dev", 0)
    assert not list(tmp_path.iterdir())


def test_without_the_library_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgedraft.caption import espeak

    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    with pytest.raises(UnsupportedError, match="pip install"):
        espeak.Espeak()
