"""Synthetic recordings whose voice and affect are known, with reference captions. The same seed, the same samples.

Each clip draws an affect, then from the affect how it is voiced (`AFFECTS`, nine times in ten; else evenly), then a
speaker, a sentence and the numbers within each level. Speakers and sentences of train, dev and test are disjoint.
"""

from __future__ import annotations

import json
import wave
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgedraft.caption.attributes import caption, check_language, paraphrases
from edgedraft.caption.espeak import Voice, espeak
from edgedraft.caption.mel import SAMPLE_RATE_HZ
from edgedraft.caption.phrases import LANGUAGES, LEVELS
from edgedraft.caption.sentences import SENTENCES
from edgedraft.errors import InvalidRequestError
from edgedraft.types import Float32Array

NUM_SPEAKERS: Mapping[str, int] = {"train": 60, "dev": 12, "test": 12}
"""Every other one is a woman."""
NUM_PARAPHRASES = 4

_ACCENTS = {
    "train": ("gmw/en-US", "gmw/en", "gmw/en-GB-x-rp", "gmw/en-GB-scotland"),
    "dev": ("gmw/en-US-nyc", "gmw/en"),
    "test": ("gmw/en-GB-x-gbclan", "gmw/en-US"),
}
_KLATT_SOURCES = {"train": (1, 3), "dev": (2,), "test": (4,)}
_SPEAKER_SEED = 20260312

# Affect: how likely the levels of an attribute are, in the order of LEVELS; what is missing is even.
AFFECTS: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "angry": {
        "rate": (0.02, 0.28, 0.7),
        "loudness": (0.02, 0.08, 0.9),
        "pitch": (0.1, 0.6, 0.3),
        "intonation": (0.1, 0.2, 0.7),
        "tremor": (0.9, 0.1),
        "breath": (0.95, 0.05),
        "pauses": (0.9, 0.1),
    },
    "excited": {
        "rate": (0.0, 0.15, 0.85),
        "loudness": (0.02, 0.33, 0.65),
        "pitch": (0.0, 0.1, 0.9),
        "intonation": (0.0, 0.1, 0.9),
        "tremor": (0.95, 0.05),
        "breath": (0.85, 0.15),
        "pauses": (0.95, 0.05),
    },
    "happy": {
        "rate": (0.05, 0.75, 0.2),
        "loudness": (0.05, 0.8, 0.15),
        "pitch": (0.0, 0.3, 0.7),
        "intonation": (0.02, 0.18, 0.8),
        "tremor": (0.98, 0.02),
        "breath": (0.95, 0.05),
        "pauses": (0.95, 0.05),
    },
    "surprised": {
        "rate": (0.1, 0.75, 0.15),
        "loudness": (0.05, 0.45, 0.5),
        "pitch": (0.0, 0.2, 0.8),
        "intonation": (0.0, 0.1, 0.9),
        "tremor": (0.95, 0.05),
        "breath": (0.3, 0.7),
        "pauses": (0.15, 0.85),
    },
    "fearful": {
        "rate": (0.05, 0.2, 0.75),
        "loudness": (0.8, 0.18, 0.02),
        "pitch": (0.0, 0.15, 0.85),
        "intonation": (0.45, 0.5, 0.05),
        "tremor": (0.1, 0.9),
        "breath": (0.5, 0.5),
        "pauses": (0.6, 0.4),
    },
    "sad": {
        "rate": (0.85, 0.15, 0.0),
        "loudness": (0.85, 0.15, 0.0),
        "pitch": (0.65, 0.33, 0.02),
        "intonation": (0.7, 0.28, 0.02),
        "tremor": (0.4, 0.6),
        "breath": (0.5, 0.5),
        "pauses": (0.2, 0.8),
    },
    "bored": {
        "rate": (0.75, 0.25, 0.0),
        "loudness": (0.15, 0.83, 0.02),
        "pitch": (0.75, 0.23, 0.02),
        "intonation": (0.9, 0.1, 0.0),
        "tremor": (0.98, 0.02),
        "breath": (0.85, 0.15),
        "pauses": (0.8, 0.2),
    },
    "calm": {
        "rate": (0.15, 0.83, 0.02),
        "loudness": (0.1, 0.88, 0.02),
        "pitch": (0.15, 0.8, 0.05),
        "intonation": (0.08, 0.9, 0.02),
        "tremor": (1.0, 0.0),
        "breath": (0.92, 0.08),
        "pauses": (0.9, 0.1),
    },
    "tender": {
        "rate": (0.75, 0.25, 0.0),
        "loudness": (0.85, 0.15, 0.0),
        "pitch": (0.1, 0.55, 0.35),
        "intonation": (0.1, 0.8, 0.1),
        "tremor": (0.97, 0.03),
        "breath": (0.15, 0.85),
        "pauses": (0.85, 0.15),
    },
    "scornful": {
        "rate": (0.5, 0.48, 0.02),
        "loudness": (0.05, 0.35, 0.6),
        "pitch": (0.7, 0.28, 0.02),
        "intonation": (0.1, 0.5, 0.4),
        "tremor": (0.98, 0.02),
        "breath": (0.92, 0.08),
        "pauses": (0.3, 0.7),
    },
}
_EVEN_SHARE = 0.1

