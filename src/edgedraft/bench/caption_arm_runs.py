"""The arms of one caption bench over its test clips: their captions, their gates of chance, and what comes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from edgedraft.bench.caption_arms import CLOUD_ONLY, EDGE_ONLY, EXACT, control
from edgedraft.bench.caption_clips import Progress
from edgedraft.bench.caption_results import Arm, ArmResult, ClipRecord, ExactCheck, Setting
from edgedraft.bench.caption_scores import ScoreBook, costs, verified_share, verified_shares
from edgedraft.bench.caption_steps import NOTHING_KEPT, Steps
from edgedraft.bench.caption_virtual import VirtualCaptions

SHARE_TOLERANCE = 0.001
MAX_SHARE_TRIALS = 8


class ArmRuns:
    """`records`: of every arm that was run, by its name, one for each clip in the order of the clips."""

    def __init__(
        self,
        captions: VirtualCaptions,
        book: ScoreBook,
        setting: Setting,
        progress: Progress,
        *,
        seed: int,
        steps: Steps = NOTHING_KEPT,
    ) -> None:
        self.captions = captions
        self.setting = setting
        self.records: dict[str, list[ClipRecord]] = {}
        self._book = book
        self._progress = progress
        self._seed = seed
        self._steps = steps
        self._arms: list[Arm] = []

    def run(self, arms: Sequence[Arm]) -> None:
        """Caption clip after clip by all arms, since a clip that many arms have captioned costs little."""
        self._arms += arms
        found: dict[str, list[ClipRecord]] = {arm.name: [] for arm in arms}
        clips = self.captions.clips
        for number, clip in enumerate(clips, 1):
            for arm in arms:
                take = partial(self.captions.record, arm, clip, self.setting)
                found[arm.name].append(self._steps.once(f"{arm.name}, {clip.id}", ClipRecord, take))
            if number % 50 == 0 or number == len(clips):
                self._progress(f"captioned {number} of {len(clips)} clips by {len(arms)} arms")
        self.records.update(found)

    def run_controls(self, names: Sequence[str], num_chances: int) -> None:
        """Gates of chance in the place of those of arms `names`, which were run, at their share in each language."""
        for arm in [arm for arm in self._arms if arm.name in names]:
            wanted = verified_shares(self.records[arm.name])
            for seed in range(num_chances):
                chance = control(arm, seed)
                take = partial(self._at_shares, chance, wanted)
                chance, records = self._steps.once(chance.name, tuple[Arm, list[ClipRecord]], take)
                self._arms.append(chance)
                self.records[chance.name] = records
            shown = ", ".join(f"{share:.1%} in {language}" for language, share in wanted.items())
            self._progress(f"chance in the place of {arm.name}, {num_chances} times at {shown}")

    def _at_shares(self, chance: Arm, wanted: Mapping[str, float]) -> tuple[Arm, list[ClipRecord]]:
        shares = {language: self._chance_for(chance, language, share) for language, share in wanted.items()}
        chance = msgspec.structs.replace(chance, shares=shares)
        return chance, self.captions.records(chance, self.setting)

    def _chance_for(self, chance: Arm, language: str, wanted: float) -> float:
        """What verifies nearest to `wanted`: halve the interval of chances, which are not shares.

        A whole block is verified for one of its tokens, so that chances are smaller, but for what is chance in them.
        """
        clips = [clip for clip in self.captions.clips if clip.language == language]
        low, high, tried = 0.0, min(1.0, 2 * wanted), []
        for _ in range(MAX_SHARE_TRIALS):
            share = (low + high) / 2
            arm = msgspec.structs.replace(chance, shares={language: share})
            found = verified_share(self.captions.records(arm, self.setting, clips))
            tried.append((abs(found - wanted), share))
            if abs(found - wanted) <= SHARE_TOLERANCE:
                break
            low, high = (share, high) if found < wanted else (low, share)
        return min(tried)[1]

    def exact_check(self) -> ExactCheck:
        """Compares "exact" with "cloud-only", token for token."""
        pairs = zip(self.records[EXACT], self.records[CLOUD_ONLY], strict=True)
        differing = [exact.clip for exact, cloud in pairs if exact.token_ids != cloud.token_ids]
        return ExactCheck(num_clips=len(self.records[EXACT]), differing=differing)

    def results(self) -> list[ArmResult]:
        edge, cloud = self.records[EDGE_ONLY], self.records[CLOUD_ONLY]
        return [
            ArmResult(
                arm=arm,
                languages=self._book.results(self.records[arm.name], edge, cloud),
                costs=costs(self.records[arm.name], seed=self._seed),
            )
            for arm in self._arms
        ]

    def all_records(self) -> list[ClipRecord]:
        return [record for records in self.records.values() for record in records]
