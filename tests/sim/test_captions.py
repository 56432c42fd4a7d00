"""Texts that the edge owns, in virtual time: the same captions and counts as without any time at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgedraft.core.block_length import BlockLengths
from edgedraft.core.events import RunPass
from edgedraft.core.gate import Chance, Everything, Gate, Measure, Nothing, SendUnit, Threshold
from edgedraft.core.sampling import draft_token
from edgedraft.core.strategy import Strategy
from edgedraft.core.verify import Verdict, verify
from edgedraft.metrics.derive import check_round
from edgedraft.metrics.records import Counters
from edgedraft.schedule.caption_catalogue import gated
from edgedraft.schedule.catalogue import cloud_only
from edgedraft.sim import (
    EdgeProfile,
    LinkDirection,
    LinkProfile,
    SimulatedAnswer,
    SimulatedEdge,
    TargetProfile,
    simulate,
)
from edgedraft.sim.timeline import Lane
from edgedraft.speech_features import SpeechFeatures
from edgedraft.testing.gated_world import (
    EOS,
    FEATURES,
    GREEDY,
    NUM_IDS,
    PROMPT,
    GatedWorld,
    Model,
    target_only,
    toy,
)
from edgedraft.types import DraftToken, Rule, TokenKind

MAX_TOKENS = 30
EDGE = EdgeProfile(draft_s=0.02)
TARGET = TargetProfile(step_s=0.004, per_draft_s=0.001)
LINK = LinkProfile.symmetric(rtt_s=0.05)
DOUBTFUL = Threshold(Measure.MAX_PROBABILITY, 0.6)


@dataclasses.dataclass(frozen=True)
class ToyModels:
    """`TextModels` of two toys."""

    draft: Model
    target: Model
    id: str = "toy"
    eos_ids: frozenset[int] = frozenset({EOS})
    max_tokens: int | None = None
    prompt_ids: Sequence[int] = PROMPT
    num_prompt: int = len(PROMPT)
    features: SpeechFeatures | None = FEATURES

    def draft_token(self, position: int, held: Sequence[int], took_s: float) -> DraftToken:
        assert len(held) == position
        token = draft_token(self.draft(held), GREEDY, position, num_ids=NUM_IDS, rule=Rule.RANK, with_second=True)
        assert token is not None
        return dataclasses.replace(token, draft_s=took_s)

    def verdict(self, log: Sequence[int], command: RunPass) -> Verdict:
        assert len(log) == command.position
        ids = [*log, *command.draft_ids]
        rows = np.stack([self.target(ids[: len(log) + row]) for row in range(len(command.draft_ids) + 1)])
        return verify(
            rows,
            command.draft_ids,
            command.sampling,
            position=command.position,
            num_ids=NUM_IDS,
            rule=command.rule,
            rank=command.rank,
            judged=command.judged,
            bonus=command.bonus,
        )

    def check(self, token_ids: Sequence[int], strategy: Strategy) -> None:
        pass


def pair(seed: int) -> ToyModels:
    return ToyModels(toy(seed, shared=seed + 1000), toy(seed + 5000, shared=seed + 1000))


def caption(
    strategy: Strategy, models: ToyModels, network: LinkProfile = LINK, profile: EdgeProfile = EDGE
) -> SimulatedAnswer:
    edge = SimulatedEdge(texts=[models], strategy=strategy, profile=profile, network=network, max_tokens=MAX_TOKENS)
    (answer,) = simulate([edge], TARGET, seed=1, keep_spans=True)
    return answer


def counts(counters: Counters) -> dict[str, int]:
    """Those that do not depend on how far the edge had drafted ahead when it heard."""
    return {
        name: getattr(counters, name)
        for name in ("num_gated", "num_judged", "num_local", "num_accepted", "num_rounds", "num_rollbacks")
    } | {"tokens_up": counters.tokens_up, "num_committed": counters.num_committed}


gates = st.sampled_from(
    [
        Threshold(Measure.ENTROPY, 1.0),
        DOUBTFUL,
        Threshold(Measure.MARGIN, 0.5),
        Chance(0.3),
        Everything(),
        Nothing(),
    ]
)
lengths = st.sampled_from([BlockLengths(), BlockLengths.fixed(1), BlockLengths.fixed(5)])


@settings(max_examples=60, deadline=None)
@given(
    gate=gates,
    unit=st.sampled_from(SendUnit),
    lengths=lengths,
    rank=st.sampled_from([1, 3]),
    bonus=st.booleans(),
    ahead=st.booleans(),
    rtt_s=st.sampled_from([0.0, 0.03, 0.4]),
    seed=st.integers(0, 30),
)
def test_captions_are_those_of_a_world_without_time(
    gate: Gate, unit: SendUnit, lengths: BlockLengths, rank: int, bonus: bool, ahead: bool, rtt_s: float, seed: int
) -> None:
    strategy = gated("any", gate, unit=unit, rank=rank, lengths=lengths, bonus=bonus, draft_ahead=ahead)
    models = pair(seed)
    world = GatedWorld(strategy, models.draft, models.target, max_tokens=MAX_TOKENS).run()
    answer = caption(strategy, models, LinkProfile.symmetric(rtt_s=rtt_s))
    assert list(answer.token_ids) == world.text
    assert list(answer.tokens) == world.tokens  # kinds and entropies too
    assert counts(answer.record.counters) == counts(world.edge.counters)
    for each in answer.record.rounds:
        check_round(each)


@pytest.mark.parametrize("seed", range(5))
def test_exact_says_what_the_target_says_alone(seed: int) -> None:
    models = pair(seed)
    alone = caption(cloud_only(), models)
    exact = caption(gated("exact", Everything()), models)
    assert list(exact.token_ids) == list(alone.token_ids) == target_only(models.target)
    assert {token.kind for token in alone.tokens} == {TokenKind.OWN}
    assert alone.num_opens == exact.num_opens == 1


def test_nothing_leaves_where_nothing_is_doubted() -> None:
    answer = caption(gated("edge-only", Nothing()), pair(1))
    assert (answer.record.bytes_up, answer.record.bytes_down, answer.num_opens) == (0, 0, 0)
    assert answer.record.total_s == pytest.approx(EDGE.draft_s * len(answer.token_ids))
    assert {token.kind for token in answer.tokens} == {TokenKind.LOCAL}


def test_features_leave_once_with_the_first_question() -> None:
    answer = caption(gated("sparse", DOUBTFUL, unit=SendUnit.TOKENS), pair(3))
    assert answer.record.counters.num_rounds > 1
    assert answer.num_opens == 1
    features = FEATURES.num_bytes
    assert features < answer.record.bytes_up < 2 * features


def test_drafting_ahead_hides_the_link_and_changes_no_word() -> None:
    far = LinkProfile.symmetric(rtt_s=0.2)
    models = pair(3)
    waiting, ahead = (
        caption(gated("sparse", DOUBTFUL, unit=SendUnit.TOKENS, draft_ahead=on), models, far) for on in (False, True)
    )
    assert ahead.token_ids == waiting.token_ids
    assert ahead.record.total_s < waiting.record.total_s
    alone_s = EDGE.draft_s * len(waiting.token_ids)
    assert waiting.record.total_s > alone_s + 0.2 * waiting.record.counters.num_rounds - 1e-9


def test_recording_is_heard_before_the_first_step_and_the_first_pass() -> None:
    models = pair(3)
    strategy = gated("exact", Everything())
    quick = caption(strategy, models)
    slow = EdgeProfile(draft_s=EDGE.draft_s, listen_s_per_s=0.5)
    slow_edge = caption(strategy, models, profile=slow)
    heard_s = 0.5 * FEATURES.seconds
    assert slow_edge.record.first_token_s == pytest.approx((quick.record.first_token_s or 0) + heard_s)
    edge = SimulatedEdge(texts=[models], strategy=strategy, profile=EDGE, network=LINK, max_tokens=MAX_TOKENS)
    deaf = dataclasses.replace(TARGET, listen_s_per_s=0.5)
    (slow_cloud,) = simulate([edge], deaf, seed=1)
    assert slow_cloud.record.first_token_s == pytest.approx((quick.record.first_token_s or 0) + heard_s)
    assert slow_cloud.record.total_s > quick.record.total_s + 0.9 * heard_s


def test_long_features_take_their_time_on_a_thin_link() -> None:
    models = pair(3)
    up = LinkDirection(delay_s=0.025, bytes_per_s=2_000.0)
    thin = caption(gated("exact", Everything()), models, LinkProfile(up=up, down=LINK.down))
    opening = [span for span in thin.spans if span.lane is Lane.UPLOAD and span.num_tokens == 0]
    assert opening[-2 if len(opening) > 2 else -1].end_s > FEATURES.num_bytes / 2_000.0
    assert list(thin.token_ids) == target_only(models.target)


@pytest.mark.parametrize("rate_bytes_per_s", [600, 1000, 2000, 4000])
@pytest.mark.parametrize("seed", range(4))
def test_a_link_slower_than_the_edge_s_patience_changes_nothing(rate_bytes_per_s: float, seed: int) -> None:
    """The cloud is not asked what has become of a session whose features are still on their way."""
    models = pair(seed)
    edge = SimulatedEdge(
        texts=[models],
        strategy=gated("exact", Everything()),
        profile=EDGE,
        network=LinkProfile(up=LinkDirection(bytes_per_s=rate_bytes_per_s)),
        max_tokens=MAX_TOKENS,
        silence_s=0.3,
    )
    (answer,) = simulate([edge], TARGET, seed=1)
    assert list(answer.token_ids) == target_only(models.target)
    assert answer.record.counters.num_reopens == 0
