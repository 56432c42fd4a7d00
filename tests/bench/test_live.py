"""A cell in real time, through processes, sockets and the link emulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgedraft.backends.trace import RecordedText
from edgedraft.bench.baselines import entry_named
from edgedraft.bench.live import check_live, run_live
from edgedraft.bench.scenario import Scenario, parse_cells
from edgedraft.errors import UnsupportedError

LIVE = """
name = "live"
title = "Quick"
dataset = "code"
regime = "ids"
strategies = ["vanilla"]
edge.draft_ms = 1.0
cloud.step_ms = 2.0
link.rtt_ms = 4.0
"""


@pytest.fixture
def cell() -> Scenario:
    return parse_cells(LIVE, "live")[0]


@pytest.mark.parametrize("label", ["vanilla", "flow"])
def test_the_recorded_texts_come_back_through_sockets(
    label: str, cell: Scenario, trace_file: Path, texts: list[RecordedText]
) -> None:
    code = [text for text in texts if text.kind == "code"]
    entry = entry_named(label)
    run = run_live(cell, entry, {"draft_length": 4} if entry.knobs else {}, str(trace_file), code)
    assert [each.text_id for each in run.texts] == [text.id for text in code]
    assert run.num_tokens == sum(text.num_tokens for text in code)
    assert run.count("num_drafted") > 0
    assert run.tpt_s > 0.001


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ('regime = "paper"', "regime"),
        ('regime = "ids"\nedges = 2', "edges"),
        ('regime = "ids"\nedge.jitter = 0.1', "edge.jitter"),
    ],
)
def test_what_cannot_run_live_is_named(line: str, field: str) -> None:
    (cell,) = parse_cells(LIVE.replace('regime = "ids"', line), "live")
    with pytest.raises(UnsupportedError) as error:
        check_live(cell, "a.jsonl")
    assert error.value.field == field


def test_a_file_that_a_spec_cannot_name_is_refused() -> None:
    (cell,) = parse_cells(LIVE, "live")
    with pytest.raises(UnsupportedError, match=r"traces is a,b\.jsonl"):
        check_live(cell, "a,b.jsonl")
