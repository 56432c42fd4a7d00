"""Why PipeSD looks one level ahead and no further: uploads that have begun cannot be recalled."""

from __future__ import annotations

import dataclasses

import pytest

from edgedraft.backends.trace import find_trace, read_traces
from edgedraft.core.strategy import Strategy, UploadImmediately
from edgedraft.schedule.catalogue import pipesd, vanilla
from edgedraft.schedule.link import LinkCost
from edgedraft.sim import PAPER, EdgeProfile, SimulatedEdge, TargetProfile, simulate
from edgedraft.sim.network import LinkDirection, LinkProfile
from edgedraft.sim.uplink import Uplink

PAPER_LINK = LinkProfile(
    up=LinkDirection(startup_s=0.025, bytes_per_s=20e6 / 8), down=LinkDirection(bytes_per_s=200e6 / 8)
)
COST = LinkCost(startup_s=0.025, per_token_s=0.116)


def tpt_s(strategy: Strategy, kind: str) -> float:
    """Time per token over three texts in the paper's scenario 1."""
    texts = read_traces(find_trace("qwen25-coder-0.5b-to-1.5b"), kinds=[kind])[:3]
    edge = SimulatedEdge(
        texts=texts,
        strategy=strategy,
        profile=EdgeProfile(draft_s=0.036),
        network=PAPER_LINK,
        payload=PAPER,
        eos_ids=frozenset({151_645}),
    )
    answers = simulate([edge], TargetProfile(step_s=0.065), seed=1)
    return sum(answer.record.total_s for answer in answers) / sum(len(answer.token_ids) for answer in answers)


ONE_LEVEL = pipesd(token_threshold=0.8, sequence_threshold=0.5, cost=COST)
UNBOUNDED = dataclasses.replace(ONE_LEVEL, max_verdicts_out=64, upload=UploadImmediately())


def test_an_unbounded_look_ahead_clogs_the_paper_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing that waits for the link can be recalled, what follows a wrong token delays all that comes after."""
    monkeypatch.setattr(Uplink, "recall", lambda *_: 0)

    assert tpt_s(ONE_LEVEL, "maths") < 1.02 * tpt_s(vanilla(4), "maths")
    assert tpt_s(UNBOUNDED, "maths") > 2 * tpt_s(vanilla(4), "maths")


@pytest.mark.parametrize("kind", ["maths", "chat"])
def test_recalling_what_waits_keeps_the_link_clear(kind: str) -> None:
    """PipeSD cancels queued uploads after a rejection; so does the edge."""
    assert tpt_s(ONE_LEVEL, kind) < tpt_s(vanilla(4), kind)
    assert tpt_s(UNBOUNDED, kind) < tpt_s(vanilla(4), kind)
