"""A slower device than this one: a draft that listens, whose every token takes at least a given time.

For measurements only. It also tells how long the draft took to take its input in, which the product has no need of.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter, sleep

from edgedraft.backends.base import ListeningDraft
from edgedraft.errors import InvalidRequestError
from edgedraft.speech_features import SpeechFeatures
from edgedraft.types import Float32Array


class SlowDraft:
    """A `ListeningDraft` around another. It waits idly, so it uses no more of the processor than the other.

    `step_s`: what a drafted token takes at least, the time of taking in the one before included; 0 slows nothing down.
    Taking in recording and prompt is never slowed down. Raises `InvalidRequestError` for a step that is no time.

    `input_s`, `num_input_tokens`: of the newest recording, how long `listen` and the first `append` took, and how much
    they took in: vectors of features, and ids.
    """

    def __init__(self, draft: ListeningDraft, step_s: float) -> None:
        if not 0.0 <= step_s <= 60.0:
            raise InvalidRequestError(f"step_s is {step_s}; legal: 0 to 60 seconds.", field="step_s")
        self.info = draft.info
        self.sends = draft.sends
        self.max_seconds = draft.max_seconds
        self.length = draft.length
        self.input_s = 0.0
        self.num_input_tokens = 0
        self._draft = draft
        self._step_s = step_s
        self._spent_s = 0.0
        self._awaits_prompt = False

    def listen(self, features: SpeechFeatures) -> None:
        started_s = perf_counter()
        self._draft.listen(features)
        self.length = self._draft.length
        self.input_s = perf_counter() - started_s
        self.num_input_tokens = features.count
        self._awaits_prompt = True

    def append(self, token_ids: Sequence[int]) -> None:
        started_s = perf_counter()
        self._draft.append(token_ids)
        self.length = self._draft.length
        took_s = perf_counter() - started_s
        if self._awaits_prompt:
            self.input_s += took_s
            self.num_input_tokens += len(token_ids)
            self._awaits_prompt = False
        else:
            self._spent_s += took_s

    def rollback(self, length: int) -> None:
        self._draft.rollback(length)
        self.length = length

    def draft(self) -> Float32Array:
        started_s = perf_counter()
        row = self._draft.draft()
        left_s = self._step_s - self._spent_s - (perf_counter() - started_s)
        self._spent_s = 0.0
        if left_s > 0:
            sleep(left_s)
        return row

    def close(self) -> None:
        self._draft.close()
