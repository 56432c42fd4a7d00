"""When plans are made anew, and with which figures."""

from __future__ import annotations

import pytest

from edgedraft.core.events import MessageReceived, TokenDrafted
from edgedraft.core.strategy import Strategy
from edgedraft.protocol.messages import Timings
from edgedraft.schedule.catalogue import cloud_only, flow, pipesd, vanilla
from edgedraft.schedule.link import LinkCost, LinkEstimate
from edgedraft.schedule.upload_plan import plan_batches
from edgedraft.schedule.uploads import UploadPlanned, UploadWhenFree
from edgedraft.tune.measuring import Measurements
from edgedraft.tune.replanning import DriftGate, UploadPlanner, in_flight_tokens
from edgedraft.types import DraftToken

from .conftest import commit_of


class KnownLink:
    """Stands in for the monitor: what it believes is what the test says."""

    def __init__(self) -> None:
        self.estimate: LinkEstimate | None = None

    def is_now(self, startup_s: float = 0.06, per_token_s: float = 0.01, delay_s: float = 0.02) -> None:
        self.estimate = LinkEstimate(
            startup_s=startup_s,
            per_token_s=per_token_s,
            delay_s=delay_s,
            rtt_s=startup_s + 2 * delay_s,
            num_samples=50,
            startup_known=True,
        )


def known(draft_s: float = 0.036, verify_s: float = 0.03) -> tuple[Measurements, KnownLink]:
    measurements, link = Measurements(), KnownLink()
    measurements.link = link  # type: ignore[assignment]
    for position in range(3, 60):
        event = TokenDrafted(0, position, DraftToken(1, 0.9, 0.1, draft_s))
        measurements.observe(event, (), 0.0, writes_on=True)
    commit = commit_of(3, [9], timings=Timings(0, round(verify_s * 1e6), 0, 0, 0))
    measurements.observe(MessageReceived(commit), (), 0.1, writes_on=True)
    return measurements, link


def settled(planner: UploadPlanner, measurements: Measurements, link: KnownLink, strategy: Strategy) -> Strategy:
    link.is_now()
    planner.take(measurements)
    return planner.planned(strategy, measurements)


def test_the_first_estimate_makes_the_first_plan() -> None:
    planner, (measurements, link) = UploadPlanner(), known()
    planner.take(measurements)
    assert not planner.is_due
    strategy = settled(planner, measurements, link, pipesd())
    assert strategy.upload == UploadPlanned(plan_batches(20, LinkCost(0.06, 0.01), measurements.draft.draft_s or 0))
    assert planner.num_plans == 1
    assert not planner.is_due


@pytest.mark.parametrize(
    "change",
    [{"startup_s": 0.09}, {"per_token_s": 0.02}, {"delay_s": 0.05}],
    ids=["start-up", "per token", "round trip"],
)
def test_a_fifth_off_three_times_in_a_row_is_a_reason_to_plan_anew(change: dict[str, float]) -> None:
    planner, (measurements, link) = UploadPlanner(), known()
    settled(planner, measurements, link, pipesd())
    for number in range(3):
        assert not planner.is_due, number
        link.is_now(**change)
        planner.take(measurements)
    assert planner.is_due


def test_one_estimate_looked_at_often_is_still_one_figure() -> None:
    planner, (measurements, link) = UploadPlanner(), known()
    settled(planner, measurements, link, pipesd())
    link.is_now(startup_s=0.1)
    for _ in range(10):
        planner.take(measurements)
    assert not planner.is_due


def test_ten_per_cent_change_nothing() -> None:
    planner, (measurements, link) = UploadPlanner(), known()
    settled(planner, measurements, link, pipesd())
    for _ in range(10):
        link.is_now(startup_s=0.066, per_token_s=0.011, delay_s=0.022)
        planner.take(measurements)
    assert not planner.is_due


def test_the_window_follows_the_drafts_at_once() -> None:
    planner, (measurements, link) = UploadPlanner(), known()
    strategy = settled(planner, measurements, link, pipesd())
    for _ in range(20):
        measurements.window.add(4)
    planner.take(measurements)
    assert planner.is_due
    planned = planner.planned(strategy, measurements).upload
    assert isinstance(planned, UploadPlanned)
    assert sum(planned.sizes) == 4


def test_flow_gets_the_cost_and_a_bound_in_flight() -> None:
    planner, (measurements, link) = UploadPlanner(), known()
    strategy = settled(planner, measurements, link, flow())
    assert strategy.upload == UploadWhenFree(LinkCost(0.06, 0.01))
    # 60 ms start-up, 40 ms of travel and two passes of 30 ms are 5 steps of 36 ms, and 4 to spare.
    assert strategy.max_in_flight_tokens == 9


@pytest.mark.parametrize("strategy", [vanilla(), cloud_only()])
def test_other_upload_policies_stay_as_they_are(strategy: Strategy) -> None:
    planner, (measurements, link) = UploadPlanner(), known()
    assert settled(planner, measurements, link, strategy) == strategy
    assert planner.num_plans == 0


def test_the_bound_in_flight_stays_between_four_and_sixty_four() -> None:
    measurements, link = known(draft_s=0.001, verify_s=0.1)
    link.is_now(delay_s=1.0)
    assert in_flight_tokens(measurements) == 64
    measurements, link = known(draft_s=5.0, verify_s=0.001)
    link.is_now(startup_s=0.0, delay_s=0.0)
    assert in_flight_tokens(measurements) == 5
    assert in_flight_tokens(Measurements()) is None


def test_a_longer_round_trip_is_drift_and_noise_is_not() -> None:
    gate, (measurements, link) = DriftGate(), known()
    for number in range(10):
        link.is_now(delay_s=0.02 + 0.001 * (number % 2))
        assert not gate.round_changed(measurements)
    for _ in range(2):
        link.is_now(delay_s=0.1)
        assert not gate.round_changed(measurements)
        assert not gate.round_changed(measurements), "the same estimate again"
    link.is_now(delay_s=0.1)
    assert gate.round_changed(measurements)


def test_a_millisecond_is_no_drift_however_large_its_share() -> None:
    gate, (measurements, link) = DriftGate(), known(draft_s=0.001, verify_s=0.0001)
    for number in range(20):
        link.is_now(startup_s=0.0, delay_s=0.0001 if number < 10 else 0.001)
        assert not gate.round_changed(measurements)


def test_time_per_token_is_looked_at_a_hundred_tokens_at_a_time() -> None:
    gate = DriftGate()
    for _ in range(10):
        assert not gate.time_changed(50, 50 * 0.1)
    fired = [gate.time_changed(50, 50 * 0.13) for _ in range(6)]
    assert fired == [False] * 5 + [True]
    gate.settle()
    assert not any(gate.time_changed(50, 50 * 0.2) for _ in range(10)), "tuned anew, so another time is no news"
