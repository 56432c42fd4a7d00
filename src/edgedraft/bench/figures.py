"""The pictures of a report of `bench run`."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from edgedraft.backends.trace import RecordedText
from edgedraft.bench.aggregate import CellResults, Result
from edgedraft.bench.drawing import INK, Picture, draw_legend, draw_line, new_figure, picture_of, report_style
from edgedraft.bench.results import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_BAR_CELLS = 8
MIN_CURVE_POINTS = 3
TIMELINE_STRATEGIES = ("vanilla", "edgellm", "pipesd", "flow")
TIMELINE_S = 2.5
LANES = ("draft", "upload", "verify", "download")
CONFIDENCE_EDGES = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0 + 1e-9)
MIN_CONFIDENCE_TOKENS = 10

# Okabe and Ito's colours, told apart by colour-blind readers too.
_COLOURS: Mapping[str, str] = {
    "vanilla": "#E69F00",
    "hsl": "#56B4E9",
    "edgellm": "#CC79A7",
    "pipesd": "#0072B2",
    "flow": "#009E73",
    "flow/bubble": "#4DBE9B",
    "flow/none": "#99D8C4",
    "cloud-only": "#8C8C8C",
    "auto": "#D55E00",
}
_OTHER_COLOURS = ("#F0E442", "#7F3C8D", "#A5AA99", "#E68310", "#3969AC", "#80BA5A")


def all_pictures(
    cells: Sequence[CellResults], timelines: Sequence[Timeline], texts: Sequence[RecordedText]
) -> list[Picture]:
    """Every picture that there is enough for. Raises `UnsupportedError` where matplotlib is not installed."""
    with report_style():
        return list(_pictures(cells, timelines, texts))


def _pictures(
    cells: Sequence[CellResults], timelines: Sequence[Timeline], texts: Sequence[RecordedText]
) -> Iterator[Picture]:
    groups: dict[str, list[CellResults]] = defaultdict(list)
    for cell in cells:
        groups[cell.scenario].append(cell)
    for name, group in groups.items():
        if len(group) <= MAX_BAR_CELLS:
            yield bars(name, group)
        if len({cell.first.rtt_ms for cell in group}) >= MIN_CURVE_POINTS:
            yield link_curves(name, group)
        if len({cell.first.edges for cell in group}) > 1:
            yield edge_curves(name, group)
    with_assist = [cell for cell in cells if cell.get("flow/none") and cell.get("flow/bubble") and cell.get("flow")]
    if with_assist:
        yield passes_curve(_spread(with_assist))
    if timelines:
        yield round_timeline(timelines)
    if texts:
        yield acceptance_by_confidence(texts)


# -- time per token --------------------------------------------------------------------------------------------------


def bars(scenario: str, cells: Sequence[CellResults]) -> Picture:
    """Time per token of every strategy in each cell of a scenario, with its interval and the cell's bound."""
    height = 0.8 + sum(0.24 * len(cell.simulated) + 0.7 for cell in cells)
    figure = new_figure(8.4, height)
    axes = figure.subplots(len(cells), 1, squeeze=False, height_ratios=[len(cell.simulated) + 2 for cell in cells])
    for cell, place in zip(cells, axes[:, 0], strict=True):
        _cell_bars(place, cell)
    axes[-1, 0].set_xlabel("milliseconds per token")
    caption = "Lines: 95 % over texts. Dashed: the linear bound. Dotted: a pass of the target alone, its link left out."
    return picture_of(figure, f"bars-{scenario}", f"Time per token: {scenario}", caption)


