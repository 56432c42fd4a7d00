"""The tables of a report: aggregated figures with the published ones beside them. The same go out as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from edgedraft.bench import published
from edgedraft.bench.aggregate import CellResults, Result

Entry = str | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`note`: how to read it. Each row has one entry a column; numbers stay numbers until they are shown."""

    id: str
    title: str
    note: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Entry]]

    def to_dict(self) -> dict[str, object]:
        """For JSON: rows as objects by column."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"id": self.id, "title": self.title, "note": self.note, "rows": rows}


def all_tables(cells: Sequence[CellResults], searches: Sequence[Mapping[str, Entry]] = ()) -> list[Table]:
    """Every table that the rows are enough for. `searches`: rows of a comparison of tuners."""
    made = [
        paper_table(cells),
        speed_up_table(cells),
        ablation_table(cells),
        upload_table(cells),
        yardstick_table(cells),
        passes_table(cells),
        energy_table(cells),
        edges_table(cells),
        live_table(cells),
        search_table(searches),
        runs_table(cells),
    ]
    return [table for table in made if table.rows]


# -- the paper's tables ----------------------------------------------------------------------------------------------


def _paper_cells(cells: Sequence[CellResults]) -> Iterator[tuple[CellResults, tuple[str, str]]]:
    """Cells of the paper's own scenarios, in its regime, with its settings."""
    for cell in cells:
        place = (cell.scenario, cell.first.dataset)
        if place in published.TPT_MS and cell.first.regime == "paper" and cell.get("pipesd", tuned=False):
            yield cell, place


def paper_table(cells: Sequence[CellResults]) -> Table:
    """The shape of the paper's table 1."""
    rows: list[list[Entry]] = []
    for cell, place in _paper_cells(cells):
        row: list[Entry] = [cell.scenario.upper(), place[1]]
        for method, theirs in zip(published.METHODS, published.TPT_MS[place], strict=True):
            result = cell.get(method, tuned=False)
            row += [None if result is None else result.tpt_ms, theirs]
        rows.append(row)
    columns = ["scenario", "texts"]
    for method in published.METHODS:
        columns += [f"{method} ms", f"{method} published"]
    note = (
        "Milliseconds per token, whole distributions on the link, the paper's settings; simulated over our own texts."
    )
    return Table(id="paper", title="The paper's table 1", note=note, columns=columns, rows=rows)


def speed_up_table(cells: Sequence[CellResults]) -> Table:
    """PipeSD over its baselines with intervals, and how many lie in the published range."""
    low, high = published.SPEED_UP_RANGE
    rows: list[list[Entry]] = []
    for cell, place in _paper_cells(cells):
        theirs = dict(zip(published.METHODS, published.TPT_MS[place], strict=True))
        for method in published.METHODS[:-1]:
            ours, baseline = cell.get("pipesd", tuned=False), cell.get(method, tuned=False)
            found = ours.speed_up_over(baseline) if ours and baseline else None
            if found is not None:
                ratio, interval = found
                inside = "yes" if low <= ratio <= high else "no"
                published_ratio = theirs[method] / theirs["pipesd"]
                rows.append([cell.scenario.upper(), place[1], method, ratio, *interval, published_ratio, inside])
    columns = ("scenario", "texts", "PipeSD over", "speed-up", "low", "high", "published", "in range")
    num_inside = sum(row[-1] == "yes" for row in rows)
    note = f"{num_inside} of {len(rows)} within the published {low} to {high}. Intervals: bootstrap over texts, 95 %."
    return Table(id="speed-up", title="Speed-ups of PipeSD", note=note, columns=columns, rows=rows)


def ablation_table(cells: Sequence[CellResults]) -> Table:
    """The paper's ablation, where a cell has all its strategies. Its dual thresholds come from a tuner: so do ours."""
    rows: list[list[Entry]] = []
    for cell in cells:
        parts = {name: cell.get(name, tuned=None if name in _DUAL else False) for name in published.ABLATION_TPT_MS}
        found = {name: result for name, result in parts.items() if result is not None}
        if len(found) < len(parts):
            continue
        slowest_ms = found["vanilla"].tpt_ms
        for name, theirs in published.ABLATION_TPT_MS.items():
            ours_ms = found[name].tpt_ms
            their_ratio = published.ABLATION_TPT_MS["vanilla"] / theirs
            rows.append(
                [
                    cell.name,
                    found[name].label,
                    ours_ms,
                    *found[name].interval_ms,
                    slowest_ms / ours_ms,
                    theirs,
                    their_ratio,
                ]
            )
    columns = ("cell", "strategy", "ms", "low", "high", "over vanilla", "published ms", "published")
    note = "Milliseconds per token; the published ones are of scenario 1, HumanEval."
    return Table(id="ablation", title="Ablation of PipeSD", note=note, columns=columns, rows=rows)


