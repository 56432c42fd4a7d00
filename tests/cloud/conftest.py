"""Coroutine tests run on an event loop of their own, in debug mode, so that a slow callback or a lost task is told."""

from __future__ import annotations

import asyncio
import inspect

import pytest

TEST_TIMEOUT_S = 30


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    asyncio.run(asyncio.wait_for(test(**arguments), TEST_TIMEOUT_S), debug=True)
    return True
