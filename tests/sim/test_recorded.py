"""What recorded models say."""

from __future__ import annotations

from edgedraft.core.events import REQUESTED, RunPass
from edgedraft.core.verify import Verdict
from edgedraft.protocol.messages import CommitKind
from edgedraft.sim.recorded import Recording
from edgedraft.types import Rule, SamplingParams

from .conftest import EOS_ID, recorded_text

NO_ENDS: frozenset[int] = frozenset()


def verdict(recording: Recording, position: int, draft_ids: list[int]) -> Verdict:
    command = RunPass(0, REQUESTED, 0, (), position, draft_ids, Rule.MATCH, 1, SamplingParams())
    return recording.verdict((), command)


def test_verdict_is_the_longest_equal_prefix_and_the_next_choice() -> None:
    recording = Recording(recorded_text(num_tokens=6, num_prompt_tokens=2), NO_ENDS)
    assert verdict(recording, 2, []) == Verdict(0, 300, CommitKind.OWN)
    assert verdict(recording, 3, [301, 302]) == Verdict(2, 303, CommitKind.BONUS)
    assert verdict(recording, 3, [301, 7, 303]) == Verdict(1, 302, CommitKind.RECOVERED)


def test_past_the_recorded_end_the_end_is_said_again() -> None:
    recording = Recording(recorded_text(num_tokens=4, num_prompt_tokens=2, ends=True), frozenset({EOS_ID}))
    assert verdict(recording, 4, [302, EOS_ID]) == Verdict(2, EOS_ID, CommitKind.BONUS)
    assert verdict(recording, 4, [302, EOS_ID, 5]) == Verdict(2, EOS_ID, CommitKind.RECOVERED)
    assert recording.draft_token(100, (), 0.1).token_id == EOS_ID


def test_draft_gives_what_was_recorded_for_the_position() -> None:
    text = recorded_text(num_tokens=4, num_prompt_tokens=2, wrong=[1], confidences=[0.9, 0.1, 0.8, 0.7])
    token = Recording(text, NO_ENDS).draft_token(3, (), 0.25)
    assert (token.token_id, token.confidence, token.entropy, token.draft_s) == (7, 0.1, 0.3, 0.25)
    assert (token.second_id, token.second_confidence) == text.second(1)


def test_text_cut_off_by_its_recorder_bounds_the_request() -> None:
    assert Recording(recorded_text(num_tokens=4), frozenset({EOS_ID})).max_tokens == 4
    assert Recording(recorded_text(num_tokens=4, ends=True), frozenset({EOS_ID})).max_tokens is None
