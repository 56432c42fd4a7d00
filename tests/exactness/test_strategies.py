"""The text is the target's own, token for token, on real models, by whatever strategy, changed on the way included."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass

import pytest

from edgedraft.core.events import StrategyChanged
from edgedraft.core.hedging import Hedging
from edgedraft.core.pending_tail import PendingTail
from edgedraft.core.strategy import Strategy
from edgedraft.edge.blocking import BlockingAnswerStream, EdgeClient
from edgedraft.schedule.catalogue import ABLATIONS, cloud_only, edgellm, flow, hsl, pipesd, vanilla
from edgedraft.schedule.link import LinkCost
from edgedraft.testing.cloud import RunningCloud
from edgedraft.testing.link import RunningLink
from edgedraft.types import Assist, Exactness

from .conftest import (
    PROMPTS,
    TEMPERATURES,
    OpenEdge,
    Pair,
    check_plain,
    check_with_faults,
    request_of,
    url_of,
)

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]

Case = tuple[str, int, float]

COST = LinkCost(startup_s=2e-3, per_token_s=1e-4)
"""Of a link where tokens have to wait for each other, so that plans and timers come into play."""
HEDGING = Hedging(patience=1.0, least_use=0.05)
STRATEGIES: dict[str, Strategy] = {
    "vanilla": vanilla(4),
    "hsl": hsl(token_threshold=0.6),
    "edgellm": edgellm(sequence_threshold=0.5),
    "pipesd": pipesd(token_threshold=0.4, sequence_threshold=0.2, cost=COST, draft_s=5e-3),
    **{f"flow/{assist}": flow(assist=assist, cost=COST, hedging=None) for assist in Assist},
    **{f"flow/{assist}/hedging": flow(assist=assist, cost=COST, hedging=HEDGING) for assist in Assist},
    **{name: make() for name, make in ABLATIONS.items()},
}
OTHERS = [*STRATEGIES.values(), cloud_only()]
"""What a request may be changed to."""

PROMPT_PLACES = range(1, len(PROMPTS), 4)
MATRIX: list[Case] = list(itertools.product(STRATEGIES, PROMPT_PLACES, TEMPERATURES))


def tenth(seed: int) -> list[Case]:
    """Every strategy and temperature over one short prompt each, out of three, so that references are soon made."""
    dice = random.Random(seed)
    pool = dice.sample([index for index in PROMPT_PLACES if index % 10 != 9], 3)
    return [(*case[:1], dice.choice(pool), *case[1:]) for case in itertools.product(STRATEGIES, TEMPERATURES)]


TENTH = tenth(seed=2026)


@pytest.fixture
def hedges(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many second ways reached the cloud, and how many it took up."""
    counts: Counter[str] = Counter()
    take, settle = PendingTail.take_hedge, PendingTail.settle_hedge

    def counted_take(tail: PendingTail, *arguments: object) -> None:
        counts["sent"] += 1
        take(tail, *arguments)  # type: ignore[arg-type]

    def counted_settle(tail: PendingTail, *arguments: object) -> None:
        before = tail.epoch
        settle(tail, *arguments)  # type: ignore[arg-type]
        counts["taken"] += tail.epoch != before

    monkeypatch.setattr(PendingTail, "take_hedge", counted_take)
    monkeypatch.setattr(PendingTail, "settle_hedge", counted_settle)
    return counts


# -- plain -----------------------------------------------------------------------------------------------------------


def test_a_tenth_of_the_matrix_equals_target_only(
    pair: Pair, cloud: RunningCloud, open_edge: OpenEdge, hedges: Counter[str]
) -> None:
    _plain(pair, open_edge(cloud.url), TENTH)
    assert hedges["sent"] > 0


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_the_whole_matrix_equals_target_only(
    pair: Pair, cloud: RunningCloud, open_edge: OpenEdge, hedges: Counter[str]
) -> None:
    _plain(pair, open_edge(cloud.url), MATRIX)
    assert hedges["taken"] > 50


def _plain(pair: Pair, client: EdgeClient, cases: list[Case]) -> None:
    """Nothing is shown where what a strategy is there for never happened."""
    pair.make_references((index, temperature) for _, index, temperature in cases)
    totals: dict[str, Counter[str]] = {name: Counter() for name in STRATEGIES}
    for name, index, temperature in cases:
        counters = check_plain(pair, client, index, temperature, strategy=STRATEGIES[name])
        totals[name].update({key: getattr(counters, key) for key in counters.__slots__})
    # Where the target writes by itself a slow draft may come to nothing.
    alone = [name for name, strategy in STRATEGIES.items() if strategy.assist is Assist.NONE]
    assert all(totals[name]["num_accepted"] > 0 and totals[name]["num_rollbacks"] > 0 for name in alone)
    assert sum(totals[name]["num_reused"] for name in ("edgellm", "pipesd", *ABLATIONS)) > 0


# -- cuts and evictions ----------------------------------------------------------------------------------------------


def test_every_strategy_with_cuts_and_evictions(
    pair: Pair, cloud: RunningCloud, link: RunningLink, open_edge: OpenEdge
) -> None:
    _faulty(pair, cloud, link, open_edge(url_of(link)), tenth(seed=2027)[::7])


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_the_whole_matrix_with_cuts_and_evictions(
    pair: Pair, cloud: RunningCloud, link: RunningLink, open_edge: OpenEdge
) -> None:
    _faulty(pair, cloud, link, open_edge(url_of(link)), MATRIX)


def _faulty(pair: Pair, cloud: RunningCloud, link: RunningLink, client: EdgeClient, cases: list[Case]) -> None:
    pair.make_references((index, temperature) for _, index, temperature in cases)
    num_faults = sum(
        check_with_faults(pair, client, cloud, link, index, temperature, strategy=STRATEGIES[name])
        for name, index, temperature in cases
    )
    assert num_faults > len(cases) // 2


# -- changes on the way ----------------------------------------------------------------------------------------------


@dataclass
class Change:
    """Turns a running request to another strategy now and then."""

    client: EdgeClient
    stream: BlockingAnswerStream
    dice: random.Random
    num_changes: int = 0

    def perhaps(self) -> None:
        if self.dice.random() < 0.5:
            self.num_changes += 1
            event = StrategyChanged(self.dice.choice(OTHERS))
            self.client.post(lambda: self.stream._stream._running.feed(event))


def check_changing(pair: Pair, client: EdgeClient, index: int, temperature: float, first: str) -> int:
    with client.stream(**request_of(index, temperature), strategy=STRATEGIES[first]) as stream:
        change = Change(client, stream, random.Random(f"changes {index} {temperature} {first}"))
        for _ in stream:
            change.perhaps()
    answer = stream.answer
    assert list(answer.token_ids) == pair.expected(index, temperature), (index, temperature, first)
    assert answer.exact is Exactness.BITWISE
    return change.num_changes


def _changing(pair: Pair, client: EdgeClient, cases: list[Case]) -> None:
    pair.make_references((index, temperature) for _, index, temperature in cases)
    num_changes = sum(check_changing(pair, client, index, temperature, name) for name, index, temperature in cases)
    assert num_changes > len(cases)


def test_changes_of_strategy_on_the_way(pair: Pair, cloud: RunningCloud, open_edge: OpenEdge) -> None:
    _changing(pair, open_edge(cloud.url), tenth(seed=2028)[3::7])


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_changes_of_strategy_on_the_way_over_the_whole_matrix(
    pair: Pair, cloud: RunningCloud, open_edge: OpenEdge
) -> None:
    _changing(pair, open_edge(cloud.url), MATRIX)
