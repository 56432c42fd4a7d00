"""The tables of a caption bench: on the terminal, in the report and, as they are, in JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from edgedraft.bench.caption_arms import EDGE_ONLY
from edgedraft.bench.caption_results import (
    EVERYTHING,
    Arm,
    ArmResult,
    CaptionResults,
    Costs,
    LanguageResult,
    LiveArm,
    LiveRun,
    Setting,
    TextScores,
)
from edgedraft.bench.tables import Entry, Table
from edgedraft.caption.intervals import MIN_GAP_POINTS, Interval

METRICS: Mapping[str, str] = {"bleu_1": "BLEU-1", "bleu_4": "BLEU-4", "meteor": "METEOR", "rouge_l": "ROUGE-L"}
MIB = 1 << 20
BRIEF_LIVE: tuple[str, ...] = ("arm", "TTFT ms", "OTPS", "total ms", "over edge-only")
"""What a terminal of 120 columns has room for."""


def caption_tables(results: CaptionResults) -> list[Table]:
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


# -- quality -----------------------------------------------------------------------------------------------------------


def quality_table(results: CaptionResults, language: str, *, brief: bool = False) -> Table:
    """All arms, by the tokenisation to quote, beside what they cost. `brief`: intervals of BLEU-1 alone."""
    rows: list[list[Entry]] = []
    text: TextScores | None = None
    for result in results.arms:
        found = _of_language(result, language)
        costs = _costs(result, language)
        text = found.texts[0]
        scores = [text.scores.get(metric) for metric in METRICS]
        rows.append(
            [
                result.arm.name,
                _interval(scores[0]),
                *(_plain(score, 1.0) if brief else _interval(score) for score in scores[1:]),
                *(
                    _plain(each, 100.0) if brief else _percent(each)
                    for each in (found.attribute_accuracy, found.affect_accuracy)
                ),
                _gap(text),
                100 * costs.verified_share,
                costs.calls_per_clip,
                1e3 * costs.total_s,
            ]
        )
    names = ("arm", *METRICS.values(), "attributes %", "affect %", "gap closed %", "verified %", "calls", "ms")
    by = "" if text is None else f" Tokenisation: {text.tokenisation}. METEOR: {text.definitions.get('meteor_is', '')}."
    note = (
        f"{results.manifest.num_clips[language]} clips. Intervals: bootstrap over clips, 95 %. Gap closed: of BLEU-1, "
        f"from edge-only to cloud-only; none where the gap is below {MIN_GAP_POINTS:g} points or could be none.{by}"
    )
    return Table(id=f"quality-{language}", title=f"Captions in {language}", note=note, columns=names, rows=rows)


def tokenisation_table(results: CaptionResults) -> Table:
    """The same scores by every tokenisation; where there is one each, the tables above hold it already."""
    metrics = (*METRICS, "bleu_1_precision")
    rows: list[list[Entry]] = [
        [result.arm.name, each.language, text.tokenisation, *(text.scores[name].value for name in metrics), _gap(text)]
        for result in results.arms
        for each in result.languages
        if len(each.texts) > 1
        for text in each.texts
    ]
    columns = ("arm", "language", "tokenisation", *METRICS.values(), "BLEU-1 precision", "gap closed %")
    note = "BLEU-1 precision has no brevity penalty; it is what UGSD's precursor calls BLEU-1."
    return Table(id="tokenisations", title="By tokenisation", note=note, columns=columns, rows=rows)


def _of_language(result: ArmResult, language: str) -> LanguageResult:
    return next(each for each in result.languages if each.language == language)


def _costs(result: ArmResult, language: str) -> Costs:
    return next(each for each in result.costs if each.language == language)


def _interval(value: Interval | None) -> Entry:
    return None if value is None else f"{value.value:.1f} [{value.low:.1f}, {value.high:.1f}]"


def _percent(share: Interval | None) -> Entry:
    return None if share is None else f"{100 * share.value:.1f} [{100 * share.low:.1f}, {100 * share.high:.1f}]"


def _plain(value: Interval | None, factor: float) -> Entry:
    return None if value is None else f"{factor * value.value:.1f}"


def _gap(text: TextScores) -> Entry:
    """None where the gap was not looked at."""
    closed = text.gap_closed
    if closed is None:
        return None
    if closed.share is None:
        return f"none: gap {closed.gap.value:.1f}"
    share = closed.share
    return f"{100 * share.value:.0f} [{100 * share.low:.0f}, {100 * share.high:.0f}]"


# -- costs -------------------------------------------------------------------------------------------------------------


def costs_table(results: CaptionResults) -> Table:
    """What the captions of all languages took."""
    rows: list[list[Entry]] = []
    for result in results.arms:
        costs = _costs(result, EVERYTHING)
        rows.append(
            [
                result.arm.name,
                _percent(costs.share_interval),
                costs.ids_per_token,
                costs.calls_per_clip,
                costs.corrections_per_clip,
                100 * costs.silent_share,
                costs.feature_bytes_per_s,
                costs.bytes_up_per_clip,
                costs.bytes_down_per_clip,
                costs.drafted_per_token,
                1e3 * costs.ttft_s,
                1e3 * costs.total_s,
            ]
        )
    columns = (
        "arm",
        "verified %",
        "ids up / token",
        "calls",
        "corrections",
        "silent %",
        "feature B/s",
        "bytes up",
        "bytes down",
        "drafted / token",
        "TTFT ms",
        "total ms",
    )
    note = (
        "Calls, corrections, bytes and times are means over clips. Silent: clips of which nothing left. Feature B/s: "
        "over all seconds of speech. Times are virtual: " + in_words(results.setting) + "."
    )
    return Table(id="costs", title="What captions cost", note=note, columns=columns, rows=rows)


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


def ratio_table(results: CaptionResults) -> Table:
    rows: list[list[Entry]] = [
        [each.arm, each.setting.edge, 1e3 * each.setting.draft_step_s, 1e3 * each.setting.rtt_s, *_three(each.ratio)]
        for each in results.ratios
    ]
    columns = ("arm", "edge", "draft step ms", "round trip ms", "over edge-only", "low", "high")
    note = "Sum of virtual total times over that of edge-only on the same clips, paired bootstrap over clips, 95 %."
    return Table(id="ratios", title="Total time over edge-only", note=note, columns=columns, rows=rows)


def _three(value: Interval) -> tuple[float, float, float]:
    return value.value, value.low, value.high


# -- live --------------------------------------------------------------------------------------------------------------


def live_tables(results: CaptionResults, *, brief: bool = False) -> Iterator[Table]:
    for number, run in enumerate(results.live):
        yield live_table(run, f"live-{number + 1}" if number else "live", brief=brief)


def live_table(run: LiveRun, id_: str = "live", *, brief: bool = False) -> Table:
    """Real processes and sockets, and the simulator's time beside. `brief`: what fits a terminal."""
    edge = "the edge as fast as the machine" if run.draft_step_s is None else f"a {1e3 * run.draft_step_s:g} ms edge"
    rate = "unlimited" if run.bytes_per_s is None else f"{run.bytes_per_s / 1e3:g} kB/s"
    equal = {True: "All captions equal the simulated ones.", False: "SOME CAPTIONS DIFFER FROM THE SIMULATED ONES."}
    words = [f"Round trip {1e3 * run.rtt_s:g} ms, {rate}, {edge}."]
    words += [equal[run.texts_equal]] if run.texts_equal is not None else []
    columns = (
        "arm",
        "TTFT ms",
        "ITPS",
        "OET ms",
        "OTPS",
        "total ms",
        "over edge-only",
        "per token",
        "total / virtual",
        "edge CPU %",
        "cloud CPU %",
        "edge RAM MiB",
        "cloud RAM MiB",
        "GPU %",
        "GPU MiB",
    )
    edge_only = next((arm for arm in run.arms if arm.arm == EDGE_ONLY), None)
    rows = [_live_row(arm, edge_only) for arm in run.arms]
    if brief:
        rows = [[row[columns.index(column)] for column in BRIEF_LIVE] for row in rows]
    shown = BRIEF_LIVE if brief else columns
    return Table(id=id_, title="Live", note=" ".join([*words, *run.notes]), columns=shown, rows=rows)


