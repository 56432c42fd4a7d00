"""The way up: one message after another, and taking back what has not begun to leave."""

from __future__ import annotations

import math
import random

from edgedraft.protocol.messages import Ack, Draft, SessionFromEdge
from edgedraft.sim.clock import Clock
from edgedraft.sim.network import DirectionSchedule, LinkDirection, Stalls
from edgedraft.sim.uplink import Outgoing, Uplink


def draft(epoch: int, num_ids: int = 2) -> Draft:
    return Draft(
        channel=0, incarnation=1, epoch=epoch, position=5, token_ids=[1] * num_ids, verify=True, committed_length=5
    )


class World:
    """A link that a message of 100 bytes occupies for a second and a half, and its sender."""

    def __init__(self) -> None:
        self.clock = Clock()
        way = LinkDirection(startup_s=0.5, bytes_per_s=100, delay_s=10.0)
        schedule = DirectionSchedule(way, Stalls(math.inf, 0.0, random.Random(0)), random.Random(0))
        self.uplink = Uplink(self.clock, schedule, self._arrived)
        self.sent_s: list[float] = []
        self.left_s: list[float] = []
        self.arrived: list[tuple[float, SessionFromEdge]] = []

    def put(self, message: SessionFromEdge, *, asks: bool = False) -> None:
        self.uplink.put(Outgoing(self, message, 100, self.clock.now_s, asks))

    def sent(self, outgoing: Outgoing, start_s: float, arrival_s: float) -> None:
        assert start_s == self.clock.now_s < arrival_s
        self.sent_s.append(start_s)

    def has_left(self, outgoing: Outgoing) -> None:
        self.left_s.append(self.clock.now_s)

    def _arrived(self, message: SessionFromEdge) -> None:
        self.arrived.append((self.clock.now_s, message))


def test_messages_leave_one_after_another_and_travel_side_by_side() -> None:
    world = World()
    first, second, third = draft(0), draft(1), draft(2)
    for at_s, message in [(0.0, first), (0.1, second), (5.0, third)]:
        world.clock.at(at_s, world.put, message)
    world.clock.run()
    assert world.sent_s == [0.0, 1.5, 5.0]
    assert world.arrived == [(11.5, first), (13.0, second), (16.5, third)]


def test_whoever_asks_hears_when_the_message_has_left() -> None:
    world = World()
    world.put(draft(0))
    world.put(draft(0), asks=True)
    world.clock.run()
    assert world.left_s == [3.0]


def test_what_waits_can_be_taken_back_and_what_leaves_cannot() -> None:
    world = World()
    ack = Ack(channel=0, incarnation=1, committed_length=5)
    recalled: list[int] = []

    def recall(_: None) -> None:
        recalled.append(world.uplink.recall(world, lambda message: message.epoch == 0))

    for message in (draft(0), draft(0, 3), draft(1), draft(0, 4), ack):
        world.put(message)
    world.clock.at(1.0, recall)
    world.clock.run()
    assert recalled == [7]
    assert [message for _, message in world.arrived] == [draft(0), draft(1), ack]
    assert world.sent_s == [0.0, 1.5, 3.0]


def test_messages_of_others_stay() -> None:
    world, other = World(), World()
    world.put(draft(0))
    world.put(draft(0))
    assert world.uplink.recall(other, lambda message: True) == 0
    world.clock.run()
    assert len(world.arrived) == 2


def test_link_that_was_emptied_by_a_recall_still_keeps_its_turn() -> None:
    world = World()
    world.put(draft(0))
    world.put(draft(0))
    world.uplink.recall(world, lambda message: True)
    world.clock.at(0.5, world.put, draft(1))
    world.clock.at(0.6, world.put, draft(2))
    world.clock.run()
    assert world.sent_s == [0.0, 1.5, 3.0]
