"""The tables of a caption bench: on the terminal and in the report rounded for people, in JSON as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec

from edgedraft.bench.caption_arms import CLOUD_ONLY
from edgedraft.bench.caption_results import Arm, CaptionResults, LiveRun, Setting, Sweep, to_dict
from edgedraft.bench.caption_rows import (
    CostsRow,
    LiveRow,
    PointRow,
    QualityRow,
    RatioRow,
    TextRow,
    TunedRow,
    costs_rows,
    live_rows,
    point_rows,
    quality_rows,
    ratio_rows,
    text_rows,
    tuned_rows,
)
from edgedraft.bench.tables import Entry, Table
from edgedraft.caption.intervals import MIN_GAP_POINTS, Interval

MIB = 1 << 20
BRIEF_LIVE: tuple[str, ...] = ("arm", "TTFT ms", "OTPS", "total ms", "over edge-only")
"""What a terminal of 120 columns has room for."""
NARROW_QUALITY: tuple[str, ...] = ("arm", "BLEU-1", "gap closed %", "verified %", "ms")
WIDE_CHARACTERS = 150
"""A terminal that is narrower gets fewer figures of each arm; the report has all."""

Row = TypeVar("Row", bound=msgspec.Struct)
Columns = Mapping[str, Callable[[Row], Entry]]
"""Names of columns, and what each shows of a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionTable(Table):
    """`figures`: what `rows` show, in full."""

    figures: Sequence[msgspec.Struct]

    def to_dict(self) -> dict[str, object]:
        """For JSON: the figures."""
        return {"id": self.id, "title": self.title, "note": self.note, "rows": to_dict(self.figures)}


def _table(id_: str, title: str, note: str, figures: Sequence[Row], columns: Columns[Row]) -> CaptionTable:
    rows = [[show(each) for show in columns.values()] for each in figures]
    return CaptionTable(id=id_, title=title, note=note, columns=tuple(columns), rows=rows, figures=figures)


def caption_tables(results: CaptionResults) -> list[CaptionTable]:
    """Every table that there are figures for."""
    made = [
        *(quality_table(results, language) for language in sorted(results.manifest.num_clips)),
        costs_table(results),
        *live_tables(results),
        ratio_table(results),
        tuned_table(results),
        tokenisation_table(results),
        arms_table(results),
        *sweep_tables(results),
    ]
    return [table for table in made if table.rows]


# -- how figures are shown ---------------------------------------------------------------------------------------------


def _interval(value: Interval | None, factor: float = 1, digits: int = 1) -> Entry:
    if value is None:
        return None
    middle, low, high = (f"{factor * each:.{digits}f}" for each in (value.value, value.low, value.high))
    return f"{middle} [{low}, {high}]"


def _middle(value: Interval | None, factor: float = 1) -> Entry:
    return None if value is None else f"{factor * value.value:.1f}"


def _times(value: float | None, factor: float) -> Entry:
    return None if value is None else factor * value


def _by_language(shares: Mapping[str, float], digits: int = 0) -> Entry:
    """In percent; None where there are none."""
    return ", ".join(f"{language} {100 * share:.{digits}f}" for language, share in shares.items()) or None


def _gap(row: TextRow) -> Entry:
    """None where the gap was not looked at."""
    if row.gap_points is not None and row.gap_closed_share is None:
        return f"none: gap {row.gap_points.value:.1f}"
    return _interval(row.gap_closed_share, 100, 0)


def _clips(num_clips: int) -> str:
    return f"{num_clips:,} clip{'' if num_clips == 1 else 's'}"


# -- quality -----------------------------------------------------------------------------------------------------------


