"""Plans that no other cut of the draft beats."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.errors import InvalidRequestError
from edgedraft.schedule.link import LinkCost
from edgedraft.schedule.upload_plan import plan_batches, plan_cost_s

GOLDEN = [
    (25, 116, 36, 20, (1, 1, 4, 14), 2.456, 3.065, 2.856),
    (50, 116, 36, 20, (1, 4, 15), 2.510, 3.090, 3.356),
    (25, 116, 36, 6, (1, 1, 4), 0.807, 0.937, 0.882),
    (50, 116, 36, 6, (1, 5), 0.846, 0.962, 1.032),
    (50, 29, 36, 20, (1, 2, 3, 4, 5, 5), 0.930, 1.350, 1.616),
    (25, 116, 100, 20, (1, 1, 2, 2, 2, 3, 4, 5), 2.638, 4.345, 2.920),
    (50, 0, 36, 20, (20,), 0.770, 0.770, 1.036),
    (27.3, 0.0047, 44.4, 20, (1,) * 20, 0.915, 0.915, 0.915),
]
"""Start-up, per token, draft time (ms), tokens, sizes, seconds of: the plan, one message, a message for each token."""
costs = st.builds(LinkCost, st.floats(0.0, 0.2), st.floats(0.0, 0.2))
draft_times = st.floats(0.0, 0.2)


def compositions(num_tokens: int) -> Iterator[tuple[int, ...]]:
    """Every way to cut `num_tokens` into messages."""
    if num_tokens == 0:
        yield ()
    for first in range(1, num_tokens + 1):
        for rest in compositions(num_tokens - first):
            yield (first, *rest)


def timeline_s(sizes: tuple[int, ...], cost: LinkCost, draft_s: float) -> float:
    """Equations 2 to 6, step by step: each message's draft and upload with their starts."""
    draft_start_s = 0.0
    upload_end_s: float | None = None
    for size in sizes:
        drafted_s = draft_start_s + draft_s * size
        upload_start_s = drafted_s if upload_end_s is None else max(upload_end_s, drafted_s)
        upload_end_s = upload_start_s + cost.startup_s + cost.per_token_s * size
        draft_start_s = drafted_s
    assert upload_end_s is not None
    return upload_end_s


@pytest.mark.parametrize(
    ("startup_ms", "per_token_ms", "draft_ms", "num_tokens", "sizes", "best_s", "whole_s", "each_s"), GOLDEN
)
def test_golden_costs(
    startup_ms: float,
    per_token_ms: float,
    draft_ms: float,
    num_tokens: int,
    sizes: tuple[int, ...],
    best_s: float,
    whole_s: float,
    each_s: float,
) -> None:
    cost, draft_s = LinkCost(startup_ms / 1e3, per_token_ms / 1e3), draft_ms / 1e3
    plan = plan_batches(num_tokens, cost, draft_s)
    assert plan_cost_s(plan, cost, draft_s) == pytest.approx(best_s, abs=5e-4)
    assert plan_cost_s(sizes, cost, draft_s) == pytest.approx(best_s, abs=5e-4)
    if sizes != (1,) * 20:  # there the table has no figure for one message
        assert plan_cost_s((num_tokens,), cost, draft_s) == pytest.approx(whole_s, abs=5e-4)
    assert plan_cost_s((1,) * num_tokens, cost, draft_s) == pytest.approx(each_s, abs=5e-4)


@given(num_tokens=st.integers(1, 10), cost=costs, draft_s=draft_times)
def test_no_other_plan_is_better(num_tokens: int, cost: LinkCost, draft_s: float) -> None:
    plan = plan_batches(num_tokens, cost, draft_s)
    assert sum(plan) == num_tokens
    best_s = min(timeline_s(sizes, cost, draft_s) for sizes in compositions(num_tokens))
    assert plan_cost_s(plan, cost, draft_s) == pytest.approx(best_s, abs=1e-9)


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=9), cost=costs, draft_s=draft_times)
def test_cost_is_that_of_the_timeline(sizes: list[int], cost: LinkCost, draft_s: float) -> None:
    assert plan_cost_s(sizes, cost, draft_s) == pytest.approx(timeline_s(tuple(sizes), cost, draft_s), abs=1e-9)


@given(
    num_tokens=st.integers(2, 10),
    startup_ms=st.integers(0, 60),
    per_token_ms=st.integers(0, 120),
    draft_ms=st.integers(0, 60),
)
def test_of_equal_plans_the_one_with_the_largest_last_message(
    num_tokens: int, startup_ms: int, per_token_ms: int, draft_ms: int
) -> None:
    """Judged in whole milliseconds, where ties are exact."""
    plan = plan_batches(num_tokens, LinkCost(startup_ms / 1e3, per_token_ms / 1e3), draft_ms / 1e3)
    exact = LinkCost(startup_ms, per_token_ms)
    best = timeline_s(plan, exact, draft_ms)
    equal = [sizes for sizes in compositions(num_tokens) if timeline_s(sizes, exact, draft_ms) == best]
    assert plan[-1] == max(sizes[-1] for sizes in equal)


def test_a_dear_message_is_sent_once_and_a_free_one_each_time() -> None:
    assert plan_batches(12, LinkCost(10.0, 0.0), 0.036) == (12,)
    assert plan_batches(12, LinkCost(0.0, 0.01), 0.036) == (1,) * 12


@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", ["startup_s", "per_token_s", "draft_s"])
def test_times_that_are_none_are_refused(field: str, value: float) -> None:
    numbers = {"startup_s": 0.025, "per_token_s": 0.116, "draft_s": 0.036} | {field: value}
    for use in (
        lambda: plan_batches(4, LinkCost(numbers["startup_s"], numbers["per_token_s"]), numbers["draft_s"]),
        lambda: plan_cost_s((4,), LinkCost(numbers["startup_s"], numbers["per_token_s"]), numbers["draft_s"]),
    ):
        with pytest.raises(InvalidRequestError, match=f"{field} is {value}; legal: 0 or more, finite") as refused:
            use()
        assert refused.value.field == field


@pytest.mark.parametrize("num_tokens", [0, -3])
def test_a_plan_for_no_token_is_refused(num_tokens: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"num_tokens is {num_tokens}; legal: 1 or more") as refused:
        plan_batches(num_tokens, LinkCost(0.0, 0.0), 0.0)
    assert refused.value.field == "num_tokens"


@pytest.mark.parametrize("sizes", [(), (3, 0), (-1,)])
def test_sizes_that_are_none_are_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequestError, match="sizes is"):
        plan_cost_s(sizes, LinkCost(0.0, 0.0), 0.0)
