"""A real cloud for tests: uvicorn on a free loopback port, in a thread of this process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from edgedraft.backends.base import TargetBackend, Tokenizer
from edgedraft.cloud.app import create_app
from edgedraft.cloud.serve import CloudServer
from edgedraft.cloud.sessions import SessionTable
from edgedraft.config import CloudConfig

Result = TypeVar("Result")

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 20.0


class RunningCloud:
    """A cloud that can be stopped and started again on the same port, with the same target and no session left."""

    def __init__(self, target: TargetBackend, tokenizer: Tokenizer, chat_template: str, config: CloudConfig) -> None:
        self._target = target
        self._tokenizer = tokenizer
        self._chat_template = chat_template
        self._config = config
        self._start()

    def _start(self) -> None:
        app = create_app(
            self._config, self._target, self._tokenizer, self._chat_template, model_name=self._target.info.name
        )
        ready = threading.Event()

        def on_ready(_: str) -> None:
            self._loop = asyncio.get_running_loop()
            ready.set()

        self._server = CloudServer(self._config, app, on_ready)
        self._config = replace(self._config, port=self._server.port)
        self.url = self._server.url
        self.sessions: SessionTable = app.state.sessions
        self._thread = threading.Thread(target=self._server.run, name="edgedraft-test-cloud", daemon=True)
        self._thread.start()
        if not ready.wait(START_TIMEOUT_S):
            raise RuntimeError(f"the cloud did not start within {START_TIMEOUT_S:g} s")

    @property
    def health_url(self) -> str:
        return self.url.replace("ws", "http", 1).replace("/v1/edgedraft", "/health")

    def stop(self) -> None:
        """End the cloud, which closes its connections with 1012. Stopping twice is harmless."""
        self._server.stop()
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise RuntimeError(f"the cloud did not stop within {STOP_TIMEOUT_S:g} s")

    def restart(self) -> None:
        """As if the process had been replaced: same address, every session gone."""
        self.stop()
        self._start()

    def call(self, function: Callable[[], Result]) -> Result:
        """Run `function` on the cloud's event loop, where its sessions live; what it returns or raises."""
        outcome: concurrent.futures.Future[Result] = concurrent.futures.Future()

        def run() -> None:
            try:
                outcome.set_result(function())
            except BaseException as error:
                outcome.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return outcome.result(STOP_TIMEOUT_S)

    def until(self, holds: Callable[[SessionTable], bool]) -> None:
        """Wait until something is true of the sessions. Raises `TimeoutError` where it does not become true."""
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        while not self.call(lambda: holds(self.sessions)):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"still not so: {self.call(self.sessions.stats)}")
            time.sleep(0.005)

    def evict_all(self) -> None:
        """Forget every session, as a cloud short of room may at any time."""
        self.call(lambda: self.sessions.evict_all("Evicted by the test."))


@contextlib.contextmanager
def running_cloud(
    target: TargetBackend, tokenizer: Tokenizer, chat_template: str = "", config: CloudConfig | None = None
) -> Iterator[RunningCloud]:
    """Serve `target` on loopback while the block lasts. `config` defaults to any free port; the target stays open."""
    cloud = RunningCloud(target, tokenizer, chat_template, config or CloudConfig(port=0))
    try:
        yield cloud
    finally:
        cloud.stop()
