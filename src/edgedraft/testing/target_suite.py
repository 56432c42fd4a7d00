"""The conformance suite of target back ends; see `suites`."""
# ruff: noqa: S101 - asserts are what a suite is made of

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import numpy as np
import pytest

from edgedraft.backends.base import ScoreRequest, TargetBackend
from edgedraft.errors import ContextLengthError, EdgedraftError, SaturatedError
from edgedraft.testing.suite_rows import assert_same_row, other_id, sample_ids
from edgedraft.types import SESSION_ID_BYTES, Float32Array, ModelInfo

OpenTarget = Callable[[], TargetBackend]

FIRST, SECOND, THIRD = (bytes([number]) * SESSION_ID_BYTES for number in (1, 2, 3))


class TargetBackendSuite:
    """What the cloud relies on. Needs a fixture `open_target`: a function that opens the model afresh, for
    `max_sessions` sessions of a small context.

    `num_prompt_tokens`: should be more than two prefill chunks of the engine. `tolerance`: allowed difference in logits
    where `info.deterministic` is false.
    """

    max_sessions: ClassVar[int] = 4
    num_prompt_tokens: ClassVar[int] = 300
    num_draft_tokens: ClassVar[int] = 6
    tolerance: ClassVar[float] = 1e-3

    @pytest.fixture
    def target(self, open_target: OpenTarget) -> Iterator[TargetBackend]:
        backend = open_target()
        yield backend
        backend.shutdown()

    def cases(self, info: ModelInfo) -> tuple[list[int], list[int]]:
        return sample_ids(info, self.num_prompt_tokens), sample_ids(info, self.num_draft_tokens, salt=1)

    def prefill(self, target: TargetBackend, session_id: bytes) -> int:
        """Prefill to the end; how many calls that took. Each call must make progress."""
        calls, left = 1, target.prefill(session_id)
        while left:
            still_left = target.prefill(session_id)
            assert still_left < left, "prefill makes no progress"
            calls, left = calls + 1, still_left
        return calls

    def start(self, target: TargetBackend, session_id: bytes, prompt: Sequence[int], committed: Sequence[int]) -> int:
        target.open(session_id, prompt, committed)
        return self.prefill(target, session_id)

    def score(
        self, target: TargetBackend, session_id: bytes, length: int, committed: Sequence[int], drafted: Sequence[int]
    ) -> Float32Array:
        (rows,) = target.score([ScoreRequest(session_id, length, committed, drafted)])
        return rows.copy()

    def fresh_rows(
        self, target: TargetBackend, prompt: Sequence[int], committed: Sequence[int], drafted: Sequence[int]
    ) -> Float32Array:
        """Rows of a session that is opened for this and closed."""
        self.start(target, THIRD, prompt, committed)
        rows = self.score(target, THIRD, len(prompt) + len(committed), [], drafted)
        target.close(THIRD)
        return rows

    def assert_same(self, actual: Float32Array, expected: Float32Array, target: TargetBackend) -> None:
        assert actual.shape == expected.shape
        for left, right in zip(actual, expected, strict=True):
            assert_same_row(left, right, target.info, self.tolerance)

    def test_is_a_target_backend(self, target: TargetBackend) -> None:
        assert isinstance(target, TargetBackend)
        assert target.max_batch_sessions >= 1
        assert 0 < target.info.num_ids <= target.info.vocab_size
        assert all(0 <= token_id < target.info.num_ids for token_id in target.info.eos_ids)

    def test_shape_and_dtype_of_rows(self, target: TargetBackend) -> None:
        prompt, drafted = self.cases(target.info)
        self.start(target, FIRST, prompt, [])
        for num_draft in (0, len(drafted)):
            rows = self.score(target, FIRST, len(prompt), [] if num_draft == 0 else drafted[:1], drafted[:num_draft])
            assert rows.shape == (num_draft + 1, target.info.vocab_size)
            assert rows.dtype == np.float32
            assert not np.isnan(rows[:, : target.info.num_ids]).any()

    def test_no_committed_ids_straight_after_prefill(self, target: TargetBackend) -> None:
        """The row held since prefill is the one that scoring the last prompt id as a committed id gives."""
        prompt, drafted = self.cases(target.info)
        self.start(target, FIRST, prompt, [])
        with_draft = self.score(target, FIRST, len(prompt), [], drafted)
        alone = self.fresh_rows(target, prompt, [], [])
        self.assert_same(with_draft[:1], alone, target)

    def test_one_pass_equals_stepping(self, target: TargetBackend) -> None:
        prompt, drafted = self.cases(target.info)
        self.start(target, FIRST, prompt, [])
        at_once = self.score(target, FIRST, len(prompt), [], drafted)
        self.start(target, SECOND, prompt, [])
        stepped = [self.score(target, SECOND, len(prompt), [], [])]
        for index, token_id in enumerate(drafted):
            stepped.append(self.score(target, SECOND, len(prompt) + index, [token_id], []))
        self.assert_same(at_once, np.concatenate(stepped), target)

    def test_rejection_at_each_position(self, target: TargetBackend) -> None:
        """Refuse the draft at each position in turn; what follows is that of a session that never saw it."""
        prompt, drafted = self.cases(target.info)
        tail = sample_ids(target.info, 3, salt=2)
        for accepted in range(len(drafted)):
            committed = [*drafted[:accepted], other_id(target.info, drafted[accepted])]
            expected = self.fresh_rows(target, prompt, committed, tail)
            self.start(target, FIRST, prompt, [])
            self.score(target, FIRST, len(prompt), [], drafted)
            actual = self.score(target, FIRST, len(prompt) + accepted, committed[-1:], tail)
            self.assert_same(actual, expected, target)
            target.close(FIRST)

    def test_committed_ids_rebuild_equals_stepping(self, target: TargetBackend) -> None:
        """A session opened again with its committed ids goes on as the one that wrote them did."""
        prompt, drafted = self.cases(target.info)
        committed = sample_ids(target.info, 21, salt=3)
        self.start(target, FIRST, prompt, [])
        self.score(target, FIRST, len(prompt), [], drafted)
        for index, token_id in enumerate(committed):
            self.score(target, FIRST, len(prompt) + index, [token_id], drafted)
        written = self.score(target, FIRST, len(prompt) + len(committed) - 1, committed[-1:], drafted)
        self.assert_same(self.fresh_rows(target, prompt, committed, drafted), written, target)

    def test_many_committed_ids_in_one_pass(self, target: TargetBackend) -> None:
        prompt, drafted = self.cases(target.info)
        committed = sample_ids(target.info, 21, salt=3)
        self.start(target, FIRST, prompt, [])
        actual = self.score(target, FIRST, len(prompt), committed, drafted)
        self.assert_same(actual, self.fresh_rows(target, prompt, committed, drafted), target)

    def test_two_sessions_interleaved(self, target: TargetBackend) -> None:
        prompt, drafted = self.cases(target.info)
        other_prompt, other_draft = prompt[::-1][: len(prompt) // 2], drafted[::-1]
        expected = self.fresh_rows(target, prompt, drafted, drafted)
        other_expected = self.fresh_rows(target, other_prompt, other_draft, other_draft)
        target.open(FIRST, prompt, [])
        target.open(SECOND, other_prompt, [])
        left, other_left = 1, 1
        while left or other_left:
            left = target.prefill(FIRST) if left else 0
            other_left = target.prefill(SECOND) if other_left else 0
        for index in range(len(drafted) - 1):
            self.score(target, FIRST, len(prompt) + index, drafted[index : index + 1], other_draft)
            self.score(target, SECOND, len(other_prompt) + index, other_draft[index : index + 1], drafted)
        actual = self.score(target, FIRST, len(prompt) + len(drafted) - 1, drafted[-1:], drafted)
        other = self.score(target, SECOND, len(other_prompt) + len(other_draft) - 1, other_draft[-1:], other_draft)
        self.assert_same(actual, expected, target)
        self.assert_same(other, other_expected, target)

    def test_a_full_pass_equals_each_alone(self, target: TargetBackend) -> None:
        """As many sessions in one call as the engine takes."""
        prompt, drafted = self.cases(target.info)
        session_ids = [FIRST, SECOND][: target.max_batch_sessions]
        for session_id in session_ids:
            self.start(target, session_id, prompt, [])
        drafts = [drafted, drafted[::-1][:-1]][: len(session_ids)]
        requests = [
            ScoreRequest(session_id, len(prompt), [], ids) for session_id, ids in zip(session_ids, drafts, strict=True)
        ]
        together = [rows.copy() for rows in target.score(requests)]
        for rows, ids in zip(together, drafts, strict=True):
            self.assert_same(rows, self.fresh_rows(target, prompt, [], ids), target)

    def test_prefix_is_kept_on_reopen(self, target: TargetBackend) -> None:
        """Opening the same session again costs fewer prefill calls, and changes no row."""
        prompt, drafted = self.cases(target.info)
        calls = self.start(target, FIRST, prompt, drafted)
        self.score(target, FIRST, len(prompt) + len(drafted), [], drafted)
        calls_again = self.start(target, FIRST, prompt, drafted)
        assert calls_again < calls or calls == 1
        again = self.score(target, FIRST, len(prompt) + len(drafted), [], drafted)
        self.assert_same(again, self.fresh_rows(target, prompt, drafted, drafted), target)

    @pytest.mark.parametrize("kept_share", [0.0, 0.4, 0.97])
    def test_reopen_with_another_prompt(self, target: TargetBackend, kept_share: float) -> None:
        """Only a prefix is equal: rows are those of the new prompt alone."""
        prompt, drafted = self.cases(target.info)
        kept = int(len(prompt) * kept_share)
        changed = [*prompt[:kept], *(other_id(target.info, token_id) for token_id in prompt[kept:])]
        self.start(target, FIRST, prompt, drafted)
        self.start(target, FIRST, changed, drafted[:2])
        actual = self.score(target, FIRST, len(changed) + 2, [], drafted)
        self.assert_same(actual, self.fresh_rows(target, changed, drafted[:2], drafted), target)

    def test_prompt_past_the_context_is_refused(self, target: TargetBackend) -> None:
        prompt, drafted = self.cases(target.info)
        too_long = [prompt[0]] * (target.info.context_length + 1)
        self.start(target, FIRST, prompt, [])
        expected = self.score(target, FIRST, len(prompt), drafted[:1], drafted)
        with pytest.raises(ContextLengthError):
            target.open(SECOND, too_long, [])
        with pytest.raises(ContextLengthError):
            target.open(SECOND, too_long[:-1], drafted)
        self.assert_same(self.score(target, FIRST, len(prompt), drafted[:1], drafted), expected, target)

    def test_draft_past_the_context_is_refused(self, target: TargetBackend) -> None:
        """The session itself goes on: one id fewer fits."""
        _, drafted = self.cases(target.info)
        prompt = sample_ids(target.info, target.info.context_length - len(drafted) + 1)
        self.start(target, FIRST, prompt, [])
        with pytest.raises(ContextLengthError):
            self.score(target, FIRST, len(prompt), drafted[:1], drafted)
        assert self.score(target, FIRST, len(prompt), drafted[:1], drafted[:-2]).shape[0] == len(drafted) - 1

    def test_ids_outside_the_vocabulary_are_refused(self, target: TargetBackend) -> None:
        """Padding of the embedding is not a token, whoever sends it."""
        prompt, drafted = self.cases(target.info)
        expected = self.fresh_rows(target, prompt, drafted[:1], drafted)
        self.start(target, FIRST, prompt, [])
        for bad_id in (-1, target.info.num_ids):
            with pytest.raises(EdgedraftError):
                target.open(SECOND, [*prompt, bad_id], [])
            with pytest.raises(EdgedraftError):
                self.score(target, FIRST, len(prompt), [bad_id], drafted)
            with pytest.raises(EdgedraftError):
                self.score(target, FIRST, len(prompt), drafted[:1], [drafted[0], bad_id])
        self.assert_same(self.score(target, FIRST, len(prompt), drafted[:1], drafted), expected, target)

    def test_misuse_is_refused(self, target: TargetBackend) -> None:
        """A length past what is held, a session that nobody opened."""
        prompt, drafted = self.cases(target.info)
        self.start(target, FIRST, prompt, [])
        with pytest.raises(EdgedraftError):
            self.score(target, FIRST, len(prompt) + 1, drafted[:1], drafted)
        with pytest.raises(EdgedraftError):
            self.score(target, SECOND, len(prompt), drafted[:1], drafted)

    def test_slots_are_freed(self, target: TargetBackend) -> None:
        prompt = sample_ids(target.info, 8)
        session_ids = [bytes([100 + number]) * SESSION_ID_BYTES for number in range(self.max_sessions)]
        for _ in range(3):
            for session_id in session_ids:
                target.open(session_id, prompt, [])
            with pytest.raises(SaturatedError):
                target.open(FIRST, prompt, [])
            target.close(session_ids[0])
            target.open(FIRST, prompt, [])
            for session_id in [FIRST, *session_ids]:
                target.close(session_id)

    def test_a_reused_slot_holds_nothing_of_the_session_before(self, target: TargetBackend) -> None:
        prompt, drafted = self.cases(target.info)
        expected = self.fresh_rows(target, prompt, [], drafted)
        self.start(target, FIRST, prompt[::-1], drafted)
        target.close(FIRST)
        self.assert_same(self.fresh_rows(target, prompt, [], drafted), expected, target)

    def test_closing_an_unknown_session_is_ignored(self, target: TargetBackend) -> None:
        target.close(FIRST)

    def test_shut_down_and_opened_again(self, open_target: OpenTarget) -> None:
        rows = []
        for _ in range(2):
            target = open_target()
            prompt, drafted = self.cases(target.info)
            rows.append(self.fresh_rows(target, prompt, [], drafted))
            info = target.info
            target.shutdown()
        for left, right in zip(rows[0], rows[1], strict=True):
            assert_same_row(left, right, info, self.tolerance)
