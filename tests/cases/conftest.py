"""Models that write what a test wants, a toy cloud, and the demo pair on llama.cpp. Always over real sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import numpy as np
import pytest
from scipy.special import log_softmax

from edgedraft import EdgeClient
from edgedraft.backends import registry
from edgedraft.backends.base import BackendOptions, ScoreRequest, TargetBackend, Tokenizer
from edgedraft.backends.toy import ToyDraft, ToyTarget
from edgedraft.backends.toy_model import CERTAIN_LOGIT, NEVER_LOGIT, ToyModel, ToySettings
from edgedraft.backends.toy_tokenizer import CHAT_TEMPLATE, ToyTokenizer
from edgedraft.bench.target_only import target_only_ids
from edgedraft.config import CloudConfig
from edgedraft.testing.cloud import RunningCloud, running_cloud
from edgedraft.types import Float32Array, SamplingParams

TARGET = "toy:vocab=300,seed=3,eos_every=200"
PROMPT = [1, 2, 3]

Alone = Callable[..., list[int]]
OpenScripted = Callable[..., EdgeClient]


class ScriptedModel(ToyModel):
    """Writes `script` after `PROMPT`, and its last id for ever."""

    def __init__(self, script: Sequence[int]) -> None:
        super().__init__(ToySettings(vocab=300))
        self._script = list(script)

    def logits(self, context: Sequence[int]) -> Float32Array:
        row = np.full(self.settings.vocab, NEVER_LOGIT, dtype=np.float32)
        place = max(0, len(context) - len(PROMPT))
        row[self._script[min(place, len(self._script) - 1)]] = CERTAIN_LOGIT
        return row


class WatchedTarget(ToyTarget):
    """Remembers how many ids were prefilled and what each pass was asked for."""

    def __init__(self, model: ToyModel, *, context_length: int | None = None, max_sessions: int = 8) -> None:
        super().__init__(model, context_length=context_length, max_sessions=max_sessions)
        self.num_prefilled = 0
        self.passes: list[ScoreRequest] = []

    def prefill(self, session_id: bytes) -> int:
        before = self._session(session_id).num_held
        left = super().prefill(session_id)
        self.num_prefilled += self._session(session_id).num_held - before
        return left

    def score(self, requests: Sequence[ScoreRequest]) -> Sequence[Float32Array]:
        self.passes += requests
        return super().score(requests)


def toy_model(spec: str) -> ToyModel:
    return ToyModel(ToySettings.parse(spec.partition(":")[2]))


@pytest.fixture
def open_scripted() -> Iterator[OpenScripted]:
    """Edges of clouds whose target writes `script`; the draft agrees, or writes `drafted`."""
    with ExitStack() as stack:

        def open_one(script: Sequence[int], drafted: Sequence[int] | None = None) -> EdgeClient:
            cloud = stack.enter_context(running_cloud(ToyTarget(ScriptedModel(script)), ToyTokenizer(300)))
            draft = ToyDraft(ScriptedModel(script if drafted is None else drafted))
            return stack.enter_context(EdgeClient(cloud.url, draft=draft, tokenizer=ToyTokenizer(300)))

        yield open_one


@pytest.fixture(scope="session")
def toy_target() -> WatchedTarget:
    return WatchedTarget(toy_model(TARGET))


@pytest.fixture(scope="session")
def toy_cloud(toy_target: WatchedTarget) -> Iterator[RunningCloud]:
    with running_cloud(toy_target, registry.open_tokenizer(TARGET), CHAT_TEMPLATE) as cloud:
        yield cloud


@pytest.fixture(scope="session")
def toy_edge(toy_cloud: RunningCloud) -> Iterator[EdgeClient]:
    """Its draft agrees with the target in four contexts of five."""
    with EdgeClient(toy_cloud.url, draft=TARGET + ",agree=0.8") as client:
        yield client


@pytest.fixture(scope="session")
def toy_alone() -> Alone:
    """What the toy target writes alone, past its ends of sequence."""
    target = ToyTarget(toy_model(TARGET))

    def write(
        prompt_ids: Sequence[int], max_tokens: int, *, eos_ids: Sequence[int] = (), **sampling: float
    ) -> list[int]:
        params = SamplingParams(**sampling)  # type: ignore[arg-type]
        return target_only_ids(target, prompt_ids, sampling=params, max_tokens=max_tokens, eos_ids=eos_ids)

    return write


def scored_alone(
    target: TargetBackend,
    prompt_ids: Sequence[int],
    *,
    sampling: SamplingParams,
    max_tokens: int,
    eos_ids: Sequence[int] = (),
) -> list[tuple[int, float]]:
    """What the target writes alone, each id with the log-softmax of the row that it alone gives for it."""
    output_ids = target_only_ids(target, prompt_ids, sampling=sampling, max_tokens=max_tokens, eos_ids=eos_ids)
    session_id = b"scored alone"
    target.open(session_id, prompt_ids, ())
    while target.prefill(session_id):
        pass
    scored = []
    for place, token_id in enumerate(output_ids):
        length = len(prompt_ids) + place
        request = ScoreRequest(session_id, max(len(prompt_ids), length - 1), output_ids[:place][-1:], ())
        row = target.score([request])[0][0][: target.info.num_ids].astype(np.float64)
        for biased, bias in sampling.logit_bias.items():
            row[biased] += bias
        row[list(set(output_ids[:place]))] -= sampling.presence_penalty
        scored.append((token_id, float(log_softmax(row)[token_id])))
    target.close(session_id)
    return scored


# -- llama.cpp -------------------------------------------------------------------------------------------------------

DEMO_SESSIONS = 9


@pytest.fixture(scope="session")
def demo_target() -> Iterator[TargetBackend]:
    options = BackendOptions(threads=1, context_length=512, max_sessions=DEMO_SESSIONS, deterministic=True)
    target = registry.open_target("demo:target", options)
    yield target
    target.shutdown()


@pytest.fixture(scope="session")
def demo_tokenizer() -> Tokenizer:
    return registry.open_tokenizer("demo:target")


@pytest.fixture(scope="session")
def demo_cloud(demo_target: TargetBackend, demo_tokenizer: Tokenizer) -> Iterator[RunningCloud]:
    """Leaves one place of the target free, for what it writes alone."""
    config = CloudConfig(port=0, max_sessions=DEMO_SESSIONS - 1)
    with running_cloud(demo_target, demo_tokenizer, registry.chat_template("demo:target"), config) as cloud:
        yield cloud


@pytest.fixture(scope="session")
def demo_edge(demo_cloud: RunningCloud) -> Iterator[EdgeClient]:
    options = BackendOptions(threads=1, context_length=512)
    with EdgeClient(demo_cloud.url, draft="demo:draft", draft_options=options) as client:
        yield client
