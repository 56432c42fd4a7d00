"""The cloud in virtual time: who gets the target, and when."""

from __future__ import annotations

from edgedraft.protocol.messages import Cancel, Commit, Draft, Opened, SessionFromCloud
from edgedraft.sim.clock import Clock
from edgedraft.sim.cloud_node import CloudNode
from edgedraft.sim.compute import TargetProfile
from edgedraft.sim.recorded import Recording
from edgedraft.sim.timeline import Timeline
from edgedraft.testing.wire import open_message
from edgedraft.types import Assist

from .conftest import recorded_text

PROMPT = 4


class Cloud:
    """A cloud and edges that each have one session, channel 0 of their own connection."""

    def __init__(self, target: TargetProfile, *, num_edges: int, max_batch_sessions: int = 1) -> None:
        self.clock = Clock()
        self.node = CloudNode(self.clock, target, max_batch_sessions=max_batch_sessions)
        self.answers: list[tuple[int, float, SessionFromCloud]] = []
        self.timelines: list[Timeline] = []
        for number in range(num_edges):
            self.node.connect(lambda message, number=number: self._answered(number, message))
            timeline = Timeline(0.0)
            self.timelines.append(timeline)
            text = recorded_text(num_tokens=20, num_prompt_tokens=PROMPT)
            self.node.expect(self.session_id(number), Recording(text, frozenset()), timeline)

    def session_id(self, number: int) -> bytes:
        return bytes([number]) * 16

    def _answered(self, number: int, message: SessionFromCloud) -> None:
        self.answers.append((number, round(self.clock.now_s, 9), message))

    def open(self, number: int, *, at_s: float = 0.0, assist: Assist = Assist.NONE) -> None:
        message = open_message(self.session_id(number), [1] * PROMPT, channel=0, num_new=20, assist=assist)
        self.clock.at(at_s, lambda _: self.node.receive(number, message))

    def ask(self, number: int, num_ids: int, *, at_s: float, first: int = 0) -> None:
        message = Draft(
            channel=0,
            incarnation=1,
            epoch=0,
            position=PROMPT + first,
            token_ids=[300 + first + place for place in range(num_ids)],
            verify=True,
            committed_length=PROMPT,
        )
        self.clock.at(at_s, lambda _: self.node.receive(number, message))

    def commits(self) -> list[tuple[int, float]]:
        return [(number, time_s) for number, time_s, message in self.answers if isinstance(message, Commit)]


def test_opened_comes_at_once_and_a_verdict_after_prompt_and_pass() -> None:
    cloud = Cloud(TargetProfile(step_s=1.0, per_draft_s=0.5, prefill_s_per_token=0.25), num_edges=1)
    cloud.open(0)
    cloud.ask(0, 3, at_s=0.1)
    cloud.clock.run()
    (_, opened_s, opened), (_, verdict_s, verdict) = cloud.answers
    assert isinstance(opened, Opened)
    assert opened_s == 0.0
    assert isinstance(verdict, Commit)
    assert verdict_s == 1.0 + 1.0 + 1.5
    assert (verdict.token_ids, verdict.num_accepted) == ([300, 301, 302, 303], 3)
    assert verdict.timings is None
    assert [(each.start_s, each.end_s, each.num_prefill_tokens) for each in cloud.timelines[0].passes] == [
        (0.0, 1.0, PROMPT),
        (1.0, 3.5, 0),
    ]


def test_long_prompts_are_taken_in_by_pieces_that_take_turns() -> None:
    cloud = Cloud(TargetProfile(step_s=1.0, prefill_s_per_token=1.0, prefill_chunk_tokens=1), num_edges=2)
    cloud.open(0)
    cloud.open(1)
    cloud.clock.run()
    starts_s = [[each.start_s for each in line.passes if each.num_prefill_tokens == 1] for line in cloud.timelines]
    assert starts_s == [[0.0, 1.0, 3.0, 5.0], [2.0, 4.0, 6.0, 7.0]]


def test_one_after_another_where_a_pass_holds_one_session() -> None:
    cloud = Cloud(TargetProfile(step_s=1.0), num_edges=3)
    for number in range(3):
        cloud.open(number)
        cloud.ask(number, 2, at_s=1.0 + number / 10)
    cloud.clock.run()
    assert cloud.commits() == [(0, 2.0), (1, 3.0), (2, 4.0)]


def test_those_who_wait_share_a_pass_where_it_holds_them() -> None:
    cloud = Cloud(TargetProfile(step_s=1.0, per_session_s=0.25), num_edges=3, max_batch_sessions=2)
    for number in range(3):
        cloud.open(number)
        cloud.ask(number, 2, at_s=1.0 + number / 10)
    cloud.clock.run()
    assert cloud.commits() == [(0, 2.0), (1, 3.25), (2, 3.25)]
    assert [cloud.timelines[number].passes[-1].share_s for number in range(3)] == [1.0, 0.625, 0.625]


