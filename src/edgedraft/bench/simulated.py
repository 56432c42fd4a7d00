"""A cell in virtual time: its edges, links and target as the simulator wants them, and what came out."""
# ruff: noqa: S311 - a bad network needs no cryptographic randomness

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np

from edgedraft.backends.trace import RecordedText
from edgedraft.bench.baselines import Entry, Numbers
from edgedraft.bench.measured import CellRun, TextRun
from edgedraft.bench.results import Span
from edgedraft.bench.scenario import Link, Regime, Scenario
from edgedraft.core.strategy import Strategy
from edgedraft.errors import InvalidRequestError
from edgedraft.metrics.energy import A800_CLASS, EnergyKind
from edgedraft.schedule.catalogue import strategy_named
from edgedraft.schedule.link import LinkCost
from edgedraft.sim import (
    IDS,
    PAPER,
    EdgeProfile,
    LinkDirection,
    LinkProfile,
    SimulatedAnswer,
    SimulatedEdge,
    TargetProfile,
    simulate,
    varying_bandwidth,
)
from edgedraft.tune.choice import Objective
from edgedraft.tune.steering import Knowledge, Steering

EARLY_TOKENS = 64
"""What a strategy that measures first may take to settle."""
ID_BYTES = 5
"""What a draft token's id takes in a message, at the most."""
POWER = A800_CLASS
"""What the modelled target takes while it computes."""


def simulate_cell(
    scenario: Scenario,
    entry: Entry,
    numbers: Numbers,
    texts: Sequence[RecordedText],
    *,
    seed: int,
    keep_spans: bool = False,
) -> CellRun:
    """Every text of the cell under one strategy. Each edge asks for its share of the texts one after another.

    The same arguments give the same run. Raises `InvalidRequestError` where there are more edges than texts, and what
    the simulator raises.
    """
    edges = edges_of(scenario, entry, numbers, texts, seed=seed)
    answers = simulate(
        edges,
        target_of(scenario),
        seed=seed,
        max_batch_sessions=scenario.cloud.max_batch_sessions,
        keep_spans=keep_spans,
    )
    return CellRun(
        texts=[_text_run(answer) for answer in answers],
        energy_j=POWER.energy_j(sum(answer.target_busy_s for answer in answers)),
        energy_kind=EnergyKind.MODELLED,
        controls=_controls(edges[0]),
    )


def _controls(edge: SimulatedEdge) -> dict[str, Any]:
    """What steering had measured and decided at the end, on the first edge."""
    steering = edge.steering
    return dataclasses.asdict(steering.record()) if isinstance(steering, Steering) else {}


def edges_of(
    scenario: Scenario, entry: Entry, numbers: Numbers, texts: Sequence[RecordedText], *, seed: int
) -> list[SimulatedEdge]:
    """The cell's edges with their shares of the texts. Raises `InvalidRequestError` where one would have none."""
    check_shares(scenario, texts)
    strategy = strategy_of(scenario, entry, numbers)
    return [
        SimulatedEdge(
            texts=texts[number :: scenario.edges],
            strategy=strategy,
            profile=EdgeProfile(draft_s=scenario.edge.draft_s, draft_jitter=scenario.edge.jitter),
            network=network_of(scenario.link, seed, number),
            payload=PAPER if scenario.regime == Regime.PAPER else IDS,
            max_tokens=scenario.max_tokens,
            eos_ids=end_ids(texts),
            steering=_steering(entry, strategy, seed, number),
        )
        for number in range(scenario.edges)
    ]


def _steering(entry: Entry, strategy: Strategy, seed: int, edge_number: int) -> Steering | None:
    """What is learnt on an edge is kept from text to text, as a client keeps it from request to request."""
    if entry.objective is None:
        return None
    knowledge = Knowledge(np.random.default_rng([seed, edge_number]))
    return Steering(knowledge, strategy, objective=Objective.of(entry.objective))


