"""The tutorial on speech captions, command by command, as a newcomer types it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgedraft.bench.cloud_process import cloud_process

pytest.importorskip("espeakng_loader", reason="the extra 'synth' is not installed")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "speech-captions.md"
MARKED = re.compile(r"<!-- (run|cloud) -->\n```bash\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
EXPECTED = {
    "synth": "captions.jsonl",
    "--strategy edge-only": "nothing left this device",
    "--show-tokens": "local",
    "--lang zh": "test-zh-00001",
    "--exact": "verified",
    "cloud-only": "all written by the cloud",
    "--json": '"excerpts"',
    "calibrate": "max-probability",
    "privacy": "no 20 ms of the recording",
    "--attack": "logmel 100 Hz",
    "bench caption": "ugsd-sparse",
}
"""What is seen of each kind of command, on stdout or stderr."""


def commands(kind: str) -> list[str]:
    blocks = MARKED.findall(PAGE.read_text(encoding="utf-8"))
    return [line for found, block in blocks if found == kind for line in block.splitlines() if line]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tutorial")


@pytest.fixture(scope="module")
def environment(folder: Path) -> Iterator[dict[str, str]]:
    """The cloud of the page, on a free port."""
    (command,) = commands("cloud")
    words = shlex.split(command)
    assert words[:3] == ["edgedraft", "cloud", "--model"]
    with cloud_process(words[3], words[4:]) as cloud:
        yield {
            **os.environ,  # noqa: TID251
            "EDGEDRAFT_URL": cloud.url,
            "EDGEDRAFT_CACHE": str(folder / "cache"),
            "COLUMNS": "200",
        }


@pytest.mark.parametrize("command", commands("run"))
def test_each_command_does_what_the_page_says(command: str, folder: Path, environment: dict[str, str]) -> None:
    """In the order of the page; run alone, a command makes the clips first."""
    if "synth" not in command and not (folder / "clips").exists():
        run(commands("run")[0], folder, environment)
    done = run(command, folder, environment)
    expected = [seen for part, seen in EXPECTED.items() if part in command]
    assert expected
    assert all(seen in done for seen in expected), done


def run(command: str, folder: Path, environment: dict[str, str]) -> str:
    words = shlex.split(command)
    assert words[0] == "edgedraft"
    done = subprocess.run(
        [sys.executable, "-m", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=55,
        env=environment,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr or done.stdout
    return done.stdout + done.stderr


def test_nothing_that_is_shown_is_left_out() -> None:
    shown = re.findall(r"^edgedraft .*$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert shown == [
        line for _, block in MARKED.findall(PAGE.read_text(encoding="utf-8")) for line in block.splitlines() if line
    ]
