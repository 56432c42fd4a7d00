"""One log as a thinker reads it: the recording before it, and the chat template's headers in their places.

Positions of the log count its ids alone. In the cache the frame and the audio come on top: what stands before the log
is there from the first id on, what follows the request's `<|im_end|>` (the assistant's header) from that id on. A row
after an id of the log is the one after all that belongs to it, so the row after the request starts the caption.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgedraft.backends.qwen_omni_engine import Thinker
from edgedraft.backends.qwen_omni_prompts import Frame
from edgedraft.backends.transformers_engine import TextCache
from edgedraft.errors import ContextLengthError, InvalidRequestError
from edgedraft.speech_features import LOGMEL_128, SpeechFeatures
from edgedraft.types import Float32Array

MIN_SECONDS, MAX_SECONDS = 0.1, 30.0


def check_features(features: SpeechFeatures) -> None:
    """Raises `UnsupportedError` for another spec than `LOGMEL_128`, `ContextLengthError` above 30 s, and
    `InvalidRequestError` below 0.1 s.
    """
    LOGMEL_128.require(features.spec)
    legal = f"the recording is {features.seconds:g} s long; legal: {MIN_SECONDS:g} to {MAX_SECONDS:g} s."
    if features.seconds > MAX_SECONDS:
        raise ContextLengthError(legal, field="features", remedy="Split it at pauses.")
    if features.seconds < MIN_SECONDS:
        raise InvalidRequestError(legal, field="features", remedy="Record for longer.")


class Transcript:
    """`ids`: the log's ids that are evaluated. `features`: the recording, None before the first."""

    def __init__(self, thinker: Thinker, frame: Frame) -> None:
        self._thinker = thinker
        self._frame = frame
        self._text = TextCache()
        self._num_before = 0  # cached before the log: the frame's beginning and the audio
        self._turn_end: int | None = None  # where the log ends the request
        self.features: SpeechFeatures | None = None
        self.ids: list[int] = []

    @property
    def length(self) -> int:
        return len(self.ids)

    @property
    def begun(self) -> bool:
        """Whether the recording is evaluated."""
        return self._num_before > 0

    def hear(self, features: SpeechFeatures) -> None:
        """Take another recording, forgetting all else. Raises what `check_features` does; runs no model."""
        check_features(features)
        self.forget()
        self.features = features

    def forget(self) -> None:
        """Forget everything, the recording as well."""
        self.rollback(0)
        self._text.rollback(0)
        self._num_before = 0
        self.features = None

    def begin(self) -> None:
        """Evaluate the recording, once. Raises `InvalidRequestError` where there is none."""
        if self.features is None:
            raise InvalidRequestError(
                "no recording has been heard; legal: one before the first token.",
                field="features",
                remedy="Let the model listen to a recording first.",
            )
        if not self.begun:
            self._thinker.begin(self._text, self._frame.before_audio, self.features, self._frame.after_audio)
            self._num_before = self._text.length

    def append(self, token_ids: Sequence[int], num_rows: int) -> Float32Array:
        """Evaluate ids; the rows after the last `num_rows` of them: float32, shape (num_rows, num_ids)."""
        if not token_ids:
            return np.empty((0, self._thinker.num_ids), dtype=np.float32)
        self.begin()
        cached_ids: list[int] = []
        places: list[int] = []
        turn_end = self._turn_end
        for position, token_id in enumerate(token_ids, self.length):
            cached_ids.append(token_id)
            if turn_end is None and token_id == self._frame.turn_end_id:
                turn_end = position
                cached_ids += self._frame.after_turn
            places.append(len(cached_ids) - 1)
        rows = self._thinker.evaluate(self._text, cached_ids, places[len(places) - num_rows :])
        self.ids += token_ids
        self._turn_end = turn_end
        return rows

    def rollback(self, length: int) -> None:
        """Forget the log's ids from `length` on; the recording stays."""
        if length >= self.length:
            return
        del self.ids[length:]
        if self._turn_end is not None and self._turn_end >= length:
            self._turn_end = None
        num_after_turn = 0 if self._turn_end is None else len(self._frame.after_turn)
        self._text.rollback(self._num_before + length + num_after_turn)
