"""The draft model in virtual time: what `edge.drafter` does on its thread."""

from __future__ import annotations

import random

from edgedraft.core.events import DraftNext, TokenDrafted
from edgedraft.sim.clock import Clock
from edgedraft.sim.compute import EdgeProfile
from edgedraft.sim.drafter import Seat, SimulatedDrafter
from edgedraft.sim.recorded import Recording
from edgedraft.sim.timeline import Lane, Timeline

from .conftest import EOS_ID, recorded_text

PROMPT = 5


class Edge:
    """A drafter of a second a step, and one request that notes what it is told."""

    def __init__(self, *, ends_at: int | None = None, append_s: float = 0.0, prefill_s: float = 0.0) -> None:
        self.clock = Clock()
        profile = EdgeProfile(draft_s=1.0, append_s_per_token=append_s, prefill_s_per_token=prefill_s)
        self.drafter = SimulatedDrafter(self.clock, profile, random.Random(0))
        text = recorded_text(num_tokens=ends_at or 40, num_prompt_tokens=PROMPT, ends=ends_at is not None)
        self.told: list[tuple[float, int, int]] = []
        self.seat = self.new_seat(Recording(text, frozenset({EOS_ID})))

    def new_seat(self, recording: Recording) -> Seat:
        return Seat(recording, Timeline(0.0, []), self._told)

    def _told(self, event: TokenDrafted) -> None:
        self.told.append((self.clock.now_s, event.epoch, event.position))

    def draft(self, position: int, num_tokens: int, *, epoch: int = 0, num_new: int = 1, at_s: float = 0.0) -> None:
        command = DraftNext(epoch, position, position - num_new, [1] * num_new, num_tokens)
        self.clock.at(at_s, lambda _: self.drafter.draft(self.seat, command))


def test_run_tells_each_token_as_soon_as_it_is_there() -> None:
    edge = Edge()
    edge.draft(PROMPT, 3)
    edge.clock.run()
    assert edge.told == [(1.0, 0, 5), (2.0, 0, 6), (3.0, 0, 7)]
    spans = edge.seat.timeline.spans or []
    assert [(span.lane, span.start_s, span.end_s) for span in spans] == [(Lane.DRAFT, at, at + 1.0) for at in range(3)]


def test_newer_command_waits_for_the_step_that_is_out_and_ends_its_run() -> None:
    edge = Edge()
    edge.draft(PROMPT, 9)
    edge.draft(PROMPT + 1, 2, epoch=1, at_s=1.5)
    edge.clock.run()
    assert edge.told == [(1.0, 0, 5), (2.0, 0, 6), (3.0, 1, 6), (4.0, 1, 7)]


def test_command_that_waits_gets_one_step_even_if_a_newer_one_waits_behind_it() -> None:
    """It tells the model ids that the newer one takes for granted."""
    edge = Edge()
    edge.draft(PROMPT, 9)
    edge.draft(PROMPT + 1, 5, epoch=1, at_s=0.2)
    edge.draft(PROMPT + 2, 2, epoch=2, at_s=0.4)
    edge.clock.run()
    assert edge.told == [(1.0, 0, 5), (2.0, 1, 6), (3.0, 2, 7), (4.0, 2, 8)]


def test_run_ends_at_the_end_of_the_text() -> None:
    edge = Edge(ends_at=3)
    edge.draft(PROMPT, 9)
    edge.clock.run()
    assert [position for _, _, position in edge.told] == [5, 6, 7]


def test_released_seat_is_told_nothing_and_its_step_still_takes_its_time() -> None:
    edge = Edge()
    edge.draft(PROMPT, 9)
    edge.clock.at(1.5, lambda _: setattr(edge.seat, "released", True))
    later = edge.new_seat(edge.seat.models)
    edge.clock.at(1.6, lambda _: edge.drafter.draft(later, DraftNext(7, PROMPT, 0, [1] * PROMPT, 1)))
    edge.clock.run()
    assert edge.told == [(1.0, 0, 5), (3.0, 7, 5)]


def test_command_of_a_released_seat_never_begins() -> None:
    edge = Edge()
    edge.draft(PROMPT, 1)
    edge.draft(PROMPT, 9, epoch=1, at_s=0.5)
    edge.clock.at(0.6, lambda _: setattr(edge.seat, "released", True))
    later = edge.new_seat(edge.seat.models)
    edge.clock.at(0.7, lambda _: edge.drafter.draft(later, DraftNext(7, PROMPT, 0, [1] * PROMPT, 1)))
    edge.clock.run()
    assert edge.told == [(2.0, 7, 5)]


def test_new_ids_are_taken_in_before_the_first_step_only() -> None:
    edge = Edge(append_s=0.1, prefill_s=0.01)
    edge.draft(PROMPT, 2, num_new=PROMPT)
    edge.draft(PROMPT + 9, 2, num_new=3, at_s=10.0)
    edge.clock.run()
    times_s = [round(time_s, 9) for time_s, _, _ in edge.told]
    assert times_s == [1.05, 2.05, 11.2, 12.2]
