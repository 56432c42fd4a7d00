"""A link's start-up, per-token cost and delay, told apart from what an edge sees."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.errors import InvalidRequestError
from edgedraft.schedule.link import LinkCost, LinkEstimate, LinkMonitor
from edgedraft.schedule.upload_plan import plan_batches

DRAFT_S, VERIFY_S = 0.036, 0.065
Cutter = Callable[[int], Sequence[int]]


def whole(num_tokens: int) -> Sequence[int]:
    return (num_tokens,)


def each(num_tokens: int) -> Sequence[int]:
    return (1,) * num_tokens


def planned(startup_s: float, per_token_s: float) -> Cutter:
    return lambda num_tokens: plan_batches(num_tokens, LinkCost(startup_s, per_token_s), DRAFT_S)


@dataclass
class World:
    """An edge that drafts, sends and waits for verdicts over a link that is known here; both clocks start anywhere."""

    startup_s: float = 0.025
    per_token_s: float = 0.116
    up_s: float = 0.03
    down_s: float = 0.03
    jitter_s: float = 0.0
    stall_share: float = 0.0
    cut: Cutter = whole
    seed: int = 0
    rounds_per_request: int = 25
    now_s: float = 1234.5
    cloud_ahead_s: float = 987.6
    monitor: LinkMonitor = field(default_factory=LinkMonitor)

    def __post_init__(self) -> None:
        self.generator = np.random.default_rng(self.seed)
        self.free_s = self.last_arrival_s = -math.inf
        self.first_arrival_s: float | None = None
        self.position = self.num_rounds = 0

    def run(self, num_rounds: int) -> World:
        for _ in range(num_rounds):
            if self.num_rounds % self.rounds_per_request == 0:
                self.monitor.opened()
                self.first_arrival_s = None
            self.num_rounds += 1
            self._round(int(self.generator.integers(2, 13)))
        return self

    def _round(self, num_tokens: int) -> None:
        for size in self.cut(num_tokens):
            self.now_s += size * DRAFT_S * self.generator.uniform(0.9, 1.1)
            self.position += size
            self.monitor.sent(self.now_s, 0, self.position, size)
            arrival_s = self._arrival_s(size)
        stamp_s = arrival_s + self.cloud_ahead_s
        self.first_arrival_s = stamp_s if self.first_arrival_s is None else self.first_arrival_s
        turnaround_s = VERIFY_S * self.generator.uniform(0.8, 2.0)
        self.now_s = arrival_s + turnaround_s + self.down_s + self.generator.exponential(self.jitter_s)
        self.monitor.arrived(
            0,
            self.position,
            arrival_us=round((stamp_s - self.first_arrival_s) * 1e6) % 2**32,
            turnaround_s=turnaround_s,
            received_s=self.now_s,
        )

    def _arrival_s(self, size: int) -> float:
        self.free_s = max(self.free_s, self.now_s) + self.startup_s + self.per_token_s * size
        stall_s = self.generator.uniform(0.5, 4.0) if self.generator.random() < self.stall_share else 0.0
        arrival_s = self.free_s + self.up_s + self.generator.exponential(self.jitter_s) + stall_s
        self.last_arrival_s = max(arrival_s, self.last_arrival_s)
        return self.last_arrival_s

    @property
    def estimate(self) -> LinkEstimate:
        estimate = self.monitor.estimate
        assert estimate is not None
        return estimate


# -- costs -----------------------------------------------------------------------------------------------------------


def test_cost_of_a_message() -> None:
    assert LinkCost(0.025, 0.116).message_s(3) == pytest.approx(0.373)
    assert LinkCost(0.025, 0.116).message_s(0) == 0.025


def test_the_estimate_gives_the_cost_to_plan_with() -> None:
    estimate = World(cut=planned(0.025, 0.116)).run(40).estimate
    assert estimate.cost == LinkCost(estimate.startup_s, estimate.per_token_s)


# -- links without noise ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("startup_s", "per_token_s"), [(0.025, 0.116), (0.05, 0.116), (0.05, 0.029), (0.0, 0.058)])
def test_planned_uploads_tell_everything(startup_s: float, per_token_s: float) -> None:
    """Messages that queue behind each other give the start-up away."""
    estimate = World(startup_s, per_token_s, cut=planned(0.025, 0.116)).run(60).estimate
    assert estimate.startup_known
    assert estimate.startup_s == pytest.approx(startup_s, abs=2e-4)
    assert estimate.per_token_s == pytest.approx(per_token_s, rel=0.005)
    assert estimate.delay_s == pytest.approx(0.03, abs=5e-4)
    assert estimate.rtt_s == pytest.approx(startup_s + 0.06, abs=1e-3)
    assert estimate.num_samples == 60


def test_over_an_idle_link_the_start_up_counts_as_delay() -> None:
    estimate = World(0.025, 0.029, cut=whole).run(40).estimate
    assert (estimate.startup_known, estimate.startup_s) == (False, 0.0)
    assert estimate.per_token_s == pytest.approx(0.029, rel=0.01)
    assert estimate.rtt_s == pytest.approx(0.085, abs=5e-4), "the round trip is known all the same"
    assert estimate.delay_s == pytest.approx(0.0425, abs=5e-4)


def test_equal_messages_over_an_idle_link_tell_the_round_trip_only() -> None:
    estimate = World(0.025, 4.7e-6, cut=each).run(40).estimate
    assert not estimate.startup_known
    assert estimate.per_token_s == pytest.approx(0.0, abs=1e-6)
    assert estimate.rtt_s == pytest.approx(0.085, abs=5e-4)


def test_ways_of_unequal_delay_are_halved() -> None:
    """The labelled assumption: only their sum can be seen."""
    estimate = World(up_s=0.01, down_s=0.09, cut=planned(0.025, 0.116)).run(60).estimate
    assert estimate.delay_s == pytest.approx(0.05, abs=5e-4)


# -- noise -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("stall_share", [0.0, 0.03])
def test_jitter_and_stalls_of_seconds_hardly_move_it(seed: int, stall_share: float) -> None:
    world = World(0.05, 0.116, jitter_s=0.003, stall_share=stall_share, cut=planned(0.05, 0.116), seed=seed).run(100)
    assert world.estimate.startup_known
    assert world.estimate.startup_s == pytest.approx(0.05, rel=0.08)
    assert world.estimate.per_token_s == pytest.approx(0.116, rel=0.02)
    assert world.estimate.rtt_s == pytest.approx(0.11 + 2 * 0.003, rel=0.06)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("startup_s", "per_token_s"), [(0.0, 0.058), (0.12, 0.0)])
def test_noise_makes_no_cost_negative(startup_s: float, per_token_s: float, seed: int) -> None:
    def uneven(num_tokens: int) -> Sequence[int]:
        return [1, 3] * (num_tokens // 4) + [1] * (num_tokens % 4)

    estimate = World(startup_s, per_token_s, jitter_s=0.001, cut=uneven, seed=seed).run(60).estimate
    assert estimate.startup_known
    assert estimate.startup_s >= 0.0
    assert estimate.per_token_s >= 0.0
    assert estimate.cost.message_s(2) == pytest.approx(startup_s + 2 * per_token_s, rel=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_jitter_over_a_link_for_ids(seed: int) -> None:
    estimate = World(0.0, 4.7e-6, jitter_s=0.003, cut=each, seed=seed).run(100).estimate
    assert estimate.cost.message_s(10) < 0.005
    assert estimate.rtt_s == pytest.approx(0.066, abs=0.004)


# -- change ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_token_s", [0.029, 0.232])
def test_another_bandwidth_is_learnt_within_a_request(per_token_s: float) -> None:
    world = World(jitter_s=0.001, cut=planned(0.025, 0.116)).run(100)
    assert world.estimate.per_token_s == pytest.approx(0.116, rel=0.02)
    world.per_token_s = per_token_s
    for _ in range(25):
        world.run(1)
        estimate = world.estimate
        assert estimate.per_token_s > 0.02, "never unlearnt on the way"
    assert estimate.per_token_s == pytest.approx(per_token_s, rel=0.1)
    assert estimate.num_samples < 60, "what was seen before is forgotten"


def test_a_change_that_short_requests_hide_does_not_unlearn_the_costs() -> None:
    """Each opening costs a sample: its stamps start anew."""
    world = World(jitter_s=0.001, cut=planned(0.025, 0.116)).run(100)
    assert world.estimate.per_token_s == pytest.approx(0.116, rel=0.02)
    world.per_token_s, world.rounds_per_request = 0.232, 2
    for _ in range(40):
        world.run(1)
        estimate = world.estimate
        assert estimate.per_token_s > 0.1
    assert estimate.per_token_s == pytest.approx(0.232, rel=0.1)


def test_another_delay_is_learnt_within_a_request() -> None:
    world = World(jitter_s=0.001, cut=planned(0.025, 0.116)).run(100)
    assert world.estimate.rtt_s == pytest.approx(0.087, abs=0.004)
    world.up_s = world.down_s = 0.15
    for _ in range(25):
        world.run(1)
        estimate = world.estimate
    assert estimate.rtt_s == pytest.approx(0.327, rel=0.05)
    assert estimate.per_token_s == pytest.approx(0.116, rel=0.05)


def test_a_burst_behind_a_stall_is_no_change() -> None:
    """Tokens that leave one by one all wait for the same stall."""
    monitor = LinkMonitor()
    for number in range(80):
        sent_s = number * 0.1
        arrival_s = max(sent_s, 8.5 if number >= 70 else 0.0)
        monitor.sent(sent_s, 0, number, 1)
        monitor.arrived(0, number, arrival_us=round(arrival_s * 1e6), turnaround_s=0.0, received_s=arrival_s + 0.02)
        estimate = monitor.estimate
    assert estimate is not None
    assert estimate.num_samples > 70


@pytest.mark.parametrize("seed", range(5))
def test_a_start_up_that_jitter_hides_is_not_guessed(seed: int) -> None:
    world = World(0.025, 0.058, jitter_s=0.08, cut=planned(0.025, 0.058), seed=seed).run(30)
    assert (world.estimate.startup_known, world.estimate.startup_s) == (False, 0.0)


def test_a_stall_alone_is_no_change() -> None:
    world = World(jitter_s=0.001, cut=planned(0.025, 0.116)).run(90)
    world.up_s = 3.0
    world.run(3)
    world.up_s = 0.03
    estimate = world.run(20).estimate
    assert estimate.num_samples == 100
    assert estimate.per_token_s == pytest.approx(0.116, rel=0.02)


# -- clocks ----------------------------------------------------------------------------------------------------------


def test_stamps_wrap_at_32_bits() -> None:
    world = World(cut=planned(0.025, 0.116)).run(10)
    world.rounds_per_request = 1000
    world.first_arrival_s = world.now_s + world.cloud_ahead_s - 2**32 * 1e-6 + 10.0  # ten seconds before they wrap
    world.monitor.opened()
    estimate = world.run(50).estimate
    assert world.now_s + world.cloud_ahead_s > world.first_arrival_s + 2**32 * 1e-6
    assert world.monitor.num_dropped == 0
    assert estimate.num_samples == 60
    assert estimate.per_token_s == pytest.approx(0.116, rel=0.005)


@pytest.mark.parametrize("jump_s", [-3600.0, -120.0, 120.0, 3600.0])
def test_a_cloud_clock_that_jumps_costs_one_sample(jump_s: float) -> None:
    world = World(cut=planned(0.025, 0.116), rounds_per_request=1000).run(40)
    world.cloud_ahead_s += jump_s
    estimate = world.run(40).estimate
    assert world.monitor.num_dropped == 1
    assert (estimate.num_samples, estimate.startup_known) == (79, True)
    assert estimate.startup_s == pytest.approx(0.025, abs=2e-4)


def test_an_edge_clock_that_goes_back_starts_anew() -> None:
    world = World(cut=planned(0.025, 0.116)).run(40)
    assert world.estimate.num_samples == 40
    world.now_s -= 3600.0
    world.free_s = world.last_arrival_s = -math.inf
    estimate = world.run(30).estimate
    assert world.monitor.num_dropped == 40
    assert estimate.num_samples == 30
    assert estimate.per_token_s == pytest.approx(0.116, rel=0.01)


@pytest.mark.parametrize("received_s", [9.9, 10.5, 75.0, math.nan], ids=["before", "in turnaround", "late", "nan"])
def test_an_absurd_round_trip_is_dropped(received_s: float) -> None:
    monitor = LinkMonitor()
    monitor.sent(10.0, 0, 5, 5)
    monitor.arrived(0, 5, arrival_us=0, turnaround_s=0.6, received_s=received_s)
    assert (monitor.num_dropped, monitor.estimate) == (1, None)


# -- what is no sample -----------------------------------------------------------------------------------------------


def test_nothing_is_believed_before_the_first_round_trip() -> None:
    monitor = LinkMonitor()
    assert monitor.estimate is None
    monitor.sent(1.0, 0, 5, 5)
    assert monitor.estimate is None
    monitor.arrived(0, 5, arrival_us=0, turnaround_s=None, received_s=1.2)
    assert monitor.estimate is None, "an arrival alone tells no round trip"
    monitor.sent(2.0, 0, 10, 5)
    monitor.arrived(0, 10, arrival_us=1_000_000, turnaround_s=0.05, received_s=2.15)
    assert monitor.estimate is not None
    assert monitor.estimate.rtt_s == pytest.approx(0.1)
    assert not monitor.estimate.startup_known


def test_arrivals_that_say_nothing_new_are_passed_over() -> None:
    monitor = LinkMonitor()
    monitor.sent(1.0, 0, 5, 5)
    for received_s in (1.15, 1.25, 1.35):  # later commits, written by the target alone, name the same message
        monitor.arrived(0, 5, arrival_us=0, turnaround_s=0.05, received_s=received_s)
        monitor.arrived(0, 4, arrival_us=0, turnaround_s=0.05, received_s=received_s)
        monitor.arrived(1, 5, arrival_us=0, turnaround_s=0.05, received_s=received_s)
    assert monitor.num_dropped == 0
    assert monitor.estimate is not None
    assert monitor.estimate.num_samples == 1
    assert monitor.estimate.rtt_s == pytest.approx(0.1)


def test_two_messages_of_one_name_are_no_sample() -> None:
    """A bare question ends where the draft before it ended: the cloud's answer does not say which arrived."""
    monitor = LinkMonitor()
    monitor.sent(1.0, 0, 5, 5)
    monitor.sent(3.0, 0, 5, 0)
    monitor.arrived(0, 5, arrival_us=0, turnaround_s=0.05, received_s=3.15)
    assert monitor.estimate is None


