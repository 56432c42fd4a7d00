"""The draft model on its device: one run of steps after another, as `edge.drafter` has it on its thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from edgedraft.core.events import DraftNext, TokenDrafted
from edgedraft.sim.clock import Clock
from edgedraft.sim.compute import EdgeProfile
from edgedraft.sim.models import TextModels
from edgedraft.sim.timeline import Lane, Timeline


@dataclass(slots=True, eq=False)
class Seat:
    """A request's use of the draft, which holds `held`. `latest`: its newest command, which ends an older one's run."""

    models: TextModels
    timeline: Timeline
    on_token: Callable[[TokenDrafted], None]
    latest: DraftNext | None = None
    released: bool = False
    held: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Run:
    """The steps of one command: the next is at `position`, began at `began_s` and takes `step_s`."""

    seat: Seat
    command: DraftNext
    position: int
    num_left: int
    began_s: float
    step_s: float


class SimulatedDrafter:
    """Runs commands in their order. A step that has begun ends; a run ends early where `edge.drafter` would end it."""

    def __init__(self, clock: Clock, profile: EdgeProfile, rng: Random) -> None:
        self._clock = clock
        self._profile = profile
        self._rng = rng
        self._queue: deque[tuple[Seat, DraftNext]] = deque()
        self._busy = False

    def draft(self, seat: Seat, command: DraftNext) -> None:
        """Queue a run; each of its tokens is told to the seat as soon as it is there."""
        seat.latest = command
        self._queue.append((seat, command))
        if not self._busy:
            self._begin_next()

    def _begin_next(self) -> None:
        self._busy = False
        while self._queue and not self._busy:
            seat, command = self._queue.popleft()
            if seat.released:
                continue
            self._busy = True
            seat.held[command.keep_length :] = command.token_ids
            num_prompt = max(0, seat.models.num_prompt - command.keep_length)
            first_s = self._profile.taking_in_s(len(command.token_ids), num_prompt)
            if command.keep_length == 0 and seat.models.features is not None:
                first_s += self._profile.listen_s_per_s * seat.models.features.seconds
            self._begin(_Run(seat, command, command.position, command.num_tokens, 0.0, 0.0), first_s)

    def _begin(self, run: _Run, taking_in_s: float = 0.0) -> None:
        run.began_s = self._clock.now_s
        run.step_s = taking_in_s + self._profile.step_s(self._rng)
        self._clock.at(run.began_s + run.step_s, self._end_step, run)

    def _end_step(self, run: _Run) -> None:
        seat, now_s = run.seat, self._clock.now_s
        token = seat.models.draft_token(run.position, seat.held, run.step_s)
        event = TokenDrafted(run.command.epoch, run.position, token)
        seat.timeline.add(Lane.DRAFT, run.began_s, now_s, 1)
        run.position += 1
        run.num_left -= 1
        is_over = token.token_id in seat.models.eos_ids or seat.latest is not run.command or seat.released
        # The model goes on before anybody has looked at the token, as a thread would.
        if is_over or run.num_left == 0:
            self._begin_next()
        else:
            seat.held.append(token.token_id)
            self._begin(run)
        if not seat.released:
            seat.on_token(event)
