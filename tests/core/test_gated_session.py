"""UGSD's state machine against a plain loop that has no link, no epochs and no draft-ahead; then under faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import msgspec
import pytest

from edgedraft.core.block_length import BlockLengths
from edgedraft.core.events import (
    CancelRequested,
    DraftUnavailable,
    Fail,
    Finish,
    LinkDown,
    LinkUp,
    MessageReceived,
    SendToCloud,
    Start,
    StopStringFound,
    TokenDrafted,
    Uploaded,
)
from edgedraft.core.gate import Chance, Everything, Gate, Measure, Nothing, SendUnit, Threshold
from edgedraft.core.gating import Gating
from edgedraft.core.sampling import draft_token
from edgedraft.core.strategy import Strategy
from edgedraft.core.verify import rank_of
from edgedraft.errors import InvalidRequestError, LinkLostError, SessionLostError, UnsupportedError
from edgedraft.protocol.codec import error_to_wire
from edgedraft.protocol.messages import Cancel, Close, Commit, Draft, Error, Features, Open, Resume
from edgedraft.testing.gated_world import EOS, GREEDY, NUM_IDS, PROMPT, GatedWorld, Model, target_only, toy
from edgedraft.types import Assist, DraftToken, FinishReason, OnLinkLoss, Rule, TokenKind

DYNAMIC = BlockLengths()
MAX_TOKENS = 30
GATES: tuple[Gate, ...] = (
    Threshold(Measure.ENTROPY, 1.0),
    Threshold(Measure.MAX_PROBABILITY, 0.6),
    Threshold(Measure.MARGIN, 0.5),
    Chance(0.3),
    Everything(),
    Nothing(),
)


def gated(
    gate: Gate,
    unit: SendUnit = SendUnit.BLOCK,
    *,
    rank: int = 1,
    ahead: int = 0,
    lengths: BlockLengths = DYNAMIC,
    bonus: bool = False,
) -> Strategy:
    gating = Gating(gate=gate, unit=unit, lengths=lengths, bonus=bonus)
    return Strategy(name="ugsd", rule=Rule.RANK, rank=rank, draft_ahead_tokens=ahead, gating=gating)


def pair(seed: int) -> tuple[Model, Model]:
    return toy(seed, shared=seed + 1000), toy(seed + 5000, shared=seed + 1000)


def plain(draft: Model, target: Model, gate: Gate, unit: SendUnit, rank: int, *, bonus: bool = False) -> list[int]:
    """UGSD as its paper tells it (facts B2, readings B8), with the lengths 3, 5 and 7 spelled out."""
    text: list[int] = []
    length, streak = 5, 0
    while True:
        tokens: list[DraftToken] = []
        while len(tokens) < length and len(text) + len(tokens) < MAX_TOKENS:
            ids = [*PROMPT, *text, *(token.token_id for token in tokens)]
            token = draft_token(draft(ids), GREEDY, len(ids), num_ids=NUM_IDS, rule=Rule.RANK, with_second=True)
            assert token is not None
            tokens.append(token)
            if token.token_id == EOS:
                break
        start = len(PROMPT) + len(text)
        doubted = [offset for offset, token in enumerate(tokens) if gate.doubts(token, start + offset)]
        judged: Sequence[int] = ()
        if doubted:
            judged = {
                SendUnit.BLOCK: range(len(tokens)),
                SendUnit.FROM_FIRST: range(doubted[0], len(tokens)),
                SendUnit.TOKENS: doubted,
            }[unit]
        corrected = False
        for offset, token in enumerate(tokens):
            row = target([*PROMPT, *text])
            if offset in judged and rank_of(row, token.token_id) > rank:
                text.append(int(row.argmax()))
                corrected = True
                break
            text.append(token.token_id)
            if token.token_id == EOS or len(text) == MAX_TOKENS:
                break
        ended = text[-1] == EOS or len(text) == MAX_TOKENS
        if not ended and bonus and doubted and not corrected:
            text.append(int(target([*PROMPT, *text]).argmax()))
            ended = text[-1] == EOS or len(text) == MAX_TOKENS
        if ended:
            return text
        if corrected:
            length, streak = 3, 0
        else:
            streak += 1
            length = 7 if streak >= 2 else 5


@pytest.mark.parametrize("unit", list(SendUnit))
@pytest.mark.parametrize("gate", GATES, ids=lambda gate: type(gate).__name__ + str(getattr(gate, "measure", "")))
def test_the_text_is_that_of_the_plain_loop(gate: Gate, unit: SendUnit) -> None:
    for seed in range(8):
        draft, target = pair(seed)
        for rank in (1, 3):
            wanted = plain(draft, target, gate, unit, rank)
            for ahead in (0, 3, 64):
                strategy = gated(gate, unit, rank=rank, ahead=ahead)
                world = GatedWorld(strategy, draft, target, rng=Random(seed)).run()
                assert world.text == wanted, (seed, rank, ahead)
                assert isinstance(world.end, Finish)
                assert not world.edge.went_local


@pytest.mark.parametrize("unit", list(SendUnit))
def test_everything_judged_with_rank_one_is_the_target_s_own_text(unit: SendUnit) -> None:
    for seed in range(40):
        draft, target = pair(seed)
        world = GatedWorld(gated(Everything(), unit, ahead=64), draft, target, rng=Random(seed)).run()
        assert world.text == target_only(target)


def test_nothing_doubted_sends_nothing_and_calls_nobody() -> None:
    draft, target = pair(1)
    world = GatedWorld(gated(Nothing(), ahead=64), draft, target).run()
    assert world.text == target_only(draft)
    assert not world.sent
    assert not world.wants_link
    assert {token.kind for token in world.tokens} == {TokenKind.LOCAL}


def test_draft_ahead_changes_no_count_that_is_reported() -> None:
    names = ("num_gated", "num_judged", "num_accepted", "num_local", "num_rollbacks", "num_rounds", "tokens_up")
    for seed in range(20):
        draft, target = pair(seed)
        strategy = gated(Threshold(Measure.ENTROPY, 1.0), SendUnit.TOKENS)
        alone = GatedWorld(strategy, draft, target).run().edge.counters
        ahead = (
            GatedWorld(replace(strategy, draft_ahead_tokens=64), draft, target, rng=Random(seed)).run().edge.counters
        )
        assert [getattr(alone, name) for name in names] == [getattr(ahead, name) for name in names]


def test_the_features_go_once_before_the_first_question_and_only_new_ids_follow() -> None:
    seen = 0
    for seed in range(20):
        draft, target = pair(seed)
        world = GatedWorld(gated(Threshold(Measure.ENTROPY, 1.3), ahead=64), draft, target).run()
        kinds = [type(message) for message in world.sent]
        assert kinds[:2] in ([], [Open, Features])
        assert kinds.count(Features) == kinds.count(Open) == bool(kinds)
        drafts = [message for message in world.sent if isinstance(message, Draft)]
        opened = [message for message in world.sent if isinstance(message, Open)]
        if not drafts:
            continue
        seen += 1
        assert drafts[0].position == opened[0].num_prompt + opened[0].num_committed
        for before, after in pairwise(drafts):
            end = before.position + len(before.token_ids)
            assert after.position <= end if after.epoch > before.epoch else after.position == end
            assert after.position <= after.committed_length or after.position == end
    assert seen > 10


def test_sparse_questions_end_at_the_last_doubted_token_and_name_the_doubted_ones() -> None:
    gate = Threshold(Measure.MAX_PROBABILITY, 0.5)
    found = 0
    for seed in range(20):
        draft, target = pair(seed)
        world = GatedWorld(gated(gate, SendUnit.TOKENS, lengths=BlockLengths.fixed(5)), draft, target).run()
        for message in world.sent:
            if isinstance(message, Draft) and message.judged is not None:
                found += 1
                assert message.judged[-1] == len(message.token_ids) - 1
        assert world.edge.counters.num_judged == world.judged_ids
    assert found > 20


def test_kinds_say_who_decided() -> None:
    draft, target = pair(3)
    world = GatedWorld(gated(Threshold(Measure.ENTROPY, 1.0), SendUnit.TOKENS, ahead=64), draft, target).run()
    counters = world.edge.counters
    kinds = [token.kind for token in world.tokens]
    assert kinds.count(TokenKind.RECOVERED) == counters.num_rollbacks > 0
    assert kinds.count(TokenKind.ACCEPTED) == counters.num_accepted > 0
    assert kinds.count(TokenKind.LOCAL) == counters.num_local > 0
    assert counters.num_judged >= counters.num_accepted + counters.num_rollbacks
    assert all(token.entropy is not None for token in world.tokens)


def test_a_bonus_token_follows_a_block_that_was_kept() -> None:
    for seed in range(30):
        draft, target = pair(seed)
        for gate in (Everything(), Threshold(Measure.ENTROPY, 1.2)):
            world = GatedWorld(gated(gate, bonus=True), draft, target, rng=Random(seed)).run()
            assert world.text == plain(draft, target, gate, SendUnit.BLOCK, 1, bonus=True)
    draft, target = pair(2)
    world = GatedWorld(gated(Everything(), bonus=True, rank=NUM_IDS), draft, target).run()
    assert TokenKind.BONUS in {token.kind for token in world.tokens}
    assert [message.bonus for message in world.sent if isinstance(message, Open)] == [True]


# -- faults --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", list(SendUnit))
def test_an_edge_that_waits_for_its_link_writes_what_it_would_have_written(unit: SendUnit) -> None:
    num_resumes = 0
    for seed in range(40):
        draft, target = pair(seed)
        gate = Threshold(Measure.ENTROPY, 0.8)
        world = GatedWorld(
            gated(gate, unit, ahead=64 * (seed % 2)), draft, target, on_link_loss=OnLinkLoss.WAIT, rng=Random(seed)
        ).run(may_cut=True)
        assert world.text == plain(draft, target, gate, unit, 1)
        num_resumes += world.edge.counters.num_resumes
    assert num_resumes > 10


@pytest.mark.parametrize("unit", list(SendUnit))
def test_an_edge_that_may_go_on_alone_does_so_and_comes_back(unit: SendUnit) -> None:
    unverified = came_back = 0
    for seed in range(60):
        draft, target = pair(seed)
        world = GatedWorld(gated(Everything(), unit, ahead=64 * (seed % 2)), draft, target, rng=Random(seed))
        world.run(may_cut=True)
        counters = world.edge.counters
        assert isinstance(world.end, Finish)
        assert world.edge.went_local == (counters.num_unverified > 0) == bool(world.notices)
        kinds = [token.kind for token in world.tokens]
        assert kinds.count(TokenKind.LOCAL) == counters.num_unverified
        unverified += counters.num_unverified > 0
        after_first_gap = kinds[kinds.index(TokenKind.LOCAL) :] if counters.num_unverified else []
        came_back += any(kind is not TokenKind.LOCAL for kind in after_first_gap)
        if not counters.num_unverified:
            assert world.text == target_only(target)
    assert unverified > 5
    assert came_back > 5


def test_a_cloud_that_never_answers_is_given_up() -> None:
    draft, target = pair(4)
    world = GatedWorld(gated(Everything(), ahead=64), draft, target)
    world.feed(Start())
    for _ in range(300):
        if world.end is not None:
            break
        world.up.clear()  # it hears nothing
        found = [choice for choice in world.choices() if choice.__name__ in ("draft_step", "connect", "upload")]
        if found:
            found[0]()
        else:
            world.fire_timer()
    assert isinstance(world.end, Finish)
    assert world.text == target_only(draft)
    assert world.edge.went_local
    assert world.num_sent(Resume) >= 2


def test_what_a_verdict_settled_is_claimed_after_a_cut_and_not_sent_again() -> None:
    draft, target = pair(4)
    world = GatedWorld(gated(Everything(), ahead=64), draft, target, on_link_loss=OnLinkLoss.WAIT)
    world.feed(Start())
    while len(world.tokens) < 8:
        world.choices()[0]()
    length = world.edge.length
    world.cut()
    world.connect()
    while not isinstance(world.sent[-1], Draft) or world.edge.counters.num_resumes == 0:
        world.choices()[0]()
    (resume,) = [message for message in world.sent if isinstance(message, Resume)]
    assert resume.committed_length == length
    assert world.sent[-1].position == length
    assert world.num_sent(Features) == 1


def test_an_edge_that_is_to_fail_fails() -> None:
    draft, target = pair(4)
    world = GatedWorld(gated(Everything()), draft, target, on_link_loss=OnLinkLoss.FAIL)
    world.feed(Start())
    while not world.up:
        world.choices()[0]()
    world.cut()
    assert isinstance(world.end, Fail)
    assert isinstance(world.end.error, LinkLostError)


def live_world(on_link_loss: OnLinkLoss = OnLinkLoss.LOCAL) -> GatedWorld:
    """With a question out."""
    draft, target = pair(4)
    world = GatedWorld(gated(Everything()), draft, target, on_link_loss=on_link_loss)
    world.feed(Start())
    while not any(isinstance(message, Draft) for message in world.up):
        world.choices()[0]()
    return world


def heard(world: GatedWorld, error: Exception) -> None:
    world.feed(MessageReceived(error_to_wire(error, 1, world.edge.incarnation)))  # type: ignore[arg-type]


def test_a_lost_session_is_opened_again_with_its_features() -> None:
    world = live_world()
    world.new_cloud()
    world.up.clear()
    heard(world, SessionLostError("evicted"))
    for _ in range(2000):
        if world.end is not None:
            break
        world.choices()[0]()
    assert world.text == target_only(world.target)
    assert world.num_sent(Features) == world.num_sent(Open) == 2
    assert world.edge.counters.num_reopens == 1


def test_what_the_cloud_refuses_for_good_ends_the_request() -> None:
    for on_link_loss in OnLinkLoss:
        world = live_world(on_link_loss)
        heard(world, UnsupportedError("features are of another encoder.", field="features"))
        assert isinstance(world.end, Fail)
        assert isinstance(world.end.error, UnsupportedError | InvalidRequestError)


def test_a_cloud_without_room_is_asked_again_later_or_done_without() -> None:
    full = Error(channel=1, incarnation=1, code="saturated", message="full", retryable=True, retry_after_s=0.5)
    alone = live_world()
    alone.feed(MessageReceived(full))
    assert alone.edge.went_local
    assert "did not take this on (full): from there on" in alone.notices[0]
    waiting = live_world(OnLinkLoss.WAIT)
    waiting.up.clear()
    waiting.new_cloud()
    waiting.feed(MessageReceived(full))
    assert waiting.timer_s is not None
    assert waiting.timer_s - waiting.now_s == pytest.approx(0.5, abs=0.01)
    waiting.fire_timer()
    assert waiting.num_sent(Open) == 2


def test_cancelling_frees_the_session_and_stop_strings_end_the_text() -> None:
    world = live_world()
    world.feed(CancelRequested())
    assert world.end == Finish(FinishReason.CANCELLED)
    assert isinstance(world.sent[-1], Cancel)
    stopped = live_world()
    stopped.feed(StopStringFound(len(PROMPT) + 1))
    assert stopped.end == Finish(FinishReason.STOP)
    assert isinstance(stopped.sent[-1], Close)
    assert stopped.edge.counters.num_committed == 1


def test_a_draft_that_fails_ends_the_caption_where_it_is() -> None:
    world = live_world()
    world.feed(DraftUnavailable("the context of the draft model is full"))
    assert isinstance(world.end, Fail)
    draft, target = pair(4)
    begun = GatedWorld(gated(Nothing()), draft, target)
    begun.feed(Start())
    while not begun.tokens:
        begun.draft_step()
    begun.feed(DraftUnavailable("the context of the draft model is full"))
    assert begun.end == Finish(FinishReason.LENGTH)


def test_an_unlucky_cut_leaves_no_verdict_on_ids_that_were_taken_back() -> None:
    """The edge goes on alone past its question; when the link is back the cloud may still be busy with it."""
    world = live_world()
    world.up.clear()
    world.cut()
    assert world.edge.went_local
    alone = world.text
    world.connect()
    for _ in range(2000):
        if world.end is not None:
            break
        world.choices()[0]()
    assert isinstance(world.end, Finish)
    assert alone
    assert world.text[: len(alone)] == alone
    assert list(world.cloud.log) == [*PROMPT, *world.text][: len(world.cloud.log)]


@pytest.mark.parametrize("unit", list(SendUnit))
def test_every_token_is_counted_once_where_the_text_ends_without_the_cloud(unit: SendUnit) -> None:
    """What is settled is all that was committed, since nothing was corrected; and nothing of it was judged."""
    for seed in range(20):
        draft, target = pair(seed)
        world = GatedWorld(gated(Threshold(Measure.ENTROPY, 0.8), unit), draft, target, rng=Random(seed))
        world.feed(Start())
        world.feed(LinkDown())
        while world.end is None:
            world.draft_step()
        counters = world.edge.counters
        assert counters.num_gated == counters.num_local == counters.num_committed == len(world.tokens)
        assert counters.num_judged == 0
        assert counters.num_unverified > 0


# -- what a strategy may not be --------------------------------------------------------------------------------------


def test_combinations_that_are_refused() -> None:
    gating = Gating(gate=Everything())
    with pytest.raises(UnsupportedError, match="rank"):
        Strategy(name="x", gating=gating)
    with pytest.raises(UnsupportedError, match="rank"):
        Strategy(name="x", rule=Rule.RANK)
    with pytest.raises(UnsupportedError, match="gating"):
        Strategy(name="x", rule=Rule.RANK, gating=gating, assist=Assist.ALWAYS)
    with pytest.raises(UnsupportedError, match="bonus"):
        gated(Everything(), bonus=True, ahead=4)
    with pytest.raises(InvalidRequestError, match="rank is 0"):
        gated(Everything(), rank=0)


def test_waiting_for_a_verdict_changes_no_text_and_ends() -> None:
    """With slow draft steps the edge holds still while a verdict is due; what it loses then is less, never the text."""
    discarded = {0.0: 0, 0.5: 0}
    for seed in range(25):
        draft, target = pair(seed)
        gate = Threshold(Measure.ENTROPY, 1.0)
        gating = Gating(gate=gate, unit=SendUnit.TOKENS, lengths=BlockLengths.fixed(1))
        strategy = Strategy(name="x", rule=Rule.RANK, rank=1, draft_ahead_tokens=64, gating=gating)
        texts = []
        for draft_s in discarded:
            world = GatedWorld(strategy, draft, target, draft_s=draft_s, rng=Random(seed)).run()
            texts.append(world.text)
            discarded[draft_s] += world.edge.counters.num_discarded
        assert texts[0] == texts[1] == plain(draft, target, gate, SendUnit.TOKENS, 1)
        cut = GatedWorld(strategy, draft, target, draft_s=0.5, on_link_loss=OnLinkLoss.WAIT, rng=Random(seed))
        assert cut.run(may_cut=True).text == texts[0]
    assert discarded[0.5] < discarded[0.0]


def test_blocks_of_one_ask_about_single_tokens_and_give_the_text_of_longer_ones() -> None:
    gate = Threshold(Measure.ENTROPY, 0.9)
    for seed in range(15):
        draft, target = pair(seed)
        one, five = (
            GatedWorld(gated(gate, SendUnit.TOKENS, lengths=BlockLengths.fixed(tokens)), draft, target).run()
            for tokens in (1, 5)
        )
        assert one.text == five.text
        judged = [message.judged or [0] for message in one.sent if isinstance(message, Draft)]
        assert all(len(offsets) == 1 for offsets in judged)
        assert one.edge.counters.num_gated <= five.edge.counters.num_gated


def test_a_verdict_of_an_older_epoch_is_dropped() -> None:
    world = live_world()
    while world.edge.link.epoch == 0 or not world.down:  # a correction, then a verdict on what follows it
        world.choices()[0]()
    verdict, num_tokens = world.down.popleft(), len(world.tokens)
    assert isinstance(verdict, Commit)
    assert verdict.epoch == world.edge.link.epoch == 1
    world.feed(MessageReceived(msgspec.structs.replace(verdict, epoch=0)))
    assert len(world.tokens) == num_tokens
    world.feed(MessageReceived(verdict))
    assert len(world.tokens) > num_tokens


def test_ids_that_went_along_unjudged_stay_the_edge_s_own() -> None:
    """With a rank that accepts everything, accepted tokens are exactly those that were judged."""
    found = 0
    for seed in range(10):
        draft, target = pair(seed)
        strategy = gated(Threshold(Measure.ENTROPY, 0.8), SendUnit.TOKENS, rank=NUM_IDS)
        world = GatedWorld(strategy, draft, target, rng=Random(seed)).run()
        kinds = [token.kind for token in world.tokens]
        assert kinds.count(TokenKind.ACCEPTED) == world.judged_ids
        found += any(
            message.judged and message.judged[-1] >= len(message.judged) > 1
            for message in world.sent
            if isinstance(message, Draft)
        )
    assert found


def test_a_silence_begins_when_the_question_has_left() -> None:
    """On a slow link features take longer than the cloud may be silent: meanwhile it owes nothing."""
    draft, target = pair(4)
    world = GatedWorld(gated(Everything()), draft, target)
    world.edge.handle(Start(), 0.0)
    world.edge.handle(LinkUp(channel=1, rtt_s=0.01), 0.0)
    position, commands = len(PROMPT), []
    while not any(isinstance(command, SendToCloud) for command in commands):
        token = draft_token(draft([*PROMPT]), GREEDY, position, num_ids=NUM_IDS, rule=Rule.RANK, with_second=True)
        assert token is not None
        commands = world.edge.handle(TokenDrafted(0, position, token), 0.0)
        position += 1
    assert world.edge.alarm.silence_at_s is None
    world.edge.handle(Uploaded(60.0), 60.0)
    assert world.edge.alarm.silence_at_s == pytest.approx(60.0 + world.edge.link.patience.wait_s)


@pytest.mark.parametrize(("on_link_loss", "num_silences"), [(OnLinkLoss.FAIL, 3), (OnLinkLoss.WAIT, 8)])
def test_a_cloud_that_takes_everything_and_says_nothing_ends_the_wait(
    on_link_loss: OnLinkLoss, num_silences: int
) -> None:
    world = live_world(on_link_loss)
    world.upload()
    for _ in range(num_silences):
        assert world.end is None
        world.fire_timer()
    assert isinstance(world.end, Fail)
    assert isinstance(world.end.error, LinkLostError)
    assert world.now_s > 10 if on_link_loss is OnLinkLoss.FAIL else world.now_s > 100
