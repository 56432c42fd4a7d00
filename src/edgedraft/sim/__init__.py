"""A simulator: virtual time over the session machines that the live system runs, with recorded models or real ones.

answers = simulate([SimulatedEdge(texts=texts, strategy=vanilla(6), profile=EdgeProfile(draft_s=0.036),
                                  network=LinkProfile.symmetric(rtt_s=0.1))], TargetProfile(step_s=0.03), seed=1)
"""

from edgedraft.sim.compute import EdgeProfile, TargetProfile
from edgedraft.sim.edges import SimulatedAnswer, SimulatedEdge, Steering
from edgedraft.sim.models import TextModels
from edgedraft.sim.network import LinkDirection, LinkProfile, varying_bandwidth
from edgedraft.sim.payload import IDS, PAPER, Payload
from edgedraft.sim.timeline import Lane, Span, TargetPass, Timeline
from edgedraft.sim.world import simulate

__all__ = [
    "IDS",
    "PAPER",
    "EdgeProfile",
    "Lane",
    "LinkDirection",
    "LinkProfile",
    "Payload",
    "SimulatedAnswer",
    "SimulatedEdge",
    "Span",
    "Steering",
    "TargetPass",
    "TargetProfile",
    "TextModels",
    "Timeline",
    "simulate",
    "varying_bandwidth",
]
