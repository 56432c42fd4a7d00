"""An event loop in a thread of its own, for callers that have none."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from edgedraft.errors import EdgedraftError

_T = TypeVar("_T")


class Resource(Protocol):
    """What lives on the loop."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...


class LoopThread:
    """The loop of one resource, which is opened and closed on it. `owner`: whose errors it words.

    May be used from several threads at once.
    """

    def __init__(self, resource: Resource, owner: type) -> None:
        self._resource = resource
        self._owner = owner.__name__
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._submitting = threading.Lock()
        self._opening = threading.Lock()

    def open(self) -> None:
        """Nothing where it is open. Raises what the resource raises."""
        with self._opening:
            if self._loop is not None:
                return
            self._start()
            try:
                self.run(self._resource.open())
            except BaseException:
                self._stop()
                raise

    def close(self) -> None:
        """Nothing where it is closed."""
        with self._opening:
            if self._loop is None:
                return
            try:
                self.run(self._resource.close())
            finally:
                self._stop()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="edgedraft-edge", daemon=True)
        try:
            thread.start()
        except BaseException:
            loop.close()
            raise
        self._loop, self._thread = loop, thread

    def _stop(self) -> None:
        """Nothing is taken from here on, and whoever still waits is told."""
        with self._submitting:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.run_until_complete(_cancel_others())
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the loop and wait. An interrupted wait cancels it."""
        with self._submitting:
            if self._loop is None:
                work.close()
                raise EdgedraftError(f"the {self._owner} is not open.", remedy=f"Use: with {self._owner}(...) as ...")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise EdgedraftError(f"the {self._owner} was closed while this request ran.") from None
        except BaseException:
            future.cancel()
            raise

    def post(self, action: Callable[[], None]) -> None:
        """Run `action` on the loop, after what was handed to it before; nothing where it is stopped."""
        with self._submitting:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(action)


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
