"""Stdout and stderr that are full or closed, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from edgedraft.cli.demo_captions import CLIPS

pytest.importorskip("soundfile")
EN, ZH = CLIPS / "en.wav", CLIPS / "zh.wav"
NEEDS_FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
CLOSED_OR_FULL = [">&-", pytest.param(">/dev/full", marks=NEEDS_FULL)]


def in_shell(words: str, streams: str) -> subprocess.CompletedProcess[str]:
    command = f"exec '{sys.executable}' -m edgedraft {words} {streams}"
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("stderr", CLOSED_OR_FULL)
def test_a_stderr_that_fails_stops_no_work(stderr: str) -> None:
    done = in_shell(f"caption '{EN}' '{ZH}' --strategy edge-only", f"2{stderr}")
    assert done.returncode == 0
    first, _, second, *more = done.stdout.splitlines()
    assert (first, second) == (f"{EN}:", f"{ZH}:")
    assert len(more) == 1, "no notice took the place of a caption"
    assert in_shell("caption nowhere.wav", f"2{stderr}").returncode == 2


@pytest.mark.parametrize("stdout", CLOSED_OR_FULL)
@pytest.mark.parametrize("words", ["--version", "--help", "models list", "models list --json"])
def test_a_stdout_that_fails_is_told(words: str, stdout: str) -> None:
    done = in_shell(words, stdout)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    told = json.loads(line)["error"]["message"] if "--json" in words else line
    assert "stdout cannot be written: " in told


@pytest.mark.parametrize("stdout", CLOSED_OR_FULL)
def test_a_stdout_that_fails_ends_a_batch(stdout: str) -> None:
    done = in_shell(f"caption '{EN}' '{ZH}' --strategy edge-only --json", stdout)
    assert done.returncode == 1
    assert "stdout cannot be written: " in done.stderr


def test_where_both_are_closed_the_exit_code_tells() -> None:
    assert in_shell("models list", ">&- 2>&-").returncode == 1


@pytest.mark.parametrize(
    ("name", "size"),
    [("COLUMNS", "0"), ("COLUMNS", "²"), ("LINES", "²"), ("COLUMNS", "9" * 5000), ("COLUMNS", "10000")],
)
def test_a_terminal_of_no_size_counts_as_unknown(monkeypatch: pytest.MonkeyPatch, name: str, size: str) -> None:
    monkeypatch.setenv(name, size)
    assert "Usage: edgedraft caption file" in in_shell("caption --help", "").stdout
    done = in_shell(f"caption '{EN}' nowhere.wav --strategy edge-only", "")
    assert done.stdout.startswith(f"{EN}:")
    assert "error: nowhere.wav does not exist." in done.stderr
