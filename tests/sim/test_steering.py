"""Whole requests under steering, in virtual time: plans, thresholds and choices follow what the world does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from edgedraft.backends.trace import RecordedText
from edgedraft.core.strategy import Strategy
from edgedraft.core.triggers import DualThreshold
from edgedraft.schedule.catalogue import auto, cloud_only, flow, pipesd
from edgedraft.schedule.uploads import UploadPlanned
from edgedraft.sim import (
    EdgeProfile,
    LinkDirection,
    LinkProfile,
    SimulatedAnswer,
    SimulatedEdge,
    TargetProfile,
    simulate,
)
from edgedraft.tune.autotuner import Phase
from edgedraft.tune.choice import Objective, Option
from edgedraft.tune.search import Thresholds
from edgedraft.tune.steering import Knowledge, Steering

from .conftest import recorded_text

GOOD = Thresholds(0.6, 0.35)
NEAR = LinkProfile.symmetric(rtt_s=0.02)


def text_of(every: int, num_tokens: int = 200) -> RecordedText:
    """Wrong, and unsure, at every so manieth place."""
    return recorded_text(num_tokens=num_tokens, wrong=range(every - 1, num_tokens, every), ends=True)


SUITS, USELESS = text_of(9), recorded_text(num_tokens=200, wrong=range(199), ends=True)


def ask(
    texts: Sequence[RecordedText],
    strategy: Strategy,
    steering: Steering | None = None,
    *,
    draft_s: float = 0.005,
    network: LinkProfile = NEAR,
    target: TargetProfile | None = None,
) -> list[SimulatedAnswer]:
    """The simulator itself raises where a text is not the target's own."""
    edge = SimulatedEdge(
        texts=texts,
        strategy=strategy,
        profile=EdgeProfile(draft_s=draft_s, draft_jitter=0.05),
        network=network,
        max_tokens=200,
        eos_ids=frozenset({texts[0].target_ids[-1]}),
        steering=steering,
    )
    return simulate([edge], target or TargetProfile(step_s=0.03), seed=1)


def tpt_s(answers: Sequence[SimulatedAnswer]) -> float:
    """Over the tokens after the 64th."""
    times = [answer.token_times_s for answer in answers]
    return sum(each[-1] - each[63] for each in times) / sum(len(each) - 64 for each in times)


def steering_of(strategy: Strategy, *, held: Thresholds | None = None, objective: Objective | None = None) -> Steering:
    return Steering(Knowledge(np.random.default_rng(3), held=held), strategy, objective=objective)


def chosen(steering: Steering) -> object:
    choice = steering.record().choice
    return None if choice is None else choice["choice"]


# -- plans and thresholds ----------------------------------------------------------------------------------------------


def link_of(startup_s: float) -> LinkProfile:
    """A link that is busy with every message for a time, and whose delays scatter a little."""
    up = LinkDirection(startup_s=startup_s, delay_s=0.01, jitter_s=0.001)
    return LinkProfile(up=up, down=LinkDirection(delay_s=0.01, jitter_s=0.001))


def test_uploads_are_planned_anew_when_messages_have_become_dear() -> None:
    steering = steering_of(pipesd(), held=GOOD)
    answers = ask([SUITS] * 3, pipesd(), steering, draft_s=0.03, network=link_of(0.001))
    upload = answers[-1].strategy.upload
    assert isinstance(upload, UploadPlanned)
    assert set(upload.sizes) == {1}
    num_before = steering.knowledge.planner.num_plans
    before = steering.record().link
    assert before is not None
    assert before.rtt_s == pytest.approx(0.022, rel=0.1)
    ask([SUITS] * 4, pipesd(), steering, draft_s=0.03, network=link_of(0.1))
    after = steering.record().link
    assert after is not None
    assert after.rtt_s > 3 * before.rtt_s
    assert steering.knowledge.planner.num_plans > num_before


def test_thresholds_are_tuned_anew_when_the_round_trip_has_grown() -> None:
    steering = steering_of(pipesd(), held=GOOD)
    ask([SUITS] * 2, pipesd(), steering, draft_s=0.02)
    assert steering.knowledge.tuning.num_retunes == 0
    ask([SUITS] * 2, pipesd(), steering, draft_s=0.02, network=LinkProfile.symmetric(rtt_s=0.3))
    assert steering.knowledge.tuning.num_retunes >= 1


