"""Prompt lookup: what is proposed, how the row looks, and that rollbacks leave no trace."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.backends.base import BackendOptions
from edgedraft.backends.lookup import LookupDraft, LookupFamily
from edgedraft.errors import InvalidRequestError, UnsupportedError
from edgedraft.testing.suites import DraftBackendSuite, OpenDraft

FAMILY = LookupFamily()
SMALL_IDS = st.lists(st.integers(0, 3), max_size=30)


class TestLookupDraft(DraftBackendSuite):
    @pytest.fixture
    def open_draft(self) -> OpenDraft:
        return lambda: FAMILY.open_draft("ids=64", BackendOptions(context_length=512))


class TestLookupDraftOfUnigrams(DraftBackendSuite):
    """With few ids everything repeats, so each row has a proposal."""

    @pytest.fixture
    def open_draft(self) -> OpenDraft:
        return lambda: FAMILY.open_draft("ids=5,ngram=1", BackendOptions(context_length=512))


def naive_proposal(token_ids: list[int], ngram: int) -> int | None:
    """The definition, by search from the end."""
    for size in range(min(ngram, len(token_ids)), 0, -1):
        suffix = token_ids[-size:]
        for start in range(len(token_ids) - size - 1, -1, -1):
            if token_ids[start : start + size] == suffix:
                return token_ids[start + size]
    return None


@pytest.mark.parametrize(
    ("token_ids", "expected"),
    [
        ([7, 8, 9], None),
        ([7, 8, 7], 8),
        ([1, 2, 3, 9, 2, 3, 8, 1, 2, 3], 9),  # three ids that match beat the more recent two
        ([1, 5, 1, 6, 1], 6),  # the most recent of equal matches
        ([4, 4, 4], 4),
        ([4], None),
    ],
)
def test_longest_then_latest_match_is_proposed(token_ids: list[int], expected: int | None) -> None:
    draft = LookupDraft(16)
    draft.append(token_ids)
    assert draft.proposal() == expected


@given(st.lists(st.tuples(SMALL_IDS, st.integers(0, 40)), max_size=6), st.integers(1, 4))
def test_proposals_follow_the_definition_through_rollbacks(steps: list[tuple[list[int], int]], ngram: int) -> None:
    draft, token_ids = LookupDraft(4, ngram=ngram), []
    for appended, kept in steps:
        draft.append(appended)
        token_ids = [*token_ids, *appended]
        assert draft.proposal() == naive_proposal(token_ids, ngram)
        token_ids = token_ids[:kept]
        draft.rollback(len(token_ids))
        assert draft.proposal() == naive_proposal(token_ids, ngram)


def test_row_is_one_hot() -> None:
    draft = LookupDraft(10)
    draft.append([3, 4, 3])
    row = draft.draft()
    assert row.shape == (10,)
    assert row[4] == 0.0
    assert np.isneginf(np.delete(row, 4)).all()


def test_row_without_a_proposal_holds_nothing() -> None:
    draft = LookupDraft(10)
    draft.append([3])
    assert np.isneginf(draft.draft()).all()


def test_one_row_leaves_nothing_in_the_next() -> None:
    draft = LookupDraft(10)
    draft.append([3, 4, 3])
    draft.draft()
    draft.append([4])
    assert np.flatnonzero(draft.draft() == 0.0).tolist() == [3]


def test_row_grows_where_the_vocabulary_is_not_told() -> None:
    draft = LookupDraft()
    for token_id in (3, 49_151, 3):
        draft.append([token_id])
    row = draft.draft()
    assert row.shape == (65_536,) == (draft.info.vocab_size,)
    assert int(np.argmax(row)) == 49_151
    with pytest.raises(InvalidRequestError, match="2000000000"):
        draft.append([2_000_000_000])


def test_vocabulary_comes_from_the_spec_or_the_options() -> None:
    assert FAMILY.open_draft("ids=300", BackendOptions(num_ids=400)).info.vocab_size == 300
    assert FAMILY.open_draft("", BackendOptions(num_ids=400)).info.num_ids == 400


def test_rollback_forgets_the_entries_too() -> None:
    draft = LookupDraft(10)
    draft.append([1, 2, 3, 1])
    draft.rollback(0)
    draft.append([1])
    assert draft.proposal() is None


@pytest.mark.parametrize(("rest", "named"), [("n=3", "'n'"), ("ngram=0", "ngram is 0"), ("ids=x", "ids is 'x'")])
def test_bad_settings_are_named(rest: str, named: str) -> None:
    with pytest.raises(InvalidRequestError, match=named):
        FAMILY.open_draft(rest, BackendOptions())


def test_roles_it_lacks_are_refused_with_a_remedy() -> None:
    with pytest.raises(UnsupportedError, match="--tokenizer SPEC"):
        FAMILY.open_tokenizer("")
    with pytest.raises(UnsupportedError, match="only draft"):
        FAMILY.open_target("", BackendOptions())
    with pytest.raises(UnsupportedError, match="chat template"):
        FAMILY.chat_template("")
