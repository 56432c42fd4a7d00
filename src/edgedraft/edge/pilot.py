"""What steers the requests of a client: one knowledge for its draft and its cloud, kept on disk as far as it lasts."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np

from edgedraft.core.events import EdgeCommand, EdgeEvent
from edgedraft.core.strategy import Strategy
from edgedraft.edge.tuner_store import TunerStore
from edgedraft.edge.workshop import Workshop
from edgedraft.errors import InvalidRequestError
from edgedraft.metrics.records import ControlRecord
from edgedraft.tune.choice import Objective
from edgedraft.tune.search import Thresholds
from edgedraft.tune.steering import Knowledge, Steering
from edgedraft.tune.tuner_file import TunerKey, TunerRecord

_log = logging.getLogger("edgedraft.edge")


class Pilot:
    """Steers one request. All of it runs on the event loop but the work that `workshop` is given."""

    def __init__(self, steering: Steering, workshop: Workshop, on_tuned: Callable[[Thresholds, int], None]) -> None:
        self._steering = steering
        self._workshop = workshop
        self._on_tuned = on_tuned
        self._was_tuned = steering.is_tuned

    def observe(
        self, event: EdgeEvent, commands: list[EdgeCommand], now_s: float, feed: Callable[[EdgeEvent], None]
    ) -> EdgeEvent | None:
        """As `Steering.observe`; `feed` takes what is decided later, in a thread."""
        change = self._steering.observe(event, commands, now_s)
        self._say()
        if (work := self._steering.work()) is not None:
            self._workshop.run(work, lambda result: self._worked(result, feed))
        return change

    def _worked(self, result: object, feed: Callable[[EdgeEvent], None]) -> None:
        change = self._steering.worked(result)
        self._say()
        if change is not None:
            feed(change)

    def _say(self) -> None:
        for line in self._steering.take_news():
            _log.info("%s", line)
        state = self._steering.knowledge.tuning.state
        is_tuned = self._steering.is_tuned
        if is_tuned and not self._was_tuned and state is not None and state.best is not None:
            self._on_tuned(state.best, state.num_trials)
        self._was_tuned = is_tuned

    def record(self) -> ControlRecord:
        """What was measured and decided, for the account."""
        return self._steering.record()


class Pilots:
    """Makes the pilot of each request that drafts. `cache_dir`: where thresholds are kept between runs."""

    def __init__(self, cache_dir: Path) -> None:
        self._store = TunerStore(cache_dir)
        self._workshop = Workshop()
        self._known: dict[TunerKey, Knowledge] = {}

    def close(self) -> None:
        self._workshop.close()

    async def pilot(
        self, key: TunerKey, strategy: Strategy, objective: Objective, *, by_name: bool
    ) -> tuple[Pilot, list[str]]:
        """The pilot of a request, and what its user should know. The first request of a `key` reads its file."""
        notices: list[str] = []
        knowledge = self._known.get(key)
        if knowledge is None:
            held, notices = await asyncio.to_thread(self._held, key)
            knowledge = self._known.setdefault(key, Knowledge(np.random.default_rng(), held=held))
        steering = Steering(knowledge, strategy, objective=objective, by_name=by_name, inline=False)
        return Pilot(steering, self._workshop, functools.partial(self._keep, key)), notices

    def _held(self, key: TunerKey) -> tuple[Thresholds | None, list[str]]:
        """A file that cannot be read costs a tuning, not the request."""
        try:
            record = self._store.load(key)
        except InvalidRequestError as error:
            return None, [f"{error.message} Thresholds are tuned anew."]
        return (None if record is None else record.thresholds), []

    def _keep(self, key: TunerKey, thresholds: Thresholds, num_trials: int) -> None:
        record = TunerRecord(key=key, thresholds=thresholds, num_trials=num_trials)
        self._workshop.run(functools.partial(self._store.save, record), lambda _: None)
