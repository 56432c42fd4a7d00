"""The comparison of searches on texts made up here: rounds add up, and tuning finds the short end."""

from __future__ import annotations

import numpy as np
import pytest

from edgedraft.backends.trace import RecordedText
from edgedraft.bench import tuning
from edgedraft.bench.tuning import (
    TunerSteering,
    TuningCase,
    compare_searches,
    recovery,
    true_tpt_s,
    tune,
    tuned,
    with_thresholds,
)
from edgedraft.core.events import MessageReceived, Start, StrategyChanged, TokenDrafted
from edgedraft.protocol.messages import Commit, CommitKind
from edgedraft.schedule.catalogue import pipesd
from edgedraft.sim.compute import EdgeProfile, TargetProfile
from edgedraft.sim.edges import SimulatedEdge
from edgedraft.sim.network import LinkProfile
from edgedraft.tune.autotuner import Autotuner, Phase
from edgedraft.tune.search import Thresholds
from edgedraft.types import DraftToken


def made_up_text(number: int, num_tokens: int = 120) -> RecordedText:
    """One token in twelve is wrong, and the draft is less sure of those."""
    generator = np.random.default_rng(number)
    right = generator.uniform(size=num_tokens) > 1 / 12
    confidence = np.where(right, generator.beta(8, 0.4, num_tokens), generator.beta(3, 3, num_tokens))
    return RecordedText(
        id=str(number),
        kind="code",
        num_prompt_tokens=5,
        target_ids=(1,) * num_tokens,
        target_prob=(0.9,) * num_tokens,
        draft_ids=tuple(1 if each else 2 for each in right),
        draft_prob=tuple(confidence.tolist()),
        draft_entropy=(0.5,) * num_tokens,
        target_rank_of_draft=(1,) * num_tokens,
        overlap=(0.9,) * num_tokens,
        draft_top5_ids=((1,),) * num_tokens,
        draft_top5_probs=((0.9,),) * num_tokens,
    )


TEXTS = [made_up_text(number) for number in range(4)]


def case(rtt_s: float) -> TuningCase:
    edge = SimulatedEdge(
        texts=TEXTS,
        strategy=pipesd(),
        profile=EdgeProfile(draft_s=0.01),
        network=LinkProfile.symmetric(rtt_s=rtt_s),
    )
    return TuningCase(edge, TargetProfile(step_s=0.03))


@pytest.fixture(autouse=True)
def _coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "REFERENCE_STEPS", (0.02, 0.5, 0.9))


def test_tuning_takes_sixteen_trials_of_about_twenty_tokens() -> None:
    tuner = Autotuner(np.random.default_rng(0))
    num_tokens = tune(tuner, case(0.1), seed=0)
    assert tuner.state.phase is Phase.HOLDING
    assert tuner.state.num_trials == 16
    assert 320 <= num_tokens <= 16 * 60


def test_tuning_stops_where_it_is_told() -> None:
    tuner = Autotuner(np.random.default_rng(0))
    assert 100 <= tune(tuner, case(0.1), seed=0, most_tokens=100) <= 132
    assert tuner.state.phase is not Phase.HOLDING


def test_thresholds_reach_the_edge_and_matter() -> None:
    assert true_tpt_s(case(0.3), Thresholds(0.999, 0.5)) > 1.1 * true_tpt_s(case(0.3), Thresholds(0.5, 0.3))


def test_the_same_seed_tunes_alike() -> None:
    assert tuned(case(0.1), 3).thresholds == tuned(case(0.1), 3).thresholds


def test_tuning_with_foresight_is_near_the_best_and_before_the_others() -> None:
    outcomes = {outcome.search: outcome.ratio_median for outcome in compare_searches(case(0.3), seeds=range(3))}
    assert set(outcomes) == set(tuning.SEARCHES)
    assert outcomes["foresight"] <= 1.05
    assert outcomes["foresight"] <= min(outcomes["grid"], outcomes["measured"])


def test_tuning_follows_a_step_in_the_link() -> None:
    ratios = sorted(recovery(case(0.02), case(0.3), seed, most_tokens=640) for seed in range(3))
    assert ratios[1] <= 1.10


def test_a_request_starts_with_the_tuners_thresholds_and_hears_of_changes_alone() -> None:
    tuner = Autotuner(np.random.default_rng(0), trial_tokens=1, skipped_verdicts=0)
    steering = TunerSteering(tuner, pipesd(), most_tokens=10)
    for _ in range(2):  # each request begins with the strategy that it was given
        change = steering.observe(Start(), [], 0.0)
        assert change == StrategyChanged(with_thresholds(pipesd(), tuner.thresholds))
        assert steering.observe(TokenDrafted(0, 5, DraftToken(1, 0.9, 0.5)), [], 0.1) is None
    assert steering.observe(commit_of(5, 2), [], 0.5) is None  # the first: its time tells of prefill
    assert tuner.state.num_trials == 0
    change = steering.observe(commit_of(7, 2), [], 0.6)
    assert tuner.state.num_trials == 1
    assert change == StrategyChanged(with_thresholds(pipesd(), tuner.thresholds))


def test_a_tuner_hears_nothing_past_the_most_tokens() -> None:
    tuner = Autotuner(np.random.default_rng(0), trial_tokens=1, skipped_verdicts=0)
    steering = TunerSteering(tuner, pipesd(), most_tokens=4)
    for number in range(5):
        steering.observe(commit_of(5 + 2 * number, 2), [], 0.1 * number)
    assert tuner.state.num_trials == 1
    assert steering.num_left == 0


def commit_of(position: int, num_ids: int) -> MessageReceived:
    return MessageReceived(
        Commit(
            channel=0,
            incarnation=0,
            epoch=0,
            position=position,
            token_ids=(1,) * num_ids,
            kind=CommitKind.BONUS,
            num_judged=num_ids - 1,
            num_accepted=num_ids - 1,
        )
    )
