"""A toy target behind a real cloud, and what it would write alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from edgedraft.backends.base import BackendOptions
from edgedraft.backends.registry import open_tokenizer
from edgedraft.backends.toy import ToyTarget
from edgedraft.backends.toy_model import ToyModel, ToySettings
from edgedraft.backends.toy_tokenizer import CHAT_TEMPLATE
from edgedraft.config import CloudConfig
from edgedraft.core.sampling import choose
from edgedraft.testing.cloud import RunningCloud, running_cloud
from edgedraft.types import SamplingParams

TARGET = "toy:vocab=300,seed=3,eos_every=200"
DRAFT = TARGET + ",agree=0.8"

TargetOnly = Callable[..., list[int]]


@pytest.fixture(scope="session")
def target_spec() -> str:
    return TARGET


@pytest.fixture(scope="session")
def draft_spec() -> str:
    """Agrees with the target in four contexts of five."""
    return DRAFT


@pytest.fixture(scope="session")
def target_only() -> TargetOnly:
    """Decoding by the target alone, straight from its rows: nothing of the code under test but `choose`."""

    def decode(
        prompt_ids: Sequence[int],
        max_tokens: int,
        sampling: SamplingParams | None = None,
        *,
        spec: str = TARGET,
        ignore_eos: bool = False,
    ) -> list[int]:
        model = ToyModel(ToySettings.parse(spec.partition(":")[2]))
        token_ids = list(prompt_ids)
        while len(token_ids) < len(prompt_ids) + max_tokens:
            token_ids.append(
                choose(
                    model.logits(token_ids),
                    sampling or SamplingParams(),
                    len(token_ids),
                    num_ids=model.num_ids,
                    prompt_ids=prompt_ids,
                    output_ids=token_ids[len(prompt_ids) :],
                )
            )
            if token_ids[-1] in model.eos_ids and not ignore_eos:
                break
        return token_ids[len(prompt_ids) :]

    return decode


def serve(spec: str, config: CloudConfig | None = None) -> Iterator[RunningCloud]:
    target = ToyTarget(ToyModel(ToySettings.parse(spec.partition(":")[2])), max_sessions=BackendOptions().max_sessions)
    with running_cloud(target, open_tokenizer(spec), CHAT_TEMPLATE, config) as cloud:
        yield cloud


@pytest.fixture(scope="session")
def shared_cloud() -> Iterator[RunningCloud]:
    """One cloud for all tests that leave it as they found it."""
    yield from serve(TARGET)


@pytest.fixture
def own_cloud() -> Iterator[RunningCloud]:
    """A cloud that the test may stop, restart or fill. Its context is long enough for an answer without end."""
    yield from serve(TARGET + ",context=1000000")
