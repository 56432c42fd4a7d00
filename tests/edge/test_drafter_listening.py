"""Recordings on their way to the draft's thread."""

from __future__ import annotations

import numpy as np
import pytest

from edgedraft.backends.toy import ToyDraft
from edgedraft.backends.toy_model import ToyModel, ToySettings
from edgedraft.core.events import DraftNext
from edgedraft.edge.drafter import DraftOrder, DraftSequence
from edgedraft.errors import BackendError
from edgedraft.speech_features import POOLED_12, FeatureDtype, SpeechFeatures
from edgedraft.types import Rule, SamplingParams

MODEL = ToyModel(ToySettings.parse("vocab=64,seed=3"))


class ListeningToy(ToyDraft):
    """Counts how often it hears something."""

    sends = POOLED_12
    max_seconds = 30.0

    def __init__(self) -> None:
        super().__init__(MODEL)
        self.heard: list[SpeechFeatures] = []

    def listen(self, features: SpeechFeatures) -> None:
        self.heard.append(features)
        self.rollback(0)


def recording(seed: int) -> SpeechFeatures:
    values = np.random.default_rng(seed).normal(size=(5, 40))
    return SpeechFeatures.of(POOLED_12, values, FeatureDtype.FLOAT16, -20.0)


def order(features: SpeechFeatures | None) -> DraftOrder:
    return DraftOrder(
        sampling=SamplingParams(), rule=Rule.RANK, num_ids=MODEL.num_ids, num_prompt=2, reuse=False, features=features
    )


def never() -> bool:
    return False


def test_a_recording_is_heard_once_before_its_first_token() -> None:
    backend, one, other = ListeningToy(), recording(1), recording(2)
    sequence = DraftSequence(backend)
    first = sequence.step(DraftNext(0, 2, 0, [1, 2]), order(one), never)
    assert first is not None
    sequence.step(DraftNext(0, 3, 2, [first.token_id]), order(one), never)
    assert backend.heard == [one]
    assert backend.length == 3
    sequence.step(DraftNext(0, 2, 0, [1, 2]), order(other), never)
    assert backend.heard == [one, other]
    assert backend.length == 2
    sequence.step(DraftNext(0, 2, 0, [1, 2]), order(one), never)
    assert backend.heard == [one, other, one]


def test_after_a_failure_it_is_heard_again() -> None:
    backend, one = ListeningToy(), recording(1)
    sequence = DraftSequence(backend)
    with pytest.raises(BackendError):
        sequence.step(DraftNext(0, 9, 9, []), order(one), never)
    sequence.step(DraftNext(0, 2, 0, [1, 2]), order(one), never)
    assert backend.heard == [one, one]


def test_a_draft_of_text_cannot_listen() -> None:
    with pytest.raises(BackendError, match="takes text only"):
        DraftSequence(ToyDraft(MODEL)).step(DraftNext(0, 2, 0, [1, 2]), order(recording(1)), never)