_WORDS_PER_MINUTE = {"slow": (105, 130), "medium": (160, 185), "fast": (230, 280)}
_LEVEL_DB = {"soft": (-41.0, -34.0), "medium": (-29.0, -23.0), "loud": (-18.0, -13.0)}
_MIDDLE_HZ = {
    "woman": {"low": (148.0, 170.0), "medium": (195.0, 225.0), "high": (265.0, 320.0)},
    "man": {"low": (76.0, 92.0), "medium": (110.0, 130.0), "high": (155.0, 190.0)},
}
_SPAN = {"flat": (1.02, 1.08), "even": (1.35, 1.55), "lively": (2.1, 2.6)}
"""Highest pitch of a sentence over its lowest."""
_NOISE_DB = {"quiet": (-55.0, -45.0), "noisy": (-18.0, -10.0)}
"""Of the noise, over the speech."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """`waveform`: float32, 16 kHz, shape (num_samples,), exactly what 16-bit samples hold. `captions`: the canonical
    one, then paraphrases. `text`: what is said."""

    language: str
    text: str
    speaker: int
    attributes: Mapping[str, str]
    captions: tuple[str, ...]
    waveform: Float32Array


def speaker(split: str, number: int, language: str) -> Voice:
    """Speaker `number` of a split; even numbers are women. Formants differ in size and, less, one from another."""
    generator = np.random.default_rng([_SPEAKER_SEED, list(NUM_SPEAKERS).index(split), number])
    size = generator.uniform(107, 122) if number % 2 == 0 else generator.uniform(89, 103)
    formants = tuple(int(size * factor) for factor in generator.uniform(0.96, 1.04, size=9))
    accents, sources = _ACCENTS[split], _KLATT_SOURCES[split]
    return Voice(
        accent=accents[number // 2 % len(accents)] if language == "en" else "sit/cmn",
        formants=formants,
        klatt=int(generator.choice(sources)) if number // 2 % 4 == 3 else 0,
        roughness=int(generator.integers(0, 4)),
        consonants=int(generator.integers(80, 121)),
    )


def _drawn_attributes(generator: np.random.Generator) -> dict[str, str]:
    affect = str(generator.choice(LEVELS["affect"]))
    drawn = {"voice": str(generator.choice(LEVELS["voice"]))}
    for attribute in ("rate", "loudness", "pitch", "intonation", "tremor", "breath", "pauses", "noise"):
        levels = LEVELS[attribute]
        likely = AFFECTS[affect].get(attribute) if generator.random() >= _EVEN_SHARE else None
        drawn[attribute] = str(generator.choice(levels, p=likely))
    return {**drawn, "affect": affect}


def _within(generator: np.random.Generator, bounds: tuple[float, float]) -> float:
    return float(generator.uniform(*bounds))


def _spoken(
    attributes: Mapping[str, str], sentence: tuple[str, str], voice: Voice, generator: np.random.Generator
) -> Float32Array:
    middle_hz = _within(generator, _MIDDLE_HZ[attributes["voice"]][attributes["pitch"]])
    span = _within(generator, _SPAN[attributes["intonation"]]) ** 0.5
    words_per_minute = int(_within(generator, _WORDS_PER_MINUTE[attributes["rate"]]))
    pause = f'<break time="{int(generator.integers(450, 800))}ms"/>' if attributes["pauses"] == "long" else " "
    text = f"{sentence[0]}{pause}{sentence[1]}"
    return espeak().speak(
        text, voice, low_hz=middle_hz / span, high_hz=middle_hz * span, words_per_minute=words_per_minute
    )


def _trembling(waveform: Float32Array, generator: np.random.Generator) -> Float32Array:
    """Pitch and loudness swing five to eight times a second."""
    rate_hz, phase = _within(generator, (5.0, 8.0)), _within(generator, (0.0, 2 * np.pi))
    swing = 2 * np.pi * rate_hz * np.arange(len(waveform)) / SAMPLE_RATE_HZ + phase
    depth_samples = _within(generator, (0.03, 0.05)) * SAMPLE_RATE_HZ / (2 * np.pi * rate_hz)
    places = np.arange(len(waveform)) + depth_samples * np.sin(swing)
    warped = np.interp(places, np.arange(len(waveform)), waveform)
    warped *= 1.0 - _within(generator, (0.25, 0.4)) * (1.0 + np.sin(swing))
    trembling: Float32Array = warped.astype(np.float32)
    return trembling


def _breathy(waveform: Float32Array, generator: np.random.Generator) -> Float32Array:
    """Hiss that follows the loudness of the voice."""
    width = SAMPLE_RATE_HZ // 50
    loudness = np.sqrt(np.convolve(waveform.astype(np.float64) ** 2, np.ones(width) / width, mode="same"))
    hiss = np.diff(generator.standard_normal(len(waveform) + 1)) * 0.7
    return (0.7 * waveform + _within(generator, (0.28, 0.45)) * loudness * hiss).astype(np.float32)


def _recorded(waveform: Float32Array, attributes: Mapping[str, str], generator: np.random.Generator) -> Float32Array:
    """Brought to its level, between stretches of room, with noise and a microphone's tilt; rounded to 16 bits."""
    level = 10.0 ** (_within(generator, _LEVEL_DB[attributes["loudness"]]) / 20.0)
    speech = waveform * (level / np.sqrt(np.mean(waveform.astype(np.float64) ** 2)))
    before, after = (int(_within(generator, (0.05, 0.3)) * SAMPLE_RATE_HZ) for _ in range(2))
    speech = np.concatenate([np.zeros(before), speech, np.zeros(after)])
    white = generator.standard_normal(len(speech))
    noise_level = level * 10.0 ** (_within(generator, _NOISE_DB[attributes["noise"]]) / 20.0)
    mixed = speech + noise_level * white
    tilt = _within(generator, (-0.3, 0.3))
    tilted = mixed + tilt * np.concatenate([[0.0], mixed[:-1]])
    rounded: Float32Array = (np.round(np.clip(tilted, -1.0, 32767 / 32768) * 32768) / 32768).astype(np.float32)
    return rounded