def _live_row(arm: LiveArm, edge_only: LiveArm | None) -> list[Entry]:
    sizes = (arm.edge_ram_bytes, arm.cloud_ram_bytes)
    return [
        arm.arm,
        _scaled(arm.ttft_s, 1e3),
        _scaled(arm.itps, 1),
        _scaled(arm.oet_s, 1e3),
        _scaled(arm.otps, 1),
        _scaled(arm.total_s, 1e3),
        None if arm.over_edge_only is None else "{:.3f} [{:.3f}, {:.3f}]".format(*_three(arm.over_edge_only)),
        None if edge_only is None else edge_only.otps.value / arm.otps.value,
        None if not arm.virtual_total_s else arm.total_s.value / arm.virtual_total_s,
        *(None if share is None else 100 * share for share in (arm.edge_cpu, arm.cloud_cpu)),
        *(None if size is None else size / MIB for size in sizes),
        None if arm.gpu_share is None else 100 * arm.gpu_share,
        None if arm.gpu_bytes is None else arm.gpu_bytes / MIB,
    ]


def _scaled(value: Interval | None, factor: float) -> Entry:
    if value is None:
        return None
    return "{:.1f} [{:.1f}, {:.1f}]".format(*(factor * each for each in _three(value)))


# -- what was run ------------------------------------------------------------------------------------------------------


