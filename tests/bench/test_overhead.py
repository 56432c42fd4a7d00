"""The overhead bench: what it counts, and that it tells when a figure is above its limit."""

from __future__ import annotations

import json

import pytest

from edgedraft.bench import overhead
from edgedraft.bench.core_cost import DRAFT_LENGTH_TOKENS, SAMPLINGS, _Script, core_s_per_drafted_token, random_rows
from edgedraft.bench.overhead import Figure
from edgedraft.cli.app import main


def test_a_figure_is_ok_up_to_its_limit() -> None:
    assert Figure("x", 2.0, "ms", 2.0).ok
    assert not Figure("x", 2.01, "ms", 2.0).ok
    assert Figure("x", 1e9, "ms").ok


def test_the_script_drives_whole_rounds_of_eight() -> None:
    script = _Script(SAMPLINGS[0][1], 10 * (DRAFT_LENGTH_TOKENS + 1), random_rows(8, 100))
    while script.step():
        pass
    assert len(script.round_s) == 10
    assert script._session.counters.num_drafted == 10 * DRAFT_LENGTH_TOKENS
    assert script._session.counters.num_rounds == 10


def test_core_cost_is_a_time() -> None:
    assert 0 < core_s_per_drafted_token(SAMPLINGS[1][1], num_tokens=200, num_ids=100) < 0.1


def test_bytes_per_round_and_the_journey_of_a_prompt_are_within_their_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bytes don't depend on the machine, so their limits are a test."""
    figures = {figure.name: figure for figure in overhead.byte_figures(6)}
    assert [figure for figure in figures.values() if not figure.ok] == []
    assert all(figure.value > 0 for figure in figures.values())
    assert figures["bytes up per round of eight, 152,000 ids"].value > 8 * 3, "eight ids of three bytes at least"


def test_round_times_are_measured_over_sockets() -> None:
    median, p90, models = overhead.round_figures(12)
    assert 0 < median.value <= p90.value
    assert models.value > 0


def test_health_is_asked_while_a_prefill_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overhead, "PREFILL_PROMPT_TOKENS", 30_000)
    median, worst = overhead.health_figures()
    assert 0 < median.value <= worst.value


@pytest.mark.parametrize(("value", "code"), [(1.0, 0), (3.0, 1)])
def test_the_command_fails_where_a_limit_is_broken(
    value: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("edgedraft.cli.bench.measure", lambda *_, **__: iter([Figure("round", value, "ms", 2.0)]))
    assert main(["bench", "overhead", "--json"]) == code
    body = json.loads(capsys.readouterr().out)
    assert body["ok"] is (code == 0)
    assert body["figures"] == [{"name": "round", "value": value, "unit": "ms", "limit": 2.0, "ok": code == 0}]
    assert main(["bench", "overhead"]) == code
    assert ("yes" if code == 0 else "no") in capsys.readouterr().out
