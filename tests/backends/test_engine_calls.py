"""Long calls of the engine and of the hub's library, without a model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from edgedraft.backends.llamacpp_engine import interruptible


class Stop(Exception):
    """What a signal handler raises."""


def test_a_signal_ends_the_wait_for_the_engine() -> None:
    finished = threading.Event()

    def stop(*_: object) -> None:
        raise Stop

    before = signal.signal(signal.SIGUSR1, stop)
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    try:
        with pytest.raises(Stop):
            interruptible(finished.wait)
    finally:
        signal.signal(signal.SIGUSR1, before)
        finished.set()


def test_what_the_call_gives_or_raises_comes_back() -> None:
    def fail() -> None:
        raise ValueError("no")

    assert interruptible(lambda: 3) == 3
    with pytest.raises(ValueError, match="no"):
        interruptible(fail)


def test_the_hub_can_be_asked_by_a_fresh_interpreter() -> None:
    """Its library loads its parts on demand, and other tests may have loaded them."""
    pytest.importorskip("huggingface_hub")
    program = "from edgedraft.backends import hub; hub.download('org/name/file.gguf', endpoint='http://127.0.0.1:9')"

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)

    assert "ModelFileError: hub:org/name/file.gguf is not here" in run.stderr
