"""`edgedraft cloud` as other programs meet it: its lines, its options, its end."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from edgedraft.bench.cloud_process import cloud_process
from edgedraft.errors import InsecureBindError, InvalidRequestError

TARGET = "toy:vocab=300,context=5000"


def test_json_lines_say_what_is_served_and_where() -> None:
    with cloud_process(TARGET, ["--deterministic", "--context-length", "700", "--max-sessions", "3"]) as cloud:
        assert cloud.loaded["model"] == TARGET
        assert cloud.loaded["context_length"] == 700
        assert cloud.loaded["max_sessions"] == 3
        assert cloud.loaded["exactness"] == "bitwise"
        assert cloud.loaded["memory_bytes"] > 10_000_000
        with urllib.request.urlopen(cloud.health_url, timeout=10) as answer:  # noqa: S310
            health = json.load(answer)
    assert health["model"] == "toy:seed=1,vocab=300"  # the model's own name: a local path would travel otherwise
    assert health["sessions"]["max"] == 3


def test_people_get_one_line_that_programs_can_read_too() -> None:
    command = [sys.executable, "-m", "edgedraft", "cloud", "--model", TARGET, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = []
        while not lines or not lines[-1].startswith("listening on ws://127.0.0.1:"):
            lines.append(child.stdout.readline())
            assert lines[-1], "ended early"
        child.terminate()
        _, errors = child.communicate(timeout=20)
    assert child.returncode == 0
    assert f"serving {TARGET}" in "".join(lines)
    assert "exactness: bitwise" in "".join(lines)
    assert "Traceback" not in errors


def test_tokens_come_from_a_file(run, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("first\n\nsecond\n")
    with cloud_process(TARGET, ["--token-file", str(tmp_path / "tokens")]) as cloud:
        assert cloud.loaded["authentication"] is True
        words = ["generate", "hi", "--draft", TARGET, "--max-tokens", "2", "--url", cloud.url]
        assert [run(*words, "--token", token).code for token in ("first", "second", "third")] == [0, 0, 5]


def test_the_error_of_a_cloud_that_does_not_start_keeps_its_class() -> None:
    with pytest.raises(InvalidRequestError, match="wings"), cloud_process("toy:wings=2"):
        pass
    with pytest.raises(InsecureBindError, match=r"0\.0\.0\.0"), cloud_process(TARGET, ["--host", "0.0.0.0"]):  # noqa: S104
        pass
