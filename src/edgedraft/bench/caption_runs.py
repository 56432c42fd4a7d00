"""A caption bench from datasets to results: tune on dev, caption the test set by every arm, sweep, compare."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

from edgedraft.bench.caption_arm_runs import ArmRuns
from edgedraft.bench.caption_arms import (
    CLOUD_ONLY,
    EDGE_ONLY,
    ENDS,
    EXACT,
    IN_FIVES,
    SAME_THRESHOLD,
    SPARSE,
    UGSD,
    arms_named,
    check_threshold,
)
from edgedraft.bench.caption_clips import MIN_LIVE_CLIPS, Clips, Progress, check_apart, content_of, hear
from edgedraft.bench.caption_losses import losses
from edgedraft.bench.caption_models import CaptionPair, ClipMemory
from edgedraft.bench.caption_results import (
    FORMAT_VERSION,
    Arm,
    CaptionResults,
    ClipRecord,
    Manifest,
    Setting,
    Sweep,
    TimeRatio,
    Tuned,
)
from edgedraft.bench.caption_scores import ScoreBook, column, grouped
from edgedraft.bench.caption_steps import NOTHING_KEPT, Steps
from edgedraft.bench.caption_sweeps import Sweeper, SweepName
from edgedraft.bench.caption_timing import measured_times
from edgedraft.bench.caption_tuning import FALLBACK_SHARE, Tuner, threshold_doubting, with_thresholds
from edgedraft.bench.caption_virtual import VirtualCaptions
from edgedraft.caption.captioner import DEFAULT_DRAFT, DEFAULT_TARGET
from edgedraft.caption.dataset import Dataset
from edgedraft.caption.intervals import Interval, ratio_interval
from edgedraft.caption.request import DEFAULT_MAX_TOKENS
from edgedraft.core.gate import Measure
from edgedraft.errors import InvalidRequestError
from edgedraft.speech_features import FeatureDtype
from edgedraft.types import Float64Array

DEFAULT_EDGE_STEP_S = 0.1
"""Ten tokens a second, as a model of 3 billion parameters on a phone; the edge of the paper writes 1.5."""
DEFAULT_RTT_S = 0.03
DEFAULT_LIVE_CLIPS = 4
PACKAGES = ("edgedraft", "numpy", "sacrebleu", "nltk", "jieba", "soundfile", "soxr")
CONTROLLED = (SPARSE, UGSD)
"""Arms that get gates of chance at their own share."""
TIMED = (SPARSE, IN_FIVES, UGSD)
"""Arms whose times are compared on many links."""


_LEGAL = {"edge_step_s": (1e-6, 60.0), "rtt_s": (0.0, 60.0), "bytes_per_s": (100.0, 1e12)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionPlan:
    """What a caption bench is to do. Raises `InvalidRequestError` naming the field.

    `arms`: names of `caption_arms.ARMS` beside the two ends; None: all. `thresholds`: by arm, in place of tuned ones.
    `share`: of draft tokens that thresholds doubt where nothing was tuned. `edge_step_s`: what a draft token takes on
    the device that is imagined; None: what it takes here. `bytes_per_s`: of the link, either way; None: unlimited.
    `num_chances`: gates of chance for each arm that is controlled. `num_live`: clips that are captioned in real time
    as well, once the results are there (`caption_live`); 0: none.
    """

    draft: str = DEFAULT_DRAFT
    target: str = DEFAULT_TARGET
    arms: Sequence[str] | None = None
    sweeps: Sequence[str] = tuple(SweepName)
    thresholds: Mapping[str, float] = field(default_factory=dict)
    share: float = FALLBACK_SHARE
    max_tokens: int = DEFAULT_MAX_TOKENS
    dtype: FeatureDtype = FeatureDtype.INT8
    edge_step_s: float | None = DEFAULT_EDGE_STEP_S
    rtt_s: float = DEFAULT_RTT_S
    bytes_per_s: float | None = None
    num_chances: int = 3
    num_live: int = DEFAULT_LIVE_CLIPS
    seed: int = 0
    command: str = ""

    def __post_init__(self) -> None:
        for name, least in (("max_tokens", 1), ("num_chances", 0), ("seed", 0)):
            if getattr(self, name) < least:
                raise InvalidRequestError(f"{name} is {getattr(self, name)}; legal: {least} or more.", field=name)
        if self.num_live and self.num_live < MIN_LIVE_CLIPS:
            raise InvalidRequestError(
                f"num_live is {self.num_live}; legal: 0, or {MIN_LIVE_CLIPS} or more.", field="num_live"
            )
        if not 0.0 < self.share < 1.0:
            raise InvalidRequestError(f"share is {self.share}; legal: above 0, below 1.", field="share")
        for name, (low, high) in _LEGAL.items():
            if (number := getattr(self, name)) is not None and not low <= number <= high:
                raise InvalidRequestError(f"{name} is {number:g}; legal: {low:g} to {high:g}.", field=name)
        if unknown := [name for name in self.sweeps if name not in set(SweepName)]:
            raise InvalidRequestError(f"sweeps names '{unknown[0]}'; legal: {', '.join(SweepName)}.", field="sweeps")
        if unknown := sorted(set(self.thresholds) - {arm.name for arm in arms_named(self.arms) if arm.tuned}):
            raise InvalidRequestError(f"thresholds names '{unknown[0]}', no arm with one.", field="thresholds")


def run_caption_bench(
    test: Dataset,
    dev: Dataset | None,
    plan: CaptionPlan,
    progress: Progress = lambda text: None,
    steps: Steps = NOTHING_KEPT,
) -> tuple[CaptionResults, list[ClipRecord]]:
    """Results, and every caption of every arm. `results.exact` says whether "exact" was exact.

    `steps` may know what an earlier part of the run found; nothing else is written. The same plan and data give the
    same captions and scores; virtual times too, apart from the models' own times, which are measured here. Raises
    `InvalidRequestError` for datasets that cannot be used (all that is wrong at once) and for arms and sweeps that are
    none, and what models and `steps` raise.
    """
    if dev is not None:
        check_apart(test, dev)
    pair = CaptionPair.open(plan.draft, plan.target)
    try:
        return CaptionBench(pair, plan, progress, steps).run(test, dev)
    finally:
        pair.close()


class CaptionBench:
    """One run over models that are open; `run_caption_bench` opens and closes them."""

    def __init__(
        self,
        pair: CaptionPair,
        plan: CaptionPlan,
        progress: Progress = lambda text: None,
        steps: Steps = NOTHING_KEPT,
    ) -> None:
        self._pair = pair
        self._plan = plan
        self._progress = progress
        self._steps = steps
        self._memory = ClipMemory(pair, plan.max_tokens)
        self._arms = arms_named(plan.arms)
        for arm in self._arms:
            if arm.name in plan.thresholds:
                check_threshold(Measure(arm.gate), plan.thresholds[arm.name], pair.tokenizer.num_ids)

    def run(self, test: Dataset, dev: Dataset | None) -> tuple[CaptionResults, list[ClipRecord]]:
        """See `run_caption_bench`."""
        started_s, started_at = perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
        heard = self._hear(test)
        dev_heard = None if dev is None else self._hear(dev)
        self._steps.begin(self._depends_on(test, dev))
        here = self._steps.once("times", Setting, partial(self._measured, heard))
        setting = self._given(here)
        tuned = [] if dev_heard is None else self._tune(dev_heard, setting)
        book = ScoreBook(heard.clips, seed=self._plan.seed)
        runs = ArmRuns(self._captions(heard), book, setting, self._progress, seed=self._plan.seed, steps=self._steps)
        runs.run(ENDS)
        arms = self._with_thresholds(runs, tuned)
        runs.run(arms[len(ENDS) :])
        runs.run_controls(CONTROLLED, self._plan.num_chances)
        named = {arm.name: arm for arm in arms}
        sweeps = self._sweeps(runs, book, named, here)
        results = CaptionResults(
            manifest=self._manifest(test, dev, heard, dev_heard, started_at),
            setting=setting,
            tuned=tuned,
            arms=runs.results(),
            exact=runs.exact_check(),
            ratios=self._steps.once("ratios", list[TimeRatio], partial(self._ratios, runs, named, here)),
            sweeps=sweeps,
            notes=[
                *self._notes(arms, tuned, len(heard.clips)),
                *(line for sweep in sweeps for each in sweep.curves for line in each.failures),
            ],
        )
        manifest = msgspec.structs.replace(results.manifest, took_s=perf_counter() - started_s)
        notes = [*losses(results), *results.notes]
        return msgspec.structs.replace(results, manifest=manifest, notes=notes), runs.all_records()

    def _hear(self, dataset: Dataset) -> Clips:
        return hear(dataset, self._pair.draft, self._pair.tokenizer.languages, self._plan.dtype, self._progress)

    def _captions(self, heard: Clips) -> VirtualCaptions:
        return VirtualCaptions(self._memory, heard.clips, max_tokens=self._plan.max_tokens, seed=self._plan.seed)

    def _measured(self, heard: Clips) -> Setting:
        """With the times of both models on this machine."""
        times = measured_times(self._pair, heard.clips)
        return Setting(
            edge="measured",
            rtt_s=self._plan.rtt_s,
            bytes_per_s_up=self._plan.bytes_per_s,
            bytes_per_s_down=self._plan.bytes_per_s,
            draft_step_s=times.draft_step_s,
            listen_s_per_s=heard.listen_s_per_s,
            target_step_s=times.target_step_s,
            target_per_id_s=times.target_per_id_s,
            target_listen_s_per_s=times.target_listen_s_per_s,
        )

    def _given(self, here: Setting) -> Setting:
        """With the edge that is imagined, where one is."""
        step_s = self._plan.edge_step_s
        return here if step_s is None else msgspec.structs.replace(here, edge="given", draft_step_s=step_s)

    # -- thresholds ----------------------------------------------------------------------------------------------------

    def _tune(self, heard: Clips, setting: Setting) -> list[Tuned]:
        """Of the arms that need it. Variants of an arm that is tuned as well take its threshold later."""
        wanted = [arm for arm in self._arms if arm.tuned and arm.name not in self._plan.thresholds]
        names = {arm.name for arm in wanted}
        captions, book = self._captions(heard), ScoreBook(heard.clips, seed=self._plan.seed)
        edge, cloud = (
            self._steps.once(f"dev, {arm.name}", list[ClipRecord], partial(captions.records, arm, setting))
            for arm in ENDS[:2]
        )
        tuner = Tuner(captions, book, edge, cloud, setting, self._progress)
        return [
            self._steps.once(f"dev, threshold of {arm.name}", Tuned, partial(tuner.tune, arm))
            for arm in wanted
            if SAME_THRESHOLD.get(arm.name) not in names
        ]

    def _with_thresholds(self, runs: ArmRuns, tuned: Sequence[Tuned]) -> list[Arm]:
        """Given ones, then tuned ones, then those that doubt a share of the edge's own tokens, which needs no truth."""
        found = {each.arm: each.threshold for each in tuned if each.threshold is not None}
        given = self._plan.thresholds
        arms = with_thresholds(self._arms, {**found, **given})
        for place, arm in enumerate(arms):
            if not arm.tuned:
                continue
            if arm.threshold is None:
                arm = msgspec.structs.replace(arm, threshold=self._by_share(arm, runs))
            source = arm.name if arm.name in found or arm.name in given else SAME_THRESHOLD.get(arm.name)
            arms[place] = msgspec.structs.replace(arm, tuned=source in found and source not in given)
        return arms

    def _by_share(self, arm: Arm, runs: ArmRuns) -> float:
        edge, clips = runs.records[EDGE_ONLY], runs.captions.clips
        values = runs.captions.draft_measures(edge, clips, Measure(arm.gate))
        return threshold_doubting(values, Measure(arm.gate), self._plan.share)

    def _notes(self, arms: Sequence[Arm], tuned: Sequence[Tuned], num_clips: int) -> list[str]:
        """What of the thresholds a reader has to know, and what could not be measured."""
        notes = [f"{each.arm}: no threshold was tuned: {each.reason}." for each in tuned if each.threshold is None]
        given = self._plan.thresholds
        by_share = [
            arm.name
            for before, arm in zip(self._arms, arms, strict=True)
            if before.tuned and not arm.tuned and arm.name not in given and SAME_THRESHOLD.get(arm.name) not in given
        ]
        if by_share:
            share = f"{100 * self._plan.share:.0f} %"
            notes.append(f"Thresholds that doubt {share} of the edge's own tokens, untuned: {'; '.join(by_share)}.")
        if self._plan.num_live and num_clips < MIN_LIVE_CLIPS:
            notes.append(f"There are no live figures: they take {MIN_LIVE_CLIPS} clips.")
        return notes

    # -- sweeps and times ----------------------------------------------------------------------------------------------

    def _sweeps(self, runs: ArmRuns, book: ScoreBook, named: Mapping[str, Arm], here: Setting) -> list[Sweep]:
        edge, cloud, setting = runs.records[EDGE_ONLY], runs.records[CLOUD_ONLY], runs.setting
        sweeper = Sweeper(runs.captions, book, edge, cloud, self._progress, self._steps)
        method = [named[name] for name in CONTROLLED if name in named]
        gates = [arm for arm in named.values() if arm.gate in set(Measure) and _is_plain(arm)]
        linked = [named[name] for name in (EDGE_ONLY, CLOUD_ONLY, *TIMED) if name in named]
        jobs: Mapping[SweepName, Sequence[Callable[[], Sweep]]] = {
            SweepName.THRESHOLD: [partial(sweeper.thresholds, gates, setting)],
            SweepName.RANK: [partial(sweeper.ranks, method, setting)],
            SweepName.LENGTH: [partial(sweeper.lengths, method, setting)],
            SweepName.RTT: [partial(sweeper.rtts, linked, each) for each in dict.fromkeys((setting, here))],
            SweepName.BANDWIDTH: [partial(sweeper.bandwidths, linked, setting)],
        }
        return [job() for name in SweepName if name in self._plan.sweeps for job in jobs[name]]

    def _ratios(self, runs: ArmRuns, named: Mapping[str, Arm], here: Setting) -> list[TimeRatio]:
        """Of all arms on the device that is imagined, of a few on this machine; over all clips and by language."""
        few = [name for name in (EDGE_ONLY, *TIMED, CLOUD_ONLY, EXACT) if name in named]
        by_setting = {runs.setting: {name: runs.records[name] for name in named}}
        if here not in by_setting:
            by_setting[here] = {name: runs.captions.records(named[name], here) for name in few}
        return [
            TimeRatio(arm=name, language=language, num_clips=len(total_s), setting=setting, ratio=ratio)
            for setting, records in by_setting.items()
            for name in records
            if name != EDGE_ONLY
            for language, total_s, ratio in self._over(records[name], records[EDGE_ONLY])
        ]

    def _over(
        self, records: Sequence[ClipRecord], edge: Sequence[ClipRecord]
    ) -> Iterator[tuple[str, Float64Array, Interval]]:
        edge_s = _total_s(edge)
        for language, total_s in _total_s(records).items():
            yield language, total_s, ratio_interval(total_s, edge_s[language], np.random.default_rng(self._plan.seed))

    def _depends_on(self, test: Dataset, dev: Dataset | None) -> dict[str, Any]:
        """What the figures depend on, apart from how fast this machine is: all that a run that goes on must share.

        No figure depends on how many clips are captioned live beside it.
        """
        plan, pair = self._plan, self._pair
        return {
            "format": FORMAT_VERSION,
            **_versions(),
            **{name: value for name, value in msgspec.to_builtins(plan).items() if name not in ("command", "num_live")},
            "draft": f"{plan.draft} ({pair.draft.info.identity})",
            "target": f"{plan.target} ({pair.target.info.identity})",
            "dataset": content_of(test),
            "dev": None if dev is None else content_of(dev),
        }

    def _manifest(
        self, test: Dataset, dev: Dataset | None, heard: Clips, dev_heard: Clips | None, started_at: str
    ) -> Manifest:
        return Manifest(
            dataset=str(test.source),
            dev=None if dev is None else str(dev.source),
            num_clips=heard.counts,
            num_dev_clips={} if dev_heard is None else dev_heard.counts,
            seconds=heard.seconds,
            draft=self._plan.draft,
            target=self._plan.target,
            draft_sends=str(self._pair.draft.sends),
            feature_dtype=self._plan.dtype.value,
            max_tokens=self._plan.max_tokens,
            seed=self._plan.seed,
            versions=_versions(),
            started_at=started_at,
            command=self._plan.command,
        )


def _total_s(records: Sequence[ClipRecord]) -> dict[str, Float64Array]:
    """Of each clip, shape (num_clips,): over all, and by language."""
    return {name: column(group, "total_s") for name, group in grouped(records).items()}


def _is_plain(arm: Arm) -> bool:
    """Whether an arm differs from others by its gate, unit and lengths alone."""
    return arm.rank == 1 and not arm.forced and not arm.bonus


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
