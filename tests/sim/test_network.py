"""When each burst of a bad link arrives: the schedule, exactly."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from edgedraft.errors import InvalidRequestError
from edgedraft.sim.network import (
    DirectionSchedule,
    LinkDirection,
    LinkProfile,
    Stalls,
    Way,
    schedules,
    varying_bandwidth,
)


def no_stalls() -> Stalls:
    return Stalls(math.inf, 0.0, random.Random(0))


def deliveries(direction: LinkDirection, bursts: list[tuple[float, int]], stalls: Stalls | None = None) -> list[float]:
    schedule = DirectionSchedule(direction, stalls or no_stalls(), random.Random(1))
    return [schedule.delivery_s(arrival_s, size_bytes) for arrival_s, size_bytes in bursts]


def test_delay_alone_does_not_occupy_the_link() -> None:
    assert deliveries(LinkDirection(delay_s=0.5), [(0.0, 10), (0.1, 10), (0.1, 10)]) == [0.5, 0.6, 0.6]


def test_bandwidth_and_startup_occupy_it_in_turn() -> None:
    direction = LinkDirection(delay_s=0.5, bytes_per_s=100, startup_s=0.25)
    # Each burst of 50 bytes takes 0.75 s; the last one finds the link free again.
    assert deliveries(direction, [(0.0, 50), (0.1, 50), (4.0, 50)]) == [1.25, 2.0, 5.25]


def test_end_of_stream_occupies_nothing_and_stays_last() -> None:
    assert deliveries(LinkDirection(startup_s=1.0, delay_s=0.5), [(0.0, 10), (0.0, 0)]) == [1.5, 1.5]


def test_jitter_keeps_the_order_and_its_bounds() -> None:
    arrivals = [index * 0.001 for index in range(200)]
    times = deliveries(LinkDirection(delay_s=0.1, jitter_s=0.05), [(arrival, 1) for arrival in arrivals])
    assert times == sorted(times)
    assert all(0.1 <= time_s - arrival <= 0.15 for time_s, arrival in zip(times, arrivals, strict=True))
    assert len(set(times)) > 5


def test_stall_holds_what_would_start_or_arrive_in_it() -> None:
    stalls = no_stalls()
    stalls.add(1.0, 2.0)
    assert deliveries(LinkDirection(delay_s=0.5), [(0.0, 1), (0.6, 1), (1.5, 1), (4.0, 1)], stalls) == [
        0.5,  # before it
        3.0,  # on its way when it began
        3.5,  # had to wait to start
        4.5,
    ]


def test_stall_pauses_a_transmission() -> None:
    stalls = no_stalls()
    stalls.add(1.0, 2.0)
    stalls.add(3.5, 1.0)
    # Two seconds of work: one before the first stall, half between the two, half after the second.
    assert deliveries(LinkDirection(bytes_per_s=100), [(0.0, 200)], stalls) == [5.0]


def test_seeded_stalls_come_at_the_mean_interval() -> None:
    stalls = Stalls(2.0, 0.5, random.Random(3))
    stalled = sum(stalls.release_s(at / 100) > at / 100 for at in range(100_000))
    assert 0.17 < stalled / 100_000 < 0.23  # 0.5 / (2 + 0.5)


def test_same_seed_gives_the_same_times_and_another_seed_others() -> None:
    profile = LinkProfile(
        up=LinkDirection(jitter_s=0.02),
        down=LinkDirection(jitter_s=0.02),
        stall_interval_s=0.5,
        stall_s=0.1,
    )

    def both(seed: int, extra_down: int = 0) -> tuple[list[float], list[float]]:
        ways, _ = schedules(profile, seed)
        down = [ways[Way.DOWN].delivery_s(index * 0.01, 9) for index in range(100 + extra_down)][:100]
        return [ways[Way.UP].delivery_s(index * 0.01, 9) for index in range(100)], down

    assert both(7) == both(7)
    assert both(7) == both(7, extra_down=50), "one direction's traffic must not change the other's jitter"
    assert both(7) != both(8)
    assert both(7)[0] != both(7)[1]


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("delay_s", lambda: LinkDirection(delay_s=-1)),
        ("jitter_s", lambda: LinkDirection(jitter_s=math.nan)),
        ("startup_s", lambda: LinkDirection(startup_s=math.inf)),
        ("bytes_per_s", lambda: LinkDirection(bytes_per_s=0)),
        ("rtt_s", lambda: LinkProfile.symmetric(rtt_s=-0.1)),
        ("stall_s", lambda: LinkProfile(stall_s=-1)),
        ("stall_interval_s", lambda: LinkProfile(stall_interval_s=0)),
        ("cut_interval_s", lambda: LinkProfile(cut_interval_s=-2)),
    ],
)
def test_bad_profile_names_the_field(field: str, make: Callable[[], object]) -> None:
    with pytest.raises(InvalidRequestError, match=f"^{field} is ") as caught:
        make()
    assert caught.value.field == field


# -- bandwidth that changes ------------------------------------------------------------------------------------------


def test_each_period_has_its_own_bandwidth() -> None:
    direction = LinkDirection(bytes_per_s=100, startup_s=0.5, delay_s=0.25, changes=((1.0, 10), (3.0, 1000)))
    # The start-up ends at 0.5; 50 bytes leave by 1.0, 20 more by 3.0, the last 930 by 3.93.
    assert deliveries(direction, [(0.0, 1000), (10.0, 500)]) == pytest.approx([4.18, 11.25])


def test_changed_bandwidth_holds_from_its_moment_on() -> None:
    direction = LinkDirection(bytes_per_s=100, changes=((1.0, 50),))
    assert deliveries(direction, [(0.0, 100), (1.0, 100)]) == pytest.approx([1.0, 3.0])


def test_nothing_flows_in_a_stall_whatever_the_bandwidth() -> None:
    stalls = no_stalls()
    stalls.add(0.5, 1.0)
    direction = LinkDirection(bytes_per_s=100, changes=((1.0, 10), (2.0, 100)))
    # 50 bytes before the stall, 5 between its end and 2.0, the last 45 at 100 a second.
    assert deliveries(direction, [(0.0, 100)], stalls) == pytest.approx([2.45])


def test_unchanging_bandwidth_is_the_same_however_it_is_told() -> None:
    bursts = [(0.0, 700), (0.5, 20), (9.0, 300)]
    plain = deliveries(LinkDirection(bytes_per_s=100, startup_s=0.25), bursts)
    told_again = LinkDirection(bytes_per_s=100, startup_s=0.25, changes=((1.0, 100), (4.0, 100), (9.5, 100)))
    assert deliveries(told_again, bursts) == pytest.approx(plain)


def test_varying_bandwidth_is_seeded_and_in_its_range() -> None:
    def drawn(seed: int) -> tuple[tuple[float, float], ...]:
        return varying_bandwidth(random.Random(seed), low_bytes_per_s=10, high_bytes_per_s=80, every_s=20, until_s=2000)

    changes = drawn(1)
    assert [start_s for start_s, _ in changes] == [20.0 * count for count in range(1, 101)]
    assert all(10 <= bytes_per_s <= 80 for _, bytes_per_s in changes)
    assert max(changes, key=lambda change: change[1])[1] > 60
    assert changes == drawn(1) != drawn(2)
    assert LinkDirection(changes=changes).changes == changes


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("changes", lambda: LinkDirection(changes=((0.0, 5),))),
        ("changes", lambda: LinkDirection(changes=((2.0, 5), (2.0, 6)))),
        ("changes", lambda: LinkDirection(changes=((math.nan, 5),))),
        ("bytes_per_s", lambda: LinkDirection(changes=((1.0, 0.0),))),
        ("every_s", lambda: varying_bandwidth(random.Random(0), low_bytes_per_s=1, high_bytes_per_s=2, every_s=0)),
        ("until_s", lambda: varying_bandwidth(random.Random(0), low_bytes_per_s=1, high_bytes_per_s=2, until_s=-1)),
        ("low_bytes_per_s", lambda: varying_bandwidth(random.Random(0), low_bytes_per_s=3, high_bytes_per_s=2)),
    ],
)
def test_bad_changes_name_the_field(field: str, make: Callable[[], object]) -> None:
    with pytest.raises(InvalidRequestError, match=f"^{field} is ") as caught:
        make()
    assert caught.value.field == field
