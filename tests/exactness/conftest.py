"""The demo pair on llama.cpp: a deterministic target behind a real cloud, and what it writes alone."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from edgedraft.backends import registry
from edgedraft.backends.base import BackendOptions, TargetBackend, Tokenizer
from edgedraft.backends.template import encode_chat
from edgedraft.bench.target_only import target_only_ids
from edgedraft.config import CloudConfig, EdgeConfig
from edgedraft.edge.blocking import EdgeClient
from edgedraft.metrics.records import Counters
from edgedraft.testing.cloud import RunningCloud, running_cloud
from edgedraft.testing.link import RunningLink, running_link
from edgedraft.types import Exactness, SamplingParams

MAX_SESSIONS = 10
MAX_TOKENS = 24
TEMPERATURES = (0.0, 0.8)
PROMPTS: list[str] = json.loads((Path(__file__).parent / "prompts.json").read_text(encoding="utf-8"))
LONG_PREFACE = "Read these notes first. " + "The train leaves at seven and the bus at nine. " * 50
"""With this in front a prompt has more than 512 tokens."""
OpenEdge = Callable[..., EdgeClient]


def prompt_of(index: int) -> str:
    """Every tenth prompt is longer than 512 tokens."""
    return LONG_PREFACE + PROMPTS[index] if index % 10 == 9 else PROMPTS[index]


def seed_of(index: int) -> int:
    return 1_000 + index


def url_of(link: RunningLink) -> str:
    return f"ws://127.0.0.1:{link.port}/v1/edgedraft"


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

    def expected(self, index: int, temperature: float) -> list[int]:
        """The target's own answer to a prompt of the list."""
        return self.alone(prompt_of(index), temperature=temperature, seed=seed_of(index), max_tokens=MAX_TOKENS)

    def make_references(self, cases: Iterable[tuple[int, float]]) -> None:
        for index, temperature in sorted(set(cases)):
            self.expected(index, temperature)

    def serve(self) -> Iterator[RunningCloud]:
        with running_cloud(
            self.target, self.tokenizer, self.template, CloudConfig(port=0, max_sessions=MAX_SESSIONS)
        ) as cloud:
            yield cloud


def request_of(index: int, temperature: float) -> dict[str, Any]:
    return {
        "prompt": prompt_of(index),
        "temperature": temperature,
        "seed": seed_of(index),
        "max_tokens": MAX_TOKENS,
    }


def check_plain(pair: Pair, client: EdgeClient, index: int, temperature: float, **options: Any) -> Counters:
    """One answer over a steady link; what was counted."""
    answer = client.generate(**request_of(index, temperature), **options)
    assert list(answer.token_ids) == pair.expected(index, temperature), (index, temperature, options)
    assert answer.exact is Exactness.BITWISE
    assert answer.accounting["num_reconnects"] == 0
    return answer.record.counters


def check_with_faults(
    pair: Pair,
    client: EdgeClient,
    cloud: RunningCloud,
    link: RunningLink,
    index: int,
    temperature: float,
    **options: Any,
) -> int:
    """Cut the link or evict the session after random pieces; how many faults fell into the answer."""
    dice = random.Random(f"faults {index} {temperature} {options}")
    tokens: list[int] = []
    with client.stream(**request_of(index, temperature), **options) as stream:
        for piece in stream:
            tokens += [token.token_id for token in piece.tokens]
            if dice.random() < 0.3:
                dice.choice([link.cut, cloud.evict_all])()
    expected = pair.expected(index, temperature)
    assert tokens == expected, (index, temperature, options)
    assert list(stream.answer.token_ids) == expected
    counters = stream.answer.record.counters
    return counters.num_reconnects + counters.num_reopens


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
