"""`edgedraft demo`: two real processes, every row compared, nothing left behind."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TOY = ("--target", "toy:vocab=300", "--draft", "toy:vocab=300,noise=0.5", "--max-tokens", "16", "--no-captions")


def _is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_every_row_is_equal_and_the_cloud_process_is_gone(run) -> None:
    outcome = run("demo", *TOY)
    assert outcome.code == 0
    assert outcome.err == ""
    for strategy in ("vanilla", "vanilla, lookup", "cloud-only"):
        assert re.search(rf"│ {strategy} +│ +yes │", outcome.out)
    assert max(len(line) for line in outcome.out.splitlines() if line.startswith("│")) <= 80
    assert "not a speed-up" in outcome.out
    pid = int(re.search(r"process (\d+) serves", outcome.out)[1])
    assert not _is_alive(pid)


def test_json_has_a_row_for_each_strategy(run) -> None:
    outcome = run("demo", *TOY, "--json", "--strategies", "cloud-only,vanilla")
    assert outcome.code == 0
    assert outcome.json["equal"] is True
    assert [row["strategy"] for row in outcome.json["rows"]] == ["cloud-only", "vanilla"]
    vanilla = outcome.json["rows"][1]
    assert vanilla["num_tokens"] == 3 * 16
    assert vanilla["tokens_per_target_pass"] > 1
    assert 0 < vanilla["acceptance_rate"] < 1
    assert vanilla["bytes_up_per_token"] > 0
    assert "==>" in outcome.err, "the steps are told meanwhile"


def test_a_text_that_differs_ends_with_code_1(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgedraft.cli.demo.target_only_ids", lambda *_, **__: [1, 2, 3])
    outcome = run("demo", *TOY, "--strategies", "vanilla")
    assert outcome.code == 1
    assert re.search(r"│ vanilla +│ +NO │", outcome.out)


def test_an_emulated_link_costs_its_round_trip(run) -> None:
    fast, slow = (
        run("demo", *TOY, "--strategies", "vanilla", "--rtt-ms", rtt_ms, "--json").json["rows"][0]
        for rtt_ms in ("0", "60")
    )
    assert slow["equal"]
    num_rounds = slow["num_tokens"] / slow["tokens_per_target_pass"]
    assert slow["tpt_s"] * slow["num_tokens"] >= num_rounds * 0.06
    assert slow["bytes_up_per_token"] == pytest.approx(fast["bytes_up_per_token"], rel=0.05)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_a_signal_ends_the_cloud_process_too(number: signal.Signals) -> None:
    words = [sys.executable, "-m", "edgedraft", "demo", *TOY, "--rtt-ms", "1000"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        pid = None
        for line in child.stdout:
            if match := re.search(r"process (\d+) serves", line):
                pid = int(match[1])
            if line.startswith("--- code"):  # now it waits for the emulated link
                break
        assert pid is not None
        assert _is_alive(pid)
        child.send_signal(number)
        _, errors = child.communicate(timeout=30)
    assert child.returncode == 128 + number
    assert "Traceback" not in errors
    deadline_s = time.monotonic() + 10
    while _is_alive(pid) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert not _is_alive(pid)


@pytest.mark.model
@pytest.mark.timeout(240)
def test_real_models_write_the_targets_own_text(run) -> None:
    outcome = run("demo", "--max-tokens", "12", "--json")
    assert outcome.code == 0, outcome.err
    assert [row["equal"] for row in outcome.json["rows"]] == [True] * 6
    assert outcome.json["rows"][0]["tokens_per_target_pass"] > 1.5
