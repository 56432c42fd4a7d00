"""A caption bench from datasets to results: tune on dev, caption the test set by every arm, sweep, compare."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter

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
from edgedraft.bench.caption_clips import Clip, Clips, Progress, hear
from edgedraft.bench.caption_models import CaptionPair, ClipMemory
from edgedraft.bench.caption_results import Arm, CaptionResults, ClipRecord, Manifest, Setting, Sweep, TimeRatio, Tuned
from edgedraft.bench.caption_scores import ScoreBook, column
from edgedraft.bench.caption_sweeps import Sweeper, SweepName
from edgedraft.bench.caption_timing import ModelTimes, measured_times
from edgedraft.bench.caption_tuning import FALLBACK_SHARE, Tuner, threshold_doubting, with_thresholds
from edgedraft.bench.caption_virtual import VirtualCaptions
from edgedraft.caption.captioner import DEFAULT_DRAFT, DEFAULT_MAX_TOKENS, DEFAULT_TARGET
from edgedraft.caption.dataset import Dataset
from edgedraft.caption.intervals import ratio_interval
from edgedraft.core.gate import Measure
from edgedraft.errors import InvalidRequestError
from edgedraft.speech_features import FeatureDtype

DEFAULT_EDGE_STEP_S = 0.1
"""Ten tokens a second, as a model of 3 billion parameters on a phone; the edge of the paper writes 1.5."""
DEFAULT_RTT_S = 0.03
SWEEP_CLIPS = 50
PACKAGES = ("edgedraft", "numpy", "sacrebleu", "nltk", "jieba", "soundfile", "soxr")
CONTROLLED = (SPARSE, UGSD)
"""Arms that get gates of chance at their own share."""
TIMED = (SPARSE, IN_FIVES, UGSD)
"""Arms whose times are compared on many links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionPlan:
    """What a caption bench is to do. Raises `InvalidRequestError` naming the field.

    `arms`: names of `caption_arms.ARMS` beside the two ends; None: all. `thresholds`: by arm, in place of tuned ones.
    `share`: of draft tokens that thresholds doubt where nothing was tuned. `edge_step_s`: what a draft token takes on
    the device that is imagined; None: what it takes here. `bytes_per_s`: of the link, either way; None: unlimited.
    `num_chances`: gates of chance for each arm that is controlled. `sweep_clips`: a language, for sweeps of times.
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
    sweep_clips: int = SWEEP_CLIPS
    seed: int = 0
    command: str = ""

    def __post_init__(self) -> None:
        for name, least in (("max_tokens", 1), ("num_chances", 0), ("sweep_clips", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise InvalidRequestError(f"{name} is {getattr(self, name)}; legal: {least} or more.", field=name)
        if not 0.0 < self.share < 1.0:
            raise InvalidRequestError(f"share is {self.share}; legal: above 0, below 1.", field="share")
        if unknown := [name for name in self.sweeps if name not in set(SweepName)]:
            raise InvalidRequestError(f"sweeps names '{unknown[0]}'; legal: {', '.join(SweepName)}.", field="sweeps")
        if unknown := sorted(set(self.thresholds) - {arm.name for arm in arms_named(self.arms) if arm.tuned}):
            raise InvalidRequestError(f"thresholds names '{unknown[0]}', no arm with one.", field="thresholds")


def run_caption_bench(
    test: Dataset, dev: Dataset | None, plan: CaptionPlan, progress: Progress = lambda text: None
) -> tuple[CaptionResults, list[ClipRecord]]:
    """Results, and every caption of every arm. `results.exact` says whether "exact" was exact.

    Nothing is written. The same plan and data give the same captions and scores; virtual times too, apart from the
    models' own times, which are measured here. Raises `InvalidRequestError` for datasets that cannot be used (all that
    is wrong at once) and for arms and sweeps that are none, and what the models raise.
    """
    pair = CaptionPair.open(plan.draft, plan.target)
    try:
        return CaptionBench(pair, plan, progress).run(test, dev)
    finally:
        pair.close()


class CaptionBench:
    """One run over models that are open; `run_caption_bench` opens and closes them."""

    def __init__(self, pair: CaptionPair, plan: CaptionPlan, progress: Progress = lambda text: None) -> None:
        self._pair = pair
        self._plan = plan
        self._progress = progress
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
        times = measured_times(self._pair, heard.clips)
        setting, here = (self._setting(heard, times, step_s) for step_s in (self._plan.edge_step_s, None))
        tuned = [] if dev_heard is None else self._tune(dev_heard, setting)
        book = ScoreBook(heard.clips, seed=self._plan.seed)
        runs = ArmRuns(self._captions(heard), book, setting, self._progress, seed=self._plan.seed)
        runs.run(ENDS)
        arms = self._with_thresholds(runs, tuned)
        runs.run(arms[len(ENDS) :])
        runs.run_controls(CONTROLLED, self._plan.num_chances)
        named = {arm.name: arm for arm in arms}
        few = _first(heard, self._plan.sweep_clips)
        sweeps, failures = self._sweeps(runs, book, named, few, here)
        results = CaptionResults(
            manifest=self._manifest(test, dev, heard, dev_heard, started_at),
            setting=setting,
            tuned=tuned,
            arms=runs.results(),
            exact=runs.exact_check(),
            ratios=self._ratios(runs, named, few, (setting, here)),
            sweeps=sweeps,
            notes=[*self._notes(arms, tuned), *failures],
        )
        took_s = perf_counter() - started_s
        results = msgspec.structs.replace(results, manifest=msgspec.structs.replace(results.manifest, took_s=took_s))
        return results, runs.all_records()

    def _hear(self, dataset: Dataset) -> Clips:
        return hear(dataset, self._pair.draft, self._pair.tokenizer.languages, self._plan.dtype, self._progress)

    def _captions(self, heard: Clips) -> VirtualCaptions:
        return VirtualCaptions(self._memory, heard.clips, max_tokens=self._plan.max_tokens, seed=self._plan.seed)

    def _setting(self, heard: Clips, times: ModelTimes, edge_step_s: float | None) -> Setting:
        return Setting(
            edge="measured" if edge_step_s is None else "given",
            rtt_s=self._plan.rtt_s,
            bytes_per_s_up=self._plan.bytes_per_s,
            bytes_per_s_down=self._plan.bytes_per_s,
            draft_step_s=times.draft_step_s if edge_step_s is None else edge_step_s,
            listen_s_per_s=heard.listen_s_per_s,
            target_step_s=times.target_step_s,
            target_per_id_s=times.target_per_id_s,
            target_listen_s_per_s=times.target_listen_s_per_s,
        )

    # -- thresholds ----------------------------------------------------------------------------------------------------

    def _tune(self, heard: Clips, setting: Setting) -> list[Tuned]:
        """Of the arms that need it. Variants of an arm that is tuned as well take its threshold later."""
        wanted = [arm for arm in self._arms if arm.tuned and arm.name not in self._plan.thresholds]
        names = {arm.name for arm in wanted}
        captions, book = self._captions(heard), ScoreBook(heard.clips, seed=self._plan.seed)
        edge, cloud = (captions.records(arm, setting) for arm in ENDS[:2])
        tuner = Tuner(captions, book, edge, cloud, setting, self._progress)
        return [tuner.tune(arm) for arm in wanted if SAME_THRESHOLD.get(arm.name) not in names]

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

    def _notes(self, arms: Sequence[Arm], tuned: Sequence[Tuned]) -> list[str]:
        """What of the thresholds a reader has to know."""
        notes = [f"{each.arm}: no threshold was tuned: {each.reason}." for each in tuned if each.threshold is None]
        given = self._plan.thresholds
        by_share = [
            arm.name
            for before, arm in zip(self._arms, arms, strict=True)
            if before.tuned and not arm.tuned and arm.name not in given and SAME_THRESHOLD.get(arm.name) not in given
        ]
        if by_share:
            share = f"{self._plan.share:.0%}"
            notes.append(f"Thresholds that doubt {share} of the edge's own tokens, untuned: {', '.join(by_share)}.")
        return notes

    # -- sweeps and times ----------------------------------------------------------------------------------------------

    def _sweeps(
        self, runs: ArmRuns, book: ScoreBook, named: Mapping[str, Arm], few: Sequence[Clip], here: Setting
    ) -> tuple[list[Sweep], list[str]]:
        """The sweeps, and what of them could not be run."""
        edge, cloud = runs.records[EDGE_ONLY], runs.records[CLOUD_ONLY]
        captions, setting, seed = runs.captions, runs.setting, self._plan.seed
        on_all = Sweeper(captions, captions.clips, book, edge, cloud, self._progress)
        on_few = Sweeper(captions, few, ScoreBook(few, seed=seed), edge, cloud, self._progress)
        method = [named[name] for name in CONTROLLED if name in named]
        gates = [arm for arm in named.values() if arm.gate in set(Measure) and _is_plain(arm)]
        linked = [named[name] for name in (EDGE_ONLY, CLOUD_ONLY, *TIMED) if name in named]
        jobs: Mapping[SweepName, Sequence[Callable[[], Sweep]]] = {
            SweepName.THRESHOLD: [lambda: on_all.thresholds(gates, setting)],
            SweepName.RANK: [lambda: on_all.ranks(method, setting)],
            SweepName.LENGTH: [lambda: on_all.lengths(method, setting)],
            SweepName.RTT: [lambda: on_few.rtts(linked, setting), lambda: on_few.rtts(linked, here)],
            SweepName.BANDWIDTH: [lambda: on_few.bandwidths(linked, setting)],
        }
        sweeps = [job() for name in SweepName if name in self._plan.sweeps for job in jobs[name]]
        return sweeps, on_few.failures

    def _ratios(
        self, runs: ArmRuns, named: Mapping[str, Arm], few: Sequence[Clip], settings: Sequence[Setting]
    ) -> list[TimeRatio]:
        """Of the method and of the target alone, on the device that is imagined and on this machine."""
        compared = [named[name] for name in (*TIMED, CLOUD_ONLY, EXACT) if name in named]
        found = []
        for setting in settings:
            below = column(runs.captions.records(named[EDGE_ONLY], setting, few), "total_s")
            for arm in compared:
                above = column(runs.captions.records(arm, setting, few), "total_s")
                ratio = ratio_interval(above, below, np.random.default_rng(self._plan.seed))
                found.append(TimeRatio(arm=arm.name, setting=setting, ratio=ratio))
        return found

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


def _is_plain(arm: Arm) -> bool:
    """Whether an arm differs from others by its gate, unit and lengths alone."""
    return arm.rank == 1 and not arm.forced and not arm.bonus


def _first(heard: Clips, num_clips: int) -> list[Clip]:
    """The first clips of each language."""
    return [
        clip
        for language in heard.languages
        for clip in [each for each in heard.clips if each.language == language][:num_clips]
    ]


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
