"""Derived figures against the glossary's definitions, computed by hand."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.errors import EdgedraftError
from edgedraft.metrics import derive
from edgedraft.metrics.derive import ROUND_PARTS, accounting, check_round
from edgedraft.metrics.records import Counters, RequestRecord, RoundRecord

REQUIRED = {
    *("ttft_s", "total_s", "tpt_s", "num_rounds", "num_drafted", "num_accepted", "num_committed", "num_target_passes"),
    *("tokens_up", "bytes_up", "bytes_down", "num_discarded", "num_reconnects"),
}


def round_of(
    num_drafted: int, num_accepted: int, *, round_id: int = 0, parts: list[float] | None = None
) -> RoundRecord:
    parts = [0.5, 0.0625, 0.125, 0.25, 0.0625] if parts is None else parts
    return RoundRecord(
        round_id=round_id,
        started_s=0.0,
        round_s=sum(parts),
        num_drafted=num_drafted,
        num_accepted=num_accepted,
        num_committed=num_accepted + 1,
        **dict(zip(ROUND_PARTS, parts, strict=True)),
    )


RECORD = RequestRecord(
    total_s=4.0,
    first_token_s=1.0,
    bytes_up=700,
    bytes_down=490,
    counters=Counters(
        num_rounds=3,
        num_drafted=14,
        num_judged=10,
        num_accepted=4,
        num_committed=7,
        num_discarded=3,
        num_target_passes=4,
        num_rollbacks=2,
        num_reconnects=1,
        tokens_up=12,
    ),
    rounds=[round_of(5, 3), round_of(4, 1), round_of(1, 0), round_of(2, 2)],
)


def test_times_follow_their_definitions() -> None:
    assert derive.ttft_s(RECORD) == 1.0
    assert derive.tpt_s(RECORD) == 4.0 / 7
    assert derive.tpot_s(RECORD) == (4.0 - 1.0) / 6
    assert derive.part_s(RECORD, "queue_s") == 4 * 0.125


def test_the_draft_alone_takes_its_first_step_and_a_median_one_for_each_further_token() -> None:
    record = RequestRecord(began_s=0.5, draft_steps_s=[2.0, 0.1, 0.3, 9.0], counters=Counters(num_committed=7))
    assert derive.draft_alone_s(record) == pytest.approx(0.5 + 2.0 + 6 * 0.3)
    assert derive.draft_alone_s(RECORD) is None, "the cloud wrote"
    nothing = RequestRecord(draft_steps_s=[2.0], counters=Counters(num_committed=0))
    assert derive.draft_alone_s(nothing) == 2.0


def test_time_per_token_of_a_run_sums_before_it_divides() -> None:
    slow = RequestRecord(total_s=10.0, counters=Counters(num_committed=1))
    assert derive.tpt_s(RECORD, slow) == 14.0 / 8
    assert derive.tpt_s() is None


def test_acceptance_counts_the_next_token_only_in_the_length() -> None:
    assert derive.acceptance_rate(RECORD) == 4 / 10
    assert derive.mean_acceptance_length(RECORD) == 1 + 4 / 3
    assert derive.rollback_rate(RECORD) == 3 / 4
    assert derive.acceptance_rate_per_position(RECORD) == [3 / 4, 2 / 3, 1 / 2, 0 / 2, 0 / 1]


def test_costs_are_per_committed_token() -> None:
    assert derive.target_passes_per_token(RECORD) == 4 / 7
    assert derive.tokens_per_target_pass(RECORD) == 7 / 4
    assert derive.bytes_up_per_token(RECORD) == 100
    assert derive.bytes_down_per_token(RECORD) == 70
    assert derive.tokens_up_per_token(RECORD) == 12 / 7


def test_accounting_holds_raw_counts_as_they_are() -> None:
    figures = accounting(RECORD)
    assert set(figures) >= REQUIRED
    for name, value in dataclasses.asdict(RECORD.counters).items():
        assert figures[name] == value
    assert (figures["total_s"], figures["bytes_up"], figures["bytes_down"]) == (4.0, 700, 490)
    assert figures["draft_s"] == 2.0
    assert figures["acceptance_rate"] == 0.4


def test_nothing_done_gives_none_and_never_nan() -> None:
    figures = accounting(RequestRecord())
    assert figures["ttft_s"] is figures["tpt_s"] is figures["acceptance_rate"] is figures["verify_s"] is None
    assert figures["num_rounds"] == 0
    assert derive.acceptance_rate_per_position(RequestRecord()) == []
    json.dumps(figures, allow_nan=False)


def test_one_token_has_a_time_per_token_but_none_after_the_first() -> None:
    record = RequestRecord(total_s=1.0, first_token_s=0.5, counters=Counters(num_committed=1))
    assert derive.tpt_s(record) == 1.0
    assert derive.tpot_s(record) is None


counts = st.integers(0, 5)


@given(
    st.builds(
        RequestRecord,
        total_s=st.floats(0, 1e6),
        first_token_s=st.none() | st.floats(0, 1e6),
        bytes_up=counts,
        bytes_down=counts,
        counters=st.builds(Counters, **{field.name: counts for field in dataclasses.fields(Counters)}),
        rounds=st.lists(st.builds(round_of, counts, counts), max_size=3),
    )
)
def test_every_figure_of_any_record_is_finite_or_none(record: RequestRecord) -> None:
    for name, value in accounting(record).items():
        assert value is None or math.isfinite(value), name


@given(st.lists(st.floats(0, 1e4), min_size=5, max_size=5), st.integers(0, 9), st.data())
def test_round_whose_parts_add_up_passes_and_any_other_does_not(
    parts: list[float], num_drafted: int, data: st.DataObject
) -> None:
    good = round_of(num_drafted, data.draw(st.integers(0, num_drafted)), parts=parts)
    check_round(good)
    part = data.draw(st.sampled_from(ROUND_PARTS))
    wrong = dataclasses.replace(good, **{part: getattr(good, part) + data.draw(st.floats(1e-4, 1e4))})
    with pytest.raises(EdgedraftError, match="parts add up to"):
        check_round(wrong)


@pytest.mark.parametrize(
    ("field", "value"),
    [("queue_s", -0.1), ("verify_s", math.nan), ("round_s", math.inf), ("num_accepted", 5), ("num_accepted", -1)],
)
def test_impossible_round_is_refused_by_field(field: str, value: float) -> None:
    with pytest.raises(EdgedraftError, match=rf"^round 7: {field} is "):
        check_round(dataclasses.replace(round_of(4, 2, round_id=7), **{field: value}))
