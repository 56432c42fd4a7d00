"""Small recordings and rows for the bench's tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from edgedraft.backends.trace import RecordedText, TraceHeader, write_traces
from edgedraft.bench.results import Row, TextFigure

EOS_ID = 9_999


def recorded(name: str, kind: str, right: Sequence[bool]) -> RecordedText:
    """A text whose draft is right where `right` says so, and unsure elsewhere. It ends with `EOS_ID`."""
    count = len(right)
    target_ids = [*range(300, 300 + count - 1), EOS_ID]
    return RecordedText(
        id=name,
        kind=kind,
        num_prompt_tokens=5,
        target_ids=tuple(target_ids),
        target_prob=(0.9,) * count,
        draft_ids=tuple(id_ if ok else 7 for id_, ok in zip(target_ids, right, strict=True)),
        draft_prob=tuple(0.95 if ok else 0.3 for ok in right),
        draft_entropy=(0.3,) * count,
        target_rank_of_draft=tuple(1 if ok else 2 for ok in right),
        overlap=(0.9,) * count,
        draft_top5_ids=((1, 2, 3, 4, 5),) * count,
        draft_top5_probs=((0.5, 0.1, 0.1, 0.1, 0.1),) * count,
    )


@pytest.fixture(scope="session")
def texts() -> list[RecordedText]:
    """Three texts of each kind, wrong at every eighth, fifth or third token."""
    every = {"code": 8, "maths": 5, "chat": 3}
    return [
        recorded(f"{kind}/{number}", kind, [(place + number) % every[kind] != 0 for place in range(24 + 4 * number)])
        for kind in every
        for number in range(3)
    ]


@pytest.fixture(scope="session")
def trace_file(texts: list[RecordedText], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "made.jsonl"
    write_traces(path, TraceHeader(target="made", draft="made", eos_ids=(EOS_ID,)), texts)
    return path


SCENARIO = """
name = "small"
title = "A small one"
regime = "ids"
strategies = ["cloud-only", "vanilla", "hsl"]
settings = ["paper", "tuned"]
edge.draft_ms = 20.0
cloud.step_ms = 30.0
link.rtt_ms = 60.0
[grid]
dataset = ["code", "maths"]
"""


@pytest.fixture
def scenario_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


MakeRow = Callable[..., Row]


@pytest.fixture
def make_row() -> MakeRow:
    """A row with `tpt_ms` per token over three texts; any field may be given."""

    def make(tpt_ms: float = 50.0, **fields: Any) -> Row:
        texts = [
            TextFigure(id=f"t{n}", total_ms=tpt_ms * tokens, num_tokens=tokens) for n, tokens in enumerate((10, 20, 30))
        ]
        values: dict[str, Any] = {
            "scenario": "s1/paper/code",
            "dataset": "code",
            "regime": "paper",
            "strategy": "pipesd",
            "tuned": False,
            "live": False,
            "seed": 0,
            "tpt_ms": tpt_ms,
            "tpt_low_ms": tpt_ms,
            "tpt_high_ms": tpt_ms,
            "ttft_ms": 100.0,
            "bound_ms": 30.0,
            "cloud_only_ms": 65.0,
            "target_passes_per_token": 0.2,
            "acceptance_rate": 0.9,
            "rollback_rate": 0.1,
            "mean_draft_tokens": 5.0,
            "tokens_up_per_token": 1.1,
            "bytes_up_per_token": 9.0,
            "reused": 3,
            "discarded": 4,
            "ecs_j_per_100": None,
            "energy_kind": "not known",
            "num_tokens": 60,
            "rtt_ms": 60.0,
            "draft_ms": 36.0,
            "edges": 1,
            "numbers": {"token_threshold": 0.9},
            "controls": {},
            "texts": texts,
        }
        return Row(**{**values, **fields})

    return make
