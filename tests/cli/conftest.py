"""A real cloud in a process of its own, and the program run in this one."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from edgedraft.bench.cloud_process import CloudProcess, cloud_process
from edgedraft.cli.app import main

TARGET = "toy:vocab=300,context=100000"
TOKEN = "a token for the tests"


@dataclass(frozen=True)
class Outcome:
    """What a run of the program left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Outcome]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Children hear SIGINT, though a shell has jobs in the background ignore it, and children inherit that.

    What is handled here is back to its default in them (execve(2)); `preexec_fn` would not go with threads.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `edgedraft ARGUMENTS` in this process; `stdin` is what it reads."""

    def run_main(*arguments: str, stdin: str = "") -> Outcome:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        capsys.readouterr()
        code = main(arguments)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run_main


@pytest.fixture(scope="module")
def cloud() -> Iterator[CloudProcess]:
    with cloud_process(TARGET) as process:
        yield process


@pytest.fixture(scope="module")
def guarded_cloud() -> Iterator[CloudProcess]:
    with cloud_process(TARGET, ["--token", TOKEN]) as process:
        yield process


@pytest.fixture
def ask(run: Run, cloud: CloudProcess) -> Run:
    """`edgedraft generate` against the cloud, with a draft that is often wrong."""

    def ask_cloud(*arguments: str, draft: str = f"{TARGET},noise=0.5", stdin: str = "") -> Outcome:
        return run("generate", "--url", cloud.url, "--draft", draft, *arguments, stdin=stdin)

    return ask_cloud
