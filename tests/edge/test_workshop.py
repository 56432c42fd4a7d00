"""Jobs in a thread of their own."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from edgedraft.edge.workshop import Workshop


def test_a_job_runs_elsewhere_and_its_result_comes_back_on_the_loop() -> None:
    async def work() -> None:
        workshop, done = Workshop(), asyncio.Event()
        threads: list[int] = []
        results: list[object] = []

        def on_done(result: int | None) -> None:
            results.append((result, threading.get_ident()))
            done.set()

        workshop.run(lambda: threads.append(threading.get_ident()) or 7, on_done)
        await done.wait()
        assert results == [(7, threading.get_ident())]
        assert threads[0] != threading.get_ident()
        workshop.close()

    asyncio.run(work())


def test_a_job_that_fails_gives_none_and_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        workshop, done = Workshop(), asyncio.Event()
        results: list[object] = []

        def on_done(result: object) -> None:
            results.append(result)
            done.set()

        workshop.run(lambda: 1 // 0, on_done)
        await done.wait()
        assert results == [None]
        workshop.close()

    with caplog.at_level(logging.WARNING, "edgedraft.edge"):
        asyncio.run(work())
    assert "division" in caplog.text


def test_closing_drops_what_waits_and_blocks_nobody() -> None:
    async def work() -> None:
        workshop, gate = Workshop(), threading.Event()
        results: list[object] = []
        workshop.run(gate.wait, results.append)
        workshop.run(lambda: 5, results.append)
        workshop.close()
        gate.set()
        await asyncio.sleep(0.05)
        assert results in ([], [True])

    asyncio.run(work())
