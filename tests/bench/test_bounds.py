"""The linear bound: its arithmetic, and that no strategy without assist goes below it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.bench import bounds
from edgedraft.bench.baselines import ENTRIES, entry_named
from edgedraft.bench.bounds import asking_round_trip_s, bound_ms, cloud_only_ms, linear_bound_s
from edgedraft.bench.scenario import Cloud, Dataset, Edge, Link, Regime, Scenario
from edgedraft.bench.simulated import simulate_cell
from edgedraft.protocol.messages import Commit, CommitKind, Draft
from edgedraft.sim.payload import message_bytes

from .conftest import recorded


def scenario(*, draft_ms: float = 20.0, regime: Regime = Regime.IDS, **link: float) -> Scenario:
    return Scenario(
        name="x",
        title="x",
        dataset=Dataset.CODE,
        regime=regime,
        edge=Edge(draft_ms=draft_ms),
        cloud=Cloud(step_ms=30.0),
        link=Link(**link),  # type: ignore[arg-type]
        strategies=("vanilla",),
    )


def test_an_asking_round_trip_has_every_part_once() -> None:
    link = {"startup_ms": 25.0, "down_startup_ms": 7.0, "rtt_ms": 100.0, "jitter_ms": 50.0}
    assert asking_round_trip_s(scenario(**link)) == pytest.approx(0.025 + 0.007 + 0.1 + 0.03)
    slow = asking_round_trip_s(scenario(up_mbit_per_s=0.008, down_mbit_per_s=0.008))
    assert slow == pytest.approx(0.03 + (bounds.ASKING_UP_BYTES + bounds.ASKING_DOWN_BYTES) / 1_000)


def test_the_bytes_are_those_of_the_smallest_messages() -> None:
    question = Draft(channel=0, incarnation=0, epoch=0, position=9, token_ids=[], verify=True, committed_length=9)
    answer = Commit(
        channel=0, incarnation=0, epoch=0, position=9, token_ids=[0], kind=CommitKind.OWN, num_judged=0, num_accepted=0
    )
    assert message_bytes(question, masked=True) == bounds.ASKING_UP_BYTES
    assert message_bytes(answer, masked=False) == bounds.ASKING_DOWN_BYTES


def test_right_tokens_cost_a_draft_step_and_wrong_ones_and_the_last_a_round_trip() -> None:
    assert linear_bound_s([True, True, False, True], draft_s=0.02, round_trip_s=0.1) == pytest.approx(
        2 * 0.02 + 2 * 0.1
    )
    assert linear_bound_s([True] * 5, draft_s=0.2, round_trip_s=0.1) == pytest.approx(5 * 0.1), "asking is quicker"
    assert linear_bound_s([False], draft_s=0.02, round_trip_s=0.1) == pytest.approx(0.1)


def test_a_cells_bound_is_over_all_tokens_of_its_cut_texts() -> None:
    cell = scenario(rtt_ms=70.0)
    assert bound_ms(cell, [[True, False], [True] * 4]) == pytest.approx((4 * 20 + 2 * 100) / 6)
    assert bound_ms(cell, [[True] * 500]) == pytest.approx((127 * 20 + 100) / 128)
    assert cloud_only_ms(cell) == 30.0


WITHOUT_ASSIST = sorted(
    label
    for label, entry in ENTRIES.items()
    if entry.strategy not in ("cloud-only", "auto") and entry.fixed.get("assist", "none") == "none"
)


@given(
    right=st.lists(st.booleans(), min_size=1, max_size=40),
    label=st.sampled_from(WITHOUT_ASSIST),
    regime=st.sampled_from(Regime),
    draft_ms=st.floats(0.5, 200),
    rtt_ms=st.floats(0, 300),
    startup_ms=st.floats(0, 30),
)
def test_no_strategy_without_assist_goes_below_the_bound(
    right: list[bool], label: str, regime: Regime, draft_ms: float, rtt_ms: float, startup_ms: float
) -> None:
    cell = scenario(draft_ms=draft_ms, regime=regime, rtt_ms=rtt_ms, startup_ms=startup_ms, up_mbit_per_s=20.0)
    text = recorded("t", "code", right)
    entry = entry_named(label)
    run = simulate_cell(cell, entry, dict(entry.paper.get(Dataset.CODE, {})), [text], seed=0)
    assert run.tpt_s * 1e3 >= bound_ms(cell, [text.right]) - 1e-6
