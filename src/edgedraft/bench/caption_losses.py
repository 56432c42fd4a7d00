"""Where collaborating does not pay: plain sentences that stand beside the figures of a caption bench."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from edgedraft.bench.caption_arms import CLOUD_ONLY, EXACT
from edgedraft.bench.caption_results import EVERYTHING, ArmResult, CaptionResults, Setting, TimeRatio
from edgedraft.caption.intervals import Interval
from edgedraft.core.gate import Measure

MOST_RATIO = 1.05
"""Of an arm's time to that of edge-only; one whose whole interval lies above it is called slower."""


def losses(results: CaptionResults) -> list[str]:
    """A sentence for each fact; none where collaborating pays."""
    return [*_slower(results), *_cloud_is_enough(results), *_no_better(results)]


def _by_setting(results: CaptionResults) -> Mapping[Setting, Sequence[TimeRatio]]:
    settings = dict.fromkeys(each.setting for each in results.ratios)
    return {setting: [each for each in results.ratios if each.setting == setting] for setting in settings}


def _of_arms(ratios: Sequence[TimeRatio]) -> Mapping[str, Mapping[str, Interval]]:
    """By arm and language."""
    found: dict[str, dict[str, Interval]] = {}
    for each in ratios:
        found.setdefault(each.arm, {})[each.language] = each.ratio
    return found


def _in_words(setting: Setting) -> str:
    return f"{setting.edge} edge, {1e3 * setting.draft_step_s:.3g} ms a token, RTT {1e3 * setting.rtt_s:g} ms"


# -- time --------------------------------------------------------------------------------------------------------------


def _slower(results: CaptionResults) -> Iterator[str]:
    for setting, ratios in _by_setting(results).items():
        told = [f"{arm} {said}" for arm, found in _of_arms(ratios).items() if (said := _times(found))]
        if told:
            more = f"More than {100 * (MOST_RATIO - 1):.0f} % slower than edge-only"
            yield f"{more} ({_in_words(setting)}): {'; '.join(told)}."


def _times(found: Mapping[str, Interval]) -> str:
    """How many times as long, over all clips; where it is only in some languages, in those. Empty: nowhere."""
    slow = {language: f"{ratio.value:.2f} times" for language, ratio in found.items() if ratio.low > MOST_RATIO}
    if EVERYTHING in slow:
        return slow[EVERYTHING]
    return ", ".join(f"{times} in {language}" for language, times in slow.items())


def _cloud_is_enough(results: CaptionResults) -> Iterator[str]:
    """No arm sends the recording, so that it is no reason to collaborate."""
    told = []
    for setting, ratios in _by_setting(results).items():
        found = {arm: by_language[EVERYTHING] for arm, by_language in _of_arms(ratios).items()}
        gated = [arm for arm in found if arm not in (CLOUD_ONLY, EXACT)]
        quicker = all(found[CLOUD_ONLY].high < found[arm].low for arm in gated)
        if gated and quicker and all(_scores_no_lower(results, each.arm.name) for each in results.arms):
            told.append(
                f"{_in_words(setting)}, where it takes {found[CLOUD_ONLY].value:.2g} times as long as edge-only"
            )
    if told:
        yield (
            "Cloud-only is quicker than every gated arm that was timed, and no arm has a higher BLEU-1 "
            f"({'; '.join(told)}). Here collaborating pays only where the cloud is dear or the link may go."
        )


def _scores_no_lower(results: CaptionResults, arm: str) -> bool:
    """Whether cloud-only has at least the arm's BLEU-1 in every language."""
    pairs = zip(results.arm(CLOUD_ONLY).languages, results.arm(arm).languages, strict=True)
    return all(cloud.texts[0].scores["bleu_1"].value >= own.texts[0].scores["bleu_1"].value for cloud, own in pairs)


# -- quality -----------------------------------------------------------------------------------------------------------


def _no_better(results: CaptionResults) -> Iterator[str]:
    """Of arms whose gate has a threshold. Where the gap is too small to divide by, nothing is said."""
    told = []
    for result in results.arms:
        if result.arm.gate in set(Measure) and (languages := _without_gain(result)):
            everywhere = len(languages) == len(result.languages)
            told.append(result.arm.name if everywhere else f"{result.arm.name} in {', '.join(languages)}")
    if told:
        yield f"No better than edge-only (the interval of the BLEU-1 gap closed reaches 0): {'; '.join(told)}."


def _without_gain(result: ArmResult) -> list[str]:
    closed = {each.language: each.texts[0].gap_closed for each in result.languages}
    return [language for language, gap in closed.items() if gap and gap.share and gap.share.low <= 0]