def _cell_bars(axes: Axes, cell: CellResults) -> None:
    results = cell.simulated
    for place, result in enumerate(results):
        low_ms, high_ms = result.interval_ms
        tpt_ms = result.tpt_ms
        axes.barh(place, tpt_ms, height=0.72, color=_colour(result.strategy))
        axes.plot([low_ms, high_ms], [place, place], color=INK, linewidth=1.2)
        axes.text(max(high_ms, tpt_ms), place, f" {tpt_ms:.1f}", va="center", fontsize=8, color=INK)
    axes.axvline(cell.first.bound_ms, color=INK, linestyle="--", linewidth=1)
    axes.axvline(cell.first.cloud_only_ms, color=INK, linestyle=":", linewidth=1)
    axes.set_yticks(range(len(results)), [result.label for result in results], fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_title(cell.name, loc="left", fontsize=9)


def link_curves(scenario: str, cells: Sequence[CellResults]) -> Picture:
    """Time per token over the link's round trip; one panel for each kind of text and draft time."""
    panels: dict[tuple[str, float], list[CellResults]] = defaultdict(list)
    for cell in sorted(cells, key=lambda cell: cell.first.rtt_ms):
        panels[cell.first.dataset, cell.first.draft_ms].append(cell)
    datasets = sorted({dataset for dataset, _ in panels})
    draft_times = sorted({draft_ms for _, draft_ms in panels})
    figure = new_figure(3 * len(draft_times) + 0.6, 2.4 * len(datasets) + 0.8)
    grid = figure.subplots(len(datasets), len(draft_times), squeeze=False, sharex=True, sharey="row")
    for row, dataset in enumerate(datasets):
        for column, draft_ms in enumerate(draft_times):
            _link_panel(grid[row, column], panels[dataset, draft_ms])
            grid[row, column].set_title(f"{dataset}, draft {draft_ms:g} ms", loc="left", fontsize=9)
    draw_legend(figure, grid[0, 0])
    caption = "Milliseconds per token over the link's round trip in milliseconds. Dashed: the linear bound."
    return picture_of(figure, f"curves-{scenario}", f"Time per token over the round trip: {scenario}", caption)


def _link_panel(axes: Axes, cells: Sequence[CellResults]) -> None:
    from matplotlib.ticker import LogLocator

    lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for cell in cells:
        for result in cell.simulated:
            lines[result.strategy].append((cell.first.rtt_ms, result.tpt_ms))
    for strategy, points in lines.items():
        _line(axes, points, strategy)
    bound = [(cell.first.rtt_ms, cell.first.bound_ms) for cell in cells]
    axes.plot(*zip(*bound, strict=True), color=INK, linestyle="--", linewidth=1, label="linear bound")
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = [cell.first.rtt_ms for cell in cells]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()


def edge_curves(scenario: str, cells: Sequence[CellResults]) -> Picture:
    """Time per token over the number of edges that share the cloud."""
    datasets = sorted({cell.first.dataset for cell in cells})
    figure = new_figure(3.6 * len(datasets) + 0.6, 3.2)
    grid = figure.subplots(1, len(datasets), squeeze=False)
    for axes, dataset in zip(grid[0], datasets, strict=True):
        lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for cell in sorted(cells, key=lambda cell: cell.first.edges):
            for result in cell.simulated if cell.first.dataset == dataset else ():
                lines[result.strategy].append((cell.first.edges, result.tpt_ms))
        for strategy, points in lines.items():
            _line(axes, points, strategy)
        axes.set_title(dataset, loc="left", fontsize=9)
        axes.set_xlabel("edges")
    draw_legend(figure, grid[0, 0])
    caption = "Milliseconds per token over the number of edges; each has its own link, all share one target."
    return picture_of(figure, f"edges-{scenario}", f"Edges on one cloud: {scenario}", caption)


def passes_curve(cells: Sequence[CellResults]) -> Picture:
    """Time per token against target passes per token, a panel for each cell; flow's assists joined by a line."""
    figure = new_figure(3.2 * len(cells) + 0.6, 3.2)
    grid = figure.subplots(1, len(cells), squeeze=False)
    for axes, cell in zip(grid[0], cells, strict=True):
        for result in cell.simulated:
            axes.plot(*_passes_point(result), "o", color=_colour(result.strategy), label=result.strategy)
        flows = [cell.get(name) for name in ("flow/none", "flow/bubble", "flow")]
        points = [_passes_point(each) for each in flows if each is not None]
        axes.plot(*zip(*points, strict=True), color=_colour("flow"), linewidth=1)
        axes.set_title(cell.name, loc="left", fontsize=8)
        axes.set_xlabel("target passes per token")
    grid[0, 0].set_ylabel("ms per token")
    draw_legend(figure, grid[0, 0])
    caption = "Down and to the left is better. Flow trades the two by its assist: none, bubble, always."
    return picture_of(figure, "passes-curve", "Time against target passes", caption)


def _passes_point(result: Result) -> tuple[float, float]:
    return result.mean("target_passes_per_token") or 0.0, result.tpt_ms


def _spread(cells: Sequence[CellResults], count: int = 4) -> list[CellResults]:
    """At most `count` of them, spread over the whole list."""
    return list(cells) if len(cells) <= count else [cells[index * len(cells) // count] for index in range(count)]


# -- inside a round --------------------------------------------------------------------------------------------------


def round_timeline(timelines: Sequence[Timeline]) -> Picture:
    """What draft, link and target did in the first seconds of one text, under several strategies."""
    cell = max(timelines, key=lambda each: not each.tuned).scenario
    of_cell = [each for each in timelines if each.scenario == cell]
    shown = {each.strategy: each for each in sorted(of_cell, key=lambda each: each.tuned, reverse=True)}
    chosen = [shown[name] for name in TIMELINE_STRATEGIES if name in shown] or list(shown.values())[:3]
    figure = new_figure(9, 1.35 * len(chosen) + 0.6)
    grid = figure.subplots(len(chosen), 1, squeeze=False, sharex=True)
    for axes, timeline in zip(grid[:, 0], chosen, strict=True):
        for span in timeline.spans:
            place = LANES.index(span.lane)
            colour = _colour(timeline.strategy)
            axes.barh(
                place, span.end_s - span.start_s, left=span.start_s, height=0.7, color=colour, edgecolor=INK, lw=0.3
            )
        axes.set_yticks(range(len(LANES)), LANES, fontsize=8)
        axes.invert_yaxis()
        axes.set_xlim(0, TIMELINE_S)
        axes.set_title(timeline.strategy, loc="left", fontsize=9)
    grid[-1, 0].set_xlabel("seconds from the start of the text")
    caption = f"Text {chosen[0].text_id} in cell {cell}. A bar is a draft step, a message, a target pass."
    return picture_of(figure, "timeline", "Rounds", caption)


def acceptance_by_confidence(texts: Sequence[RecordedText]) -> Picture:
    """How often a draft token of some confidence is right, by kind of text."""
    figure = new_figure(7, 3.4)
    axes = figure.subplots()
    for kind in sorted({text.kind for text in texts}):
        points = confidence_points([text for text in texts if text.kind == kind])
        axes.plot([p[0] for p in points], [p[1] for p in points], "o-", markersize=4, label=kind)
    axes.plot([0, 1], [0, 1], color=INK, linestyle=":", linewidth=1)
    axes.set_xlabel("confidence of the draft model")
    axes.set_ylabel("share that is right")
    axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    caption = "From the recorded texts. On the dotted line a draft model knows exactly how sure it may be."
    return picture_of(figure, "confidence", "Acceptance by confidence", caption)


def confidence_points(texts: Sequence[RecordedText]) -> list[tuple[float, float, int]]:
    """For each confidence interval with enough tokens: mean confidence, share that is right, number of tokens."""
    tokens = [(prob, right) for text in texts for prob, right in zip(text.draft_prob, text.right, strict=True)]
    points = []
    for low, high in itertools.pairwise(CONFIDENCE_EDGES):
        inside = [(prob, right) for prob, right in tokens if low <= prob < high]
        if len(inside) >= MIN_CONFIDENCE_TOKENS:
            count = len(inside)
            points.append((sum(prob for prob, _ in inside) / count, sum(right for _, right in inside) / count, count))
    return points


def _line(axes: Axes, points: Sequence[tuple[float, float]], strategy: str) -> None:
    draw_line(axes, points, strategy, _colour(strategy))


def _colour(strategy: str) -> str:
    return _COLOURS.get(strategy) or _OTHER_COLOURS[sum(strategy.encode()) % len(_OTHER_COLOURS)]
