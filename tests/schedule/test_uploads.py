"""What leaves when, by a plan and by the link."""

from __future__ import annotations

import math

import pytest

from edgedraft.core.strategy import UploadPolicy, UploadState
from edgedraft.errors import InvalidRequestError
from edgedraft.schedule.link import LinkCost
from edgedraft.schedule.uploads import UploadPlanned, UploadWhenFree


def sent_sizes(policy: UploadPolicy, num_tokens: int) -> list[int]:
    """The messages of a draft whose tokens come one by one and whose link is quick."""
    sizes: list[int] = []
    num_unsent = 0
    for _ in range(num_tokens):
        num_unsent += 1
        while num := policy.num_to_send(UploadState(num_unsent, num_messages=len(sizes))):
            sizes.append(num)
            num_unsent -= num
    return sizes


def test_the_plan_is_repeated() -> None:
    assert sent_sizes(UploadPlanned((1, 3, 2)), 15) == [1, 3, 2, 1, 3, 2, 1]


def test_a_message_waits_until_it_is_full() -> None:
    policy = UploadPlanned((1, 4))
    assert [policy.num_to_send(UploadState(n, num_messages=1)) for n in range(6)] == [0, 0, 0, 0, 4, 4]
    assert policy.wait_s(UploadState(3, num_messages=1)) is None


def test_what_piled_up_leaves_message_by_message() -> None:
    """After a verdict the plan starts anew over the tokens that were drafted ahead."""
    policy = UploadPlanned((1, 3, 2))
    assert policy.num_to_send(UploadState(6, num_messages=0)) == 1
    assert policy.num_to_send(UploadState(5, num_messages=1)) == 3
    assert policy.num_to_send(UploadState(2, num_messages=2)) == 2


@pytest.mark.parametrize("sizes", [(), (2, 0), (-1,)])
def test_a_plan_with_an_empty_message_is_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequestError, match="sizes is") as refused:
        UploadPlanned(sizes)
    assert refused.value.field == "sizes"


def test_everything_leaves_over_a_free_link() -> None:
    policy = UploadWhenFree(LinkCost(0.025, 0.116))
    assert policy.num_to_send(UploadState(5, num_messages=0, last_message_tokens=0, since_last_s=math.inf)) == 5
    assert policy.num_to_send(UploadState(5, num_messages=1, last_message_tokens=1, since_last_s=0.1411)) == 5


def test_nothing_leaves_over_a_busy_link_and_the_wait_is_told() -> None:
    policy = UploadWhenFree(LinkCost(0.025, 0.116))
    state = UploadState(5, num_messages=1, last_message_tokens=2, since_last_s=0.1)
    assert policy.num_to_send(state) == 0
    assert policy.wait_s(state) == pytest.approx(0.157)


def test_after_the_wait_the_link_is_free() -> None:
    policy = UploadWhenFree(LinkCost(0.03, 0.007))
    state = UploadState(2, num_messages=4, last_message_tokens=3, since_last_s=0.0)
    wait_s = policy.wait_s(state)
    assert wait_s is not None
    later = UploadState(2, num_messages=4, last_message_tokens=3, since_last_s=wait_s)
    assert (policy.num_to_send(later), policy.wait_s(later)) == (2, 0.0)


def test_with_nothing_to_send_only_a_token_helps() -> None:
    state = UploadState(0, num_messages=1, last_message_tokens=2, since_last_s=0.1)
    assert UploadWhenFree(LinkCost(0.025, 0.116)).wait_s(state) is None