def quality_table(results: CaptionResults, language: str, *, width: int | None = None) -> CaptionTable:
    """All arms, by the tokenisation to quote, beside what they cost.

    `width`: characters of the terminal, where it is to fit one; None: with all intervals.
    """
    show = _interval if width is None else _middle
    is_narrow = width is not None and width < WIDE_CHARACTERS
    columns: Columns[QualityRow] = {
        "arm": lambda row: row.arm,
        "BLEU-1": lambda row: (_middle if is_narrow else _interval)(row.bleu_1),
        "BLEU-4": lambda row: show(row.bleu_4),
        "METEOR": lambda row: show(row.meteor),
        "ROUGE-L": lambda row: show(row.rouge_l),
        "attributes %": lambda row: show(row.true_attributes_share, 100),
        "affect %": lambda row: show(row.true_affect_share, 100),
        "gap closed %": _gap,
        "verified %": lambda row: None if row.arm == CLOUD_ONLY else 100 * row.verified_share.value,
        "calls": lambda row: None if row.arm == CLOUD_ONLY else row.calls_per_clip,
        "ms": lambda row: 1e3 * row.total_s.value,
    }
    shown = {name: columns[name] for name in NARROW_QUALITY} if is_narrow else columns
    text = next(each.texts[0] for each in results.arms[0].languages if each.language == language)
    note = (
        "Intervals: bootstrap over clips, 95 %. Gap closed: of BLEU-1, from edge-only to cloud-only; none where the "
        f"gap is below {MIN_GAP_POINTS:g} points or could be none. Tokenisation: {text.tokenisation}. "
        f"METEOR: {text.definitions.get('meteor_is', '')}."
    )
    title = f"Captions in {language}, {_clips(results.manifest.num_clips[language])}"
    return _table(f"quality-{language}", title, note, quality_rows(results, language), shown)


def tokenisation_table(results: CaptionResults) -> CaptionTable:
    """The same scores by every tokenisation; where there is one each, the tables above hold it already."""
    columns: Columns[TextRow] = {
        "arm": lambda row: row.arm,
        "language": lambda row: row.language,
        "tokenisation": lambda row: row.tokenisation,
        "BLEU-1": lambda row: row.bleu_1.value,
        "BLEU-4": lambda row: row.bleu_4.value,
        "METEOR": lambda row: row.meteor.value,
        "ROUGE-L": lambda row: row.rouge_l.value,
        "BLEU-1 precision": lambda row: row.bleu_1_precision.value,
        "gap closed %": _gap,
    }
    note = "BLEU-1 precision has no brevity penalty; it is what UGSD's precursor calls BLEU-1."
    return _table("tokenisations", "By tokenisation", note, text_rows(results), columns)


# -- costs -------------------------------------------------------------------------------------------------------------


def costs_table(results: CaptionResults) -> CaptionTable:
    """What the captions of all languages took."""
    columns: Columns[CostsRow] = {
        "arm": lambda row: row.arm,
        "verified %": lambda row: _interval(row.verified_share, 100),
        "ids up / token": lambda row: row.ids_up_per_token,
        "calls": lambda row: row.calls_per_clip,
        "corrections": lambda row: row.corrections_per_clip,
        "silent %": lambda row: 100 * row.silent_share,
        "feature B/s": lambda row: row.feature_bytes_per_s,
        "bytes up": lambda row: row.bytes_up_per_clip,
        "bytes down": lambda row: row.bytes_down_per_clip,
        "drafted / token": lambda row: row.drafted_per_token,
        "TTFT ms": lambda row: 1e3 * row.ttft_s,
        "total ms": lambda row: 1e3 * row.total_s.value,
    }
    note = (
        "Calls, corrections, bytes and times are means over clips. Silent: clips of which nothing left. Feature B/s: "
        "over all seconds of speech. Times are virtual: " + in_words(results.setting) + "."
    )
    title = f"What captions cost, {_clips(sum(results.manifest.num_clips.values()))}"
    return _table("costs", title, note, costs_rows(results), columns)


