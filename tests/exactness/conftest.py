"""The demo pair on llama.cpp: a deterministic target behind a real cloud, and what it writes alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from edgedraft.backends import registry
from edgedraft.backends.base import BackendOptions, TargetBackend, Tokenizer
from edgedraft.backends.template import encode_chat
from edgedraft.bench.target_only import target_only_ids
from edgedraft.config import CloudConfig, EdgeConfig
from edgedraft.edge.blocking import EdgeClient
from edgedraft.testing.cloud import RunningCloud, running_cloud
from edgedraft.testing.link import RunningLink, running_link
from edgedraft.types import SamplingParams

MAX_SESSIONS = 10


@dataclass
class Pair:
    """The target, its tokenizer, and its own texts, each made once and before anything else uses the target."""

    target: TargetBackend
    tokenizer: Tokenizer
    template: str
    texts: dict[tuple[str, float, int, int], list[int]] = field(default_factory=dict)

    def prompt_ids(self, prompt: str) -> list[int]:
        return encode_chat(self.tokenizer, self.template, [{"role": "user", "content": prompt}])

    def alone(self, prompt: str, *, temperature: float = 0.0, seed: int = 0, max_tokens: int = 24) -> list[int]:
        key = (prompt, temperature, seed, max_tokens)
        if key not in self.texts:
            self.texts[key] = target_only_ids(
                self.target,
                self.prompt_ids(prompt),
                sampling=SamplingParams(temperature=temperature, seed=seed),
                max_tokens=max_tokens,
                eos_ids=self.tokenizer.eos_ids,
            )
        return self.texts[key]

    def serve(self) -> Iterator[RunningCloud]:
        with running_cloud(
            self.target, self.tokenizer, self.template, CloudConfig(port=0, max_sessions=MAX_SESSIONS)
        ) as cloud:
            yield cloud


@pytest.fixture(scope="session")
def pair() -> Iterator[Pair]:
    options = BackendOptions(threads=1, context_length=1024, max_sessions=MAX_SESSIONS + 1, deterministic=True)
    target = registry.open_target("demo:target", options)
    assert target.info.deterministic
    yield Pair(target, registry.open_tokenizer("demo:target"), registry.chat_template("demo:target"))
    target.shutdown()


@pytest.fixture
def cloud(pair: Pair) -> Iterator[RunningCloud]:
    yield from pair.serve()


@pytest.fixture
def link(cloud: RunningCloud) -> Iterator[RunningLink]:
    port = re.search(r":(\d+)/", cloud.url)
    assert port is not None
    with running_link("127.0.0.1", int(port[1])) as emulator:
        yield emulator


@pytest.fixture
def open_edge() -> Iterator[Callable[..., EdgeClient]]:
    """Edges on one thread each, closed at the end."""
    opened: list[EdgeClient] = []

    def open_one(url: str, draft: str | None = "demo:draft", tokenizer: str | None = None) -> EdgeClient:
        client = EdgeClient(
            url,
            draft=draft,
            tokenizer=tokenizer,
            config=EdgeConfig(silence_s=5.0),
            draft_options=BackendOptions(threads=1, context_length=1024),
        )
        client.open()
        opened.append(client)
        return client

    yield open_one
    for client in opened:
        client.close()
