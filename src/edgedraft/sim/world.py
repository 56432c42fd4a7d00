"""Edges, their links and one cloud, from the first request to the last."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from edgedraft.errors import EdgedraftError, InvalidRequestError
from edgedraft.sim.clock import Clock
from edgedraft.sim.cloud_node import CloudNode
from edgedraft.sim.compute import TargetProfile
from edgedraft.sim.edge_node import EdgeNode
from edgedraft.sim.edges import SimulatedAnswer, SimulatedEdge


def simulate(
    edges: Sequence[SimulatedEdge],
    target: TargetProfile,
    *,
    seed: int,
    max_batch_sessions: int = 1,
    keep_spans: bool = False,
) -> list[SimulatedAnswer]:
    """Every answer, by edge and then by text. The same arguments give the same answers.

    The sessions, the batcher and the strategies are those of the live system; models, links and time are not.
    `max_batch_sessions`: how many sessions share a target pass. `keep_spans`: note who was busy when.

    Raises `InvalidRequestError` for nothing to simulate, `EdgedraftError` where a request ends in an error, does not
    end, or ends with another text than the recorded one: faults of ours, never of a scenario.
    """
    if not edges:
        raise InvalidRequestError("edges is empty; legal: at least one.", field="edges")
    if max_batch_sessions < 1:
        raise InvalidRequestError(
            f"max_batch_sessions is {max_batch_sessions}; legal: 1 or more.", field="max_batch_sessions"
        )
    clock = Clock()
    cloud = CloudNode(clock, target, max_batch_sessions=max_batch_sessions)
    nodes = [
        EdgeNode(clock, edge, cloud, number=number, seed=_edge_seed(seed, number), keep_spans=keep_spans)
        for number, edge in enumerate(edges)
    ]
    clock.run()
    for node in nodes:
        if len(node.answers) < len(node.edge.texts):
            raise EdgedraftError(f"edge {node.number} got stuck in text {node.edge.texts[len(node.answers)].id}.")
    return [answer for node in nodes for answer in node.answers]


def _edge_seed(seed: int, number: int) -> int:
    """The first edge has the seed itself, as the link emulator of a live run has."""
    return seed if number == 0 else Random(f"{seed} edge {number}").getrandbits(62)  # noqa: S311 (guards nothing)
