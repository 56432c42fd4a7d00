"""What steering costs on the edge: planning, the tuner's suggestion, and watching a request token by token."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from time import perf_counter, process_time

import numpy as np

from edgedraft.backends.trace import find_trace, read_traces
from edgedraft.bench.scenario import load_cells
from edgedraft.bench.simulated import end_ids, network_of, target_of
from edgedraft.core.events import EdgeCommand, EdgeEvent
from edgedraft.schedule.catalogue import strategy_named
from edgedraft.schedule.link import LinkCost
from edgedraft.schedule.upload_plan import plan_batches
from edgedraft.sim import EdgeProfile, SimulatedEdge, simulate
from edgedraft.tune.search import BayesianSearch
from edgedraft.tune.steering import Knowledge, Steering

TRACE = "qwen25-coder-0.5b-to-1.5b"
CELL = "grid/code/draft_ms=36/rtt_ms=60"
STEERED = ("auto", "pipesd", "flow")
PAPER_COST = LinkCost(startup_s=0.025, per_token_s=0.116)
NUM_PLANS = 200
PLAN_TOKENS = 20


def plan_s() -> float:
    """Planning 20 tokens, median."""
    times_s = []
    for number in range(NUM_PLANS):
        draft_s = 0.03 + number * 1e-5  # another plan each time
        started_s = perf_counter()
        plan_batches(PLAN_TOKENS, PAPER_COST, draft_s)
        times_s.append(perf_counter() - started_s)
    return statistics.median(times_s)


def suggestion_s() -> float:
    """The tuner's last suggestion, when it knows most; median over seeds."""
    times_s = []
    for seed in range(20):
        generator = np.random.default_rng(seed)
        search = BayesianSearch(generator)
        took_s = 0.0
        point = search.suggest()
        while point is not None:
            search.tell(point, 0.05 + abs(point.token - 0.8) / 50 + float(generator.normal(0.0, 0.002)))
            started_s = perf_counter()
            point = search.suggest()
            took_s = perf_counter() - started_s if point is not None else took_s
        times_s.append(took_s)
    return statistics.median(times_s)


class _Watched:
    """Steering whose processor time is added up."""

    def __init__(self, steering: Steering) -> None:
        self.cpu_s = 0.0
        self._steering = steering

    def observe(self, event: EdgeEvent, commands: Sequence[EdgeCommand], now_s: float) -> EdgeEvent | None:
        started_s = process_time()
        answer = self._steering.observe(event, commands, now_s)
        self.cpu_s += process_time() - started_s
        return answer


def control_s_per_drafted_token(strategy_name: str) -> float:
    """Processor time of steering a request, planning and tuning included, over the tokens drafted meanwhile."""
    (cell,) = (cell for cell in load_cells(["grid"]) if cell.name == CELL)
    texts = read_traces(find_trace(TRACE), [cell.dataset])
    strategy = strategy_named(strategy_name)
    watched = _Watched(Steering(Knowledge(np.random.default_rng(0)), strategy))
    edge = SimulatedEdge(
        texts=texts,
        strategy=strategy,
        profile=EdgeProfile(draft_s=cell.edge.draft_s),
        network=network_of(cell.link, 0),
        max_tokens=cell.max_tokens,
        eos_ids=end_ids(texts),
        steering=watched,
    )
    answers = simulate([edge], target_of(cell), seed=0)
    return watched.cpu_s / sum(answer.record.counters.num_drafted for answer in answers)
