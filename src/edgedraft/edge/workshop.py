"""A thread for what takes milliseconds, such as a tuner's next suggestion: no token waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Result = TypeVar("_Result")
_log = logging.getLogger("edgedraft.edge")


class Workshop:
    """One job after another. `run` belongs to the event loop, and so does what it calls back."""

    def __init__(self) -> None:
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="edgedraft-tuner")

    def run(self, job: Callable[[], _Result], on_done: Callable[[_Result | None], None]) -> None:
        """`on_done` hears what came of the job; None where it failed, which is logged."""

        def done(future: asyncio.Future[_Result]) -> None:
            if future.cancelled():
                return
            if (error := future.exception()) is not None:
                _log.warning("a job of the tuner failed: %s", error)
            on_done(None if error is not None else future.result())

        asyncio.get_running_loop().run_in_executor(self._worker, job).add_done_callback(done)

    def close(self) -> None:
        """Jobs that wait are dropped, one that runs ends by itself."""
        self._worker.shutdown(wait=False, cancel_futures=True)
