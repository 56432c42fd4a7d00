"""Both session machines under random interleavings, and the proof that each rule of docs/protocol.md is needed.

`World` (edgedraft.testing.interleaving) checks the invariants. Each mutant takes one rule out; the same runs must then
end stuck or wrong.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgedraft.core.cloud_session import CloudSession
from edgedraft.core.edge_session import EdgeSession
from edgedraft.core.events import EdgeCommand
from edgedraft.core.hedging import Hedging
from edgedraft.core.pending_tail import PendingTail
from edgedraft.core.strategy import Strategy, UploadImmediately, UploadWhole
from edgedraft.core.triggers import FixedLength
from edgedraft.protocol.messages import Commit, Resume
from edgedraft.schedule.catalogue import cloud_only, edgellm, flow, hsl, pipesd, upload_immediate, vanilla
from edgedraft.schedule.link import LinkCost
from edgedraft.testing.interleaving import Faults, StuckError, World, WrongError
from edgedraft.types import Assist

SLOW_LINK = LinkCost(startup_s=0.03, per_token_s=0.01)
NAMED = (
    hsl(token_threshold=0.3),
    edgellm(sequence_threshold=0.4),
    pipesd(token_threshold=0.2, sequence_threshold=0.1, cost=SLOW_LINK),
    upload_immediate(token_threshold=0.1, sequence_threshold=0.02),
    *(flow(assist=assist, cost=SLOW_LINK) for assist in Assist),
    *(flow(assist=assist, hedging=None) for assist in Assist),
    *(flow(assist=assist, hedging=Hedging(patience=1.0, least_use=0.0)) for assist in Assist),
    flow(assist="bubble", hedging=Hedging(patience=2.0, least_use=0.05), cost=SLOW_LINK),
)
FAULTS = (
    Faults(changes=4, others=(*NAMED, cloud_only())),
    Faults(changes=3, others=(*NAMED, cloud_only()), cuts=2, evictions=1, mutes=1),
    Faults(),
    Faults(cuts=4),
    Faults(evictions=3),
    Faults(cuts=3, evictions=2),
    Faults(cuts=2, evictions=2, mutes=3),
)
STRATEGIES = [
    cloud_only(),
    *NAMED,
    *(
        Strategy(
            name="any",
            trigger=FixedLength(num_draft_tokens),
            draft_ahead_tokens=ahead,
            upload=upload,
            assist=assist,
            eager=eager,
            max_in_flight_tokens=cap,
        )
        for num_draft_tokens, ahead, upload, assist, eager, cap in itertools.product(
            (1, 4, 100), (0, 6), (UploadWhole(), UploadImmediately()), Assist, (False, True), (3, 32)
        )
    ),
]


def play_all(num_seeds: int, **classes: Any) -> None:
    """Every strategy and mix of faults over `num_seeds` seeds; raises at the first broken promise."""
    for number, (strategy, faults) in enumerate(itertools.product(STRATEGIES, FAULTS)):
        for seed in range(num_seeds):
            World(number * 1_000 + seed, strategy, faults, **classes).play()


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    strategy=st.sampled_from(STRATEGIES),
    faults=st.builds(Faults, cuts=st.integers(0, 6), evictions=st.integers(0, 4), mutes=st.integers(0, 4)),
    agreement=st.floats(0.0, 1.0),
    max_tokens=st.integers(1, 60),
)
def test_any_interleaving_writes_the_target_text(
    seed: int, strategy: Strategy, faults: Faults, agreement: float, max_tokens: int
) -> None:
    World(seed, strategy, faults, agreement=agreement, max_tokens=max_tokens).play()


def test_every_strategy_and_fault_writes_the_target_text() -> None:
    play_all(num_seeds=4)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_every_strategy_and_fault_over_many_seeds() -> None:
    play_all(num_seeds=100)


# -- mutants: one rule less each -----------------------------------------------------------------------------------


class WaitNotEndedByEpoch(EdgeSession):
    """Rule 1 without "or the epoch rises"."""

    def _raise_epoch(self) -> None:
        asked = list(self.asked)
        super()._raise_epoch()
        self.uplink.asked = asked


class WaitNotEndedByLength(EdgeSession):
    """Rule 1 without "when the committed length passes the flagged position"."""

    def _end_waits(self, new_length: int) -> None:
        pass


class NoForcedAsk(EdgeSession):
    """Rule 2: no verdict is asked for at the cap, the budget or the end of sequence."""

    def _upload(self, now_s: float, due: bool) -> list[EdgeCommand]:
        return super()._upload(now_s, self.tail.fired)


class EpochsLiveOn(PendingTail):
    def is_dead(self, epoch: int) -> bool:
        return False


class NoDeadEpoch(CloudSession):
    """Rule 3: a mismatch clears the pending tail, but its epoch lives on."""

    def _reset_incarnation(self) -> None:
        super()._reset_incarnation()
        self.pending = EpochsLiveOn()


class UploadGoesOnAfterResume(EdgeSession):
    """Rule 4: after `Resumed` and a new epoch, ids start where the upload stopped."""

    def _forget_uploads(self) -> None:
        num_sent = self.tail.num_sent
        super()._forget_uploads()
        self.tail.num_sent = min(num_sent, len(self.tail))


class GapIgnored(EdgeSession):
    """Rule 5: a commit that leaves a gap is ignored, and nothing more."""

    def _on_commit(self, message: Commit, now_s: float) -> list[EdgeCommand]:
        return [] if message.position > self.length else super()._on_commit(message, now_s)


class EvictionNotTold(CloudSession):
    """Rule 6: an evicted session ends in silence."""

    def _send_error(self, *args: Any, **kwargs: Any) -> list[Any]:
        return []


class NeverResumesBySilence(EdgeSession):
    """Rule 6: an edge that hears nothing waits for ever."""

    def _on_timer(self) -> list[EdgeCommand]:
        return []


class QueueOutlivesConnection(CloudSession):
    """Rule 7: a disconnect leaves the pending tail and the queued pass."""

    def _on_connection_lost(self, connection: int) -> list[Any]:
        self.connection = None
        return []


class WritesOnWithoutBound(CloudSession):
    """Rule 8: the target writes on however far the edge is behind."""

    def _may_write_on(self, assist: Assist) -> bool:
        return assist is Assist.ALWAYS


class VerifyNotAnswered(CloudSession):
    """Rule 1: a verify with nothing left to judge gets no answer."""

    def _commit(self, position: int, token_ids: Any, *args: Any, **kwargs: Any) -> list[Any]:
        return super()._commit(position, token_ids, *args, **kwargs) if token_ids else []


class CommitsBeforeResumed(CloudSession):
    """Rule 5: what the edge missed is sent before its resume is answered."""

    def _on_resume(self, message: Resume, connection: int) -> list[Any]:
        return super()._on_resume(message, connection)[::-1]


@pytest.mark.parametrize(
    "mutant",
    [
        WaitNotEndedByEpoch,
        WaitNotEndedByLength,
        NoForcedAsk,
        NoDeadEpoch,
        UploadGoesOnAfterResume,
        GapIgnored,
        CommitsBeforeResumed,
        EvictionNotTold,
        NeverResumesBySilence,
        QueueOutlivesConnection,
        WritesOnWithoutBound,
        VerifyNotAnswered,
    ],
)
def test_a_missing_rule_is_found(mutant: type) -> None:
    side = "edge_class" if issubclass(mutant, EdgeSession) else "cloud_class"
    with pytest.raises((StuckError, WrongError)):
        play_all(num_seeds=4, **{side: mutant})


def test_every_round_commits_its_accepted_tokens_and_the_next_one() -> None:
    world = World(7, vanilla(4), Faults(), max_tokens=60)
    world.play()

    *rounds, last = world.edge.rounds

    assert len(rounds) + 1 == world.edge.counters.num_rounds == world.edge.counters.num_target_passes
    assert [record.num_committed for record in rounds] == [record.num_accepted + 1 for record in rounds]
    assert last.num_committed in (last.num_accepted, last.num_accepted + 1)
