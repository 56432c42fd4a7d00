"""The conformance suite of draft back ends; see `suites`."""
# ruff: noqa: S101 - asserts are what a suite is made of

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import numpy as np
import pytest

from edgedraft.backends.base import DraftBackend
from edgedraft.errors import ContextLengthError, EdgedraftError
from edgedraft.testing.suite_rows import assert_same_row, other_id, sample_ids
from edgedraft.types import Float32Array, ModelInfo

OpenDraft = Callable[[], DraftBackend]


class DraftBackendSuite:
    """What the edge relies on. Needs a fixture `open_draft`: a function that opens the model afresh.

    `num_prompt_tokens`, `num_draft_tokens`: sizes of the cases. `tolerance`: allowed difference in logits where
    `info.deterministic` is false.
    """

    num_prompt_tokens: ClassVar[int] = 24
    num_draft_tokens: ClassVar[int] = 6
    tolerance: ClassVar[float] = 1e-3

    @pytest.fixture
    def draft(self, open_draft: OpenDraft) -> Iterator[DraftBackend]:
        backend = open_draft()
        yield backend
        backend.close()

    def row_after(self, draft: DraftBackend, token_ids: Sequence[int]) -> Float32Array:
        """The row after `token_ids`, prefilled from nothing."""
        draft.rollback(0)
        draft.append(token_ids)
        return draft.draft().copy()

    def cases(self, info: ModelInfo) -> tuple[list[int], list[int]]:
        return sample_ids(info, self.num_prompt_tokens), sample_ids(info, self.num_draft_tokens, salt=1)

    def assert_same(self, actual: Float32Array, expected: Float32Array, draft: DraftBackend) -> None:
        assert_same_row(actual, expected, draft.info, self.tolerance)

    def test_is_a_draft_backend(self, draft: DraftBackend) -> None:
        assert isinstance(draft, DraftBackend)
        assert draft.length == 0
        assert 0 < draft.info.num_ids <= draft.info.vocab_size

    def test_row_is_float32_and_one_dimensional(self, draft: DraftBackend) -> None:
        prompt, _ = self.cases(draft.info)
        row = self.row_after(draft, prompt)
        assert row.dtype == np.float32
        assert row.ndim == 1
        assert not np.isnan(row).any()

    def test_drafting_appends_nothing(self, draft: DraftBackend) -> None:
        prompt, _ = self.cases(draft.info)
        first = self.row_after(draft, prompt)
        assert draft.length == len(prompt)
        self.assert_same(draft.draft().copy(), first, draft)

    def test_draft_needs_a_token(self, draft: DraftBackend) -> None:
        with pytest.raises(EdgedraftError):
            draft.draft()

    def test_rejection_at_each_position(self, draft: DraftBackend) -> None:
        """Draft on, be refused at each position in turn: the row after the correction is that of a fresh prefill."""
        prompt, drafted = self.cases(draft.info)
        for accepted in range(len(drafted)):
            corrected = [*prompt, *drafted[:accepted], other_id(draft.info, drafted[accepted])]
            expected = self.row_after(draft, corrected)
            draft.rollback(0)
            draft.append(prompt)
            for token_id in drafted:
                draft.draft()
                draft.append([token_id])
            draft.rollback(len(prompt) + accepted)
            draft.append(corrected[-1:])
            assert draft.length == len(corrected)
            self.assert_same(draft.draft().copy(), expected, draft)

    def test_draft_after_a_bare_rollback(self, draft: DraftBackend) -> None:
        """Nothing is appended after the rollback, so the engine has to know its last row again."""
        prompt, drafted = self.cases(draft.info)
        expected = self.row_after(draft, prompt)
        draft.append(drafted)
        draft.draft()
        draft.rollback(len(prompt))
        assert draft.length == len(prompt)
        self.assert_same(draft.draft().copy(), expected, draft)

    def test_appending_nothing_changes_nothing(self, draft: DraftBackend) -> None:
        prompt, _ = self.cases(draft.info)
        expected = self.row_after(draft, prompt)
        draft.append([])
        assert draft.length == len(prompt)
        self.assert_same(draft.draft().copy(), expected, draft)

    def test_nothing_is_left_of_the_text_before(self, draft: DraftBackend) -> None:
        prompt, drafted = self.cases(draft.info)
        expected = self.row_after(draft, prompt)
        self.row_after(draft, drafted + prompt[::-1])
        self.assert_same(self.row_after(draft, prompt), expected, draft)

    def test_rollback_past_the_end_is_refused(self, draft: DraftBackend) -> None:
        prompt, _ = self.cases(draft.info)
        draft.append(prompt)
        for length in (-1, len(prompt) + 1):
            with pytest.raises(EdgedraftError):
                draft.rollback(length)
        assert draft.length == len(prompt)

    def test_context_overflow_is_refused(self, draft: DraftBackend) -> None:
        prompt, _ = self.cases(draft.info)
        expected = self.row_after(draft, prompt)
        with pytest.raises(ContextLengthError):
            draft.append([prompt[0]] * (draft.info.context_length - len(prompt) + 1))
        assert draft.length == len(prompt)
        self.assert_same(draft.draft().copy(), expected, draft)

    def test_ids_outside_the_vocabulary_are_refused(self, draft: DraftBackend) -> None:
        prompt, _ = self.cases(draft.info)
        draft.append(prompt)
        for token_id in (-1, draft.info.num_ids):
            with pytest.raises(EdgedraftError):
                draft.append([prompt[0], token_id])
            assert draft.length == len(prompt)

    def test_closed_and_opened_again(self, open_draft: OpenDraft) -> None:
        rows = []
        for _ in range(2):
            backend = open_draft()
            prompt, _ = self.cases(backend.info)
            rows.append(self.row_after(backend, prompt))
            info = backend.info
            backend.close()
        assert_same_row(rows[1], rows[0], info, self.tolerance)
