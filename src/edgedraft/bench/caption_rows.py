"""The figures of a caption bench's tables as JSON has them: numbers, the unit in the name, intervals of three numbers.

Scores go from 0 to 100 and shares from 0 to 1. What each means is told in `docs/captions-benchmarks.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from edgedraft.bench.caption_arms import CHANCE, EDGE_ONLY
from edgedraft.bench.caption_results import (
    EVERYTHING,
    ArmResult,
    CaptionResults,
    Costs,
    Curve,
    LanguageResult,
    LiveArm,
    LiveRun,
    Sweep,
    SweepPoint,
    TextScores,
)
from edgedraft.bench.caption_sweeps import SweepName
from edgedraft.caption.intervals import Interval


class TextRow(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of an arm in a language, by one tokenisation. `gap_*`: of BLEU-1; None: not looked at, or no gap."""

    arm: str
    language: str
    num_clips: int
    tokenisation: str
    bleu_1: Interval
    bleu_1_precision: Interval
    bleu_4: Interval
    meteor: Interval
    rouge_l: Interval
    gap_points: Interval | None
    gap_closed_share: Interval | None


class QualityRow(TextRow, frozen=True, kw_only=True):
    """With what is stated truly (None: the truth is not known), and what the captions took."""

    true_attributes_share: Interval | None
    true_affect_share: Interval | None
    verified_share: Interval
    calls_per_clip: float
    total_s: Interval


class CostsRow(msgspec.Struct, frozen=True, kw_only=True):
    """What captions of all languages took; means over clips."""

    arm: str
    num_clips: int
    verified_share: Interval
    ids_up_per_token: float
    calls_per_clip: float
    corrections_per_clip: float
    silent_share: float
    feature_bytes_per_s: float
    bytes_up_per_clip: float
    bytes_down_per_clip: float
    drafted_per_token: float
    ttft_s: float
    total_s: Interval


class LiveRow(msgspec.Struct, frozen=True, kw_only=True):
    """`*_cpu_cores`: 1 is one core, busy all the time. None: not measured."""

    arm: str
    num_clips: int
    ttft_s: Interval
    input_tokens_per_s: Interval | None
    generation_s: Interval
    tokens_per_s: Interval
    total_s: Interval
    total_over_edge_only: Interval | None
    per_token_over_edge_only: float | None
    total_over_virtual: float | None
    edge_cpu_cores: float | None
    cloud_cpu_cores: float | None
    edge_ram_bytes: int | None
    cloud_ram_bytes: int | None
    gpu_share: float | None
    gpu_peak_share: float | None
    gpu_bytes: int | None


class RatioRow(msgspec.Struct, frozen=True, kw_only=True):
    """`edge`: "given" or "measured". `language`: "all" over all clips."""

    arm: str
    num_clips: int
    language: str
    edge: str
    draft_step_s: float
    rtt_s: float
    total_over_edge_only: Interval


class TunedRow(msgspec.Struct, frozen=True, kw_only=True):
    """`threshold` of `measure` (entropy: nats); None: none was chosen, `reason` says why."""

    arm: str
    num_dev_clips: int
    measure: str
    threshold: float | None
    dev_verified_share: float | None
    dev_gap_closed_share: Mapping[str, float]
    num_tried: int
    reason: str


class PointRow(msgspec.Struct, frozen=True, kw_only=True):
    """A point of a sweep, with the one quantity that is swept. `block_tokens` 0: dynamic.

    By language: `bleu_1`, `gap_closed_share` and `verified_shares`; `verified_share` and all else is over all clips.
    """

    arm: str
    num_clips: int
    threshold: float | UnsetType = UNSET
    chance_share: float | UnsetType = UNSET
    rank: float | UnsetType = UNSET
    block_tokens: float | UnsetType = UNSET
    rtt_s: float | UnsetType = UNSET
    bandwidth_bytes_per_s: float | UnsetType = UNSET
    bleu_1: Mapping[str, float]
    gap_closed_share: Mapping[str, float | None]
    verified_share: float
    verified_shares: Mapping[str, float]
    ids_up_per_token: float
    calls_per_clip: float
    corrections_per_clip: float
    ttft_s: float
    total_s: float

    @property
    def swept(self) -> float:
        found = (
            self.threshold,
            self.chance_share,
            self.rank,
            self.block_tokens,
            self.rtt_s,
            self.bandwidth_bytes_per_s,
        )
        return next(value for value in found if value is not UNSET)


_SWEPT = {
    SweepName.THRESHOLD: "threshold",
    SweepName.RANK: "rank",
    SweepName.LENGTH: "block_tokens",
    SweepName.RTT: "rtt_s",
    SweepName.BANDWIDTH: "bandwidth_bytes_per_s",
}


# -- made from results -------------------------------------------------------------------------------------------------


def quality_rows(results: CaptionResults, language: str) -> list[QualityRow]:
    """Of every arm, by the tokenisation to quote."""
    return [_quality_row(result, language) for result in results.arms]


