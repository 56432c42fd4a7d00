"""Whole simulations: times against closed forms, texts against the recording, the same dice the same answers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgedraft.core.events import (
    EdgeCommand,
    EdgeEvent,
    MessageReceived,
    Start,
    StrategyChanged,
    TimerFired,
    TokenDrafted,
)
from edgedraft.core.hedging import Hedging
from edgedraft.core.strategy import Strategy, UploadImmediately, UploadPolicy, UploadWhole
from edgedraft.core.triggers import FixedLength, TokenConfidence
from edgedraft.core.verify import Verdict
from edgedraft.errors import EdgedraftError, InvalidRequestError, UnsupportedError
from edgedraft.metrics.derive import check_round
from edgedraft.protocol.codec import encode, wire_size_bytes
from edgedraft.protocol.messages import Commit, CommitKind, Draft, Timings
from edgedraft.schedule.catalogue import strategy_named
from edgedraft.schedule.link import LinkCost
from edgedraft.schedule.uploads import UploadPlanned, UploadWhenFree
from edgedraft.sim import (
    IDS,
    PAPER,
    EdgeProfile,
    Lane,
    LinkDirection,
    LinkProfile,
    SimulatedAnswer,
    SimulatedEdge,
    TargetProfile,
    simulate,
)
from edgedraft.sim.recorded import Recording
from edgedraft.types import Assist, FinishReason, Rule

from .conftest import EOS_ID, recorded_text

DRAFT_S, STEP_S, RTT_S = 0.02, 0.03, 0.1
EDGE = EdgeProfile(draft_s=DRAFT_S)
TARGET = TargetProfile(step_s=STEP_S)
LINK = LinkProfile.symmetric(rtt_s=RTT_S)
ENDS = frozenset({EOS_ID})


def ask(strategy: Strategy, **edge: object) -> SimulatedAnswer:
    """One edge, one text."""
    wanted: dict[str, object] = {"texts": [recorded_text()], "profile": EDGE, "network": LINK, **edge}
    (answer,) = simulate([SimulatedEdge(strategy=strategy, **wanted)], TARGET, seed=1, keep_spans=True)  # type: ignore[arg-type]
    return answer


def vanilla(draft_length: int) -> Strategy:
    return strategy_named("vanilla", draft_length=draft_length)


# -- closed forms ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [(), (3,), (0, 1, 9, 17, 30), tuple(range(40))])
def test_stop_and_wait_takes_drafts_a_round_trip_and_a_pass(wrong: tuple[int, ...]) -> None:
    answer = ask(vanilla(6), texts=[recorded_text(wrong=wrong)])
    first, *later = answer.record.rounds
    assert first.round_s == pytest.approx(max(6 * DRAFT_S, RTT_S) + RTT_S + STEP_S, abs=1e-9)
    assert len(later) > 4
    for each in later:
        assert each.round_s == pytest.approx(each.num_drafted * DRAFT_S + RTT_S + STEP_S, abs=1e-9)
        assert each.verify_s == pytest.approx(STEP_S, abs=1e-6)
        check_round(each)
    assert answer.record.total_s == pytest.approx(sum(each.round_s for each in answer.record.rounds), abs=1e-9)
    assert answer.record.counters.num_rollbacks == sum(each.num_accepted < each.num_drafted for each in [first, *later])


def test_cloud_only_is_a_round_trip_and_a_pass_a_token() -> None:
    answer = ask(strategy_named("cloud-only"))
    expected = [RTT_S + STEP_S * (count + 1) for count in range(40)]
    assert answer.token_times_s == pytest.approx(expected, abs=1e-9)
    assert answer.record.first_token_s == answer.token_times_s[0]
    assert answer.record.total_s == answer.token_times_s[-1]
    assert answer.target_busy_s == pytest.approx(40 * STEP_S)


def test_edge_alone_writes_its_own_text_at_its_own_pace() -> None:
    text = recorded_text(wrong=[4, 7])
    answer = ask(strategy_named("edge-only"), texts=[text])
    assert tuple(answer.token_ids) == text.draft_ids
    assert answer.record.total_s == pytest.approx(40 * DRAFT_S)
    assert (answer.record.bytes_up, answer.timeline.passes) == (0, [])


def test_each_way_has_its_own_link() -> None:
    up = LinkDirection(delay_s=0.2, startup_s=0.05, bytes_per_s=1000)
    down = LinkDirection(delay_s=0.01, bytes_per_s=500)
    answer = ask(vanilla(3), network=LinkProfile(up=up, down=down))
    before, round_ = answer.record.rounds[2:4]
    length = 5 + sum(each.num_committed for each in answer.record.rounds[:3])
    draft = Draft(
        channel=0,
        incarnation=1,
        epoch=0,
        position=length,
        token_ids=[300 + length - 5 + count for count in range(3)],
        verify=True,
        committed_length=length,
    )
    up_s = 0.05 + wire_size_bytes(len(encode(draft)), masked=True) / 1000 + 0.2
    arrived_us = round(1e6 * (round_.started_s + 3 * DRAFT_S + up_s - first_arrival_s(answer, up)))
    commit = Commit(
        channel=0,
        incarnation=1,
        epoch=0,
        position=length,
        token_ids=[300 + length - 5 + count for count in range(4)],
        kind=CommitKind.BONUS,
        num_judged=3,
        num_accepted=3,
        timings=Timings(0, 30_000, 30_000, arrived_us, length + 3),
    )
    down_s = wire_size_bytes(len(encode(commit)), masked=False) / 500 + 0.01
    assert round_.started_s == pytest.approx(before.started_s + before.round_s)
    assert round_.round_s == pytest.approx(3 * DRAFT_S + up_s + STEP_S + down_s, abs=1e-9)
    assert round_.upload_s == pytest.approx(up_s - 0.2, abs=1e-9)


def first_arrival_s(answer: SimulatedAnswer, up: LinkDirection) -> float:
    """When the cloud had the first draft."""
    return next(span.end_s for span in answer.spans if span.lane is Lane.UPLOAD and span.num_tokens)


def test_bandwidth_that_drops_slows_what_comes_after() -> None:
    def link(*changes: tuple[float, float]) -> LinkProfile:
        return LinkProfile(up=LinkDirection(bytes_per_s=5e6, changes=changes))

    steady = ask(vanilla(4), network=link(), payload=PAPER)
    dropped = ask(vanilla(4), network=link((1.0, 1e6)), payload=PAPER)
    early = [each.round_s for each in steady.record.rounds if each.started_s + each.round_s < 1.0]
    assert len(early) >= 2
    assert [each.round_s for each in dropped.record.rounds[: len(early)]] == pytest.approx(early)
    last = dropped.record.rounds[-2]
    assert last.upload_s == pytest.approx(4 * PAPER.token_payload_bytes / 1e6, rel=1e-3)


def test_stalls_delay_and_change_nothing() -> None:
    stalled = LinkProfile(up=LINK.up, down=LINK.down, stall_interval_s=2.0, stall_s=3.0)
    answer = ask(vanilla(4), network=stalled)
    calm = ask(vanilla(4))
    assert answer.record.total_s > calm.record.total_s + 2.0
    assert answer.record.counters.num_resumes > 0, "a silence of seconds is asked about"
    assert answer.token_ids == calm.token_ids


# -- edges and texts -------------------------------------------------------------------------------------------------


def test_texts_follow_one_another() -> None:
    texts = [recorded_text(name="one"), recorded_text(name="two", num_tokens=9, ends=True)]
    edge = SimulatedEdge(texts=texts, strategy=vanilla(4), profile=EDGE, network=LINK, eos_ids=ENDS, start_s=2.5)
    one, two = simulate([edge], TARGET, seed=1)
    assert one.timeline.started_s == 2.5
    assert two.timeline.started_s == pytest.approx(2.5 + one.record.total_s)
    assert [answer.text for answer in (one, two)] == texts
    assert [answer.finish_reason for answer in (one, two)] == [FinishReason.LENGTH, FinishReason.STOP]
    alone = ask(vanilla(4), texts=texts[1:], eos_ids=ENDS)
    assert two.record.total_s == pytest.approx(alone.record.total_s)
    assert one.spans == (), "not kept unless asked for"


def test_edges_queue_for_one_target_and_share_a_pass_that_holds_them() -> None:
    edges = [
        SimulatedEdge(texts=[recorded_text(name=f"{number}")], strategy=vanilla(4), profile=EDGE, network=LINK)
        for number in range(3)
    ]
    alone, *_ = simulate(edges[:1], TARGET, seed=1)
    queued = simulate(edges, TARGET, seed=1)
    shared = simulate(edges, TARGET, seed=1, max_batch_sessions=3)
    assert [answer.edge_number for answer in queued] == [0, 1, 2]
    waited_s = [sum(each.queue_s for each in answer.record.rounds) for answer in queued]
    assert waited_s == pytest.approx([0.0, STEP_S, 2 * STEP_S], abs=1e-6)  # all ask at once; then they are apart
    assert max(answer.record.total_s for answer in queued) > alone.record.total_s + STEP_S
    busy = sorted((each.start_s, each.end_s) for answer in queued for each in answer.timeline.passes)
    assert all(end_s <= start_s + 1e-9 for (_, end_s), (start_s, _) in itertools.pairwise(busy)), "one pass at a time"
    # The first question finds the target idle and has it alone; the other two wait, and share the next pass.
    assert [answer.timeline.passes[1].num_sessions for answer in shared] == [1, 2, 2]
    waited_s = [sum(each.queue_s for each in answer.record.rounds[:1]) for answer in shared]
    assert waited_s == pytest.approx([0.0, STEP_S, STEP_S], abs=1e-6)
    assert sum(answer.target_busy_s for answer in shared) < sum(answer.target_busy_s for answer in queued)


def test_each_edge_has_its_own_link() -> None:
    far = LinkProfile.symmetric(rtt_s=1.0)
    edges = [
        SimulatedEdge(texts=[recorded_text()], strategy=vanilla(4), profile=EDGE, network=link) for link in (LINK, far)
    ]
    near_answer, far_answer = simulate(edges, TARGET, seed=1, max_batch_sessions=2)
    # One for each verdict: the first draft follows the opening at once.
    num_trips = len(near_answer.record.rounds)
    further_s = far_answer.record.total_s - near_answer.record.total_s
    assert further_s == pytest.approx((1.0 - RTT_S) * num_trips)


def test_same_seed_same_answers_and_another_seed_others() -> None:
    shaky = LinkProfile(up=LinkDirection(delay_s=0.05, jitter_s=0.02), down=LinkDirection(delay_s=0.05, jitter_s=0.02))
    edges = [
        SimulatedEdge(
            texts=[recorded_text(wrong=[5, 11])],
            strategy=strategy_named("pipesd"),
            profile=EdgeProfile(draft_s=DRAFT_S, draft_jitter=0.3),
            network=shaky,
        )
        for _ in range(2)
    ]
    one, again, other = (simulate(edges, TARGET, seed=seed, keep_spans=True) for seed in (3, 3, 4))
    assert one == again
    assert [answer.record.total_s for answer in one] != [answer.record.total_s for answer in other]
    unhurried = simulate(edges, TargetProfile(step_s=0.0), seed=3)
    assert unhurried[0].record.total_s != unhurried[1].record.total_s, "two edges have two links"


# -- what travels ----------------------------------------------------------------------------------------------------


def test_bytes_are_those_of_the_messages() -> None:
    answer = ask(vanilla(4), network=LinkProfile(up=LinkDirection(bytes_per_s=1e4), down=LINK.down))
    up_s = [span.end_s - span.start_s for span in answer.spans if span.lane is Lane.UPLOAD]
    assert answer.record.bytes_up == pytest.approx(sum(up_s) * 1e4)


def test_guess_of_the_next_token_travels_as_a_bare_id() -> None:
    """A perfect draft that is drafted ahead: in every round after the first one token was such a guess."""
    strategy = Strategy(
        name="ahead", trigger=FixedLength(4), upload=UploadImmediately(), draft_ahead_tokens=4, max_verdicts_out=1
    )
    ids, paper = (ask(strategy, payload=payload) for payload in (IDS, PAPER))
    assert paper.record.total_s == ids.record.total_s, "this link has no limit"
    extra, rest = divmod(paper.record.bytes_up - ids.record.bytes_up, PAPER.token_payload_bytes)
    num_guesses = paper.record.counters.num_rounds - 1
    assert num_guesses > 4
    assert (extra, rest) == (paper.record.counters.tokens_up - num_guesses, 0)


def test_drafts_that_a_rejection_made_worthless_leave_the_queue() -> None:
    strategy = Strategy(
        name="ahead", trigger=FixedLength(4), upload=UploadImmediately(), draft_ahead_tokens=20, max_verdicts_out=1
    )
    slow = LinkProfile(up=LinkDirection(bytes_per_s=2.5e6), down=LINK.down)
    answer = ask(strategy, texts=[recorded_text(wrong=range(3, 40, 4))], network=slow, payload=PAPER)
    counters = answer.record.counters
    assert counters.num_rollbacks > 4
    uploaded = sum(span.num_tokens for span in answer.spans if span.lane is Lane.UPLOAD)
    assert uploaded == counters.tokens_up < counters.num_drafted
    late_s = [
        span.start_s
        for span in answer.spans
        if span.lane is Lane.UPLOAD and span.num_tokens and span.start_s > answer.record.total_s
    ]
    assert late_s == []


def test_drafts_that_wait_when_the_answer_is_there_never_leave() -> None:
    """The target writes on by itself and is through long before the drafts are up."""
    slow = LinkProfile(up=LinkDirection(bytes_per_s=1e6), down=LINK.down)
    edge = SimulatedEdge(
        texts=[recorded_text(), recorded_text(name="next")],
        strategy=strategy_named("flow"),
        profile=EdgeProfile(draft_s=0.01),
        network=slow,
        payload=PAPER,
    )
    for answer in simulate([edge], TARGET, seed=1, keep_spans=True):
        starts_s = [span.start_s for span in answer.spans if span.lane is Lane.UPLOAD and span.num_tokens]
        assert starts_s
        assert max(starts_s) <= answer.record.total_s


# -- steering --------------------------------------------------------------------------------------------------------


class Watcher:
    """Notes what it is told, and asks for other numbers once the third verdict has come."""

    def __init__(self, change_to: Strategy | None = None) -> None:
        self.seen: list[tuple[EdgeEvent, float]] = []
        self.num_commits = 0
        self._change_to = change_to

    def observe(self, event: EdgeEvent, commands: Sequence[EdgeCommand], now_s: float) -> EdgeEvent | None:
        self.seen.append((event, now_s))
        if isinstance(event, MessageReceived) and isinstance(event.message, Commit):
            self.num_commits += 1
            if self.num_commits == 3 and self._change_to is not None:
                return StrategyChanged(self._change_to)
        return None


def test_steering_is_told_everything_in_order_and_kept_between_texts() -> None:
    watcher = Watcher()
    texts = [recorded_text(name="one"), recorded_text(name="two")]
    edge = SimulatedEdge(texts=texts, strategy=vanilla(4), profile=EDGE, network=LINK, steering=watcher)
    one, two = simulate([edge], TARGET, seed=1)
    starts = [index for index, (event, _) in enumerate(watcher.seen) if isinstance(event, Start)]
    assert len(starts) == 2
    for part, answer in ((watcher.seen[: starts[1]], one), (watcher.seen[starts[1] :], two)):
        times_s = [now_s for _, now_s in part]
        assert times_s == sorted(times_s)
        assert (times_s[0], times_s[-1]) == (0.0, answer.record.total_s)
        assert sum(isinstance(event, TokenDrafted) for event, _ in part) == answer.record.counters.num_drafted


def test_timer_that_was_stopped_does_not_fire() -> None:
    """Drafting takes longer here than any patience, but no answer is waited for meanwhile."""
    watcher = Watcher()
    answer = ask(vanilla(4), profile=EdgeProfile(draft_s=1.0), steering=watcher)
    assert answer.record.total_s > 30.0
    assert not any(isinstance(event, TimerFired) for event, _ in watcher.seen)


def test_steering_changes_the_strategy_of_the_running_request() -> None:
    answer = ask(vanilla(4), steering=Watcher(vanilla(9)))
    lengths = [each.num_drafted for each in answer.record.rounds]
    assert lengths[:3] == [4, 4, 4]
    assert max(lengths[3:]) == 9
    assert answer.strategy == vanilla(9)


def test_steering_may_end_and_begin_drafting() -> None:
    away = ask(vanilla(4), steering=Watcher(strategy_named("cloud-only")))
    assert away.strategy.name == "cloud-only"
    assert max(each.num_committed for each in away.record.rounds[4:]) == 1


# -- exact, whatever the strategy ------------------------------------------------------------------------------------

thresholds = st.floats(0.05, 0.99)
triggers = st.one_of(
    st.builds(FixedLength, st.integers(1, 9)),
    st.builds(TokenConfidence, thresholds),
    st.just(strategy_named("flow").trigger),
    st.builds(
        lambda token, sequence: strategy_named("pipesd", token_threshold=token, sequence_threshold=sequence).trigger,
        thresholds,
        thresholds,
    ),
    st.builds(lambda first: strategy_named("edgellm", sequence_threshold=first).trigger, thresholds),
)
uploads_without_holding: st.SearchStrategy[UploadPolicy] = st.one_of(
    st.just(UploadImmediately()),
    st.builds(UploadWhenFree, st.builds(LinkCost, st.sampled_from([0.0, 0.003, 0.2]), st.sampled_from([0.0, 0.01]))),
)
uploads: st.SearchStrategy[UploadPolicy] = st.one_of(
    uploads_without_holding,
    st.just(UploadWhole()),
    st.builds(UploadPlanned, st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)),
)
strategies = st.builds(
    Strategy,
    name=st.just("any"),
    uses_draft=st.just(True),
    trigger=triggers,
    upload=uploads,
    draft_ahead_tokens=st.sampled_from([0, 1, 5, 64]),
    max_verdicts_out=st.integers(1, 2),
    max_in_flight_tokens=st.sampled_from([1, 4, 32]),
    assist=st.sampled_from(Assist),
    eager=st.booleans(),
) | st.builds(
    Strategy,
    name=st.just("hedging"),
    trigger=triggers,
    upload=uploads_without_holding,
    draft_ahead_tokens=st.sampled_from([1, 64]),
    assist=st.sampled_from(Assist),
    eager=st.just(True),
    hedging=st.builds(Hedging, least_use=st.sampled_from([0.0, 0.02, 0.4])),
)
ways = st.builds(
    LinkDirection,
    delay_s=st.sampled_from([0.0, 0.02, 0.3]),
    jitter_s=st.sampled_from([0.0, 0.05]),
    startup_s=st.sampled_from([0.0, 0.025]),
    bytes_per_s=st.sampled_from([float("inf"), 2.5e6]),
    changes=st.sampled_from([(), ((0.4, 1e6), (1.0, 5e6))]),
)
links = st.builds(
    LinkProfile, up=ways, down=ways, stall_interval_s=st.sampled_from([float("inf"), 1.0]), stall_s=st.just(0.4)
)
texts = st.builds(
    recorded_text,
    num_tokens=st.integers(1, 40),
    wrong=st.sets(st.integers(0, 39)),
    num_prompt_tokens=st.integers(1, 9),
    ends=st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(
    texts=st.lists(texts, min_size=1, max_size=2),
    strategy=strategies,
    network=links,
    draft_s=st.sampled_from([0.0, 0.005, 0.05]),
    step_s=st.sampled_from([0.0, 0.03]),
    payload=st.sampled_from([IDS, PAPER]),
    max_tokens=st.integers(1, 50),
    num_edges=st.integers(1, 2),
    seed=st.integers(0, 9),
)
def test_text_is_the_targets_own_whatever_the_strategy_and_link(
    texts: list[object],
    strategy: Strategy,
    network: LinkProfile,
    draft_s: float,
    step_s: float,
    payload: object,
    max_tokens: int,
    num_edges: int,
    seed: int,
) -> None:
    edge = SimulatedEdge(
        texts=texts,  # type: ignore[arg-type]
        strategy=strategy,
        profile=EdgeProfile(draft_s=draft_s, draft_jitter=0.2),
        network=network,
        payload=payload,  # type: ignore[arg-type]
        max_tokens=max_tokens,
        eos_ids=ENDS,
    )
    answers = simulate([edge] * num_edges, TargetProfile(step_s=step_s, prefill_s_per_token=0.001), seed=seed)
    assert len(answers) == num_edges * len(texts)
    for answer in answers:
        assert answer.token_ids == answer.text.target_ids[:max_tokens]
        assert len(answer.token_times_s) == len(answer.token_ids)
        assert answer.token_times_s == sorted(answer.token_times_s)
        for each in answer.record.rounds:
            check_round(each)


def test_another_text_than_the_recorded_one_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Recording,
        "verdict",
        lambda recording, log, command: Verdict(len(command.draft_ids), 7, CommitKind.BONUS),
    )
    with pytest.raises(EdgedraftError, match="not the recorded one"):
        ask(vanilla(4))


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "wrong"),
    [("texts", {"texts": []}), ("max_tokens", {"max_tokens": 0}), ("start_s", {"start_s": -1.0})],
)
def test_bad_edge_names_the_field(field: str, wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError, match=f"^{field} is ") as caught:
        ask(vanilla(4), **wrong)
    assert caught.value.field == field


def test_what_cannot_be_simulated_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="cut_interval_s"):
        ask(vanilla(4), network=LinkProfile(cut_interval_s=5.0))
    with pytest.raises(UnsupportedError, match="rule is 'ratio'"):
        ask(strategy_named("vanilla", rule=Rule.RATIO))


def test_nothing_to_simulate_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"^edges is empty"):
        simulate([], TARGET, seed=1)
    edge = SimulatedEdge(texts=[recorded_text()], strategy=vanilla(4), profile=EDGE)
    with pytest.raises(InvalidRequestError, match=r"^max_batch_sessions is 0"):
        simulate([edge], TARGET, seed=1, max_batch_sessions=0)
