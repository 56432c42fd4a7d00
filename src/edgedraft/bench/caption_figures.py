"""The pictures of a caption bench."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from edgedraft.bench.caption_arms import CHANCE, CLOUD_ONLY, EDGE_ONLY, EVERYTHING, NOTHING
from edgedraft.bench.caption_results import ArmResult, CaptionResults, ClipRecord, Curve, Sweep
from edgedraft.bench.drawing import INK, Picture, draw_legend, draw_line, new_figure, picture_of, report_style
from edgedraft.caption.caption import PCM_BYTES_PER_S
from edgedraft.caption.intervals import Interval
from edgedraft.types import Float64Array, TokenKind

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUM_ENTROPY_BINS = 30
# Okabe and Ito's colours, told apart by colour-blind readers too; then others.
_COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F3C8D", "#80BA5A"),
    *("#882255", "#44AA99", "#999933", "#6699CC"),
)
_CHANCE_COLOURS = ("#8C8C8C", "#5F5F5F", "#B5B5B5")
_KINDS: Mapping[TokenKind, tuple[str, str]] = {
    TokenKind.LOCAL: ("local: committed by the edge alone", "#CC79A7"),
    TokenKind.ACCEPTED: ("accepted by the cloud", "#009E73"),
    TokenKind.RECOVERED: ("corrected by the cloud", "#D55E00"),
}


def caption_pictures(results: CaptionResults, clips: Sequence[ClipRecord]) -> list[Picture]:
    """Every picture that there is enough for. Raises `UnsupportedError` where matplotlib is not installed."""
    with report_style():
        return list(_pictures(results, clips))


def _pictures(results: CaptionResults, clips: Sequence[ClipRecord]) -> Iterator[Picture]:
    sweeps = _by_name(results.sweeps)
    for number, sweep in enumerate(sweeps.get("threshold", ())):
        yield quality_curve(results, sweep, number)
    if "rtt" in sweeps:
        yield time_curves(results, sweeps["rtt"], "rtt", "Time over the round trip", "round trip, ms", 1e3)
    if "bandwidth" in sweeps:
        yield time_curves(results, sweeps["bandwidth"], "bandwidth", "Time over the bandwidth", "kB/s", 1e-3)
    for name, title in (("rank", "Acceptance rank R"), ("length", "Block length L")):
        for number, sweep in enumerate(sweeps.get(name, ())):
            yield trade_curves(sweep, title, number)
    gated = [result.arm.name for result in results.arms if result.arm.gate not in (EVERYTHING, NOTHING, CLOUD_ONLY)]
    if picture := entropy_histogram(clips, gated):
        yield picture
    yield bytes_bars(results)


def _by_name(sweeps: Iterable[Sweep]) -> dict[str, list[Sweep]]:
    found: dict[str, list[Sweep]] = {}
    for sweep in sweeps:
        found.setdefault(sweep.name, []).append(sweep)
    return found


# -- quality -----------------------------------------------------------------------------------------------------------


def quality_curve(results: CaptionResults, sweep: Sweep, number: int = 0) -> Picture:
    """BLEU-1 over the share verified, both in the panel's language: every gate, and chance; edge and cloud as levels;
    the controlled arms and their controls with intervals.
    """
    languages = sorted(results.manifest.num_clips)
    figure = new_figure(4.4 * len(languages) + 0.6, 4.0)
    grid = figure.subplots(1, len(languages), squeeze=False)
    for axes, language in zip(grid[0], languages, strict=True):
        gates = [curve for curve in sweep.curves if curve.arm.gate != CHANCE]
        chances = [curve for curve in sweep.curves if curve.arm.gate == CHANCE]
        for curve, colour in [*zip(gates, cycle(_COLOURS)), *zip(chances, cycle(_CHANCE_COLOURS))]:
            points = sorted((100 * each.verified_shares[language], each.bleu_1[language]) for each in curve.points)
            draw_line(axes, points, curve.label, colour, "o:" if curve.arm.gate == CHANCE else "o-")
        for name, style in ((EDGE_ONLY, ":"), (CLOUD_ONLY, "--")):
            level = _place(results.arm(name), language)[1].value
            axes.axhline(level, color=INK, linestyle=style, linewidth=1, label=name)
        _controlled_arms(axes, results, language)
        axes.set_title(language, loc="left", fontsize=9)
        axes.set_xlabel("tokens verified, %")
    grid[0, 0].set_ylabel("BLEU-1")
    draw_legend(figure, grid[0, 0], columns=4)
    caption = (
        "BLEU-1 over the share of drafted tokens that a verdict was asked for, both in one language; each point is a "
        f"threshold of the gate, over {sweep.num_clips:,} clips in all. Grey: tokens chosen by chance. Bars: an arm as "
        "the tables have it, with the 95 % interval of BLEU-1; hollow: its controls by chance, the means of their "
        "values and of the ends of their intervals. Up and to the left is better."
    )
    return picture_of(figure, _id("quality-share", number), "Quality over the share verified", caption)


def _controlled_arms(axes: Axes, results: CaptionResults, language: str) -> None:
    """Each arm that has controls, and the mean of these, where the two stand and how sure that is."""
    controls: dict[str, list[ArmResult]] = {}
    for result in results.arms:
        if result.arm.controls:
            controls.setdefault(result.arm.controls, []).append(result)
    for (name, chances), marker in zip(controls.items(), cycle("sD^v")):
        for found, label, fill in (
            ([results.arm(name)], f"{name}, as run", INK),
            (chances, f"{name}, by chance", "none"),
        ):
            places = [_place(each, language) for each in found]
            share = np.mean([share for share, _ in places])
            low, middle, high = np.mean([(each.low, each.value, each.high) for _, each in places], axis=0)
            axes.errorbar(
                [100 * share],
                [middle],
                yerr=[[middle - low], [high - middle]],
                fmt=marker,
                color=INK,
                markerfacecolor=fill,
                markersize=5,
                elinewidth=1,
                capsize=2,
                zorder=3,
                label=label,
            )


def _place(result: ArmResult, language: str) -> tuple[float, Interval]:
    """The share verified and BLEU-1 in the language."""
    (costs,) = (each for each in result.costs if each.language == language)
    (scores,) = (each.texts[0].scores for each in result.languages if each.language == language)
    return costs.verified_share, scores["bleu_1"]


def trade_curves(sweep: Sweep, title: str, number: int = 0) -> Picture:
    """Quality, share and calls over rank or length. Places are evenly spaced: the values are few."""
    curve = sweep.curves[0]
    places = range(len(curve.points))
    labels = ["dynamic" if sweep.name == "length" and not point.x else f"{point.x:g}" for point in curve.points]
    figure = new_figure(9.6, 3.2)
    quality, share, calls = figure.subplots(1, 3)
    for index, each in enumerate(sweep.curves):
        for place, language in enumerate(sorted(each.points[0].bleu_1)):
            name = language if len(sweep.curves) == 1 else f"{each.label}, {language}"
            values = [point.bleu_1[language] for point in each.points]
            draw_line(quality, list(zip(places, values, strict=True)), name, _colour(2 * index + place))
        shares = [100 * point.verified_share for point in each.points]
        draw_line(share, list(zip(places, shares, strict=True)), each.label, _colour(2 * index))
        counts = [point.calls_per_clip for point in each.points]
        draw_line(calls, list(zip(places, counts, strict=True)), each.label, _colour(2 * index))
    for axes, name in ((quality, "BLEU-1"), (share, "tokens verified, %"), (calls, "cloud calls a clip")):
        axes.set_xticks(places, labels)
        axes.set_title(name, loc="left", fontsize=9)
        axes.set_xlabel(sweep.x_label)
    draw_legend(figure, quality)
    caption = (
        f"{', '.join(each.label for each in sweep.curves)}, over {sweep.num_clips:,} clips, all else equal. Shares and "
    )
    caption += "calls are over all languages."
    return picture_of(figure, _id(f"sweep-{sweep.name}", number), title, caption)


# -- time --------------------------------------------------------------------------------------------------------------


def time_curves(
    results: CaptionResults, sweeps: Sequence[Sweep], name: str, title: str, x_label: str, per_unit: float
) -> Picture:
    """Mean total time of a clip, a panel for each edge; a dashed line is one without drafting ahead."""
    figure = new_figure(4.8 * len(sweeps) + 0.6, 4.0)
    grid = figure.subplots(1, len(sweeps), squeeze=False)
    for axes, sweep in zip(grid[0], sweeps, strict=True):
        names = list(dict.fromkeys(_base(curve) for curve in sweep.curves))
        for curve in sweep.curves:
            points = [(per_unit * point.x, 1e3 * point.total_s) for point in curve.points]
            colour = _colour(names.index(_base(curve)))
            draw_line(axes, points, curve.label, colour, "o-" if curve.arm.draft_ahead else "o--")
        step_ms = 1e3 * sweep.setting.draft_step_s
        axes.set_title(f"{sweep.setting.edge} edge, {step_ms:.1f} ms a token", loc="left", fontsize=9)
        axes.set_xlabel(x_label)
        axes.set_ylim(bottom=0)
        if name == "bandwidth":
            axes.set_xscale("log")
    grid[0, 0].set_ylabel("ms a clip")
    draw_legend(figure, grid[0, 0], columns=4)
    caption = (
        f"Mean virtual time of a clip, from the request to its last token, over {sweeps[0].num_clips:,} clips. "
        "Dashed: not drafting ahead."
    )
    return picture_of(figure, f"time-{name}", title, caption)


def _base(curve: Curve) -> str:
    """The arm's name without what it says of drafting ahead: the two curves of an arm have one colour."""
    return curve.arm.name.removesuffix(", waiting")