_DUAL = ("pipesd", "pipesd/no-pipeline")
UPLOADS = {
    "pipesd": "planned",
    "pipesd/immediate": "immediate",
    "pipesd/greedy": "greedy",
    "pipesd/whole": "whole",
}


def upload_table(cells: Sequence[CellResults]) -> Table:
    """Planned uploads beside the other policies, same thresholds."""
    rows: list[list[Entry]] = []
    for cell in cells:
        for tuned in (False, True):
            found = {name: cell.get(label, tuned=tuned) for label, name in UPLOADS.items()}
            if any(result is None or result.first.tuned is not tuned for result in found.values()):
                continue
            times_ms = {name: result.tpt_ms for name, result in found.items() if result is not None}
            others = [times_ms[name] / times_ms["planned"] for name in list(times_ms)[1:]]
            rows.append([cell.name, "tuned" if tuned else "paper", *times_ms.values(), *others])
    names = list(UPLOADS.values())
    columns = ("cell", "settings", *names, *(f"{name} / planned" for name in names[1:]))
    low, high = published.UPLOAD_SPEED_UP_RANGE
    note = (
        f"Milliseconds per token. Published without a table: planning is {low} to {high} times faster than the others."
    )
    return Table(id="uploads", title="Upload policies", note=note, columns=columns, rows=rows)


# -- yardsticks ------------------------------------------------------------------------------------------------------


def yardstick_table(cells: Sequence[CellResults]) -> Table:
    """Flow beside cloud-only, the linear bound and PipeSD, in every cell that has all of them and sends ids."""
    rows: list[list[Entry]] = []
    for cell in cells:
        alone, pipesd, flow = (cell.get(name) for name in ("cloud-only", "pipesd", "flow"))
        if alone is None or pipesd is None or flow is None or cell.first.regime != "ids":
            continue
        best_ms = min(alone.tpt_ms, cell.first.bound_ms)
        times_ms = (alone.tpt_ms, cell.first.bound_ms, pipesd.tpt_ms, flow.tpt_ms)
        rows.append([cell.name, *times_ms, flow.tpt_ms / best_ms, pipesd.tpt_ms / flow.tpt_ms])
    columns = ("cell", "cloud-only ms", "bound ms", "pipesd ms", "flow ms", "flow / best yardstick", "pipesd / flow")
    return Table(
        id="yardsticks", title="Flow against its yardsticks", note=_yardstick_note(rows), columns=columns, rows=rows
    )


def _yardstick_note(rows: Sequence[Sequence[Entry]]) -> str:
    if not rows:
        return ""
    over_best = [float(row[5] or 0) for row in rows]
    over_flow = [float(row[6] or 0) for row in rows]
    geometric = math.exp(sum(map(math.log, over_flow)) / len(rows))
    below = sum(ratio < 1 for ratio in over_best)
    share = 100 * below / len(rows)
    return (
        f"Flow takes at most {max(over_best):.2f} of the better of cloud-only and linear bound, and less than both in "
        f"{below} of {len(rows)} cells ({share:.0f} %). It is {geometric:.2f} times as fast as PipeSD in the geometric "
        f"mean, {min(over_flow):.2f} at worst."
    )


def passes_table(cells: Sequence[CellResults]) -> Table:
    """Time against target passes: what `assist` trades."""
    rows: list[list[Entry]] = [
        [cell.name, result.label, result.tpt_ms, result.mean("target_passes_per_token")]
        for cell in cells
        if cell.get("flow/none") and cell.get("flow/bubble")
        for result in cell.simulated
    ]
    columns = ("cell", "strategy", "ms per token", "target passes per token")
    note = "Latency and target passes trade; the assist of flow (none, bubble, always) sets where."
    return Table(id="passes", title="Time against target passes", note=note, columns=columns, rows=rows)


