"""The loop of a blocking client: opened once, closed once, whoever asks and however often."""

from __future__ import annotations

import asyncio
import threading

import pytest

from edgedraft.edge.loop_thread import LoopThread
from edgedraft.errors import EdgedraftError


class Counted:
    def __init__(self, fails: bool = False) -> None:
        self.num_opened = 0
        self.num_closed = 0
        self._fails = fails

    async def open(self) -> None:
        await asyncio.sleep(0.05)
        self.num_opened += 1
        if self._fails:
            raise EdgedraftError("no model.")

    async def close(self) -> None:
        self.num_closed += 1


def test_threads_that_open_at_once_share_one_loop() -> None:
    resource = Counted()
    loop = LoopThread(resource, Counted)
    threads = [threading.Thread(target=loop.open) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loop.close()
    loop.close()
    assert (resource.num_opened, resource.num_closed) == (1, 1)


def test_what_fails_to_open_leaves_no_loop_behind() -> None:
    resource, before = Counted(fails=True), set(threading.enumerate())
    loop = LoopThread(resource, Counted)
    with pytest.raises(EdgedraftError, match="no model"):
        loop.open()
    with pytest.raises(EdgedraftError, match="the Counted is not open"):
        loop.run(resource.close())
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "edgedraft-edge"]


def test_a_thread_that_cannot_start_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = LoopThread(resource := Counted(), Counted)

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="can't start"):
            loop.open()
    loop.close()
    with loop:
        pass
    assert (resource.num_opened, resource.num_closed) == (1, 1)
