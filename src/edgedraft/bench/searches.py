"""The tuner beside grid and random search, cell by cell, with the published figures: the paper's table 3."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgedraft.backends.trace import read_traces
from edgedraft.bench import published
from edgedraft.bench.baselines import entry_named
from edgedraft.bench.report import SEARCHES_FILE
from edgedraft.bench.runner import trace_path
from edgedraft.bench.scenario import Regime, Scenario
from edgedraft.bench.simulated import edges_of, target_of
from edgedraft.bench.tables import Entry
from edgedraft.bench.tuning import TuningCase, compare_searches
from edgedraft.errors import InvalidRequestError

# Our tuner by measured times alone is the paper's; the one that looks ahead is ours.
_PUBLISHED_AS = {"measured": "bayesian", "grid": "grid", "random": "random"}


def search_rows(cells: Sequence[Scenario], *, num_seeds: int, traces: Path | None = None) -> Iterator[dict[str, Entry]]:
    """Rows for each cell and search: the true time at the chosen thresholds, also over that of the best there are.

    Raises `InvalidRequestError` for a cell with more than one edge: a tuner watches its own.
    """
    for cell in cells:
        if cell.edges > 1:
            raise InvalidRequestError(
                f"cell {cell.name} has {cell.edges} edges; searches are compared on one.", field="edges"
            )
    with trace_path(traces) as trace:
        for cell in cells:
            texts = read_traces(trace, [cell.dataset])[: cell.max_texts]
            (edge,) = edges_of(cell, entry_named("pipesd"), {}, texts, seed=0)
            for outcome in compare_searches(TuningCase(edge, target_of(cell)), seeds=range(num_seeds)):
                yield {
                    "cell": cell.name,
                    "search": outcome.search,
                    "ms per token": outcome.tpt_s * 1e3,
                    "over best (median)": outcome.ratio_median,
                    "over best (worst)": outcome.ratio_worst,
                    "published ms": _published_ms(cell, outcome.search),
                }


def _published_ms(cell: Scenario, search: str) -> float | None:
    if not cell.name.startswith("s1/") or cell.regime != Regime.PAPER or search not in _PUBLISHED_AS:
        return None
    return published.SEARCH_TPT_MS[_PUBLISHED_AS[search]].get(cell.dataset)


def write_searches(directory: Path, rows: Sequence[dict[str, Entry]]) -> Path:
    """Put the rows where `bench report DIR` finds them. Raises `InvalidRequestError`."""
    path = directory / SEARCHES_FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidRequestError(f"{path} cannot be written: {error.strerror}.", field="out") from error
    return path
