"""The toy models: exact, strict, and passing the same suites as every engine."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from edgedraft.backends.base import BackendOptions, ScoreRequest
from edgedraft.backends.toy import ToyFamily, ToyTarget
from edgedraft.backends.toy_model import ToyModel, ToySettings
from edgedraft.backends.toy_tokenizer import ToyTokenizer
from edgedraft.errors import BackendError, ContextLengthError, InvalidRequestError
from edgedraft.testing.gates import GatedTarget
from edgedraft.testing.suites import DraftBackendSuite, OpenDraft, OpenTarget, TargetBackendSuite, TokenizerSuite

FAMILY = ToyFamily()
PADDED = "vocab=96,ids=80,seed=3,context=512"
SESSION = bytes(16)
GOLDEN_ROW = [0.7258203, 2.2695367, 1.4396229, 2.3641102]


class TestToyDraft(DraftBackendSuite):
    @pytest.fixture
    def open_draft(self) -> OpenDraft:
        return lambda: FAMILY.open_draft(PADDED + ",noise=0.5", BackendOptions())


class TestToyTarget(TargetBackendSuite):
    @pytest.fixture
    def open_target(self) -> OpenTarget:
        return lambda: FAMILY.open_target(PADDED, BackendOptions(max_sessions=4))


class TestToyTargetDeterministic(TargetBackendSuite):
    @pytest.fixture
    def open_target(self) -> OpenTarget:
        return lambda: FAMILY.open_target(PADDED, BackendOptions(max_sessions=4, deterministic=True))


class TestByteTokenizer(TokenizerSuite):
    @pytest.fixture
    def tokenizer(self) -> ToyTokenizer:
        return ToyTokenizer(300)


class TestLetterTokenizer(TokenizerSuite):
    """48 ids: the lower-case letters, a full stop and a few more, and four control tokens."""

    texts = ("plain words", "a  b\nc.")
    special_text = None

    @pytest.fixture
    def tokenizer(self) -> ToyTokenizer:
        return ToyTokenizer(48)


def model(rest: str = "") -> ToyModel:
    return ToyModel(ToySettings.parse(rest))


def test_row_depends_on_the_last_ids_alone() -> None:
    toy = model("order=3")
    assert np.array_equal(toy.logits([9, 9, 1, 2, 3]), toy.logits([1, 2, 3]))
    assert not np.array_equal(toy.logits([0, 2, 3]), toy.logits([1, 2, 3]))
    assert not np.array_equal(toy.logits([3, 2, 1]), toy.logits([1, 2, 3]))


def test_rows_are_the_same_in_every_process() -> None:
    """Edge and cloud hold their own copies; a changed figure here changes every recorded toy run."""
    row = model("vocab=16,seed=7").logits([1, 2])
    assert row[:4].tolist() == pytest.approx(GOLDEN_ROW, abs=1e-6)


def test_probs_are_the_softmax_of_the_real_ids() -> None:
    toy = model(PADDED)
    logits = toy.logits([1, 2]).astype(np.float64)
    expected = np.exp(logits[:76]) / np.exp(logits[:76]).sum()
    probs = toy.probs([1, 2])
    assert probs.shape == (80,)
    np.testing.assert_allclose(probs[:76], expected, rtol=1e-12)
    assert probs[76:].max() < 1e-100


def test_padding_has_the_highest_logit() -> None:
    """So whoever forgets to cut the padding off drafts an id that is refused."""
    assert int(np.argmax(model(PADDED).logits([1, 2]))) >= 80


def test_control_tokens_are_never_the_choice_unless_asked_for() -> None:
    toy = model("vocab=32")
    choices = {int(np.argmax(toy.logits([one, other]))) for one in range(28) for other in range(28)}
    assert max(choices) < 28


def test_end_of_sequence_comes_as_often_as_asked_for() -> None:
    toy = model("vocab=64,eos_every=10")
    choices = [int(np.argmax(toy.logits([one, other]))) for one in range(60) for other in range(60)]
    share = sum(choice in toy.eos_ids for choice in choices) / len(choices)
    assert 0.08 < share < 0.12
    assert set(toy.eos_ids) < set(choices)


@pytest.mark.parametrize(
    ("setting", "low", "high"), [("agree=0.8", 0.78, 0.83), ("noise=0", 1, 1), ("noise=1", 0.3, 0.9)]
)
def test_draft_agrees_with_the_target_as_asked_for(setting: str, low: float, high: float) -> None:
    target, draft = model("seed=5"), model(f"seed=5,{setting}")
    contexts = [(one, other) for one in range(60) for other in range(60)]
    same = [np.argmax(target.logits(ids)[:60]) == np.argmax(draft.logits(ids)[:60]) for ids in contexts]
    assert low <= np.mean(same) <= high


def test_another_seed_is_another_model() -> None:
    one, other = model("seed=1"), model("seed=2")
    same = [np.argmax(one.logits([a, b])) == np.argmax(other.logits([a, b])) for a in range(60) for b in range(60)]
    assert np.mean(same) < 0.1


@pytest.mark.parametrize(
    ("rest", "named"),
    [
        ("vocap=64", "vocap"),
        ("vocab=many", "vocab is 'many'"),
        ("vocab=2", "vocab is 2"),
        ("vocab=64,ids=65", "ids is 65"),
        ("vocab=64,vocab=65", "'vocab' twice"),
        ("order=0", "order is 0"),
        ("noise=-1", "noise is -1"),
        ("agree=nan", "agree is nan"),
        ("context=0", "context is 0"),
    ],
)
def test_bad_settings_are_named(rest: str, named: str) -> None:
    for use in (FAMILY.open_tokenizer, FAMILY.chat_template):
        with pytest.raises(InvalidRequestError, match=named):
            use(rest)


def test_options_override_the_context() -> None:
    draft = FAMILY.open_draft("context=100", BackendOptions(context_length=5))
    draft.append([1] * 5)
    with pytest.raises(ContextLengthError):
        draft.append([1])


def test_a_vocabulary_and_prompt_of_full_size() -> None:
    target = FAMILY.open_target("vocab=152000,ids=151936,context=50000", BackendOptions(prefill_chunk_tokens=512))
    prompt = [index * 7 % 151_000 for index in range(40_000)]
    target.open(SESSION, prompt, [])
    while target.prefill(SESSION):
        pass
    (rows,) = target.score([ScoreRequest(SESSION, len(prompt), [], [1, 2, 3])])
    assert rows.shape == (4, 152_000)


def test_prefill_is_cut_at_absolute_multiples() -> None:
    target = ToyTarget(model(), prefill_chunk_tokens=8)
    target.open(SESSION, [1] * 20, [])
    assert [target.prefill(SESSION) for _ in range(4)] == [12, 4, 0, 0]
    target.open(SESSION, [1] * 11 + [2] * 9, [])  # eleven are kept: the next cut is at 16
    assert [target.prefill(SESSION) for _ in range(2)] == [4, 0]


def test_one_pass_uses_up_the_row_held_since_prefill() -> None:
    target = ToyTarget(model())
    target.open(SESSION, [1, 2, 3], [])
    assert target.prefill(SESSION) == 0
    target.score([ScoreRequest(SESSION, 3, [], [])])
    with pytest.raises(BackendError, match="No row is held"):
        target.score([ScoreRequest(SESSION, 3, [], [])])


def test_many_sessions_come_and_go() -> None:
    target = ToyTarget(model(), max_sessions=2)
    for number in range(1000):
        target.open(number.to_bytes(16, "big"), [1, 2], [])
        target.prefill(number.to_bytes(16, "big"))
        target.close(number.to_bytes(16, "big"))
    assert target.num_sessions == 0


def test_bytes_of_a_character_are_tokens_of_their_own() -> None:
    tokenizer = ToyTokenizer(260)
    assert tokenizer.encode("é", parse_special=False) == [0xC3, 0xA9]
    assert tokenizer.token_bytes(0xC3) == b"\xc3"


def test_gated_target_holds_a_pass_open() -> None:
    target = GatedTarget(model())
    target.open(SESSION, [1, 2, 3], [])
    target.prefill(SESSION)
    target.score_gate.shut()
    rows: list[object] = []
    thread = threading.Thread(target=lambda: rows.extend(target.score([ScoreRequest(SESSION, 3, [], [])])))
    thread.start()
    assert target.score_gate.entered.wait(10)
    assert not rows
    target.score_gate.open()
    thread.join(10)
    assert len(rows) == 1