def _quality_row(result: ArmResult, language: str) -> QualityRow:
    found = next(each for each in result.languages if each.language == language)
    costs = _costs(result, language)
    return QualityRow(
        **_text(result, found, found.texts[0]),
        true_attributes_share=found.attribute_accuracy,
        true_affect_share=found.affect_accuracy,
        verified_share=costs.share_interval,
        calls_per_clip=costs.calls_per_clip,
        total_s=costs.total_s_interval,
    )


def text_rows(results: CaptionResults) -> list[TextRow]:
    """By every tokenisation, where a language has several."""
    return [
        TextRow(**_text(result, each, text))
        for result in results.arms
        for each in result.languages
        if len(each.texts) > 1
        for text in each.texts
    ]


def _text(result: ArmResult, language: LanguageResult, text: TextScores) -> dict[str, Any]:
    return {
        "arm": result.arm.name,
        "language": language.language,
        "num_clips": language.num_clips,
        "tokenisation": text.tokenisation,
        **text.scores,
        "gap_points": text.gap_closed and text.gap_closed.gap,
        "gap_closed_share": text.gap_closed and text.gap_closed.share,
    }


def costs_rows(results: CaptionResults) -> list[CostsRow]:
    """Of all languages together."""
    return [_costs_row(result.arm.name, _costs(result, EVERYTHING)) for result in results.arms]


def _costs_row(arm: str, costs: Costs) -> CostsRow:
    return CostsRow(
        arm=arm,
        num_clips=costs.num_clips,
        verified_share=costs.share_interval,
        ids_up_per_token=costs.ids_per_token,
        calls_per_clip=costs.calls_per_clip,
        corrections_per_clip=costs.corrections_per_clip,
        silent_share=costs.silent_share,
        feature_bytes_per_s=costs.feature_bytes_per_s,
        bytes_up_per_clip=costs.bytes_up_per_clip,
        bytes_down_per_clip=costs.bytes_down_per_clip,
        drafted_per_token=costs.drafted_per_token,
        ttft_s=costs.ttft_s,
        total_s=costs.total_s_interval,
    )


def _costs(result: ArmResult, language: str) -> Costs:
    return next(each for each in result.costs if each.language == language)


def live_rows(run: LiveRun) -> list[LiveRow]:
    edge_only = next((arm for arm in run.arms if arm.arm == EDGE_ONLY), None)
    return [_live_row(arm, edge_only) for arm in run.arms]


def _live_row(arm: LiveArm, edge_only: LiveArm | None) -> LiveRow:
    return LiveRow(
        arm=arm.arm,
        num_clips=arm.num_clips,
        ttft_s=arm.ttft_s,
        input_tokens_per_s=arm.itps,
        generation_s=arm.oet_s,
        tokens_per_s=arm.otps,
        total_s=arm.total_s,
        total_over_edge_only=arm.over_edge_only,
        per_token_over_edge_only=None if edge_only is None else edge_only.otps.value / arm.otps.value,
        total_over_virtual=arm.total_s.value / arm.virtual_total_s if arm.virtual_total_s else None,
        edge_cpu_cores=arm.edge_cpu,
        cloud_cpu_cores=arm.cloud_cpu,
        edge_ram_bytes=arm.edge_ram_bytes,
        cloud_ram_bytes=arm.cloud_ram_bytes,
        gpu_share=arm.gpu_share,
        gpu_peak_share=arm.gpu_peak_share,
        gpu_bytes=arm.gpu_bytes,
    )


def ratio_rows(results: CaptionResults) -> list[RatioRow]:
    return [
        RatioRow(
            arm=each.arm,
            num_clips=each.num_clips,
            language=each.language,
            edge=each.setting.edge,
            draft_step_s=each.setting.draft_step_s,
            rtt_s=each.setting.rtt_s,
            total_over_edge_only=each.ratio,
        )
        for each in results.ratios
    ]


def tuned_rows(results: CaptionResults) -> list[TunedRow]:
    return [
        TunedRow(
            arm=each.arm,
            num_dev_clips=sum(results.manifest.num_dev_clips.values()),
            measure=each.measure,
            threshold=each.threshold,
            dev_verified_share=each.dev_share,
            dev_gap_closed_share=each.dev_gap_closed,
            num_tried=each.num_tried,
            reason=each.reason,
        )
        for each in results.tuned
    ]


def point_rows(sweep: Sweep) -> list[PointRow]:
    return [_point_row(sweep, curve, point) for curve in sweep.curves for point in curve.points]


def _point_row(sweep: Sweep, curve: Curve, point: SweepPoint) -> PointRow:
    by_chance = sweep.name == SweepName.THRESHOLD and curve.arm.gate == CHANCE
    return PointRow(
        arm=curve.label,
        num_clips=sweep.num_clips,
        **{"chance_share" if by_chance else _SWEPT[SweepName(sweep.name)]: point.x},
        bleu_1=point.bleu_1,
        gap_closed_share=point.gap_closed,
        verified_share=point.verified_share,
        verified_shares=point.verified_shares,
        ids_up_per_token=point.ids_per_token,
        calls_per_clip=point.calls_per_clip,
        corrections_per_clip=point.corrections_per_clip,
        ttft_s=point.ttft_s,
        total_s=point.total_s,
    )
