"""A deterministic target gives bit-identical rows however they come about: in blocks, after rollbacks, beside others,
after a rebuild."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from edgedraft.backends.base import BackendOptions, ScoreRequest
from edgedraft.backends.llamacpp import LlamaCppFamily, LlamaCppTarget
from edgedraft.backends.model_store import resolve
from edgedraft.testing.suites import sample_ids
from edgedraft.types import Float32Array

pytestmark = pytest.mark.model
LONE, OTHER = b"lone", b"other"


@pytest.fixture(scope="module")
def target() -> Iterator[LlamaCppTarget]:
    options = BackendOptions(context_length=1024, max_sessions=9, deterministic=True)
    backend = LlamaCppFamily().open_target(str(resolve("demo:target")), options)
    yield backend
    backend.shutdown()


def start(target: LlamaCppTarget, session_id: bytes, prompt: Sequence[int], committed: Sequence[int] = ()) -> None:
    target.open(session_id, prompt, committed)
    while target.prefill(session_id):
        pass


def score(
    target: LlamaCppTarget, session_id: bytes, length: int, committed: Sequence[int], drafted: Sequence[int] = ()
) -> Float32Array:
    return np.array(target.score([ScoreRequest(session_id, length, committed, drafted)])[0])


def stepped(target: LlamaCppTarget, session_id: bytes, prompt: Sequence[int], ids: Sequence[int]) -> Float32Array:
    """The rows after the prompt and after each of `ids`, one id a pass, in a session of its own."""
    target.close(session_id)
    start(target, session_id, prompt)
    rows = [score(target, session_id, len(prompt), [])]
    rows += [score(target, session_id, len(prompt) + index, [token_id]) for index, token_id in enumerate(ids)]
    return np.concatenate(rows)


@pytest.mark.parametrize("num_prompt_tokens", [100, 530])
def test_blocks_with_wrong_branches_equal_stepping(target: LlamaCppTarget, num_prompt_tokens: int) -> None:
    """Blocks of 1 to 16 drafts; before each, a wrong branch is scored and rolled back."""
    prompt = sample_ids(target.info, num_prompt_tokens)
    ids = sample_ids(target.info, 32, salt=1)
    wrong = sample_ids(target.info, 16, salt=2)
    expected = stepped(target, LONE, prompt, ids)
    target.close(OTHER)
    start(target, OTHER, prompt)
    position = 0
    for block in (1, 2, 4, 8, 16):
        committed = ids[position - 1 : position] if position else []
        begin = len(prompt) + max(position - 1, 0)
        score(target, OTHER, begin, committed, wrong[:block])
        rows = score(target, OTHER, begin, committed, ids[position : position + block])
        assert np.array_equal(rows, expected[position : position + block + 1]), f"block of {block}"
        position += block


def test_a_draft_longer_than_a_block_equals_stepping(target: LlamaCppTarget) -> None:
    prompt, ids = sample_ids(target.info, 40), sample_ids(target.info, 66, salt=1)
    expected = stepped(target, LONE, prompt, ids)
    start(target, OTHER, prompt)
    assert np.array_equal(score(target, OTHER, len(prompt), [], ids), expected)


def test_eight_sessions_with_an_eviction_between_equal_a_lone_one(target: LlamaCppTarget) -> None:
    """Seven others of other lengths are scored between; the session is evicted and rebuilt; another one is too."""
    prompt, ids = sample_ids(target.info, 140), sample_ids(target.info, 7, salt=1)
    expected = stepped(target, LONE, prompt, ids)
    others = {bytes([number]): sample_ids(target.info, 40 + 17 * number, salt=number) for number in range(1, 8)}
    for session_id, other_prompt in others.items():
        start(target, session_id, other_prompt)
    target.close(LONE)
    start(target, LONE, prompt)
    for index, token_id in enumerate(ids):
        for session_id, other_prompt in others.items():
            score(target, session_id, len(other_prompt), [5], ids[: 1 + index % 3])
        if index == 3:
            target.close(LONE)
            target.close(b"\x03")
            start(target, b"\x03", others[b"\x03"])
            start(target, LONE, prompt, ids[:index])
        row = score(target, LONE, len(prompt) + index, [token_id], ids[index + 1 : index + 3])[0]
        assert np.array_equal(row, expected[index + 1]), f"after {index + 1} ids"
    for session_id in others:
        target.close(session_id)


@pytest.mark.parametrize("num_prompt_tokens", [1, 127, 128, 129, 300])
def test_a_rebuild_equals_stepping(target: LlamaCppTarget, num_prompt_tokens: int) -> None:
    prompt, ids = sample_ids(target.info, num_prompt_tokens), sample_ids(target.info, 17, salt=1)
    expected = stepped(target, LONE, prompt, ids)
    target.close(OTHER)
    start(target, OTHER, prompt, ids)
    assert np.array_equal(score(target, OTHER, len(prompt) + len(ids), [])[0], expected[-1])
    start(target, OTHER, prompt, ids[:7])  # again, shorter: everything but the last id is kept
    assert np.array_equal(score(target, OTHER, len(prompt) + 7, [], ids[7:10]), expected[7:11])
    start(target, OTHER, prompt)
    assert np.array_equal(score(target, OTHER, len(prompt), [])[0], expected[0])


@pytest.mark.parametrize(("old", "new"), [(300, 200), (200, 260), (128, 129), (129, 128)])
def test_another_prompt_with_a_common_prefix_equals_a_fresh_one(target: LlamaCppTarget, old: int, new: int) -> None:
    """Kept prefixes are cut to whole chunks, else the end of the old prompt was computed in another chunk."""
    ids = sample_ids(target.info, 310)
    target.close(LONE)
    start(target, LONE, ids[:new])
    expected = score(target, LONE, new, [], ids[new : new + 3])
    target.close(OTHER)
    start(target, OTHER, ids[:old], ids[old : old + 4])
    start(target, OTHER, ids[:new])
    assert np.array_equal(score(target, OTHER, new, [], ids[new : new + 3]), expected)


def test_what_was_prompt_and_is_committed_equals_a_fresh_one(target: LlamaCppTarget) -> None:
    """Prompt and committed ids are computed in different chunks, so the same ids shared out otherwise are another
    text; so are ids after a rollback into the prompt."""
    ids = sample_ids(target.info, 250)
    target.close(LONE)
    start(target, LONE, ids[:128], ids[128:200])
    expected = score(target, LONE, 200, [], ids[200:203])
    target.close(OTHER)
    start(target, OTHER, ids[:200])
    start(target, OTHER, ids[:128], ids[128:200])
    assert np.array_equal(score(target, OTHER, 200, [], ids[200:203]), expected)
    start(target, OTHER, ids[:250])
    assert np.array_equal(score(target, OTHER, 150, ids[150:200], ids[200:203]), expected)


def test_info_says_what_exactness_depends_on(target: LlamaCppTarget) -> None:
    assert target.info.deterministic
    assert target.max_batch_sessions == 1
    assert target.info.quantisation == "Q8_0"
    for word in ("llama.cpp", "CPU", "Q8_0", "1 thread", "chunks of 128", "KV F16"):
        assert word in target.info.exactness_note
