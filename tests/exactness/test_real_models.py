"""The text is the target's own, token for token, on real models: whatever the draft, its length, the faults."""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from edgedraft.edge.blocking import EdgeClient
from edgedraft.testing.cloud import RunningCloud
from edgedraft.testing.link import RunningLink
from edgedraft.types import Exactness

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]

OpenEdge = Callable[..., EdgeClient]
Case = tuple[int, int, float]
Pair = Any  # tests/exactness/conftest.py

PROMPTS: list[str] = json.loads((Path(__file__).parent / "prompts.json").read_text(encoding="utf-8"))
LONG_PREFACE = "Read these notes first. " + "The train leaves at seven and the bus at nine. " * 50
"""With this in front a prompt has more than 512 tokens."""
MAX_TOKENS = 24

DRAFT_LENGTHS = (1, 2, 4, 8, 16)
TEMPERATURES = (0.0, 0.8)
MATRIX: list[Case] = list(itertools.product(range(len(PROMPTS)), DRAFT_LENGTHS, TEMPERATURES))
TENTH: list[Case] = sorted(random.Random(2026).sample(MATRIX, len(MATRIX) // 10))


def prompt_of(index: int) -> str:
    """Every tenth prompt is longer than 512 tokens."""
    return LONG_PREFACE + PROMPTS[index] if index % 10 == 9 else PROMPTS[index]


def seed_of(index: int) -> int:
    return 1_000 + index


def url_of(link: RunningLink) -> str:
    return f"ws://127.0.0.1:{link.port}/v1/edgedraft"


def make_references(pair: Pair, cases: Iterable[Case]) -> None:
    for index, temperature in sorted({(index, temperature) for index, _, temperature in cases}):
        pair.alone(prompt_of(index), temperature=temperature, seed=seed_of(index))


def check_plain(pair: Pair, client: EdgeClient, case: Case) -> None:
    index, draft_length, temperature = case
    answer = client.generate(
        prompt_of(index),
        draft_length=draft_length,
        temperature=temperature,
        seed=seed_of(index),
        max_tokens=MAX_TOKENS,
    )
    expected = pair.alone(prompt_of(index), temperature=temperature, seed=seed_of(index))
    assert list(answer.token_ids) == expected, case
    assert answer.exact is Exactness.BITWISE
    assert answer.accounting["num_reconnects"] == 0


def check_with_faults(pair: Pair, client: EdgeClient, cloud: RunningCloud, link: RunningLink, case: Case) -> int:
    """Cut the link or evict the session after random pieces; how many faults fell into the answer."""
    index, draft_length, temperature = case
    dice = random.Random(f"faults {case}")
    tokens: list[int] = []
    with client.stream(
        prompt_of(index),
        draft_length=draft_length,
        temperature=temperature,
        seed=seed_of(index),
        max_tokens=MAX_TOKENS,
    ) as stream:
        for piece in stream:
            tokens += [token.token_id for token in piece.tokens]
            if dice.random() < 0.3:
                dice.choice([link.cut, cloud.evict_all])()
    expected = pair.alone(prompt_of(index), temperature=temperature, seed=seed_of(index))
    assert tokens == expected, case
    assert list(stream.answer.token_ids) == expected
    counters = stream.answer.record.counters
    return counters.num_reconnects + counters.num_reopens


def test_a_tenth_of_the_matrix_equals_target_only(pair: Pair, cloud: RunningCloud, open_edge: OpenEdge) -> None:
    _plain(pair, cloud, open_edge, TENTH)


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_the_whole_matrix_equals_target_only(pair: Pair, cloud: RunningCloud, open_edge: OpenEdge) -> None:
    _plain(pair, cloud, open_edge, MATRIX)


def test_a_tenth_with_cuts_and_evictions(
    pair: Pair, cloud: RunningCloud, link: RunningLink, open_edge: OpenEdge
) -> None:
    _faulty(pair, cloud, link, open_edge, TENTH)


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_the_whole_matrix_with_cuts_and_evictions(
    pair: Pair, cloud: RunningCloud, link: RunningLink, open_edge: OpenEdge
) -> None:
    _faulty(pair, cloud, link, open_edge, MATRIX)


def _plain(pair: Pair, cloud: RunningCloud, open_edge: OpenEdge, cases: list[Case]) -> None:
    make_references(pair, cases)
    client = open_edge(cloud.url)
    for case in cases:
        check_plain(pair, client, case)


def _faulty(pair: Pair, cloud: RunningCloud, link: RunningLink, open_edge: OpenEdge, cases: list[Case]) -> None:
    make_references(pair, cases)
    client = open_edge(url_of(link))
    num_faults = sum(check_with_faults(pair, client, cloud, link, case) for case in cases)
    assert num_faults > len(cases) // 2


class TestSameSeedSameText:
    """One request, sampled at temperature 0.8, in every company and by every way."""

    PROMPT = PROMPTS[22]
    SEED = 77
    NUM_TOKENS = 32

    def ask(self, client: EdgeClient, **changes: object) -> list[int]:
        options = {"temperature": 0.8, "seed": self.SEED, "max_tokens": self.NUM_TOKENS, **changes}
        return list(client.generate(self.PROMPT, **options).token_ids)  # type: ignore[arg-type]

    @pytest.fixture
    def expected(self, pair: Pair) -> list[int]:
        return pair.alone(self.PROMPT, temperature=0.8, seed=self.SEED, max_tokens=self.NUM_TOKENS)

    def test_alone_and_again(self, expected: list[int], cloud: RunningCloud, open_edge: OpenEdge) -> None:
        client = open_edge(cloud.url)
        assert self.ask(client) == expected
        assert self.ask(client) == expected
        assert self.ask(client, seed=self.SEED + 1) != expected

    def test_with_seven_other_sessions(self, expected: list[int], cloud: RunningCloud, open_edge: OpenEdge) -> None:
        client = open_edge(cloud.url)
        others = open_edge(cloud.url, draft=None, tokenizer="demo:target")
        started = threading.Barrier(8)

        def keep_busy(index: int) -> None:
            with others.stream(prompt_of(index), temperature=1.0, max_tokens=48, ignore_eos=True) as stream:
                started.wait(60)
                for _ in stream:
                    pass

        threads = [threading.Thread(target=keep_busy, args=(index,), daemon=True) for index in range(3, 10)]
        for thread in threads:
            thread.start()
        started.wait(60)
        cloud.until(lambda sessions: len(sessions) == 7)
        assert self.ask(client) == expected
        for thread in threads:
            thread.join(300)

    @pytest.mark.parametrize("fault", ["cut", "evict", "both"])
    def test_after_a_fault(
        self, fault: str, expected: list[int], cloud: RunningCloud, link: RunningLink, open_edge: OpenEdge
    ) -> None:
        client = open_edge(url_of(link))
        tokens: list[int] = []
        with client.stream(self.PROMPT, temperature=0.8, seed=self.SEED, max_tokens=self.NUM_TOKENS) as stream:
            for number, piece in enumerate(stream):
                tokens += [token.token_id for token in piece.tokens]
                if number == 1 and fault in ("evict", "both"):
                    cloud.evict_all()
                if number == 1 and fault in ("cut", "both"):
                    link.cut()
        assert tokens == expected

    @pytest.mark.parametrize(("draft", "tokenizer"), [("demo:target", None), ("lookup", "demo:target")])
    def test_with_another_draft(
        self, draft: str, tokenizer: str | None, expected: list[int], cloud: RunningCloud, open_edge: OpenEdge
    ) -> None:
        assert self.ask(open_edge(cloud.url, draft, tokenizer)) == expected

    def test_cloud_only(self, expected: list[int], cloud: RunningCloud, open_edge: OpenEdge) -> None:
        client = open_edge(cloud.url, None, "demo:target")
        assert self.ask(client, strategy="cloud-only") == expected
