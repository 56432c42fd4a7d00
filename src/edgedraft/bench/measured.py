"""From what single texts took to one row of a bench."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgedraft.backends.trace import RecordedText
from edgedraft.bench.bootstrap import tpt_interval
from edgedraft.bench.bounds import bound_ms, cloud_only_ms
from edgedraft.bench.results import Row, Span, TextFigure
from edgedraft.bench.scenario import Scenario
from edgedraft.metrics.records import RequestRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRun:
    """One text of a run, simulated or live. `spans`: where known, what each lane did; seconds from its start.

    `late`: tokens after the first 64, and the seconds they took; none where that is not known.
    """

    text_id: str
    record: RequestRecord
    spans: Sequence[Span] = ()
    late: tuple[int, float] = (0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRun:
    """All texts of a cell under one strategy. `energy_j`: the cloud's, None where unknown; `controls`: of steering."""

    texts: Sequence[TextRun]
    energy_j: float | None
    energy_kind: str
    controls: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tpt_s(self) -> float:
        return sum(each.record.total_s for each in self.texts) / self.num_tokens

    @property
    def num_tokens(self) -> int:
        return self.count("num_committed")

    def count(self, name: str) -> int:
        """One of the raw counts, over all texts."""
        return sum(int(getattr(each.record.counters, name)) for each in self.texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowName:
    """Which run a row is of."""

    label: str
    tuned: bool
    live: bool
    seed: int
    numbers: Mapping[str, float]


def row_of(scenario: Scenario, texts: Sequence[RecordedText], name: RowName, run: CellRun) -> Row:
    """The row of one run over `texts`. Its interval is drawn with the row's own seed."""
    tokens = run.num_tokens
    figures = [
        TextFigure(id=each.text_id, total_ms=each.record.total_s * 1e3, num_tokens=each.record.counters.num_committed)
        for each in run.texts
    ]
    low_ms, high_ms = tpt_interval(
        [each.total_ms for each in figures], [each.num_tokens for each in figures], np.random.default_rng(name.seed)
    )
    drafts = [round_ for each in run.texts for round_ in each.record.rounds if round_.num_drafted]
    firsts_s = [each.record.first_token_s for each in run.texts if each.record.first_token_s is not None]
    return Row(
        scenario=scenario.name,
        dataset=scenario.dataset,
        regime=scenario.regime,
        strategy=name.label,
        tuned=name.tuned,
        live=name.live,
        seed=name.seed,
        tpt_ms=run.tpt_s * 1e3,
        tpt_low_ms=low_ms,
        tpt_high_ms=high_ms,
        late_tpt_ms=_ratio(sum(each.late[1] for each in run.texts) * 1e3, sum(each.late[0] for each in run.texts)),
        ttft_ms=_ratio(sum(firsts_s) * 1e3, len(firsts_s)),
        bound_ms=bound_ms(scenario, [text.right for text in texts]),
        cloud_only_ms=cloud_only_ms(scenario),
        target_passes_per_token=run.count("num_target_passes") / tokens,
        acceptance_rate=_ratio(run.count("num_accepted"), run.count("num_judged")),
        rollback_rate=_ratio(sum(each.num_accepted < each.num_drafted for each in drafts), len(drafts)),
        mean_draft_tokens=_ratio(sum(each.num_drafted for each in drafts), len(drafts)),
        tokens_up_per_token=run.count("tokens_up") / tokens,
        bytes_up_per_token=sum(each.record.bytes_up for each in run.texts) / tokens,
        reused=run.count("num_reused"),
        discarded=run.count("num_discarded"),
        ecs_j_per_100=None if run.energy_j is None else 100 * run.energy_j / tokens,
        energy_kind=run.energy_kind,
        num_tokens=tokens,
        rtt_ms=scenario.link.rtt_ms,
        draft_ms=scenario.edge.draft_s * 1e3,
        edges=scenario.edges,
        numbers=dict(name.numbers),
        controls=dict(run.controls),
        texts=figures,
    )


def _ratio(dividend: float, divisor: float) -> float | None:
    return dividend / divisor if divisor else None