def test_messages_of_an_earlier_opening_have_no_name() -> None:
    monitor = LinkMonitor()
    monitor.sent(1.0, 0, 5, 5)
    monitor.opened()
    monitor.arrived(0, 5, arrival_us=0, turnaround_s=0.05, received_s=1.15)
    assert monitor.estimate is None


def test_a_silent_cloud_costs_a_bounded_memory() -> None:
    monitor = LinkMonitor()
    for number in range(10_000):
        monitor.sent(number * 0.01, 0, number, 1)
    assert len(monitor._messages) == len(monitor._named) == 2000


def test_what_is_long_gone_is_no_sample() -> None:
    monitor = LinkMonitor()
    monitor.sent(1.0, 0, 5, 5)
    monitor.arrived(0, 5, arrival_us=0, turnaround_s=0.05, received_s=1.15)
    for number in range(3000):
        monitor.sent(2.0 + number * 0.01, 1, number, 1)
    assert monitor.estimate is None


def test_an_estimate_outlives_the_round_trips_that_it_rests_on() -> None:
    monitor = LinkMonitor(8)
    for number in range(40):
        monitor.sent(number, 0, number, 1)
        turnaround_s = 0.05 if number < 8 else None
        monitor.arrived(0, number, arrival_us=number * 10**6, turnaround_s=turnaround_s, received_s=number + 0.15)
        assert monitor.estimate is not None
        assert monitor.estimate.rtt_s == pytest.approx(0.1)


