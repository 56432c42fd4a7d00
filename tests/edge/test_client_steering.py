"""Live requests under steering: the target's own text, an event loop that never waits, thresholds that are kept."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster

from edgedraft import AsyncEdgeClient
from edgedraft.edge.tuner_store import TunerStore
from edgedraft.errors import InvalidRequestError
from edgedraft.schedule.catalogue import pipesd
from edgedraft.testing.cloud import RunningCloud
from edgedraft.tune.autotuner import Autotuner, Suggestion
from edgedraft.types import SamplingParams

TargetOnly = Callable[..., list[int]]
PROMPT_IDS = list(range(20))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEDRAFT_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"strategy": "auto", "objective": "cost"},
        {"strategy": "auto", "objective": 0.001},
        {"strategy": "pipesd"},
        {"strategy": "flow"},
        {"strategy": "flow", "objective": "cost"},
    ],
    ids=str,
)
def test_steered_requests_write_the_targets_own_text(
    shared_cloud: RunningCloud,
    draft_spec: str,
    target_only: TargetOnly,
    options: dict[str, Any],
    temperature: float,
) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            for seed in range(3):
                answer = await client.generate(
                    prompt_ids=PROMPT_IDS,
                    max_tokens=150,
                    temperature=temperature,
                    seed=seed,
                    ignore_eos=True,
                    **options,
                )
                sampling = SamplingParams(temperature=temperature, seed=seed)
                assert list(answer.token_ids) == target_only(PROMPT_IDS, 150, sampling, ignore_eos=True)
                json.dumps(answer.to_dict(), allow_nan=False)

    asyncio.run(work())


def test_the_account_says_what_was_measured_and_chosen(shared_cloud: RunningCloud, draft_spec: str) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            for _ in range(2):
                answer = await client.generate(prompt_ids=PROMPT_IDS, max_tokens=300, ignore_eos=True)
            assert answer.strategy == "auto"
            figures = answer.accounting
            assert 0 < figures["draft_step_s"] < 1
            assert 0 < figures["verify_step_s"] < 1
            assert figures["link"] is None or figures["link"]["rtt_s"] >= 0
            assert figures["choice"] is None or figures["choice"]["because"]
            alone = await client.generate(prompt_ids=PROMPT_IDS, max_tokens=5, strategy="cloud-only")
            assert alone.accounting["choice"] is alone.accounting["link"] is None

    asyncio.run(work())


def test_a_suggestion_takes_its_time_and_decoding_goes_on(
    shared_cloud: RunningCloud, draft_spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tuner stands still in its thread for as long as a whole answer takes."""
    may_go_on, threads = threading.Event(), []
    suggest = Autotuner.suggest

    def slow(tuner: Autotuner) -> Suggestion:
        threads.append(threading.current_thread().name)
        may_go_on.wait(20)
        return suggest(tuner)

    monkeypatch.setattr(Autotuner, "suggest", slow)
    blockbuster = BlockBuster()

    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            await client.connect()
            blockbuster.activate()
            try:
                answer = await client.generate(
                    prompt_ids=PROMPT_IDS, max_tokens=200, ignore_eos=True, strategy="pipesd"
                )
                assert len(answer.token_ids) == 200
                assert answer.accounting["tuner"]["phase"] == "suggesting"
                may_go_on.set()
                await client.generate(prompt_ids=PROMPT_IDS, max_tokens=100, ignore_eos=True, strategy="pipesd")
            finally:
                blockbuster.deactivate()

    asyncio.run(work())
    assert threads[0].startswith("edgedraft-tuner")


def test_thresholds_are_kept_for_the_next_client_and_replans_are_logged(
    shared_cloud: RunningCloud, draft_spec: str, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def tuned() -> dict[str, Any]:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            while True:
                answer = await client.generate(
                    prompt_ids=PROMPT_IDS, max_tokens=400, ignore_eos=True, strategy="pipesd"
                )
                if TunerStore(cache).all():
                    return dict(answer.accounting["tuner"])

    async def again() -> dict[str, Any]:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            answer = await client.generate(prompt_ids=PROMPT_IDS, max_tokens=1, ignore_eos=True, strategy="pipesd")
            return dict(answer.accounting["tuner"])

    with caplog.at_level(logging.INFO, "edgedraft.edge"):
        asyncio.run(tuned())
    assert "plans uploads anew" in caplog.text
    (record,) = TunerStore(cache).all()
    assert record.num_trials == 16
    found = asyncio.run(again())
    assert (found["phase"], tuple(found["thresholds"])) == ("holding", tuple(record.thresholds))


def test_a_file_that_cannot_be_read_costs_a_tuning_and_not_the_request(
    shared_cloud: RunningCloud, draft_spec: str, cache: Path
) -> None:
    async def work() -> None:
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            answer = await client.generate(prompt_ids=PROMPT_IDS, max_tokens=5, strategy="pipesd")
            assert not answer.notices
        (cache / "tuner").mkdir(exist_ok=True)
        for name in [TunerStore(cache).path(key) for key in list(keys)]:
            name.write_text('{"edgedraft_tuner": 99}')
        async with AsyncEdgeClient(shared_cloud.url, draft=draft_spec) as client:
            answer = await client.generate(prompt_ids=PROMPT_IDS, max_tokens=5, strategy="pipesd")
            assert any("version 99" in notice and "tuned anew" in notice for notice in answer.notices)

    keys = []
    path = TunerStore.path

    def noted(store: TunerStore, key: Any) -> Path:
        keys.append(key)
        return path(store, key)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TunerStore, "path", noted)
        asyncio.run(work())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "speed"}, "objective is 'speed'; legal: 'latency', 'cost'"),
        ({"objective": -1.0}, "objective is -1.0"),
        ({"objective": "cost", "strategy": "pipesd"}, "strategy 'pipesd' leaves nothing to choose"),
        ({"objective": 0.1, "strategy": pipesd()}, "strategy 'pipesd' leaves nothing to choose"),
    ],
)
def test_objectives_that_cannot_be_obeyed_are_refused_by_name(
    draft_spec: str, options: dict[str, Any], message: str
) -> None:
    client = AsyncEdgeClient("ws://127.0.0.1:9", draft=draft_spec)
    with pytest.raises(InvalidRequestError, match=message) as caught:
        client.stream(prompt_ids=PROMPT_IDS, **options)
    assert caught.value.field == "objective"