def in_words(setting: Setting) -> str:
    """The edge, link and cloud that virtual times were reckoned with."""
    up, down = (
        "unlimited" if rate is None else f"{rate / 1e3:g} kB/s"
        for rate in (setting.bytes_per_s_up, setting.bytes_per_s_down)
    )
    draft_ms, listen_ms, rtt_ms = (1e3 * each for each in (setting.draft_step_s, setting.listen_s_per_s, setting.rtt_s))
    pass_ms, id_ms = 1e3 * setting.target_step_s, 1e3 * setting.target_per_id_s
    return (
        f"{setting.edge} edge, {draft_ms:.2f} ms a token and {listen_ms:.1f} ms to take in a second of speech; "
        f"round trip {rtt_ms:g} ms, up {up}, down {down}; target pass {pass_ms:.2f} ms and {id_ms:.2f} ms an id, "
        f"{1e3 * setting.target_listen_s_per_s:.1f} ms to take in a second of speech"
    )


def ratio_table(results: CaptionResults) -> CaptionTable:
    columns: Columns[RatioRow] = {
        "arm": lambda row: row.arm,
        "clips": lambda row: row.num_clips,
        "language": lambda row: row.language,
        "edge": lambda row: row.edge,
        "draft step ms": lambda row: 1e3 * row.draft_step_s,
        "round trip ms": lambda row: 1e3 * row.rtt_s,
        "over edge-only": lambda row: row.total_over_edge_only.value,
        "low": lambda row: row.total_over_edge_only.low,
        "high": lambda row: row.total_over_edge_only.high,
    }
    note = "Sum of virtual total times over that of edge-only on the same clips, paired bootstrap over clips, 95 %."
    return _table("ratios", "Total time over edge-only", note, ratio_rows(results), columns)


# -- live --------------------------------------------------------------------------------------------------------------


def live_tables(results: CaptionResults, *, width: int | None = None) -> Iterator[CaptionTable]:
    for number, run in enumerate(results.live):
        yield live_table(run, f"live-{number + 1}" if number else "live", width=width)


def live_table(run: LiveRun, id_: str = "live", *, width: int | None = None) -> CaptionTable:
    """Real processes and sockets, and the simulator's time beside. `width`: as for `quality_table`."""
    narrow = width is not None and width < WIDE_CHARACTERS

    def show(value: Interval | None, factor: float = 1) -> Entry:
        return (_middle if narrow else _interval)(value, factor)

    edge = "the edge as fast as the machine" if run.draft_step_s is None else f"a {1e3 * run.draft_step_s:g} ms edge"
    rate = "unlimited" if run.bytes_per_s is None else f"{run.bytes_per_s / 1e3:g} kB/s"
    equal = {True: "All captions equal the simulated ones.", False: "SOME CAPTIONS DIFFER FROM THE SIMULATED ONES."}
    words = [f"Round trip {1e3 * run.rtt_s:g} ms, {rate}, {edge}."]
    words += [equal[run.texts_equal]] if run.texts_equal is not None else []
    columns: Columns[LiveRow] = {
        "arm": lambda row: row.arm,
        "TTFT ms": lambda row: show(row.ttft_s, 1e3),
        "ITPS": lambda row: _interval(row.input_tokens_per_s),
        "OET ms": lambda row: _interval(row.generation_s, 1e3),
        "OTPS": lambda row: show(row.tokens_per_s),
        "total ms": lambda row: show(row.total_s, 1e3),
        "over edge-only": lambda row: _interval(row.total_over_edge_only, digits=3),
        "per token": lambda row: row.per_token_over_edge_only,
        "total / virtual": lambda row: row.total_over_virtual,
        "edge CPU %": lambda row: _times(row.edge_cpu_cores, 100),
        "cloud CPU %": lambda row: _times(row.cloud_cpu_cores, 100),
        "edge RAM MiB": lambda row: _times(row.edge_ram_bytes, 1 / MIB),
        "cloud RAM MiB": lambda row: _times(row.cloud_ram_bytes, 1 / MIB),
        "GPU %": lambda row: _times(row.gpu_share, 100),
        "GPU peak %": lambda row: _times(row.gpu_peak_share, 100),
        "GPU MiB": lambda row: _times(row.gpu_bytes, 1 / MIB),
    }
    shown = {name: columns[name] for name in BRIEF_LIVE} if width is not None else columns
    title = f"Live, {_clips(run.arms[0].num_clips)}"
    return _table(id_, title, " ".join([*words, *run.notes]), live_rows(run), shown)