def energy_table(cells: Sequence[CellResults]) -> Table:
    """The shape of the paper's table 2."""
    rows: list[list[Entry]] = []
    for cell in cells:
        theirs = published.ECS_J_PER_100.get(cell.first.dataset) if cell.scenario == "s1" else None
        beside = dict(zip(published.METHODS, theirs, strict=True)) if theirs and cell.first.regime == "paper" else {}
        rows += [
            [cell.name, each.label, each.mean("ecs_j_per_100"), each.first.energy_kind, beside.get(each.strategy)]
            for each in cell.simulated
            if each.mean("ecs_j_per_100") is not None
        ]
    columns = ("cell", "strategy", "J per 100 tokens", "energy", "published J")
    note = "The cloud's energy while the target computes. Published: measured on an A800, scenario 1."
    return Table(id="energy", title="Cloud energy", note=note, columns=columns, rows=rows)


# -- load, reality, searches, everything -----------------------------------------------------------------------------


def edges_table(cells: Sequence[CellResults]) -> Table:
    """One cloud, more and more edges; only where a scenario has cells with different numbers of them."""
    several = {cell.scenario for cell in cells if cell.first.edges > 1}
    rows: list[list[Entry]] = [
        [cell.scenario, cell.first.dataset, result.label, cell.first.edges, result.tpt_ms, *result.interval_ms]
        for cell in sorted(cells, key=lambda cell: (cell.scenario, cell.first.dataset))
        if cell.scenario in several
        for result in cell.simulated
    ]
    rows.sort(key=lambda row: (str(row[0]), str(row[1]), str(row[2]), float(row[3] or 0)))
    columns = ("scenario", "texts", "strategy", "edges", "ms per token", "low", "high")
    note = "Every edge has its own link; all share one target."
    return Table(id="edges", title="Edges on one cloud", note=note, columns=columns, rows=rows)


def live_table(cells: Sequence[CellResults]) -> Table:
    """The same cell in virtual and in real time."""
    rows: list[list[Entry]] = []
    for cell in cells:
        for live in (each for each in cell.results if each.first.live):
            twin = cell.get(live.strategy, tuned=live.first.tuned)
            if twin is not None:
                ratio = live.tpt_ms / twin.tpt_ms
                rows.append([cell.name, live.label, twin.tpt_ms, live.tpt_ms, 100 * (ratio - 1)])
    worst = max((abs(float(row[4] or 0)) for row in rows), default=0.0)
    columns = ("cell", "strategy", "simulated ms", "live ms", "difference %")
    note = f"Live: real processes and sockets, an emulated link, models that take their time. At most {worst:.1f} %."
    return Table(id="live", title="Simulated and live", note=note, columns=columns, rows=rows)


def search_table(searches: Sequence[Mapping[str, Entry]]) -> Table:
    """Bayesian search against grid and random, as the comparison wrote them."""
    columns = list(searches[0]) if searches else []
    note = "Thresholds found with the same number of tokens; then the true time there, from a long run."
    rows = [[row.get(column) for column in columns] for row in searches]
    return Table(id="searches", title="Searches for the thresholds", note=note, columns=columns, rows=rows)


_FIELDS = {
    "bound ms": "bound_ms",
    "TTFT ms": "ttft_ms",
    "passes / token": "target_passes_per_token",
    "acceptance": "acceptance_rate",
    "rollback": "rollback_rate",
    "draft length": "mean_draft_tokens",
    "tokens up / token": "tokens_up_per_token",
    "bytes up / token": "bytes_up_per_token",
    "reused": "reused",
    "discarded": "discarded",
    "J / 100": "ecs_j_per_100",
}


def runs_table(cells: Sequence[CellResults]) -> Table:
    """All figures of all results."""
    rows: list[list[Entry]] = [
        [cell.name, each.label, "live" if each.first.live else "simulated", each.tpt_ms, *each.interval_ms]
        + [each.mean(field) for field in _FIELDS.values()]
        + [_numbers(each)]
        for cell in cells
        for each in cell.results
    ]
    columns = ("cell", "strategy", "run", "ms per token", "low", "high", *_FIELDS, "numbers")
    note = "Means over seeds. Intervals: bootstrap over texts, 95 %."
    return Table(id="runs", title="All runs", note=note, columns=columns, rows=rows)


def _numbers(result: Result) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in result.first.numbers.items())
