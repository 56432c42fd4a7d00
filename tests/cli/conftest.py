"""A real cloud in a process of its own, and the program run in this one."""

from __future__ import annotations

import io
import json
import signal
import socketserver
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.backends.captioner_pair import speech, write_pair
from tests.cli.captions import saved

from edgedraft.backends.base import BackendOptions
from edgedraft.backends.registry import open_target, open_tokenizer
from edgedraft.bench.cloud_process import CloudProcess, cloud_process
from edgedraft.cli.app import main
from edgedraft.testing.cloud import RunningCloud, running_cloud

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


# -- captions ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Specs of a draft and a target that listen, without a calibration."""
    return write_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def listening_cloud(pair: tuple[str, str]) -> Iterator[RunningCloud]:
    target = open_target(pair[1], BackendOptions(deterministic=True))
    with running_cloud(target, open_tokenizer(pair[1])) as running:
        yield running


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEDRAFT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def caption(run: Run, own_cache: None, pair: tuple[str, str], listening_cloud: RunningCloud) -> Run:
    """`edgedraft caption` with the pair; 24 tokens, of which many are doubted."""

    def captioned(*words: object, url: str = listening_cloud.url) -> Outcome:
        return run("caption", "--draft", pair[0], "--url", url, "--max-tokens", "24", *map(str, words))

    return captioned


@pytest.fixture
def hanging_up() -> Iterator[str]:
    """Where somebody takes a request, access token and all, and hangs up."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"ws://127.0.0.1:{server.server_address[1]}/v1/edgedraft"
        server.shutdown()
        thread.join()


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    return saved(tmp_path / "clip.wav", speech())