# -- what was run ------------------------------------------------------------------------------------------------------


def tuned_table(results: CaptionResults) -> CaptionTable:
    columns: Columns[TunedRow] = {
        "arm": lambda row: row.arm,
        "measure": lambda row: row.measure,
        "threshold": lambda row: row.threshold,
        "dev verified %": lambda row: _times(row.dev_verified_share, 100),
        "dev gap closed %": lambda row: _by_language(row.dev_gap_closed_share),
        "tried": lambda row: row.num_tried,
        "why none": lambda row: row.reason,
    }
    goal = 100 * results.tuned[0].goal if results.tuned else 0
    note = f"Chosen on the dev set alone: the smallest share that closes {goal:.0f} % of the gap in every language."
    title = f"Thresholds, {_clips(sum(results.manifest.num_dev_clips.values()))} of the dev set"
    return _table("tuned", title, note, tuned_rows(results), columns)


def arms_table(results: CaptionResults) -> CaptionTable:
    columns: Columns[Arm] = {
        "arm": lambda arm: arm.name,
        "gate": lambda arm: arm.gate,
        "threshold": lambda arm: arm.threshold,
        "share %": lambda arm: _by_language(arm.shares, 1),
        "unit": lambda arm: arm.unit,
        "rank": lambda arm: arm.rank,
        "lengths": _lengths,
        "drafts ahead": lambda arm: "yes" if arm.draft_ahead else "no",
        "forced": lambda arm: ", ".join(arm.forced),
        "tuned": lambda arm: "on dev" if arm.tuned else f"shares of {arm.controls}" if arm.controls else "no",
    }
    note = "A strategy with its numbers. Lengths: least, base, most."
    return _table("arms", "Arms", note, [result.arm for result in results.arms], columns)


def _lengths(arm: Arm) -> Entry:
    lengths = (arm.least_tokens, arm.base_tokens, arm.most_tokens)
    return str(lengths[0]) if len(set(lengths)) == 1 else ", ".join(map(str, lengths))


def sweep_tables(results: CaptionResults) -> Iterator[CaptionTable]:
    languages = sorted(results.manifest.num_clips)
    for number, sweep in enumerate(results.sweeps):
        note = f"All else equal; times with {in_words(sweep.setting)}."
        title = f"Sweep: {sweep.name}, {_clips(sweep.num_clips)}"
        yield _table(f"points-{number}", title, note, point_rows(sweep), _point_columns(sweep, languages))


def _point_columns(sweep: Sweep, languages: Sequence[str]) -> Columns[PointRow]:
    def bleu_1(language: str, row: PointRow) -> Entry:
        return row.bleu_1[language]

    def gap_closed(language: str, row: PointRow) -> Entry:
        return _times(row.gap_closed_share.get(language), 100)

    def verified(language: str, row: PointRow) -> Entry:
        return 100 * row.verified_shares[language]

    return {
        "arm": lambda row: row.arm,
        sweep.x_label: lambda row: row.swept,
        **{f"BLEU-1 {language}": partial(bleu_1, language) for language in languages},
        **{f"gap closed % {language}": partial(gap_closed, language) for language in languages},
        **{f"verified % {language}": partial(verified, language) for language in languages},
        "verified %": lambda row: 100 * row.verified_share,
        "ids up / token": lambda row: row.ids_up_per_token,
        "calls": lambda row: row.calls_per_clip,
        "corrections": lambda row: row.corrections_per_clip,
        "TTFT ms": lambda row: 1e3 * row.ttft_s,
        "total ms": lambda row: 1e3 * row.total_s,
    }
