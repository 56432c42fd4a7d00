"""A target whose passes a test can hold open, to look at what the rest does meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from edgedraft.backends.base import ScoreRequest
from edgedraft.backends.toy import ToyTarget
from edgedraft.backends.toy_model import ToyModel
from edgedraft.types import Float32Array


class Gate:
    """A door for one thread. Open at first; `entered` is set when somebody stands at it or has passed."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._opened = threading.Event()
        self._opened.set()

    def shut(self) -> None:
        """Hold whoever comes next."""
        self.entered.clear()
        self._opened.clear()

    def open(self) -> None:
        self._opened.set()

    def pass_through(self) -> None:
        self.entered.set()
        self._opened.wait()


class GatedTarget(ToyTarget):
    """A toy target with a gate before each prefill chunk and each pass. Open both gates before the test ends."""

    def __init__(
        self,
        model: ToyModel,
        *,
        context_length: int | None = None,
        max_sessions: int = 8,
        max_batch_sessions: int = 8,
        prefill_chunk_tokens: int = 128,
    ) -> None:
        super().__init__(
            model,
            context_length=context_length,
            max_sessions=max_sessions,
            max_batch_sessions=max_batch_sessions,
            prefill_chunk_tokens=prefill_chunk_tokens,
        )
        self.prefill_gate = Gate()
        self.score_gate = Gate()

    def prefill(self, session_id: bytes) -> int:
        self.prefill_gate.pass_through()
        return super().prefill(session_id)

    def score(self, requests: Sequence[ScoreRequest]) -> Sequence[Float32Array]:
        self.score_gate.pass_through()
        return super().score(requests)