def make_clip(split: str, language: str, number: int, seed: int) -> Clip:
    """Clip `number` of a split, of about one to six seconds; it depends on nothing but the arguments.

    Raises `InvalidRequestError` for an unknown split or language, `UnsupportedError` without espeakng_loader.
    """
    check_language(language)
    if split not in NUM_SPEAKERS:
        raise InvalidRequestError(f"split is '{split}'; legal: {', '.join(NUM_SPEAKERS)}.", field="split")
    keys = [seed, list(NUM_SPEAKERS).index(split), LANGUAGES.index(language), number]
    generator = np.random.default_rng(keys)
    attributes = _drawn_attributes(generator)
    who = 2 * int(generator.integers(NUM_SPEAKERS[split] // 2)) + (attributes["voice"] == "man")
    beginnings, ends = SENTENCES[language][split]
    sentence = str(generator.choice(beginnings)), str(generator.choice(ends))
    waveform = _spoken(attributes, sentence, speaker(split, who, language), generator)
    if attributes["breath"] == "breathy":
        waveform = _breathy(waveform, generator)
    if attributes["tremor"] == "strong":
        waveform = _trembling(waveform, generator)
    return Clip(
        language=language,
        text=" ".join(sentence) if language == "en" else "".join(sentence),
        speaker=who,
        attributes=attributes,
        captions=(caption(attributes, language), *paraphrases(attributes, language, NUM_PARAPHRASES, generator)),
        waveform=_recorded(waveform, attributes, generator),
    )


def make_clips(out_dir: Path, split: str, num_per_language: int, seed: int = 0) -> Path:
    """Write `{split}-{language}-{number}.wav` (16 kHz, 16 bit, mono) and `captions.jsonl`, whose path is returned.

    A line of it is {"file", "language", "captions" (canonical first), "attributes", "affect", "text", "speaker"}.
    Raises as `make_clip`, and `InvalidRequestError` for fewer than one clip and where `out_dir` holds the captions of
    another dataset; more or fewer clips of the same split and seed replace what is there.
    """
    if num_per_language < 1:
        raise InvalidRequestError(
            f"num_per_language is {num_per_language}; legal: 1 or more.", field="num_per_language"
        )
    espeak()  # where it is missing, no empty folder is left
    listing = out_dir / "captions.jsonl"
    _check_free(listing, split, seed)
    out_dir.mkdir(parents=True, exist_ok=True)
    with listing.open("w", encoding="utf-8") as lines:
        for language in LANGUAGES:
            for number in range(num_per_language):
                clip = make_clip(split, language, number, seed)
                file = _file_name(split, language, number)
                write_wav(out_dir / file, clip.waveform)
                lines.write(_line(file, clip))
    return listing


def _check_free(listing: Path, split: str, seed: int) -> None:
    """The first line tells a dataset from others: another split or seed, or recordings of the user's own."""
    try:
        with listing.open(encoding="utf-8", errors="replace") as lines:
            found = lines.readline()
    except FileNotFoundError:
        return
    first = LANGUAGES[0], 0
    if found not in ("", _line(_file_name(split, *first), make_clip(split, *first, seed))):
        raise InvalidRequestError(
            f"{listing} is there already, with other recordings than split '{split}' of seed {seed}.",
            field="out_dir",
            remedy="Name another directory, or delete that file.",
        )


def _file_name(split: str, language: str, number: int) -> str:
    return f"{split}-{language}-{number:05d}.wav"


def _line(file: str, clip: Clip) -> str:
    record = {
        "file": file,
        "language": clip.language,
        "captions": list(clip.captions),
        "attributes": dict(clip.attributes),
        "affect": clip.attributes["affect"],
        "text": clip.text,
        "speaker": clip.speaker,
    }
    return json.dumps(record, ensure_ascii=False) + "\n"


def write_wav(path: Path, waveform: Float32Array) -> None:
    """16 kHz, 16 bit, mono."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE_HZ)
        file.writeframes(np.round(waveform * 32768.0).astype("<i2").tobytes())
