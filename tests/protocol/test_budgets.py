"""What travels per round, WebSocket header included: `pytest tests/protocol -k budget -s` shows the figures."""

from __future__ import annotations

import pytest

from edgedraft.protocol.codec import encode, split_ids, wire_size_bytes
from edgedraft.protocol.messages import Commit, CommitKind, Draft, Hedge, OpenIds, Timings

UP_BYTES, DOWN_BYTES = 64, 96
IDS = list(range(151_991, 152_000))
"""The dearest ids of a vocabulary of 152,000."""


@pytest.mark.parametrize(("epoch", "position", "channel"), [(0, 0, 0), (127, 65_535, 127)])
def test_budget_up_draft_of_eight_ids(epoch: int, position: int, channel: int) -> None:
    draft = Draft(
        channel=channel,
        incarnation=127,
        epoch=epoch,
        position=position,
        token_ids=IDS[:8],
        verify=True,
        committed_length=position,
    )
    size_bytes = wire_size_bytes(len(encode(draft)), masked=True)
    print(f"Draft of 8 ids, epoch {epoch}, position {position}: {size_bytes} bytes up (budget {UP_BYTES})")
    assert size_bytes <= UP_BYTES


def test_budget_up_hedge_of_eight_ids() -> None:
    hedge = Hedge(channel=127, incarnation=127, epoch=255, position=65_535, token_ids=IDS[:8], committed_length=65_535)
    size_bytes = wire_size_bytes(len(encode(hedge)), masked=True)
    print(f"Hedge of 8 ids: {size_bytes} bytes up (budget {UP_BYTES})")
    assert size_bytes <= UP_BYTES


@pytest.mark.parametrize(("epoch", "position", "stage_us"), [(0, 0, 100), (127, 65_535, 2**32 - 1)])
def test_budget_down_commit_of_nine_ids_with_timings(epoch: int, position: int, stage_us: int) -> None:
    commit = Commit(
        channel=127,
        incarnation=127,
        epoch=epoch,
        position=position,
        token_ids=IDS,
        kind=CommitKind.BONUS,
        num_judged=8,
        num_accepted=8,
        timings=Timings(stage_us, stage_us, stage_us, stage_us, position),
    )
    size_bytes = wire_size_bytes(len(encode(commit)), masked=False)
    print(f"Commit of 9 ids with timings, position {position}: {size_bytes} bytes down (budget {DOWN_BYTES})")
    assert size_bytes <= DOWN_BYTES


def test_budget_prompt_of_30000_ids_costs_its_ids_and_little_more() -> None:
    pieces = split_ids([151_999] * 30_000)
    sizes = [
        wire_size_bytes(len(encode(OpenIds(channel=1, incarnation=0, offset=0, token_ids=piece))), masked=True)
        for piece in pieces
    ]
    print(f"Prompt of 30000 ids: {sum(sizes)} bytes up in {len(sizes)} pieces of at most {max(sizes)}")
    assert max(sizes) <= 16_000
    assert sum(sizes) <= 5 * 30_000 + 32 * len(sizes)
