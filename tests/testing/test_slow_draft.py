"""A draft that takes its time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from edgedraft.backends.base import ListeningDraft
from edgedraft.errors import InvalidRequestError
from edgedraft.speech_features import POOLED_12, FeatureDtype, SpeechFeatures
from edgedraft.testing import slow_draft
from edgedraft.testing.slow_draft import SlowDraft
from edgedraft.types import Float32Array, ModelInfo

FEATURES = SpeechFeatures.of(POOLED_12, np.ones((7, 40)), FeatureDtype.INT8, -20.0)
WORK_S = 1.0


class Clock:
    """A clock that moves only where somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(slow_draft, "perf_counter", lambda: made.now_s)
    monkeypatch.setattr(slow_draft, "sleep", made.sleep)
    return made


class BusyDraft:
    """Works for `WORK_S` in each call."""

    info = ModelInfo(name="busy", engine="none", vocab_size=4, num_ids=4, eos_ids=(0,), context_length=99)
    sends = POOLED_12
    max_seconds = 12.0

    def __init__(self, clock: Clock) -> None:
        self.length = 0
        self._clock = clock

    def listen(self, features: SpeechFeatures) -> None:
        self.length = 0
        self._clock.sleep(WORK_S)

    def append(self, token_ids: Sequence[int]) -> None:
        self.length += len(token_ids)
        self._clock.sleep(WORK_S)

    def rollback(self, length: int) -> None:
        self.length = length

    def draft(self) -> Float32Array:
        self._clock.sleep(WORK_S)
        return np.array([0, 1, 2, 3], np.float32)

    def close(self) -> None:
        self.length = -1


def _drafted_s(draft: SlowDraft, clock: Clock) -> float:
    started_s = clock.now_s
    draft.append([1])
    draft.draft()
    return clock.now_s - started_s


@pytest.mark.parametrize(("step_s", "takes_s"), [(5.0, 5.0), (1.5, 2.0), (0.0, 2.0)])
def test_a_step_takes_its_time_the_models_own_included(step_s: float, takes_s: float, clock: Clock) -> None:
    draft = SlowDraft(BusyDraft(clock), step_s)
    draft.listen(FEATURES)
    draft.append([1, 2])
    draft.draft()
    assert _drafted_s(draft, clock) == takes_s
    assert _drafted_s(draft, clock) == takes_s


def test_input_is_the_recording_and_the_first_ids_and_is_counted_anew(clock: Clock) -> None:
    draft = SlowDraft(BusyDraft(clock), 9.0)
    for _ in range(2):
        draft.listen(FEATURES)
        draft.append([1, 2])
        assert draft.draft() is not None
        draft.append([3])
        assert draft.num_input_tokens == FEATURES.count + 2
        assert draft.input_s == 2 * WORK_S


def test_it_is_the_draft_that_it_slows_down(clock: Clock) -> None:
    inner = BusyDraft(clock)
    draft = SlowDraft(inner, 0.0)
    assert isinstance(draft, ListeningDraft)
    draft.listen(FEATURES)
    draft.append([1, 2])
    assert (draft.length, draft.sends, draft.info) == (2, inner.sends, inner.info)
    assert draft.max_seconds == inner.max_seconds
    draft.rollback(1)
    assert draft.length == inner.length == 1
    assert draft.draft().tolist() == [0, 1, 2, 3]
    draft.close()
    assert inner.length == -1


@pytest.mark.parametrize("step_s", [-0.1, float("nan"), 61.0])
def test_a_step_that_is_no_time_is_refused(step_s: float, clock: Clock) -> None:
    with pytest.raises(InvalidRequestError, match="step_s is"):
        SlowDraft(BusyDraft(clock), step_s)