def test_whoever_waits_is_taken_before_the_session_that_was_just_served() -> None:
    cloud = Cloud(TargetProfile(step_s=1.0), num_edges=2)
    for number in range(2):
        cloud.open(number, assist=Assist.ALWAYS)  # the target writes by itself
    cloud.clock.run()
    assert cloud.commits()[:6] == [(0, 1.0), (1, 2.0), (0, 3.0), (1, 4.0), (0, 5.0), (1, 6.0)]


def test_target_goes_on_before_anybody_has_looked_at_its_last_verdicts() -> None:
    cloud = Cloud(TargetProfile(step_s=1.0), num_edges=2)
    cloud.open(0)
    cloud.open(1, at_s=0.5, assist=Assist.ALWAYS)
    cloud.ask(0, 2, at_s=1.0)
    cloud.ask(0, 2, at_s=1.6, first=2)  # comes while its first question is looked at
    cloud.clock.run()
    # The second question is more urgent than writing on, but nobody knows at 2.5 that it can be looked at.
    assert cloud.commits()[:4] == [(1, 1.5), (0, 2.5), (1, 3.5), (0, 4.5)]


def test_sessions_that_write_on_share_every_pass_once_they_have_met() -> None:
    cloud = Cloud(TargetProfile(step_s=1.0), num_edges=2, max_batch_sessions=2)
    cloud.open(0, assist=Assist.ALWAYS)
    cloud.open(1, at_s=0.5, assist=Assist.ALWAYS)
    cloud.clock.run()
    alone, together = cloud.commits()[:2], cloud.commits()[2:8]
    assert alone == [(0, 1.0), (0, 2.0)], "the prompt of the other is taken in between"
    assert together == [(1, 3.0), (0, 3.0), (1, 4.0), (0, 4.0), (1, 5.0), (0, 5.0)]


def test_session_that_is_over_before_its_prompt_is_taken_in_leaves_the_target_to_others() -> None:
    cloud = Cloud(TargetProfile(step_s=1.0, prefill_s_per_token=1.0, prefill_chunk_tokens=1), num_edges=2)
    for number in range(2):
        cloud.open(number)
    cloud.clock.at(1.5, lambda _: cloud.node.receive(0, Cancel(channel=0, incarnation=1)))
    cloud.ask(1, 2, at_s=0.5)
    cloud.clock.run()
    assert [each.end_s for each in cloud.timelines[0].passes] == [1.0, 2.0]
    assert cloud.commits() == [(1, 7.0)]


def test_running_pass_of_a_session_that_is_over_ends_before_the_next_begins() -> None:
    cloud = Cloud(TargetProfile(step_s=1.0), num_edges=2)
    for number in range(2):
        cloud.open(number)
    cloud.ask(0, 2, at_s=1.0)
    cloud.clock.at(1.2, lambda _: cloud.node.receive(0, Cancel(channel=0, incarnation=1)))
    cloud.ask(1, 2, at_s=1.5)
    cloud.clock.run()
    assert cloud.commits() == [(1, 3.0)]
    assert cloud.timelines[0].passes[-1].end_s == 2.0, "the work that was done counts"


def test_queued_pass_of_a_session_that_is_over_never_runs() -> None:
    cloud = Cloud(TargetProfile(step_s=1.0), num_edges=3)
    for number in range(3):
        cloud.open(number)
        cloud.ask(number, 2, at_s=1.0 + number / 10)
    cloud.clock.at(1.5, lambda _: cloud.node.receive(1, Cancel(channel=0, incarnation=1)))
    cloud.clock.run()
    assert cloud.commits() == [(0, 2.0), (2, 3.0)]
    assert all(each.num_prefill_tokens for each in cloud.timelines[1].passes)


def test_session_that_is_opened_again_keeps_what_the_target_has_taken_in() -> None:
    cloud = Cloud(TargetProfile(step_s=1.0, prefill_s_per_token=1.0), num_edges=1)
    cloud.open(0)
    again = open_message(cloud.session_id(0), [1] * PROMPT, channel=0, incarnation=2, attach=2, num_new=20)
    cloud.clock.at(10.0, lambda _: cloud.node.receive(0, again))
    cloud.clock.run()
    assert sum(each.share_s for each in cloud.timelines[0].passes) == PROMPT


def test_messages_without_a_session_are_dropped() -> None:
    cloud = Cloud(TargetProfile(step_s=1.0), num_edges=1)
    cloud.ask(0, 2, at_s=0.0)
    cloud.clock.run()
    assert cloud.answers == []
