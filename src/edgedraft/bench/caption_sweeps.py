"""Sweeps of a caption bench: one number at a time, everything else as it is."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from edgedraft.bench.caption_arms import CHANCE, control
from edgedraft.bench.caption_clips import Progress
from edgedraft.bench.caption_results import Arm, ClipRecord, Curve, Setting, Sweep, SweepPoint
from edgedraft.bench.caption_scores import ScoreBook, costs
from edgedraft.bench.caption_steps import NOTHING_KEPT, Steps
from edgedraft.bench.caption_tuning import threshold_doubting
from edgedraft.bench.caption_virtual import VirtualCaptions
from edgedraft.core.gate import Measure
from edgedraft.errors import LinkError, SessionLostError

SHARES = (0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.5, 0.8)
RANKS = (1, 2, 3, 5, 10, 20)
LENGTHS_TOKENS = (1, 3, 5, 7, 10, 15)
DYNAMIC = 0
RTTS_S = (0.0, 0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3)
BANDWIDTHS_BYTES_PER_S = (2e3, 8e3, 32e3, 128e3, 1e6)
FEW_RESAMPLES = 200

Variant = tuple[float, Arm, Setting]
"""A point of a curve before it is run: where it stands, the arm, and the setting."""


class SweepName(enum.StrEnum):
    """`threshold`: of every gate, and the share of chance. `rank`, `length`: of the method. `rtt`, `bandwidth`."""

    THRESHOLD = "threshold"
    RANK = "rank"
    LENGTH = "length"
    RTT = "rtt"
    BANDWIDTH = "bandwidth"


@dataclass(frozen=True, slots=True)
class Sweeper:
    """Runs sweeps over all clips of `captions`. `edge`, `cloud`: records of the two ends on them."""

    captions: VirtualCaptions
    book: ScoreBook
    edge: Sequence[ClipRecord]
    cloud: Sequence[ClipRecord]
    progress: Progress
    steps: Steps = NOTHING_KEPT

    def thresholds(self, arms: Sequence[Arm], setting: Setting) -> Sweep:
        """Quality against share: of each gate, and of one of chance in the place of each kind of send unit."""
        chances = {arm.unit: msgspec.structs.replace(control(arm, 0), name=f"chance, {arm.unit}") for arm in arms}

        def variants(arm: Arm) -> Iterator[Variant]:
            return ((x, self._with_threshold(arm, x), setting) for x in self._candidates(arm))

        x_label = "threshold, or share of chance"
        return self._sweep(SweepName.THRESHOLD, x_label, [*arms, *chances.values()], setting, variants)

    def ranks(self, arms: Sequence[Arm], setting: Setting) -> Sweep:
        def variants(arm: Arm) -> Iterator[Variant]:
            return ((rank, msgspec.structs.replace(arm, rank=rank), setting) for rank in RANKS)

        return self._sweep(SweepName.RANK, "rank R", arms, setting, variants)

    def lengths(self, arms: Sequence[Arm], setting: Setting) -> Sweep:
        def variants(arm: Arm) -> Iterator[Variant]:
            return ((tokens, _with_length(arm, tokens), setting) for tokens in (DYNAMIC, *LENGTHS_TOKENS))

        return self._sweep(SweepName.LENGTH, "block length, tokens (0: 3, 5, 7)", arms, setting, variants)

    def rtts(self, arms: Sequence[Arm], setting: Setting) -> Sweep:
        """Each gated arm with and without drafting ahead."""

        def variants(arm: Arm) -> Iterator[Variant]:
            return ((rtt_s, arm, msgspec.structs.replace(setting, rtt_s=rtt_s)) for rtt_s in RTTS_S)

        return self._sweep(SweepName.RTT, "RTT, s", _ahead_and_not(arms), setting, variants)

    def bandwidths(self, arms: Sequence[Arm], setting: Setting) -> Sweep:
        """Likewise."""

        def variants(arm: Arm) -> Iterator[Variant]:
            return (
                (rate, arm, msgspec.structs.replace(setting, bytes_per_s_up=rate, bytes_per_s_down=rate))
                for rate in BANDWIDTHS_BYTES_PER_S
            )

        return self._sweep(SweepName.BANDWIDTH, "bandwidth, bytes/s", _ahead_and_not(arms), setting, variants)

    def _sweep(
        self,
        name: SweepName,
        x_label: str,
        arms: Sequence[Arm],
        setting: Setting,
        variants: Callable[[Arm], Iterable[Variant]],
    ) -> Sweep:
        curves = []
        for arm in arms:
            take = partial(self._curve, name, arm, variants)
            curves.append(self.steps.once(f"sweep of {name}, {setting.edge} edge: {arm.name}", Curve, take))
            self.progress(f"sweep of {name}, {setting.edge} edge: {arm.name}")
        return Sweep(name=name, x_label=x_label, num_clips=len(self.captions.clips), setting=setting, curves=curves)

    def _curve(self, name: SweepName, arm: Arm, variants: Callable[[Arm], Iterable[Variant]]) -> Curve:
        points, failures = [], []
        for x, variant, setting in variants(arm):
            try:
                points.append(self._point(x, variant, setting))
            except (SessionLostError, LinkError) as error:
                failures.append(f"{name} {x:g}, {arm.name}: {error}")
        return Curve(label=arm.name, arm=arm, points=sorted(points, key=lambda point: point.x), failures=failures)

    def _candidates(self, arm: Arm) -> Sequence[float]:
        if arm.gate == CHANCE:
            return SHARES
        measure = Measure(arm.gate)
        values = self.captions.draft_measures(self.edge, self.captions.clips, measure)
        return [threshold_doubting(values, measure, share) for share in SHARES]

    def _with_threshold(self, arm: Arm, x: float) -> Arm:
        if arm.gate == CHANCE:
            return msgspec.structs.replace(arm, shares=dict.fromkeys(self.book.languages, x))
        return msgspec.structs.replace(arm, threshold=x)

    def _point(self, x: float, arm: Arm, setting: Setting) -> SweepPoint:
        records = self.captions.records(arm, setting)
        gaps = self.book.gaps(records, self.edge, self.cloud, num_resamples=FEW_RESAMPLES)
        total, *by_language = costs(records)
        return SweepPoint(
            x=float(x),
            bleu_1=self.book.bleu_1(records),
            gap_closed={name: gap.share.value if gap.share else None for name, gap in gaps.items()},
            verified_share=total.verified_share,
            verified_shares={each.language: each.verified_share for each in by_language},
            ids_per_token=total.ids_per_token,
            calls_per_clip=total.calls_per_clip,
            corrections_per_clip=total.corrections_per_clip,
            ttft_s=total.ttft_s,
            total_s=total.total_s,
        )


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