def tuned_table(results: CaptionResults) -> Table:
    rows: list[list[Entry]] = [
        [
            each.arm,
            each.measure,
            each.threshold,
            None if each.dev_share is None else 100 * each.dev_share,
            ", ".join(f"{language} {100 * share:.0f}" for language, share in each.dev_gap_closed.items()),
            each.num_tried,
            each.reason,
        ]
        for each in results.tuned
    ]
    goal = 100 * results.tuned[0].goal if results.tuned else 0
    columns = ("arm", "measure", "threshold", "dev verified %", "dev gap closed %", "tried", "why none")
    note = f"Chosen on the dev set alone: the smallest share that closes {goal:.0f} % of the gap in every language."
    return Table(id="tuned", title="Thresholds", note=note, columns=columns, rows=rows)


def arms_table(results: CaptionResults) -> Table:
    rows: list[list[Entry]] = [_arm_row(result.arm) for result in results.arms]
    columns = ("arm", "gate", "threshold", "share %", "unit", "rank", "lengths", "drafts ahead", "forced", "tuned")
    note = "A strategy with its numbers. Lengths: least, base, most."
    return Table(id="arms", title="Arms", note=note, columns=columns, rows=rows)


def _arm_row(arm: Arm) -> list[Entry]:
    lengths = (arm.least_tokens, arm.base_tokens, arm.most_tokens)
    return [
        arm.name,
        arm.gate,
        arm.threshold,
        None if arm.share is None else 100 * arm.share,
        arm.unit,
        arm.rank,
        str(lengths[0]) if len(set(lengths)) == 1 else ", ".join(map(str, lengths)),
        "yes" if arm.draft_ahead else "no",
        ", ".join(arm.forced),
        "on dev" if arm.tuned else f"share of {arm.controls}" if arm.controls else "no",
    ]


def sweep_tables(results: CaptionResults) -> Iterator[Table]:
    for number, sweep in enumerate(results.sweeps):
        languages: Sequence[str] = sorted(results.manifest.num_clips)
        rows: list[list[Entry]] = [
            [
                curve.label,
                point.x,
                *(point.bleu_1[language] for language in languages),
                *(_hundred(point.gap_closed.get(language)) for language in languages),
                *(100 * point.verified_share, point.ids_per_token, point.calls_per_clip, point.corrections_per_clip),
                *(1e3 * point.ttft_s, 1e3 * point.total_s),
            ]
            for curve in sweep.curves
            for point in curve.points
        ]
        columns = (
            "arm",
            sweep.x_label,
            *(f"BLEU-1 {language}" for language in languages),
            *(f"gap closed % {language}" for language in languages),
            *("verified %", "ids up / token", "calls", "corrections", "TTFT ms", "total ms"),
        )
        note = f"All else equal; times with {in_words(sweep.setting)}."
        yield Table(id=f"points-{number}", title=f"Sweep: {sweep.name}", note=note, columns=columns, rows=rows)


def _hundred(share: float | None) -> Entry:
    return None if share is None else 100 * share
