"""Sweeps of a caption bench: one number at a time, everything else as it is."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from edgedraft.bench.caption_arms import CHANCE, control
from edgedraft.bench.caption_clips import Clip, Progress
from edgedraft.bench.caption_results import Arm, ClipRecord, Curve, Setting, Sweep, SweepPoint
from edgedraft.bench.caption_scores import ScoreBook, costs
from edgedraft.bench.caption_tuning import threshold_doubting
from edgedraft.bench.caption_virtual import VirtualCaptions
from edgedraft.core.gate import Measure
from edgedraft.errors import LinkError, SessionLostError
from edgedraft.types import Float64Array

SHARES = (0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.5, 0.8)
RANKS = (1, 2, 3, 5, 10, 20)
LENGTHS_TOKENS = (1, 3, 5, 7, 10, 15)
DYNAMIC = 0
RTTS_S = (0.0, 0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3)
BANDWIDTHS_BYTES_PER_S = (2e3, 8e3, 32e3, 128e3, 1e6)
FEW_RESAMPLES = 200


class SweepName(enum.StrEnum):
    """`threshold`: of every gate, and the share of chance. `rank`, `length`: of the method. `rtt`, `bandwidth`."""

    THRESHOLD = "threshold"
    RANK = "rank"
    LENGTH = "length"
    RTT = "rtt"
    BANDWIDTH = "bandwidth"


@dataclass(frozen=True, slots=True)
class Sweeper:
    """Runs sweeps over `clips` of `captions`. `edge`, `cloud`: records of the two ends, at least on these clips.

    `failures`: points that a link is too thin for, in words.
    """

    captions: VirtualCaptions
    clips: Sequence[Clip]
    book: ScoreBook
    edge: Sequence[ClipRecord]
    cloud: Sequence[ClipRecord]
    progress: Progress
    failures: list[str] = field(default_factory=list)

    def thresholds(self, arms: Sequence[Arm], setting: Setting) -> Sweep:
        """Quality against share: of each gate, and of one of chance in the place of each kind of send unit."""
        chances = {arm.unit: msgspec.structs.replace(control(arm, 0), name=f"chance, {arm.unit}") for arm in arms}
        curves = [
            self._curve(arm, ((x, _with_threshold(arm, x)) for x in self._candidates(arm)), setting)
            for arm in [*arms, *chances.values()]
        ]
        return Sweep(name=SweepName.THRESHOLD, x_label="threshold, or share of chance", setting=setting, curves=curves)

    def ranks(self, arms: Sequence[Arm], setting: Setting) -> Sweep:
        curves = [
            self._curve(arm, ((rank, msgspec.structs.replace(arm, rank=rank)) for rank in RANKS), setting)
            for arm in arms
        ]
        return Sweep(name=SweepName.RANK, x_label="rank R", setting=setting, curves=curves)

    def lengths(self, arms: Sequence[Arm], setting: Setting) -> Sweep:
        curves = [
            self._curve(arm, ((tokens, _with_length(arm, tokens)) for tokens in (DYNAMIC, *LENGTHS_TOKENS)), setting)
            for arm in arms
        ]
        return Sweep(name=SweepName.LENGTH, x_label="block length, tokens (0: 3, 5, 7)", setting=setting, curves=curves)

    def rtts(self, arms: Sequence[Arm], setting: Setting) -> Sweep:
        """Each gated arm with and without drafting ahead."""
        settings = {rtt_s: msgspec.structs.replace(setting, rtt_s=rtt_s) for rtt_s in RTTS_S}
        return self._link_sweep(SweepName.RTT, "RTT, s", arms, settings, setting)

    def bandwidths(self, arms: Sequence[Arm], setting: Setting) -> Sweep:
        settings = {
            rate: msgspec.structs.replace(setting, bytes_per_s_up=rate, bytes_per_s_down=rate)
            for rate in BANDWIDTHS_BYTES_PER_S
        }
        return self._link_sweep(SweepName.BANDWIDTH, "bandwidth, bytes/s", arms, settings, setting)

    def _link_sweep(
        self, name: SweepName, x_label: str, arms: Sequence[Arm], settings: Mapping[float, Setting], setting: Setting
    ) -> Sweep:
        curves = []
        for arm in _ahead_and_not(arms):
            points = []
            for x, each in settings.items():
                try:
                    points.append(self._point(x, arm, each))
                except (SessionLostError, LinkError) as error:
                    self.failures.append(f"{name} {x:g}, {arm.name}: {error}")
            curves.append(Curve(label=arm.name, arm=arm, points=points))
            self.progress(f"sweep of {name}: {arm.name}")
        return Sweep(name=name, x_label=x_label, setting=setting, curves=curves)

    def _curve(self, arm: Arm, variants: Iterable[tuple[float, Arm]], setting: Setting) -> Curve:
        points = sorted((self._point(x, variant, setting) for x, variant in variants), key=lambda point: point.x)
        self.progress(f"swept {arm.name}")
        return Curve(label=arm.name, arm=arm, points=points)

    def _candidates(self, arm: Arm) -> Sequence[float]:
        if arm.gate == CHANCE:
            return SHARES
        own = {clip.id for clip in self.clips}
        values: Float64Array = self.captions.draft_measures(
            [record for record in self.edge if record.clip in own], self.clips, Measure(arm.gate)
        )
        return [threshold_doubting(values, Measure(arm.gate), share) for share in SHARES]

    def _point(self, x: float, arm: Arm, setting: Setting) -> SweepPoint:
        records = self.captions.records(arm, setting, self.clips)
        own = {clip.id for clip in self.clips}
        edge, cloud = ([record for record in each if record.clip in own] for each in (self.edge, self.cloud))
        gaps = self.book.gaps(records, edge, cloud, num_resamples=FEW_RESAMPLES)
        total = costs(records)[0]
        return SweepPoint(
            x=float(x),
            bleu_1=self.book.bleu_1(records),
            gap_closed={name: gap.share.value if gap.share else None for name, gap in gaps.items()},
            verified_share=total.verified_share,
            ids_per_token=total.ids_per_token,
            calls_per_clip=total.calls_per_clip,
            corrections_per_clip=total.corrections_per_clip,
            ttft_s=total.ttft_s,
            total_s=total.total_s,
        )


def _with_threshold(arm: Arm, x: float) -> Arm:
    if arm.gate == CHANCE:
        return msgspec.structs.replace(arm, share=x)
    return msgspec.structs.replace(arm, threshold=x)


def _with_length(arm: Arm, tokens: int) -> Arm:
    least, base, most = (3, 5, 7) if tokens == DYNAMIC else (tokens, tokens, tokens)
    return msgspec.structs.replace(arm, least_tokens=least, base_tokens=base, most_tokens=most)


def _ahead_and_not(arms: Sequence[Arm]) -> list[Arm]:
    found = []
    for arm in arms:
        found.append(arm)
        if arm.gate in set(Measure) and arm.draft_ahead:
            found.append(msgspec.structs.replace(arm, name=f"{arm.name}, waiting", draft_ahead=False))
    return found
