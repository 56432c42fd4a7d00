"""The bench says by itself where collaborating does not pay."""

from __future__ import annotations

import msgspec
import pytest

from edgedraft.bench.caption_losses import losses
from edgedraft.bench.caption_results import ArmResult, CaptionResults, TimeRatio
from edgedraft.caption.intervals import GapClosed

from .caption_made import SETTING, around, made_results, ratio

FAST = msgspec.structs.replace(SETTING, edge="measured", draft_step_s=1.25e-4)


def timed(*ratios: TimeRatio) -> CaptionResults:
    """The made results, in which the gated arms score 78 and 77, cloud-only 80."""
    return msgspec.structs.replace(made_results(), ratios=list(ratios))


def of_all(name: str, value: float, **setting: object) -> list[TimeRatio]:
    return [ratio(name, language, value, **setting) for language in ("all", "en", "zh")]  # type: ignore[arg-type]


def closing(result: ArmResult, **shares: float) -> ArmResult:
    """The arm with other shares of the gap closed, give or take 0.1."""
    languages = [
        msgspec.structs.replace(
            each,
            texts=[
                msgspec.structs.replace(
                    each.texts[0], gap_closed=GapClosed(gap=around(10.0), share=around(shares[each.language], 0.1))
                )
            ],
        )
        for each in result.languages
    ]
    return msgspec.structs.replace(result, languages=languages)


def test_where_it_pays_nothing_is_said() -> None:
    """Its arms are up to 3 % slower than edge-only, as quick as cloud-only, and close most of the gap."""
    assert losses(made_results()) == []


# -- time --------------------------------------------------------------------------------------------------------------


def test_a_slow_arm_is_named_with_edge_round_trip_and_factor() -> None:
    results = timed(*of_all("ugsd", 1.09), *of_all("exact", 1.31), *of_all("cloud-only", 1.5))
    (sentence,) = losses(results)
    assert sentence == (
        "More than 5 % slower than edge-only (given edge, 25 ms a token, RTT 30 ms): ugsd 1.09 times; exact 1.31 "
        "times; cloud-only 1.50 times."
    )


def test_an_arm_may_be_slow_in_one_language_only() -> None:
    ratios = [ratio("ugsd", language, value) for language, value in (("all", 1.06), ("en", 1.09), ("zh", 1.03))]
    (sentence,) = losses(timed(*ratios, *of_all("cloud-only", 1.05)))
    assert sentence.endswith(": ugsd 1.09 times in en.")


@pytest.mark.parametrize(("value", "said"), [(1.071, True), (1.069, False)])
def test_what_the_interval_leaves_open_is_not_said(value: float, said: bool) -> None:
    """It reaches 0.02 to either side."""
    assert bool(losses(timed(*of_all("ugsd", value), *of_all("cloud-only", 1.05)))) is said


def test_each_edge_has_its_own_sentence() -> None:
    both = [*of_all("ugsd", 1.2), *of_all("cloud-only", 1.3), *of_all("ugsd", 7.0, setting=FAST)]
    given, measured = losses(timed(*both, *of_all("cloud-only", 9.0, setting=FAST)))
    assert "given edge, 25 ms a token" in given
    assert "measured edge, 0.125 ms a token, RTT 30 ms): ugsd 7.00 times; cloud-only 9.00 times." in measured


# -- the cloud alone ---------------------------------------------------------------------------------------------------


def test_where_the_cloud_alone_is_quicker_and_no_worse_it_is_said_once() -> None:
    both = [*of_all("ugsd", 1.02), *of_all("cloud-only", 0.5), *of_all("ugsd", 1.03, setting=FAST)]
    (sentence,) = losses(timed(*both, *of_all("cloud-only", 0.75, setting=FAST)))
    assert sentence == (
        "Cloud-only is quicker than every gated arm that was timed, and no arm has a higher BLEU-1 (given edge, 25 ms "
        "a token, RTT 30 ms, where it takes 0.5 times as long as edge-only; measured edge, 0.125 ms a token, RTT 30 "
        "ms, where it takes 0.75 times as long as edge-only). Here collaborating pays only where the cloud is dear or "
        "the link may go."
    )


def test_a_gated_arm_that_is_as_quick_or_scores_higher_is_a_reason() -> None:
    quick = [*of_all("ugsd", 0.53), *of_all("ugsd-sparse", 1.02), *of_all("cloud-only", 0.5)]
    assert losses(timed(*quick)) == []
    results = timed(*of_all("ugsd", 1.02), *of_all("cloud-only", 0.5))
    text = results.arm("ugsd").languages[1].texts[0]
    results.arm("ugsd").languages[1].texts[0] = msgspec.structs.replace(
        text, scores={**text.scores, "bleu_1": around(80.5)}
    )
    assert losses(results) == []


def test_without_a_gated_arm_there_is_nothing_to_compare() -> None:
    assert losses(timed(*of_all("exact", 1.04), *of_all("cloud-only", 0.5))) == []


# -- quality -----------------------------------------------------------------------------------------------------------


def test_a_gated_arm_that_is_no_better_than_the_edge_is_named() -> None:
    """Those of chance and those without a threshold never are."""
    results = made_results()
    shares = {"ugsd": {"en": 0.05, "zh": -0.2}, "ugsd-sparse": {"en": 0.11, "zh": 0.1}}
    arms = [closing(each, **shares.get(each.arm.name, {"en": 0.0, "zh": 0.0})) for each in results.arms]
    assert losses(msgspec.structs.replace(results, arms=arms)) == [
        "No better than edge-only (the interval of the BLEU-1 gap closed reaches 0): ugsd; ugsd-sparse in zh."
    ]