# -- tokens and bytes --------------------------------------------------------------------------------------------------


def entropies_by_kind(clips: Iterable[ClipRecord], arm: str) -> dict[TokenKind, Float64Array]:
    """The draft's entropy at every token of the arm that it drafted or would have, in nats, by what became of it."""
    found: dict[TokenKind, list[float]] = {kind: [] for kind in _KINDS}
    for clip in clips:
        for kind, entropy in zip(clip.kinds, clip.entropies, strict=True):
            if clip.arm == arm and entropy is not None and kind in found:
                found[TokenKind(kind)].append(entropy)
    return {kind: np.array(values) for kind, values in found.items() if values}


def entropy_histogram(clips: Sequence[ClipRecord], arms: Sequence[str]) -> Picture | None:
    """For the first arms that asked the cloud anything: what became of tokens, over the draft's entropy."""
    found = {arm: kinds for arm in arms if len(kinds := entropies_by_kind(clips, arm)) > 1}
    chosen = [arm for arm in ("ugsd", "ugsd-sparse") if arm in found] or list(found)[:2]
    if not chosen:
        return None
    figure = new_figure(4.6 * len(chosen) + 0.6, 3.6)
    grid = figure.subplots(1, len(chosen), squeeze=False)
    for axes, arm in zip(grid[0], chosen, strict=True):
        _histogram(axes, found[arm])
        axes.set_title(arm, loc="left", fontsize=9)
    grid[0, 0].set_ylabel("tokens")
    draw_legend(figure, max(grid[0], key=lambda axes: len(axes.get_legend_handles_labels()[0])), columns=3)
    caption = "The draft's entropy in nats, of the raw distribution, where the token stands. Logarithmic counts."
    return picture_of(figure, "entropy", "Entropy and fate of tokens", caption)


