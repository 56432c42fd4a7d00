"""The text is the target's own, token for token, on real models: whatever the draft, its length, the faults."""

from __future__ import annotations

import itertools
import random
import threading

import pytest

from edgedraft.edge.blocking import EdgeClient
from edgedraft.testing.cloud import RunningCloud
from edgedraft.testing.link import RunningLink

from .conftest import (
    PROMPTS,
    TEMPERATURES,
    OpenEdge,
    Pair,
    check_plain,
    check_with_faults,
    prompt_of,
    url_of,
)

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]

Case = tuple[int, int, float]

DRAFT_LENGTHS = (1, 2, 4, 8, 16)
MATRIX: list[Case] = list(itertools.product(range(len(PROMPTS)), DRAFT_LENGTHS, TEMPERATURES))
TENTH: list[Case] = sorted(random.Random(2026).sample(MATRIX, len(MATRIX) // 10))


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
    pair.make_references((index, temperature) for index, _, temperature in cases)
    client = open_edge(cloud.url)
    for index, draft_length, temperature in cases:
        check_plain(pair, client, index, temperature, draft_length=draft_length)


def _faulty(pair: Pair, cloud: RunningCloud, link: RunningLink, open_edge: OpenEdge, cases: list[Case]) -> None:
    pair.make_references((index, temperature) for index, _, temperature in cases)
    client = open_edge(url_of(link))
    num_faults = sum(
        check_with_faults(pair, client, cloud, link, index, temperature, draft_length=draft_length)
        for index, draft_length, temperature in cases
    )
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