def check_shares(scenario: Scenario, texts: Sequence[RecordedText]) -> None:
    """Raises `InvalidRequestError` where an edge would have no text."""
    if scenario.edges > len(texts):
        raise InvalidRequestError(
            f"cell {scenario.name} has edges {scenario.edges}, but {len(texts)} texts to share out.",
            field="edges",
            remedy="Use fewer edges, or more texts (max_texts, --traces).",
        )


def strategy_of(scenario: Scenario, entry: Entry, numbers: Numbers) -> Strategy:
    """The entry's strategy with these numbers, told of the link and the edge what its first plan reckons with."""
    known: dict[str, Any] = {"cost": link_cost(scenario), "draft_s": scenario.edge.draft_s}
    told = {name: known[name] for name in entry.told}
    whole = {knob.name for knob in entry.knobs if knob.whole}
    own = {name: round(value) if name in whole else value for name, value in numbers.items()}
    return strategy_named(entry.strategy, **entry.fixed, **told, **own)


def link_cost(scenario: Scenario) -> LinkCost:
    """What a message occupies the link for; at the middle of a range of rates."""
    token_bytes = ID_BYTES + (PAPER.token_payload_bytes if scenario.regime == Regime.PAPER else 0)
    low, high = scenario.link.range_bytes_per_s("up")
    return LinkCost(startup_s=scenario.link.startup_ms * 1e-3, per_token_s=token_bytes / ((low + high) / 2))


def target_of(scenario: Scenario) -> TargetProfile:
    cloud = scenario.cloud
    return TargetProfile(
        step_s=cloud.step_ms * 1e-3,
        per_draft_s=cloud.per_draft_ms * 1e-3,
        per_session_s=cloud.per_session_ms * 1e-3,
    )


def network_of(link: Link, seed: int, edge_number: int = 0) -> LinkProfile:
    """The link of one edge. Rates that vary are drawn with the seed, other ones for each edge."""
    return LinkProfile(
        up=_direction(link, "up", link.startup_ms, Random(f"{seed} {edge_number} up rate")),
        down=_direction(link, "down", link.down_startup_ms, Random(f"{seed} {edge_number} down rate")),
    )


def _direction(link: Link, way: str, startup_ms: float, rng: Random) -> LinkDirection:
    low, high = link.range_bytes_per_s(way)
    rate = high
    changes: tuple[tuple[float, float], ...] = ()
    if link.change_every_s is not None and low < high < math.inf:
        rate = rng.uniform(low, high)
        changes = varying_bandwidth(rng, low_bytes_per_s=low, high_bytes_per_s=high, every_s=link.change_every_s)
    return LinkDirection(
        delay_s=link.rtt_ms * 1e-3 / 2,
        jitter_s=link.jitter_ms * 1e-3,
        bytes_per_s=rate,
        startup_s=startup_ms * 1e-3,
        changes=changes,
    )


def end_ids(texts: Sequence[RecordedText]) -> frozenset[int]:
    """The id that ends most texts, if it stands nowhere else: the end of sequence, which recordings don't name."""
    last_id, _ = Counter(text.target_ids[-1] for text in texts).most_common(1)[0]
    return frozenset() if any(last_id in text.target_ids[:-1] for text in texts) else frozenset({last_id})


def _text_run(answer: SimulatedAnswer) -> TextRun:
    spans = [
        Span(
            lane=str(each.lane), start_s=round(each.start_s, 5), end_s=round(each.end_s, 5), num_tokens=each.num_tokens
        )
        for each in answer.spans
    ]
    return TextRun(text_id=answer.text.id, record=answer.record, spans=spans, late=late_pace(answer.token_times_s))


def late_pace(token_times_s: Sequence[float]) -> tuple[int, float]:
    """How many tokens came after the 64th, and in how many seconds; from the end of the burst that the 64th was in."""
    times_s = list(token_times_s)
    first = EARLY_TOKENS
    while first < len(times_s) and times_s[first] == times_s[first - 1]:
        first += 1
    return (len(times_s) - first, times_s[-1] - times_s[first - 1]) if first < len(times_s) else (0, 0.0)
