"""The clips of a caption bench: what the models hear of each recording, and what its caption should say."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import msgspec
import numpy as np

from edgedraft.backends.base import ListeningDraft
from edgedraft.caption.audio import load
from edgedraft.caption.dataset import Dataset, DatasetItem, of_each
from edgedraft.caption.excerpts import spoken_part
from edgedraft.caption.features import extract
from edgedraft.errors import InvalidRequestError
from edgedraft.speech_features import FeatureDtype, SpeechFeatures

Progress = Callable[[str], None]
MIN_LIVE_CLIPS = 2
"""With one clip, every live caption but the first would be of a recording that was heard just before."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clip:
    """`heard`: by the draft. `sent`: what the target is given. `references`: captions to score against.

    `attributes`: what the voice was made to be, affect included; empty where that is not known.
    """

    id: str
    language: str
    seconds: float
    heard: SpeechFeatures
    sent: SpeechFeatures
    references: tuple[str, ...]
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clips:
    """`listen_s_per_s`: what making the features and hearing them took the draft for a second of audio; the median."""

    clips: Sequence[Clip]
    listen_s_per_s: float

    @property
    def languages(self) -> tuple[str, ...]:
        return tuple(sorted({clip.language for clip in self.clips}))

    @property
    def counts(self) -> dict[str, int]:
        return {language: sum(clip.language == language for clip in self.clips) for language in self.languages}

    @property
    def seconds(self) -> float:
        return sum(clip.seconds for clip in self.clips)


def hear(
    dataset: Dataset, draft: ListeningDraft, languages: Sequence[str], dtype: FeatureDtype, progress: Progress
) -> Clips:
    """All recordings of a dataset as the models hear them.

    Raises `InvalidRequestError` that lists every recording that cannot be used: in a language that the draft was not
    made for, unreadable, or longer than it can hear.
    """
    unknown = sorted(set(dataset.languages) - set(languages))
    problems = [f"the draft captions in {', '.join(languages)}, not in {language}" for language in unknown]
    listened: list[float] = []
    spec = draft.info.features or draft.sends

    def clip(item: DatasetItem) -> Clip:
        recording = spoken_part(load(item.path))
        started_s = perf_counter()
        heard, sent = extract(recording, spec, FeatureDtype.FLOAT16), extract(recording, draft.sends, dtype)
        draft.listen(heard)
        listened.append((perf_counter() - started_s) / recording.seconds)
        if len(listened) % 50 == 0:
            progress(f"heard {len(listened)} of {len(dataset.items)} recordings")
        return _clip(item, recording.seconds, heard, sent)

    clips = of_each(dataset, clip, problems)
    return Clips(clips=tuple(clips), listen_s_per_s=float(np.median(listened)))


def check_apart(test: Dataset, dev: Dataset) -> None:
    """Raises `InvalidRequestError` where they share a recording: what is tuned on it says nothing when tested on it."""
    tested = {_digest(item.path): item.name for item in test.items}
    shared = [tested[digest] for item in dev.items if (digest := _digest(item.path)) in tested]
    if shared:
        raise InvalidRequestError(
            f"dev shares {len(shared)} of {len(dev.items)} recordings with the dataset, such as {shared[0]}.",
            field="dev",
            remedy="Tune on other recordings, or leave --dev out.",
        )


def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


def content_of(dataset: Dataset) -> str:
    """A digest of captions and recordings, wherever they lie."""
    found = hashlib.sha256()
    for item in dataset.items:
        said = (item.name, item.language, item.captions, item.attributes, item.affect)
        found.update(msgspec.json.encode(said) + _digest(item.path))
    return f"{len(dataset.items)} clips, sha256 {found.hexdigest()}"


def _clip(item: DatasetItem, seconds: float, heard: SpeechFeatures, sent: SpeechFeatures) -> Clip:
    attributes = {name: str(value) for name, value in item.attributes.items()}
    if attributes and item.affect:
        attributes["affect"] = item.affect
    return Clip(
        id=f"{item.language}/{item.name}",
        language=item.language,
        seconds=seconds,
        heard=heard,
        sent=sent,
        references=item.captions,
        attributes=attributes,
    )