def test_a_window_too_short_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="num_samples is 3; legal: 8 or more"):
        LinkMonitor(3)


times = st.floats(allow_nan=True, allow_infinity=True)
actions = st.one_of(
    st.tuples(st.just("opened")),
    st.tuples(st.just("sent"), st.one_of(st.floats(0.0, 100.0), times), st.integers(0, 3), st.integers(0, 8)),
    st.tuples(
        st.just("arrived"),
        st.integers(0, 3),
        st.integers(0, 8),
        st.integers(0, 2**32 - 1),
        st.one_of(st.none(), st.floats(0.0, 1.0), times),
        st.one_of(st.floats(0.0, 100.0), times),
    ),
)


@given(st.lists(actions, max_size=60))
def test_nothing_breaks_it(steps: list[tuple]) -> None:
    monitor = LinkMonitor()
    for step in steps:
        match step:
            case ("opened",):
                monitor.opened()
            case ("sent", now_s, epoch, end):
                monitor.sent(now_s, epoch, end, end)
            case (_, epoch, end, arrival_us, turnaround_s, received_s):
                monitor.arrived(epoch, end, arrival_us=arrival_us, turnaround_s=turnaround_s, received_s=received_s)
        estimate = monitor.estimate
        if estimate is not None:
            assert all(
                0.0 <= value < math.inf
                for value in (estimate.startup_s, estimate.per_token_s, estimate.delay_s, estimate.rtt_s)
            )
