"""What every back end refuses, in the same words, so that no caller has to know which one it has."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from edgedraft.backends import registry
from edgedraft.backends.base import (
    BackendOptions,
    DraftBackend,
    ListeningDraft,
    ListeningTarget,
    ScoreRequest,
    TargetBackend,
)
from edgedraft.errors import (
    BackendError,
    ContextLengthError,
    EdgedraftError,
    InvalidRequestError,
    SaturatedError,
    SessionLostError,
)
from edgedraft.speech_features import FeatureDtype, SpeechFeatures
from edgedraft.types import SESSION_ID_BYTES, Float32Array, ModelInfo

from . import captioner_pair, qwen_omni_fixtures

Refusal = tuple[type[EdgedraftError], str, str]
Misuse = Callable[[TargetBackend], object]

CONTEXT_TOKENS = 32
OPTIONS = BackendOptions(threads=1, context_length=CONTEXT_TOKENS, max_sessions=2)
READY, WRITTEN, UNKNOWN = (bytes([number]) * SESSION_ID_BYTES for number in (1, 2, 3))
PROMPT = [5, 6, 7]


def needs(*names: str) -> pytest.MarkDecorator:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


TEXT_ALONE = [
    "toy",
    pytest.param("transformers", marks=[pytest.mark.model, needs("torch", "transformers", "gguf", "accelerate")]),
]
LISTENING = ["captioner", pytest.param("qwen-omni", marks=needs("torch", "transformers"))]
KEEPING_THE_PROMPT = [*TEXT_ALONE, *LISTENING]
"""llama.cpp alone goes back into the prompt, and takes what is evaluated of it for ready."""
FAMILIES = [*KEEPING_THE_PROMPT, pytest.param("llamacpp", marks=pytest.mark.model)]


@pytest.fixture
def spec(request: pytest.FixtureRequest, tmp_path: Path, write_gguf: Callable[[], Path]) -> str:
    """A tiny model of the family that the test names."""
    match family := str(request.param):
        case "toy":
            return "toy:vocab=96,ids=80"
        case "lookup":
            return "lookup:ids=80"
        case "captioner":
            return captioner_pair.write_pair(tmp_path)[1]
        case "qwen-omni":
            return f"qwen-omni:{qwen_omni_fixtures.write_qwen2_5(tmp_path / 'model')}"
    return f"{family}:{write_gguf()}"


def recording(info: ModelInfo) -> SpeechFeatures:
    assert info.features is not None
    return SpeechFeatures.of(info.features, np.zeros((50, info.features.dims)), FeatureDtype.INT8, -20.0)


def open_session(
    target: TargetBackend, session_id: bytes, prompt: Sequence[int] = PROMPT, committed: Sequence[int] = ()
) -> None:
    target.open(session_id, prompt, committed)
    if isinstance(target, ListeningTarget):
        target.listen(session_id, recording(target.info))


def prefill(target: TargetBackend, session_id: bytes) -> None:
    while target.prefill(session_id):
        pass


def score(
    target: TargetBackend, session_id: bytes, length: int, committed: Sequence[int], drafted: Sequence[int] = ()
) -> Float32Array:
    return target.score([ScoreRequest(session_id, length, committed, drafted)])[0]


@pytest.fixture
def target(spec: str) -> Iterator[TargetBackend]:
    """Full: session `READY` stands straight after its prefill, `WRITTEN` has other ids in the place of its last."""
    backend = registry.open_target(spec, OPTIONS)
    open_session(backend, READY)
    open_session(backend, WRITTEN, committed=[8])
    for session_id in (READY, WRITTEN):
        prefill(backend, session_id)
    score(backend, WRITTEN, len(PROMPT), [9, 10])
    yield backend
    backend.shutdown()


@pytest.fixture
def draft(spec: str) -> Iterator[DraftBackend]:
    backend = registry.open_draft(spec, OPTIONS)
    if isinstance(backend, ListeningDraft):
        backend.listen(recording(backend.info))
    yield backend
    backend.close()


def refusal(call: Callable[[], object]) -> Refusal:
    with pytest.raises(EdgedraftError) as raised:
        call()
    return type(raised.value), str(raised.value), getattr(raised.value, "field", "")


def not_in_vocabulary(token_id: int, info: ModelInfo) -> Refusal:
    return (
        InvalidRequestError,
        f"token id {token_id} is not in the vocabulary; legal: 0 to {info.num_ids - 1}.",
        "token_ids",
    )


LOST: Refusal = (SessionLostError, "The target holds no such session. Open it again.", "")
FULL: Refusal = (SaturatedError, "All 2 sessions of the target are in use.", "")
EMPTY: Refusal = (InvalidRequestError, "the prompt is empty; legal: at least one token.", "prompt_ids")
TOO_LONG: Refusal = (
    ContextLengthError,
    (
        f"{CONTEXT_TOKENS + 1} tokens do not fit the target model's context of {CONTEXT_TOKENS}. "
        "Shorten the prompt or serve the model with a longer context."
    ),
    "context_length",
)
NO_ROW: Refusal = (BackendError, "No row is held for the last token. Score it again as a committed token.", "")


@pytest.mark.parametrize("spec", FAMILIES, indirect=True)
@pytest.mark.parametrize(
    ("misuse", "expected"),
    [
        pytest.param(lambda target: target.prefill(UNKNOWN), LOST, id="prefill of an unknown session"),
        pytest.param(lambda target: score(target, UNKNOWN, 3, [1]), LOST, id="score of an unknown session"),
        pytest.param(lambda target: target.open(UNKNOWN, PROMPT, []), FULL, id="one session too many"),
        pytest.param(lambda target: target.open(READY, [], [1]), EMPTY, id="no prompt"),
        pytest.param(lambda target: target.open(READY, [1] * 30, [1] * 3), TOO_LONG, id="a long text"),
        pytest.param(lambda target: score(target, READY, 3, [1] * 10, [1] * 20), TOO_LONG, id="a long draft"),
        pytest.param(lambda target: score(target, WRITTEN, 5, []), NO_ROW, id="no row after a pass"),
        pytest.param(lambda target: score(target, WRITTEN, 4, []), NO_ROW, id="no row for another text"),
    ],
)
def test_a_target_refuses(target: TargetBackend, misuse: Misuse, expected: Refusal) -> None:
    assert refusal(lambda: misuse(target)) == expected
    assert score(target, READY, len(PROMPT), [], [1]).shape == (2, target.info.vocab_size)


@pytest.mark.parametrize("spec", FAMILIES, indirect=True)
def test_a_target_refuses_ids_outside_the_vocabulary(target: TargetBackend) -> None:
    for bad_id in (-1, target.info.num_ids):
        for misuse in (
            lambda bad_id=bad_id: target.open(READY, [*PROMPT, bad_id], []),
            lambda bad_id=bad_id: target.open(READY, PROMPT, [bad_id]),
            lambda bad_id=bad_id: score(target, READY, len(PROMPT), [1, bad_id]),
            lambda bad_id=bad_id: score(target, READY, len(PROMPT), [], [1, bad_id]),
        ):
            assert refusal(misuse) == not_in_vocabulary(bad_id, target.info)


@pytest.mark.parametrize("spec", FAMILIES, indirect=True)
def test_a_target_refuses_a_pass(target: TargetBackend) -> None:
    most = target.max_batch_sessions
    for count in (0, most + 1):
        requests = [ScoreRequest(bytes([number]), 3, [1], []) for number in range(count)]
        expected = f"{count} sessions in one pass; legal: 1 to {most}."
        assert refusal(lambda requests=requests: target.score(requests)) == (BackendError, expected, "")
    target.max_batch_sessions = 2
    twice = [ScoreRequest(READY, len(PROMPT), [], [1])] * 2
    assert refusal(lambda: target.score(twice)) == (BackendError, "A session appears twice in one pass.", "")
    one_is_lost = [ScoreRequest(READY, len(PROMPT), [1], []), ScoreRequest(UNKNOWN, len(PROMPT), [1], [])]
    assert refusal(lambda: target.score(one_is_lost)) == LOST
    score(target, READY, len(PROMPT), [])  # still straight after prefill


@pytest.mark.parametrize("spec", FAMILIES, indirect=True)
def test_a_deterministic_target_takes_one_session_a_pass(spec: str) -> None:
    target = registry.open_target(spec, dataclasses.replace(OPTIONS, deterministic=True))
    assert target.max_batch_sessions == 1
    target.shutdown()


@pytest.mark.parametrize("spec", FAMILIES, indirect=True)
def test_a_target_that_is_closed_holds_no_session(target: TargetBackend) -> None:
    target.close(READY)
    assert refusal(lambda: target.prefill(READY)) == LOST
    open_session(target, UNKNOWN)
    target.shutdown()
    assert refusal(lambda: target.prefill(UNKNOWN)) == LOST


@pytest.mark.parametrize("spec", LISTENING, indirect=True)
def test_a_recording_of_an_unknown_session_is_refused(target: ListeningTarget) -> None:
    assert refusal(lambda: target.listen(UNKNOWN, recording(target.info))) == LOST


@pytest.mark.parametrize("spec", FAMILIES, indirect=True)
def test_a_target_refuses_positions_past_what_it_holds(target: TargetBackend) -> None:
    kind, words, _ = refusal(lambda: score(target, READY, 4, [1]))
    assert kind is BackendError
    assert words.startswith("Cannot score from position 4; legal: ")
    assert words.endswith(" to 3.")


@pytest.mark.parametrize("spec", KEEPING_THE_PROMPT, indirect=True)
def test_a_target_refuses_positions_inside_the_prompt(target: TargetBackend) -> None:
    expected = "Cannot score from position 2; legal: 3 to 3."
    assert refusal(lambda: score(target, READY, 2, [1])) == (BackendError, expected, "")


@pytest.mark.parametrize("spec", KEEPING_THE_PROMPT, indirect=True)
def test_a_target_refuses_to_score_before_it_is_prefilled(target: TargetBackend) -> None:
    open_session(target, READY, [4, *PROMPT])
    expected = "Score before the session is prefilled."
    assert refusal(lambda: score(target, READY, 4, [1])) == (BackendError, expected, "")


@pytest.mark.parametrize("spec", [*FAMILIES, "lookup"], indirect=True)
def test_a_draft_refuses(draft: DraftBackend) -> None:
    without_a_token = "draft needs at least one token held; append the prompt first."
    assert refusal(draft.draft) == (InvalidRequestError, without_a_token, "length")
    draft.append(PROMPT)
    for length in (-1, 4):
        expected = f"rollback to {length}; legal: 0 to 3."
        assert refusal(lambda length=length: draft.rollback(length)) == (InvalidRequestError, expected, "length")
    too_long = (
        f"{CONTEXT_TOKENS + 1} tokens do not fit the draft model's context of {CONTEXT_TOKENS}. "
        "Raise the draft's context length, or go on without a draft."
    )
    assert refusal(lambda: draft.append([1] * 30)) == (ContextLengthError, too_long, "context_length")
    for bad_id in (-1, draft.info.num_ids):
        misuse = lambda bad_id=bad_id: draft.append([1, bad_id])  # noqa: E731
        assert refusal(misuse) == not_in_vocabulary(bad_id, draft.info)
    assert draft.length == len(PROMPT)