def test_the_tuner_comes_to_rest_and_is_no_worse_for_it() -> None:
    steering = steering_of(pipesd())
    answers = ask([SUITS] * 8, pipesd(), steering, draft_s=0.02)
    state = steering.knowledge.tuning.state
    assert state is not None
    assert state.phase is Phase.HOLDING
    trigger = answers[-1].strategy.trigger
    assert trigger == DualThreshold(token_threshold=state.current.token, sequence_threshold=state.current.sequence)
    fixed_s = [
        tpt_s(ask([SUITS], pipesd(token_threshold=token, sequence_threshold=sequence), draft_s=0.02))
        for token, sequence in ((0.05, 0.02), (0.5, 0.3), (0.97, 0.9))
    ]
    assert tpt_s(answers[-1:]) <= 1.05 * min(fixed_s)


# -- auto --------------------------------------------------------------------------------------------------------------


def test_auto_is_flow_on_a_short_link_with_a_quick_draft() -> None:
    steering = steering_of(auto())
    answers = ask([SUITS] * 3, auto(), steering)
    assert chosen(steering) == "flow"
    assert {answer.record.counters.num_reopens for answer in answers} == {0}
    best_s = min(tpt_s(ask([SUITS] * 3, strategy)) for strategy in (flow(), cloud_only(), pipesd()))
    assert tpt_s(answers) <= 1.03 * best_s


def test_auto_turns_a_useless_draft_off_and_is_then_the_cloud_alone() -> None:
    costly = TargetProfile(step_s=0.03, per_draft_s=0.02)
    steering = steering_of(auto())
    answers = ask([USELESS] * 3, auto(), steering, target=costly)
    assert chosen(steering) == "cloud-only"
    assert [answer.strategy.uses_draft for answer in answers[:2]] == [False, False], "then it is tried again"
    assert {answer.record.counters.num_reopens for answer in answers} == {0}
    assert tpt_s(answers) <= 1.03 * tpt_s(ask([USELESS] * 3, cloud_only(), target=costly))


def test_auto_decides_again_when_the_draft_has_changed() -> None:
    """Good drafts, then none that is right, then good ones again: the same edge, one request after another."""
    steering = steering_of(auto())
    options = []
    for text in (SUITS, USELESS, USELESS, SUITS, SUITS, SUITS):
        ask([text] * 2, auto(), steering)
        options.append(chosen(steering))
    assert options[0] == "flow"
    assert options[2] == "cloud-only"
    assert options[-1] == "flow"


def test_auto_takes_the_question_and_answer_where_passes_are_dear() -> None:
    """Time against passes: the dearer a pass, the fewer of them."""

    def passes(price_s: float) -> tuple[float, float]:
        steering = steering_of(auto(), objective=Objective(price_s))
        answers = ask([SUITS] * 4, auto(), steering, draft_s=0.02)
        num_passes = sum(answer.record.counters.num_target_passes for answer in answers)
        return num_passes, tpt_s(answers)

    costs = [passes(price_s) for price_s in (0.0, 0.05, math.inf)]
    for (more, _), (fewer, _) in pairwise(costs):
        assert fewer <= more
    assert costs[-1][0] < 0.5 * costs[0][0]
    assert costs[0][1] < costs[-1][1]


def test_objective_cost_takes_no_more_passes_than_pipesd() -> None:
    def passes(strategy: Strategy, objective: Objective) -> int:
        steering = steering_of(strategy, held=GOOD, objective=objective)
        answers = ask([SUITS] * 3, strategy, steering, draft_s=0.02)
        return sum(answer.record.counters.num_target_passes for answer in answers)

    assert passes(auto(), Objective.of("cost")) <= passes(pipesd(), Objective())


@pytest.mark.parametrize("option", list(Option))
def test_any_change_in_mid_request_leaves_the_text_as_it_is(option: Option) -> None:
    """The simulator compares every answer with the recorded text."""
    steering = steering_of(auto(), objective=Objective(0.01))
    chooser = steering.knowledge.chooser("auto", Objective(0.01))
    assert chooser is not None
    chooser.took = lambda num_tokens, elapsed_s, measurements: setattr(chooser, "option", option)  # type: ignore[method-assign]
    answer = ask([SUITS], auto(), steering, draft_s=0.02)[0]
    assert len(answer.token_ids) == 200
    assert answer.strategy.uses_draft is (option is not Option.CLOUD_ONLY)


def test_stalls_of_seconds_do_no_harm() -> None:
    network = LinkProfile(up=NEAR.up, down=NEAR.down, stall_interval_s=2.0, stall_s=3.0)
    for strategy in (auto(), pipesd(), flow()):
        steering = steering_of(strategy)
        answers = ask([SUITS] * 3, strategy, steering, draft_s=0.02, network=network)
        assert all(len(answer.token_ids) == 200 for answer in answers)
        record = steering.record()
        assert record.draft_step_s == pytest.approx(0.02, rel=0.1)
