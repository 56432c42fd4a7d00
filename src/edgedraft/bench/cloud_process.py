"""A cloud in a process of its own, for the demo, the benches and the tests: started, awaited, always ended."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from edgedraft.errors import CloudUnreachableError, ModelError, error_class

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class CloudProcess:
    """A running cloud. `url`: its WebSocket address. `health_url`: its HTTP health page. `loaded`: what it serves."""

    url: str
    health_url: str
    pid: int
    loaded: Mapping[str, Any] = field(default_factory=dict)


@contextlib.contextmanager
def cloud_process(
    model: str, options: Sequence[str] = (), *, start_timeout_s: float = START_TIMEOUT_S
) -> Iterator[CloudProcess]:
    """Run `edgedraft cloud --model MODEL OPTIONS` on a free port while the block lasts.

    Raises the cloud's own error where it does not start, and `CloudUnreachableError` where it says nothing in time.
    """
    command = [sys.executable, "-m", "edgedraft", "cloud", "--model", model, "--port", "0", "--json", *options]
    child = subprocess.Popen(  # noqa: S603
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    events, errors = _lines_of(child.stdout), _lines_of(child.stderr)
    try:
        yield _await_listening(child, events, errors, start_timeout_s)
    finally:
        _stop(child)


def _lines_of(stream: IO[str] | None) -> queue.Queue[str | None]:
    """Read a pipe to its end in the background, so that the child never blocks on it; None marks the end."""
    lines: queue.Queue[str | None] = queue.Queue()

    def pump() -> None:
        if stream is not None:
            with stream:
                for line in stream:
                    lines.put(line)
        lines.put(None)

    threading.Thread(target=pump, daemon=True).start()
    return lines


def _await_listening(
    child: subprocess.Popen[str],
    events: queue.Queue[str | None],
    errors: queue.Queue[str | None],
    timeout_s: float,
) -> CloudProcess:
    deadline_s = time.monotonic() + timeout_s
    loaded: Mapping[str, Any] = {}
    while True:
        try:
            line = events.get(timeout=max(0.0, deadline_s - time.monotonic()))
        except queue.Empty:
            raise CloudUnreachableError(
                f"the cloud process did not listen within {timeout_s:.0f} s.", remedy="Run `edgedraft cloud` by itself."
            ) from None
        if line is None:
            raise _its_error(errors)
        event = json.loads(line)
        if event["event"] == "loaded":
            loaded = event
        elif event["event"] == "listening":
            return CloudProcess(event["url"], event["health_url"], child.pid, loaded)


def _its_error(errors: queue.Queue[str | None]) -> Exception:
    """The error that the cloud printed on stderr before it ended, as the class it was."""
    last = ""
    while (line := errors.get(timeout=STOP_TIMEOUT_S)) is not None:
        last = line.strip() or last
    try:
        body = json.loads(last)["error"]
    except (ValueError, KeyError, TypeError):
        return ModelError(f"the cloud process ended before it listened: {last or 'it said nothing'}.")
    return error_class(body["code"])(body["message"], remedy=body["remedy"])


def _stop(child: subprocess.Popen[str]) -> None:
    """End the child: ask, then insist."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
