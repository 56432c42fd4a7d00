"""Captions of Qwen-Omni models (tiny random weights of the real classes) over a real WebSocket, end to end."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.backends.qwen_omni_fixtures import TinyPair, waveform, write_pair, write_relatives

from edgedraft.backends.base import BackendOptions
from edgedraft.backends.registry import open_target, open_tokenizer
from edgedraft.caption.caption import Caption
from edgedraft.caption.captioner import AsyncCaptioner
from edgedraft.caption.recording import Recording, Source
from edgedraft.caption.request import CaptionRequest
from edgedraft.core.strategy import Strategy
from edgedraft.errors import UnsupportedError
from edgedraft.schedule.caption_catalogue import cloud_only, edge_only, exact, ugsd, ugsd_sparse
from edgedraft.speech_features import LOGMEL_128, POOLED_12
from edgedraft.testing.cloud import RunningCloud, running_cloud
from edgedraft.types import Exactness, TokenKind

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed (extra 'torch')"
)
MAX_TOKENS = 24
OPTIONS = BackendOptions(threads=1, max_sessions=4)


@pytest.fixture(scope="module")
def relatives(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    """Two models of the 2.5 line that agree in most places."""
    return write_relatives(tmp_path_factory.mktemp("relatives"), noise=0.05)


@pytest.fixture(scope="module")
def cloud(relatives: TinyPair) -> Iterator[RunningCloud]:
    yield from served(relatives.target_spec)


def served(spec: str) -> Iterator[RunningCloud]:
    target = open_target(spec, OPTIONS)
    try:
        with running_cloud(target, open_tokenizer(spec)) as running:
            yield running
    finally:
        target.shutdown()


def recording(seed: int, seconds: float = 1.3) -> Recording:
    source = Source(sample_rate_hz=16_000, channels=1, format="made")
    return Recording(waveform=np.ascontiguousarray(waveform(seconds, seed=seed), dtype=np.float32), source=source)


def captions(url: str, draft: str, *strategies: Strategy, language: str = "en", seed: int = 1) -> list[Caption]:
    """One recording under one strategy after another, by one edge."""

    async def work() -> list[Caption]:
        async with AsyncCaptioner(url, draft=draft, draft_options=OPTIONS) as captioner:
            return [
                await captioner.caption(
                    recording(seed), CaptionRequest(language=language, strategy=strategy, max_tokens=MAX_TOKENS)
                )
                for strategy in strategies
            ]

    return asyncio.run(work())


@pytest.mark.parametrize("language", ["en", "zh"])
def test_exact_captions_are_those_of_the_cloud_alone(cloud: RunningCloud, relatives: TinyPair, language: str) -> None:
    alone, together, ahead_off = captions(
        cloud.url, relatives.draft_spec, cloud_only(), exact(), exact(draft_ahead=False), language=language
    )
    assert together.answer.token_ids == alone.answer.token_ids == ahead_off.answer.token_ids
    assert together.answer.exact == Exactness.UP_TO_NUMERICS
    assert together.account.num_corrections > 0
    assert together.account.num_accepted > 0
    assert together.account.feature_bytes == alone.account.feature_bytes == 128 * 130


def test_other_recordings_give_other_captions(cloud: RunningCloud, relatives: TinyPair) -> None:
    texts = {captions(cloud.url, relatives.draft_spec, exact(), seed=seed)[0].answer.token_ids for seed in range(3)}
    assert len(texts) > 1


def test_gated_captions_take_several_rounds_and_are_labelled(cloud: RunningCloud, relatives: TinyPair) -> None:
    edge, sparse, paper = captions(
        cloud.url, relatives.draft_spec, edge_only(), ugsd_sparse(threshold=0.1), ugsd(threshold=3.0, rank=3)
    )
    for caption in (sparse, paper):
        account = caption.account
        assert caption.answer.exact is Exactness.LOSSY
        assert account.num_cloud_calls > 1
        assert account.features.startswith("logmel")
        assert account.verified_share is not None
        assert 0 < account.verified_share <= 1
    assert edge.account.bytes_up == edge.account.feature_bytes == 0
    assert {token.kind for token in edge.answer.tokens} == {TokenKind.LOCAL}


def test_a_cloud_of_another_line_reads_the_edge_s_log_mel(tmp_path: Path) -> None:
    """Qwen2.5-Omni on the edge, Qwen3-Omni in the cloud: other special ids, another tower, the same text ids."""
    pair = write_pair(tmp_path)
    for cloud in served(pair.target_spec):
        alone, together = captions(cloud.url, pair.draft_spec, cloud_only(), exact())
        assert together.answer.token_ids == alone.answer.token_ids


def test_features_of_another_kind_are_refused_by_the_cloud(cloud: RunningCloud, relatives: TinyPair) -> None:
    async def work() -> None:
        async with AsyncCaptioner(cloud.url, draft=relatives.draft_spec, draft_options=OPTIONS) as captioner:
            await captioner.caption(
                recording(1), CaptionRequest(strategy=exact(), features=POOLED_12, max_tokens=MAX_TOKENS)
            )

    with pytest.raises(UnsupportedError, match=r"pooled from 'edgedraft-mel-40'.*listens to " + str(LOGMEL_128)):
        asyncio.run(work())
