"""Thresholds from a dev set: the smallest verified share that closes most of the gap, in every language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from edgedraft.bench.caption_arms import SAME_THRESHOLD
from edgedraft.bench.caption_clips import Progress
from edgedraft.bench.caption_results import Arm, ClipRecord, Setting, Tuned
from edgedraft.bench.caption_scores import ScoreBook, verified_share
from edgedraft.bench.caption_virtual import VirtualCaptions
from edgedraft.core.gate import Measure
from edgedraft.errors import InvalidRequestError
from edgedraft.types import Float64Array

GOAL = 0.75
"""Of the BLEU-1 gap on dev, so that 69 %, the paper's, is likely on a test set."""
SHARES = (
    *np.arange(0.005, 0.1, 0.005),
    *np.arange(0.1, 0.2, 0.01),
    *np.arange(0.2, 0.4, 0.025),
    *np.arange(0.4, 0.96, 0.05),
)
"""Shares of draft tokens that a candidate threshold doubts; what is verified may be more."""
FALLBACK_SHARE = 0.15


@dataclass(frozen=True, slots=True)
class _Trial:
    """`share`: verified. `closed`: of the gap, by language."""

    threshold: float
    share: float
    closed: Mapping[str, float]

    @property
    def reached(self) -> bool:
        return min(self.closed.values()) >= GOAL


class Tuner:
    """Finds thresholds on `captions`, which hold the dev clips. `edge`, `cloud`: records of the two ends on them."""

    def __init__(
        self,
        captions: VirtualCaptions,
        book: ScoreBook,
        edge: Sequence[ClipRecord],
        cloud: Sequence[ClipRecord],
        setting: Setting,
        progress: Progress,
    ) -> None:
        self._captions = captions
        self._book = book
        self._setting = setting
        self._progress = progress
        self._edge = edge
        self._low, self._high = book.bleu_1(edge), book.bleu_1(cloud)
        self._refused = _refusal(book, edge, cloud)

    def tune(self, arm: Arm) -> Tuned:
        """Every second candidate from the smallest share on, up to one that reaches the goal; then the one before."""
        if self._refused:
            return _chosen(arm, None, 0, self._refused)
        measure = Measure(arm.gate)
        values = self._captions.draft_measures(self._edge, self._captions.clips, measure)
        thresholds = [threshold_doubting(values, measure, share) for share in SHARES]
        for number in range(1, len(thresholds), 2):
            trial = self._try(arm, thresholds[number])
            if trial.reached:
                before = self._try(arm, thresholds[number - 1])
                taken = before if before.reached else trial
                self._progress(f"dev, {arm.name}: threshold {taken.threshold:.4g} it is")
                return _chosen(arm, taken, number // 2 + 2)
        reason = f"no threshold closes {GOAL:.0%} of the gap in all languages"
        return _chosen(arm, None, len(thresholds) // 2, reason)

    def _try(self, arm: Arm, threshold: float) -> _Trial:
        records = self._captions.records(msgspec.structs.replace(arm, threshold=threshold), self._setting)
        own = self._book.bleu_1(records)
        closed = {name: (own[name] - self._low[name]) / (self._high[name] - self._low[name]) for name in own}
        trial = _Trial(threshold, verified_share(records), closed)
        shown = ", ".join(f"{name} {value:.0%}" for name, value in closed.items())
        self._progress(f"dev, {arm.name}, threshold {threshold:.4g}: {trial.share:.1%} verified, gap closed: {shown}")
        return trial


def _chosen(arm: Arm, trial: _Trial | None, num_tried: int, reason: str = "") -> Tuned:
    return Tuned(
        arm=arm.name,
        measure=arm.gate,
        goal=GOAL,
        threshold=None if trial is None else trial.threshold,
        dev_share=None if trial is None else trial.share,
        dev_gap_closed={} if trial is None else dict(trial.closed),
        num_tried=num_tried,
        reason=reason,
    )


def _refusal(book: ScoreBook, edge: Sequence[ClipRecord], cloud: Sequence[ClipRecord]) -> str:
    """Why nothing can be tuned: in some language there is no gap to speak of."""
    gaps = book.gaps(cloud, edge, cloud)
    return "; ".join(f"{name}: {gap.reason}" for name, gap in gaps.items() if gap.share is None)


def threshold_doubting(values: Float64Array, measure: Measure, share: float) -> float:
    """The threshold that doubts a `share` of draft tokens with these values. Raises for no values at all."""
    if not len(values):
        raise InvalidRequestError("there are no draft tokens to set a threshold by.", field="dataset")
    return float(np.quantile(values, 1 - share if measure.rises else share))


def with_thresholds(arms: Sequence[Arm], thresholds: Mapping[str, float]) -> list[Arm]:
    """The arms with those of `thresholds`, by name; variants take that of the arm they vary."""
    found = []
    for arm in arms:
        threshold = thresholds.get(arm.name, thresholds.get(SAME_THRESHOLD.get(arm.name, "")))
        found.append(arm if threshold is None else msgspec.structs.replace(arm, threshold=threshold))
    return found
