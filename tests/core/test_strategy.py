"""A strategy is data: what it refuses to be, and what may follow what in a running request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edgedraft.core.hedging import Hedging
from edgedraft.core.strategy import Strategy, UploadImmediately, UploadPolicy, UploadState, UploadWhole, check_rule
from edgedraft.errors import InvalidRequestError, UnsupportedError
from edgedraft.schedule.catalogue import cloud_only, edge_only, flow, pipesd, vanilla
from edgedraft.types import Assist, Rule


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"draft_ahead_tokens": -1}, "draft_ahead_tokens"),
        ({"max_verdicts_out": 0}, "max_verdicts_out"),
        ({"max_in_flight_tokens": 0}, "max_in_flight_tokens"),
        ({"uses_draft": False, "uses_cloud": False}, "strategy"),
    ],
)
def test_an_illegal_number_is_named(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        Strategy(name="any", **fields)

    assert caught.value.field == named


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"rule": Rule.RATIO, "assist": Assist.BUBBLE}, "rule"),
        ({"rule": Rule.RATIO, "assist": Assist.ALWAYS}, "rule"),
        ({"rule": Rule.RATIO, "eager": True}, "rule"),
        ({"rule": Rule.RATIO, "eager": True, "hedging": Hedging()}, "rule"),
        ({"rule": Rule.RATIO, "hedging": Hedging()}, "hedging"),
        ({"hedging": Hedging()}, "hedging"),
    ],
)
def test_what_cannot_go_together_is_refused_with_the_field(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        Strategy(name="any", **fields)

    assert caught.value.field == named


def test_ratio_goes_with_whatever_fixes_beforehand_which_ids_are_tested() -> None:
    check_rule(Rule.RATIO, Assist.NONE, eager=False)
    for assist in Assist:
        check_rule(Rule.MATCH, assist, eager=True)
    assert Strategy(name="any", rule=Rule.RATIO, draft_ahead_tokens=8, max_verdicts_out=2).rule is Rule.RATIO


def test_the_terms_are_what_an_open_tells() -> None:
    assert flow(assist="bubble").terms == (Assist.BUBBLE, True)
    assert vanilla(3).terms == vanilla(9).terms == (Assist.NONE, False)


def test_another_strategy_may_follow_with_the_same_rule_on_the_same_side() -> None:
    for following in (vanilla(9), pipesd(), flow(), cloud_only()):
        following.check_follows(vanilla(2))

    for following in (replace(vanilla(2), rule=Rule.RATIO), replace(vanilla(2), rank=2), edge_only()):
        with pytest.raises(InvalidRequestError) as caught:
            following.check_follows(vanilla(2))
        assert caught.value.field == "strategy"


@pytest.mark.parametrize(("policy", "num_sent"), [(UploadWhole(), 0), (UploadImmediately(), 5)])
def test_the_two_plain_upload_policies(policy: UploadPolicy, num_sent: int) -> None:
    state = UploadState(num_unsent=5)

    assert policy.num_to_send(state) == num_sent
    assert policy.wait_s(state) is None
