"""Recordings on their way to the target's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from edgedraft.backends.toy import ToyTarget
from edgedraft.backends.toy_model import ToyModel, ToySettings
from edgedraft.cloud.worker import TargetWorker
from edgedraft.core.events import (
    REQUESTED,
    CancelPass,
    CloudEvent,
    OpenTarget,
    PassDone,
    PrefillDone,
    RunPass,
    TargetFailed,
)
from edgedraft.errors import UnsupportedError
from edgedraft.speech_features import SpeechFeatures
from edgedraft.testing.gated_world import FEATURES
from edgedraft.types import Rule, SamplingParams

MODEL = ToyModel(ToySettings(vocab=64, seed=3))
SESSION = b"A" * 16
PROMPT = (5, 6, 7)


class ListeningToy(ToyTarget):
    """Notes the order in which it is opened, hears and is prefilled."""

    def __init__(self) -> None:
        super().__init__(MODEL)
        self.calls: list[str] = []

    def open(self, session_id: bytes, prompt_ids: Sequence[int], committed_ids: Sequence[int]) -> None:
        self.calls.append("open")
        super().open(session_id, prompt_ids, committed_ids)

    def listen(self, session_id: bytes, features: SpeechFeatures) -> None:
        assert features is FEATURES
        self.calls.append("listen")

    def prefill(self, session_id: bytes) -> int:
        self.calls.append("prefill")
        return super().prefill(session_id)


async def report_of(target: ToyTarget, *commands: OpenTarget | RunPass | CancelPass) -> list[CloudEvent]:
    """One report for each command but a cancelled pass."""
    reports: asyncio.Queue[CloudEvent] = asyncio.Queue()
    worker = TargetWorker(target, lambda session, incarnation, event: reports.put_nowait(event), lambda: None)
    worker.start()
    found = []
    try:
        for command in commands:
            worker.submit(SESSION, command)
            if not isinstance(command, CancelPass):
                found.append(await asyncio.wait_for(reports.get(), 10))
    finally:
        await worker.stop()
    return found


def one_pass(pass_id: int) -> RunPass:
    return RunPass(pass_id, REQUESTED, len(PROMPT), (), len(PROMPT), (1,), Rule.RANK, 64, SamplingParams(), bonus=True)


async def test_a_target_listens_between_open_and_prefill() -> None:
    target = ListeningToy()
    events = await report_of(target, OpenTarget(1, PROMPT, (), FEATURES), one_pass(1))
    assert target.calls == ["open", "listen", "prefill"]
    assert events[0] == PrefillDone(1)
    assert isinstance(events[1], PassDone)
    assert events[1].num_accepted == 1
    assert events[1].next_id is not None  # the bonus that was asked for


async def test_a_row_that_is_restored_is_heard_again() -> None:
    """Two passes from the end of the prompt: the second finds that the first has used up the row."""
    target = ListeningToy()
    await report_of(target, OpenTarget(1, PROMPT, (), FEATURES), one_pass(1), one_pass(2))
    assert target.calls == ["open", "listen", "prefill", "open", "listen", "prefill"]


async def test_a_target_of_text_refuses_a_recording() -> None:
    (failed,) = await report_of(ToyTarget(MODEL), OpenTarget(1, PROMPT, (), FEATURES))
    assert isinstance(failed, TargetFailed)
    with pytest.raises(UnsupportedError, match="takes text only"):
        raise failed.error
