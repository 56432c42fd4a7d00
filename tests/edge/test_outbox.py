"""How much of a long prompt may be under way."""

from __future__ import annotations

import asyncio

from edgedraft.edge.outbox import PROMPT_S, Outbox
from edgedraft.protocol.messages import Features, OpenIds
from edgedraft.testing.wire import draft_message, open_message


async def num_taken_at_once(outbox: Outbox) -> int:
    """Take until the outbox gives nothing more without an answer."""
    num_taken = 0
    while True:
        taking = asyncio.ensure_future(outbox.take())
        await asyncio.sleep(0)
        if not taking.done():
            taking.cancel()
            return num_taken
        taking.result()
        num_taken += 1


def with_a_long_prompt(num_pieces: int) -> Outbox:
    outbox = Outbox()
    outbox.put(1, open_message(bytes(16), [1], num_prompt=num_pieces), lambda: None, lambda _: None)
    for offset in range(1, num_pieces):
        outbox.put(1, OpenIds(channel=1, incarnation=1, offset=offset, token_ids=[1]), lambda: None, lambda _: None)
    return outbox


def test_pieces_wait_for_answers_and_drafts_do_not_wait_for_pieces() -> None:
    async def work() -> None:
        outbox = with_a_long_prompt(20)
        assert await num_taken_at_once(outbox) == 1
        outbox.put(2, draft_message(5, [1], channel=2), lambda: None, lambda _: None)
        assert await num_taken_at_once(outbox) == 1, "the draft"
        for num_under_way in (1, 2, 4):
            for _ in range(num_under_way):
                outbox.answered(PROMPT_S / 2)
            assert await num_taken_at_once(outbox) == 2 * num_under_way, "a fast link is soon filled"

    asyncio.run(work())


def test_on_a_slow_link_one_piece_is_under_way() -> None:
    async def work() -> None:
        outbox = with_a_long_prompt(20)
        assert await num_taken_at_once(outbox) == 1
        outbox.answered(PROMPT_S / 2)
        assert await num_taken_at_once(outbox) == 2
        for _ in range(2):
            outbox.answered(PROMPT_S * 2)
        assert await num_taken_at_once(outbox) == 1

    asyncio.run(work())


def test_a_short_prompt_in_one_piece_is_not_waited_for() -> None:
    async def work() -> None:
        outbox = Outbox()
        for channel in (1, 2, 3):
            outbox.put(channel, open_message(bytes(16), [1, 2, 3], channel=channel), lambda: None, lambda _: None)
        assert await num_taken_at_once(outbox) == 3

    asyncio.run(work())


def test_drafts_of_an_epoch_that_is_over_do_not_leave() -> None:
    """PipeSD cancels queued uploads after a rejection; what the link has taken cannot be recalled."""
    outbox = Outbox()
    dropped: list[int] = []
    for epoch, ids in ((0, [1, 2]), (0, [3]), (1, [9])):
        message = draft_message(5, ids, channel=2, epoch=epoch)
        outbox.put(2, message, lambda: None, dropped.append)
    outbox.put(3, draft_message(5, [4], channel=3), lambda: None, dropped.append)

    assert len(dropped) == 2
    left = [asyncio.run(outbox.take()).draft for _ in range(2)]
    assert [draft.token_ids for draft in left if draft is not None] == [[9], [4]]


def test_short_features_hold_nothing_up_and_long_ones_are_waited_for() -> None:
    def piece(num_bytes: int) -> Features:
        return Features(
            channel=1,
            incarnation=1,
            kind="pooled",
            encoder_id="mel",
            rate_hz=12.5,
            dims=40,
            dtype="int8",
            scale=1.0,
            count=num_bytes // 40,
            level_db=-20.0,
            offset=0,
            data=bytes(num_bytes),
        )

    async def work() -> None:
        for num_bytes, num_at_once in ((1200, 3), (12_000, 2)):
            outbox = Outbox()
            messages = (open_message(bytes(16), [1]), piece(num_bytes), draft_message(1, [2], channel=1))
            for message in messages:
                outbox.put(1, message, lambda: None, lambda _: None)
            assert await num_taken_at_once(outbox) == num_at_once

    asyncio.run(work())
