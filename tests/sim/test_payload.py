"""Bytes on the link."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.errors import InvalidRequestError
from edgedraft.protocol.codec import encode, wire_size_bytes
from edgedraft.protocol.messages import Ack, Close, Commit, CommitKind, Draft, Timings
from edgedraft.sim.payload import IDS, PAPER, Payload, UpwardSizes, message_bytes

TOKEN_BYTES = PAPER.token_payload_bytes


def draft(position: int, num_ids: int, *, verify: bool = False, epoch: int = 0, incarnation: int = 1) -> Draft:
    return Draft(
        channel=0,
        incarnation=incarnation,
        epoch=epoch,
        position=position,
        token_ids=[70_000] * num_ids,
        verify=verify,
        committed_length=3,
    )


def sizes(payload: Payload, messages: list[Draft]) -> list[int]:
    upward = UpwardSizes(payload)
    return [upward.size_bytes(message) - message_bytes(message, masked=True) for message in messages]


@given(st.lists(st.integers(0, 2**31 - 1), max_size=200), st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1))
def test_sizes_are_those_of_the_codec(token_ids: list[int], position: int, micros: int) -> None:
    up = Draft(
        channel=1, incarnation=1, epoch=2, position=position, token_ids=token_ids, verify=True, committed_length=0
    )
    down = Commit(
        channel=1,
        incarnation=1,
        epoch=2,
        position=position,
        token_ids=token_ids,
        kind=CommitKind.BONUS,
        num_judged=0,
        num_accepted=0,
        timings=Timings(micros, micros, micros, micros, position),
    )
    assert message_bytes(up, masked=True) == wire_size_bytes(len(encode(up)), masked=True)
    assert message_bytes(down, masked=False) == wire_size_bytes(len(encode(down)), masked=False)


def test_ids_bring_nothing_along() -> None:
    assert sizes(IDS, [draft(10, 4, verify=True), draft(14, 2)]) == [0, 0]


def test_each_draft_token_brings_its_payload_and_other_messages_none() -> None:
    assert sizes(PAPER, [draft(10, 4), draft(14, 0, verify=True)]) == [4 * TOKEN_BYTES, 0]
    upward = UpwardSizes(PAPER)
    for message in (Ack(channel=0, incarnation=1, committed_length=9), Close(channel=0, incarnation=1)):
        assert upward.size_bytes(message) == message_bytes(message, masked=True)


def test_guess_behind_the_newest_question_is_a_bare_id() -> None:
    asked = draft(10, 4, verify=True)  # flags position 14
    assert sizes(PAPER, [asked, draft(14, 1), draft(15, 2)]) == [4 * TOKEN_BYTES, 0, 2 * TOKEN_BYTES]
    assert sizes(PAPER, [asked, draft(14, 3)]) == [4 * TOKEN_BYTES, 2 * TOKEN_BYTES]
    second = draft(14, 3, verify=True)  # has the first guess in it and flags 17
    assert sizes(PAPER, [asked, second, draft(17, 2)]) == [4 * TOKEN_BYTES, 2 * TOKEN_BYTES, TOKEN_BYTES]


def test_guess_is_of_its_own_epoch_and_incarnation() -> None:
    asked = draft(10, 4, verify=True)
    assert sizes(PAPER, [asked, draft(14, 1, epoch=1)])[1] == TOKEN_BYTES
    assert sizes(PAPER, [asked, draft(14, 1, incarnation=2)])[1] == TOKEN_BYTES


def test_negative_payload_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"^token_payload_bytes is -1"):
        Payload(name="bad", token_payload_bytes=-1)
