"""What the protocol says of frames that an exact text client never sends, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from edgedraft.backends import registry
from edgedraft.protocol.messages import Commit, CommitKind, Draft, Error, Features, Open, Opened
from edgedraft.testing.cloud import RunningCloud, running_cloud
from edgedraft.testing.wire import WireClient, draft_message, open_message, wire_client
from edgedraft.types import Assist, Owner, Rule

from .conftest import PROMPT, WatchedTarget, toy_model

SPEC = "toy:vocab=64,seed=3"
MODEL = toy_model(SPEC)


@pytest.fixture(scope="module")
def cloud() -> Iterator[RunningCloud]:
    with running_cloud(WatchedTarget(MODEL), registry.open_tokenizer(SPEC)) as running:
        yield running


@pytest.fixture
def wire(cloud: RunningCloud) -> Iterator[WireClient]:
    with wire_client(cloud.url) as client:
        yield client
        client.vanish()
    cloud.evict_all()


def edge_owned(**fields: Any) -> Open:
    message = open_message(b"E" * 16, PROMPT)
    return msgspec.structs.replace(message, **{"owner": Owner.EDGE, "rule": Rule.RANK, "rank": 1, **fields})


def draft(position: int, token_ids: Sequence[int], judged: list[int] | None, *, epoch: int = 0) -> Draft:
    return msgspec.structs.replace(draft_message(position, token_ids, epoch=epoch), judged=judged)


def top_ids(context: Sequence[int], count: int) -> list[int]:
    """What the target writes greedily after `context`."""
    written = list(context)
    for _ in range(count):
        written.append(int(MODEL.logits(written)[: MODEL.num_ids].argmax()))
    return written[len(context) :]


def verdict(wire: WireClient) -> Commit:
    message = wire.receive()
    assert isinstance(message, Commit), message
    return message


def refusal(wire: WireClient, message: Open | Draft | Features) -> Error:
    wire.send(message)
    answer = wire.receive()
    assert isinstance(answer, Error), answer
    return answer


def test_features_are_refused_by_a_text_target_and_cost_only_their_own_session(
    cloud: RunningCloud, wire: WireClient
) -> None:
    wire.send(open_message(b"A" * 16, PROMPT, channel=1))
    wire.send(open_message(b"B" * 16, PROMPT, channel=2))
    assert isinstance(wire.receive(), Opened)
    assert isinstance(wire.receive(), Opened)
    recording = Features(
        channel=1,
        incarnation=1,
        kind="log-mel",
        encoder_id="some encoder",
        rate_hz=50.0,
        dims=4,
        dtype="int8",
        scale=0.1,
        count=2,
        level_db=-20.0,
        offset=0,
        data=bytes(8),
    )
    answer = refusal(wire, recording)
    assert answer.channel == 1
    assert (answer.code, "features" in answer.message) == ("unsupported", True)
    assert not answer.retryable
    wire.send(draft_message(3, [5], channel=2))
    assert verdict(wire).channel == 2
    cloud.until(lambda sessions: len(sessions) == 1)


def test_fork_of_is_refused_naming_the_field(cloud: RunningCloud, wire: WireClient) -> None:
    answer = refusal(wire, msgspec.structs.replace(open_message(b"A" * 16, PROMPT), fork_of=b"B" * 16))
    assert (answer.code, answer.message.startswith("fork_of")) == ("unsupported", True)
    cloud.until(lambda sessions: len(sessions) == 0)


@pytest.mark.parametrize("judged", [[], [0], [1]])
def test_judged_is_refused_where_the_cloud_owns_the_log(wire: WireClient, judged: list[int]) -> None:
    wire.send(open_message(b"A" * 16, PROMPT))
    assert isinstance(wire.receive(), Opened)
    answer = refusal(wire, draft(3, [5, 6], judged))
    assert (answer.code, answer.message.startswith("judged")) == ("invalid_request", True)


@pytest.mark.parametrize("fields", [{"assist": Assist.BUBBLE}, {"assist": Assist.ALWAYS}, {"eager": True}], ids=str)
def test_the_target_may_not_write_by_itself_in_a_log_that_the_edge_owns(
    wire: WireClient, fields: dict[str, Any]
) -> None:
    assert refusal(wire, edge_owned(**fields)).code == "unsupported"


def test_rank_needs_a_log_that_the_edge_owns(wire: WireClient) -> None:
    answer = refusal(wire, msgspec.structs.replace(open_message(b"A" * 16, PROMPT), rule=Rule.RANK))
    assert (answer.code, "owner 'edge'" in answer.message) == ("unsupported", True)


def test_ids_before_the_first_judged_are_committed_and_those_behind_a_rejection_dropped(wire: WireClient) -> None:
    wire.send(edge_owned())
    assert isinstance(wire.receive(), Opened)
    target_next = top_ids([*PROMPT, 5, 6], 1)
    rejected = (target_next[0] + 1) % 60
    wire.send(draft(3, [5, 6, rejected, 7, 8], [2, 4]))
    answer = verdict(wire)
    assert (answer.position, answer.token_ids, answer.num_accepted) == (5, target_next, 0)
    assert answer.kind is CommitKind.RECOVERED
    # What followed the rejected id went with it: the next epoch goes on behind the target's own id.
    wire.send(draft(6, top_ids([*PROMPT, 5, 6, *target_next], 2), None, epoch=1))
    answer = verdict(wire)
    assert (answer.position, answer.epoch, answer.num_accepted) == (6, 1, 2)


def test_full_acceptance_in_a_log_that_the_edge_owns_has_no_next_token_and_echoes_the_epoch(wire: WireClient) -> None:
    wire.send(edge_owned())
    assert isinstance(wire.receive(), Opened)
    written = top_ids(PROMPT, 4)
    wire.send(draft(3, written[:3], None))
    answer = verdict(wire)
    assert (answer.epoch, answer.position, answer.token_ids) == (0, 3, written[:3])
    assert answer.kind is CommitKind.ACCEPTED_ONLY
    # A newer epoch takes the last two back.
    wire.send(draft(4, written[1:4], None, epoch=5))
    answer = verdict(wire)
    assert (answer.epoch, answer.position, answer.token_ids) == (5, 4, written[1:4])


def test_none_judged_is_a_commit_without_a_pass(cloud: RunningCloud, wire: WireClient) -> None:
    wire.send(edge_owned())
    assert isinstance(wire.receive(), Opened)
    wire.send(draft(3, [9, 8, 7], []))
    answer = verdict(wire)
    assert (answer.position, answer.token_ids, answer.num_judged) == (6, [], 0)
    assert cloud.call(cloud.sessions.stats).num_tokens == 6
