"""Write the thresholds that a caption bench has tuned on its dev set beside the weights that are shipped.

python -m training.calibrate RUN        # RUN: a folder that `edgedraft bench caption TEST --dev DEV` has written
"""

from __future__ import annotations

import sys
from pathlib import Path

from edgedraft.backends import registry
from edgedraft.backends.base import BackendOptions
from edgedraft.bench.caption_arms import SAME_THRESHOLD
from edgedraft.bench.caption_results import Arm, CaptionResults, Tuned, read_results
from edgedraft.caption.calibration import Calibration, CalibrationKey
from edgedraft.caption.calibration_file import SHIPPED, CalibrationFile
from edgedraft.caption.gate_choice import GateChoice
from edgedraft.core.block_length import BlockLengths
from edgedraft.core.gate import SendUnit


def choice_of(arm: Arm) -> GateChoice:
    """The flags of `edgedraft caption` that do what the arm does."""
    lengths = BlockLengths(least=arm.least_tokens, base=arm.base_tokens, most=arm.most_tokens)
    strategy = "ugsd-sparse" if arm.unit == SendUnit.TOKENS else "ugsd"
    return GateChoice(strategy=strategy, measure=arm.gate, unit=arm.unit, lengths=lengths)


def calibration_of(draft: str, target: str, arm: Arm, tuned: Tuned, results: CaptionResults) -> Calibration:
    share, threshold = tuned.dev_share, tuned.threshold
    if share is None or threshold is None:
        raise SystemExit(f"{arm.name}: {tuned.reason}")
    closed = ", ".join(f"{language} {value:.0%}" for language, value in tuned.dev_gap_closed.items())
    return Calibration(
        key=CalibrationKey.of(draft, choice_of(arm)),
        threshold=threshold,
        share=share,
        rank=arm.rank,
        num_clips=sum(results.manifest.num_dev_clips.values()),
        num_tokens=0,  # the bench does not say
        note=f"The smallest share tried that closes {tuned.goal:.0%} of the BLEU-1 gap on dev everywhere ({closed}).",
        target=target,
    )


def main(run: Path) -> None:
    results = read_results(run)
    arms = {each.arm.name: each.arm for each in results.arms}
    SHIPPED.unlink(missing_ok=True)
    file = CalibrationFile(SHIPPED)
    draft = registry.open_draft(results.manifest.draft, BackendOptions()).info.identity
    target = registry.open_target(results.manifest.target, BackendOptions()).info.name
    tuned = {each.arm: each for each in results.tuned}
    plain = {name: of for name, of in SAME_THRESHOLD.items() if not (arms[name].bonus or arms[name].forced)}
    for name, of in [*zip(tuned, tuned, strict=True), *plain.items()]:
        file.put(calibration_of(draft, target, arms[name], tuned[of], results))
    print(f"{file.path}: {len(tuned) + len(plain)} thresholds")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
