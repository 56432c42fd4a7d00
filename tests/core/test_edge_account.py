"""What is counted of a commit, and the word about a draft that does not suit."""

from __future__ import annotations

import pytest

from edgedraft.core.edge_account import MISFIT_ACCEPTANCE_RATE, MISFIT_JUDGED_TOKENS, EdgeAccount
from edgedraft.protocol.messages import Commit, CommitKind


def commit(num_judged: int, num_accepted: int) -> Commit:
    return Commit(
        channel=1,
        incarnation=1,
        epoch=0,
        position=5,
        token_ids=[7] * (num_accepted + 1),
        kind=CommitKind.BONUS if num_accepted == num_judged else CommitKind.RECOVERED,
        num_judged=num_judged,
        num_accepted=num_accepted,
    )


def test_every_commit_is_a_target_pass_and_those_asked_for_are_rounds() -> None:
    account = EdgeAccount()

    account.count(commit(4, 3), 1.0, was_asked=True)
    account.count(commit(0, 0), 2.0, was_asked=False)

    counters = account.counters
    assert (counters.num_judged, counters.num_accepted) == (4, 3)
    assert (counters.num_rounds, counters.num_target_passes) == (1, 2)
    assert [record.num_committed for record in account.clock.records] == [4, 1]


@pytest.mark.parametrize(
    ("num_judged", "num_accepted", "is_told"),
    [
        (MISFIT_JUDGED_TOKENS - 1, 0, False),
        (MISFIT_JUDGED_TOKENS, 0, True),
        (MISFIT_JUDGED_TOKENS, int(MISFIT_JUDGED_TOKENS * MISFIT_ACCEPTANCE_RATE), False),
        (MISFIT_JUDGED_TOKENS, int(MISFIT_JUDGED_TOKENS * MISFIT_ACCEPTANCE_RATE) - 1, True),
    ],
)
def test_a_misfit_is_told_once_enough_was_judged(num_judged: int, num_accepted: int, is_told: bool) -> None:
    account = EdgeAccount()
    account.count(commit(num_judged, num_accepted), 1.0, was_asked=True)

    notices = account.misfit_notice()

    assert bool(notices) is is_told
    if is_told:
        assert f"{num_accepted} of {num_judged}" in notices[0].text
        assert account.misfit_notice() == []