def _histogram(axes: Axes, kinds: Mapping[TokenKind, Float64Array]) -> None:
    edges = np.linspace(0.0, max(float(values.max()) for values in kinds.values()) or 1.0, NUM_ENTROPY_BINS + 1)
    shown = list(kinds)
    axes.hist(
        [kinds[kind] for kind in shown],
        bins=edges.tolist(),
        histtype="step",
        linewidth=1.5,
        color=[_KINDS[kind][1] for kind in shown],
        label=[_KINDS[kind][0] for kind in shown],
    )
    axes.set_yscale("log")
    axes.set_xlabel("entropy, nats")


def bytes_bars(results: CaptionResults) -> Picture:
    """Bytes of features that left for a second of speech, of every arm, beside the waveform's own."""
    shown = [result for result in results.arms if not result.arm.controls]
    names = [result.arm.name for result in shown]
    values = [result.costs[0].feature_bytes_per_s / 1e3 for result in shown]
    figure = new_figure(8.4, 0.24 * len(names) + 1.4)
    axes = figure.subplots()
    axes.barh(range(len(names)), values, color=_COLOURS[0])
    for place, value in enumerate(values):
        axes.text(value, place, f" {value:.2f}", va="center", fontsize=8, color=INK)
    axes.axvline(PCM_BYTES_PER_S / 1e3, color=INK, linestyle="--", linewidth=1)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_xscale("symlog", linthresh=0.1)
    axes.invert_yaxis()
    axes.set_xlabel("kB of features a second of speech")
    caption = f"Dashed: the waveform, {PCM_BYTES_PER_S / 1e3:g} kB/s at 16 kHz, 16 bit. No arm sends it."
    return picture_of(figure, "bytes", "What leaves of a second of speech", caption)


def _id(name: str, number: int) -> str:
    """A run may hold several sweeps of one name; ids differ."""
    return f"{name}-{number + 1}" if number else name


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]
