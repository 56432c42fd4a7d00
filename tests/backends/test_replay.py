"""Recorded models: they say what was recorded, in the time they are given, and pass the suites of every engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.backends import replay
from edgedraft.backends.base import BackendOptions, ScoreRequest
from edgedraft.backends.replay import DeviceProfile, ReplayDraft, ReplayFamily, ReplayTarget, ReplayTokenizer
from edgedraft.backends.trace import RecordedText, TraceHeader, find_trace, read_traces, write_traces
from edgedraft.bench.target_only import target_only_ids
from edgedraft.core.sampling import draft_token
from edgedraft.core.verify import rank_of
from edgedraft.errors import InvalidRequestError, ModelFileError
from edgedraft.testing.suites import DraftBackendSuite, OpenDraft, OpenTarget, TargetBackendSuite, TokenizerSuite
from edgedraft.types import DraftToken, Rule, SamplingParams

FAMILY = ReplayFamily()
SHARED = "qwen25-coder-0.5b-to-1.5b"
EOS = 700
SMALL = BackendOptions(context_length=512, max_sessions=4)
SESSION = bytes(16)


def recorded(number: int, num_tokens: int, *, ended: bool = True) -> RecordedText:
    """A text of made-up ids; every third draft token is wrong, with the right one as its second choice."""
    target_ids = [3 * ((number * 37 + index * 11) % 90) for index in range(num_tokens)]
    draft_ids = [token_id + (index % 3 == 2) for index, token_id in enumerate(target_ids)]
    if ended:
        target_ids[-1] = draft_ids[-1] = EOS
    size = range(num_tokens)
    return RecordedText(
        id=f"text {number}",
        kind="made-up",
        num_prompt_tokens=24,
        target_ids=tuple(target_ids),
        target_prob=tuple(0.5 + index % 50 / 100 for index in size),
        draft_ids=tuple(draft_ids),
        draft_prob=tuple(0.4 + index % 20 / 100 for index in size),
        draft_entropy=tuple(1.0 + index % 10 / 10 for index in size),
        target_rank_of_draft=tuple(1 if draft_ids[index] == target_ids[index] else 2 + index % 4 for index in size),
        overlap=(0.5,) * num_tokens,
        draft_top5_ids=tuple((draft_ids[i], target_ids[i] if i % 3 == 2 and i < num_tokens - 1 else 301) for i in size),
        draft_top5_probs=((0.4, 0.2),) * num_tokens,
    )


@pytest.fixture(scope="module")
def trace_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replay") / "made-up.jsonl"
    texts = [recorded(0, 400), recorded(1, 380), recorded(2, 390, ended=False)]
    write_traces(path, TraceHeader(target="big", draft="small", eos_ids=(EOS,)), texts)
    return path


class TestReplayDraft(DraftBackendSuite):
    @pytest.fixture
    def open_draft(self, trace_file: Path) -> OpenDraft:
        return lambda: FAMILY.open_draft(str(trace_file), SMALL)


class TestReplayTarget(TargetBackendSuite):
    @pytest.fixture
    def open_target(self, trace_file: Path) -> OpenTarget:
        return lambda: FAMILY.open_target(str(trace_file), SMALL)


class TestReplayTokenizer(TokenizerSuite):
    """It knows the names of its texts and no other text."""

    texts = ("text 0", "text 2")
    special_text = None

    @pytest.fixture
    def tokenizer(self, trace_file: Path) -> ReplayTokenizer:
        return FAMILY.open_tokenizer(str(trace_file))


@pytest.fixture(scope="module")
def tokenizer() -> ReplayTokenizer:
    return FAMILY.open_tokenizer(SHARED)


@pytest.fixture(scope="module")
def texts() -> list[RecordedText]:
    return read_traces(find_trace(SHARED))


def drafted(draft: ReplayDraft, tokenizer: ReplayTokenizer) -> DraftToken:
    token = draft_token(draft.draft(), SamplingParams(), draft.length, num_ids=tokenizer.num_ids, rule=Rule.MATCH)
    assert token is not None
    return token


def test_the_target_writes_every_recorded_text(tokenizer: ReplayTokenizer, texts: list[RecordedText]) -> None:
    target = FAMILY.open_target(SHARED, BackendOptions())
    for text in texts:
        written = target_only_ids(
            target,
            tokenizer.encode(text.id, parse_special=True),
            sampling=SamplingParams(),
            max_tokens=1000,
            eos_ids=tokenizer.eos_ids,
        )
        expected = [tokenizer.packed(token_id) for token_id in text.target_ids]
        if expected[-1] not in tokenizer.eos_ids:
            expected.append(tokenizer.end_id)
        assert written == expected


def test_the_draft_gives_recorded_choices_confidences_and_entropies(
    tokenizer: ReplayTokenizer, texts: list[RecordedText]
) -> None:
    draft = FAMILY.open_draft(SHARED, BackendOptions())
    entropy_errors = []
    for number, text in enumerate(texts):
        draft.rollback(0)
        draft.append(tokenizer.prompt_ids(number))
        for index in range(text.num_tokens):
            token = drafted(draft, tokenizer)
            assert token.token_id == tokenizer.packed(text.draft_ids[index])
            assert token.confidence == pytest.approx(text.draft_prob[index], abs=2e-4)
            entropy_errors.append(abs(token.entropy - text.draft_entropy[index]))
            draft.append([tokenizer.packed(text.target_ids[index])])
        assert drafted(draft, tokenizer).token_id == tokenizer.end_id
    assert max(entropy_errors) < 0.15
    assert np.mean(entropy_errors) < 0.01


def test_the_best_five_are_the_recorded_ones(tokenizer: ReplayTokenizer, texts: list[RecordedText]) -> None:
    draft = FAMILY.open_draft(SHARED, BackendOptions())
    text = texts[-1]
    draft.append(tokenizer.prompt_ids(len(texts) - 1))
    for index in range(text.num_tokens):
        best = np.argsort(-draft.draft(), kind="stable")[:5].tolist()
        assert set(best) == {tokenizer.packed(token_id) for token_id in text.draft_top5_ids[index]}
        assert best[0] == tokenizer.packed(text.draft_ids[index])
        draft.append([0])


def test_equal_probabilities_leave_the_recorded_choice(tmp_path: Path) -> None:
    """Rounding makes ties, which an arg max would give to the lowest id."""
    text = replace(recorded(0, 1), draft_ids=(9,), draft_prob=(0.3,), draft_top5_ids=((9, 5),))
    write_traces(
        tmp_path / "tie.jsonl", TraceHeader(target="", draft=""), [replace(text, draft_top5_probs=((0.3, 0.3),))]
    )
    draft = FAMILY.open_draft(str(tmp_path / "tie.jsonl"), BackendOptions())
    tokenizer = FAMILY.open_tokenizer(str(tmp_path / "tie.jsonl"))
    draft.append(tokenizer.prompt_ids(0))
    assert drafted(draft, tokenizer).token_id == tokenizer.packed(9)


def test_a_wrong_token_leaves_the_positions_behind_it_as_recorded(tokenizer: ReplayTokenizer) -> None:
    draft = FAMILY.open_draft(SHARED, BackendOptions())
    rows = []
    for token_id in (1, 2):
        draft.rollback(0)
        draft.append([*tokenizer.prompt_ids(3), token_id])
        rows.append(draft.draft())
    assert np.array_equal(*rows)


def test_the_target_row_has_recorded_probability_and_rank(
    tokenizer: ReplayTokenizer, texts: list[RecordedText]
) -> None:
    target = FAMILY.open_target(SHARED, BackendOptions())
    text, prompt = texts[35], tokenizer.prompt_ids(35)
    target.open(SESSION, prompt, [])
    while target.prefill(SESSION):
        pass
    (rows,) = target.score([ScoreRequest(SESSION, len(prompt), [], [0] * (text.num_tokens - 1))])
    assert not all(text.right)
    for index, row in enumerate(rows):
        weights = np.exp(row.astype(np.float64))
        assert weights.max() / weights.sum() == pytest.approx(text.target_prob[index], abs=1e-3)
        rank = rank_of(row, tokenizer.packed(text.draft_ids[index]))
        assert rank == 1 if text.right[index] else rank == max(2, text.target_rank_of_draft[index])


@given(
    width=st.integers(8, 200),
    prob=st.floats(0.0, 1.0),
    others=st.lists(st.floats(0.0, 1.0), max_size=4),
    entropy=st.floats(0.0, 30.0),
)
def test_any_recorded_position_gives_a_row_that_chooses_as_recorded(
    width: int, prob: float, others: list[float], entropy: float
) -> None:
    """Whatever rounding or another recorder's arithmetic left in the file."""
    choice = max(prob, replay.LEAST_PROB)
    head = {7: choice} | {
        index: min(max(other, replay.LEAST_PROB), 0.9999 * choice) for index, other in enumerate(others)
    }
    row = replay._draft_row(width, head, entropy)
    assert int(row.argmax()) == 7
    assert not np.isnan(row).any()
    assert int(replay._target_row(width, 7, prob).argmax()) == 7


def test_ends_are_the_headers_or_the_usual_last_id(trace_file: Path, tokenizer: ReplayTokenizer) -> None:
    assert tokenizer.eos_ids == (tokenizer.end_id, tokenizer.packed(151645))
    made_up = FAMILY.open_tokenizer(str(trace_file))
    assert made_up.eos_ids == (made_up.end_id, made_up.packed(EOS))


def test_an_id_that_also_stands_inside_ends_nothing(tmp_path: Path) -> None:
    write_traces(tmp_path / "open.jsonl", TraceHeader(target="", draft=""), [recorded(0, 95, ended=False)])
    tokenizer = FAMILY.open_tokenizer(str(tmp_path / "open.jsonl"))
    assert tokenizer.eos_ids == (tokenizer.end_id,)


def test_a_prompt_is_as_long_as_the_recorded_one(tokenizer: ReplayTokenizer, texts: list[RecordedText]) -> None:
    prompt = tokenizer.encode(" HumanEval/0\n", parse_special=True)
    assert prompt == tokenizer.prompt_ids(0)
    assert len(prompt) == texts[0].num_prompt_tokens
    assert tokenizer.text_of(prompt[0]) is not tokenizer.text_of(tokenizer.prompt_ids(1)[0])


def test_an_unknown_prompt_is_refused_without_quoting_it(tokenizer: ReplayTokenizer) -> None:
    with pytest.raises(InvalidRequestError, match="such as 'HumanEval/0'") as refused:
        tokenizer.encode("my secret", parse_special=True)
    assert "secret" not in str(refused.value)


def test_tokens_read_as_the_ids_of_the_file(tokenizer: ReplayTokenizer) -> None:
    assert tokenizer.token_bytes(tokenizer.packed(73594)) == b" 73594"
    assert tokenizer.identity(tokenizer.packed(73594)) == b"recorded:73594"


def test_the_model_says_what_is_replayed_and_what_is_modelled() -> None:
    info = FAMILY.open_target(f"{SHARED},step_ms=30,per_draft_ms=0.5", BackendOptions()).info
    assert info.deterministic
    assert info.engine == "replay"
    assert f"replayed from {SHARED}.jsonl.gz" in info.exactness_note
    assert info.exactness_note.endswith("times modelled: step_ms=30, per_draft_ms=0.5")
    assert FAMILY.open_draft(SHARED, BackendOptions()).info.exactness_note.endswith("times modelled: none")


@pytest.mark.parametrize(
    ("rest", "named"),
    [
        ("", "names no file"),
        (",draft_ms=3", "names no file"),
        (f"{SHARED},draft=3", "no setting 'draft'"),
        (f"{SHARED},draft_ms=-1", "draft_ms is -1"),
        (f"{SHARED},step_ms=nan", "step_ms is nan"),
        (f"{SHARED},step_ms=inf", "step_ms is inf"),
        (f"{SHARED},step_ms=soon", "step_ms is 'soon'"),
        (f"{SHARED},step_ms=1,step_ms=2", "'step_ms' twice"),
    ],
)
def test_bad_settings_are_named(rest: str, named: str) -> None:
    for use in (FAMILY.open_tokenizer, FAMILY.chat_template, lambda rest: FAMILY.open_draft(rest, BackendOptions())):
        with pytest.raises(InvalidRequestError, match=named):
            use(rest)


def test_a_missing_file_is_an_error_of_the_model() -> None:
    with pytest.raises(ModelFileError, match=r"nowhere\.jsonl"):
        FAMILY.open_target("nowhere.jsonl", BackendOptions())


class Clock:
    """Stands in for `time`: only sleeping passes time, and sleeping for nothing passes a little."""

    def __init__(self) -> None:
        self.now_s = 50.0

    def sleep(self, duration_s: float) -> None:
        self.now_s += max(duration_s, 1e-5)

    def perf_counter(self) -> float:
        return self.now_s


@pytest.fixture
def took_ms(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], float]:
    clock = Clock()
    monkeypatch.setattr(replay, "time", SimpleNamespace(sleep=clock.sleep, perf_counter=clock.perf_counter))

    def measured(act: Callable[[], object]) -> float:
        started_s = clock.now_s
        act()
        return (clock.now_s - started_s) * 1e3

    return measured


TIMES = "draft_ms=36,step_ms=30,per_draft_ms=2,per_session_ms=5,prefill_ms_per_token=0.25"


def test_a_draft_takes_its_modelled_times(took_ms, tokenizer: ReplayTokenizer) -> None:
    draft = FAMILY.open_draft(f"{SHARED},{TIMES}", BackendOptions())
    prompt = tokenizer.prompt_ids(0)
    assert took_ms(lambda: draft.append(prompt)) == pytest.approx(0.25 * (len(prompt) - 1), abs=0.02)
    assert took_ms(draft.draft) == pytest.approx(36, abs=0.02)
    assert took_ms(lambda: draft.append([1])) == 0, "one id is part of the step"


def test_a_target_pass_takes_its_modelled_time(took_ms, tokenizer: ReplayTokenizer) -> None:
    target: ReplayTarget = FAMILY.open_target(f"{SHARED},{TIMES}", BackendOptions(prefill_chunk_tokens=64))
    other, prompt = bytes([1]) * 16, tokenizer.prompt_ids(0)
    target.open(SESSION, prompt, [])
    target.open(other, prompt, [])
    for _ in range(2):
        assert took_ms(lambda: target.prefill(SESSION)) == pytest.approx(0.25 * 64, abs=0.02)
    for session_id in (SESSION, other):
        while target.prefill(session_id):
            pass
    both = [ScoreRequest(SESSION, len(prompt), [], [1, 2, 3]), ScoreRequest(other, len(prompt), [], [1])]
    assert took_ms(lambda: target.score(both)) == pytest.approx(30 + 4 * 2 + 5, abs=0.02)
    assert took_ms(lambda: target.score([ScoreRequest(SESSION, len(prompt), [1], [])])) == pytest.approx(30, abs=0.02)


def test_without_a_profile_nothing_waits(took_ms, tokenizer: ReplayTokenizer) -> None:
    draft = FAMILY.open_draft(SHARED, BackendOptions())
    assert took_ms(lambda: draft.append(tokenizer.prompt_ids(0))) == 0
    assert took_ms(draft.draft) == 0


def test_waiting_ends_at_the_deadline_and_not_before() -> None:
    deadline_s = replay.time.perf_counter() + 0.002
    replay.wait_until(deadline_s)
    assert replay.time.perf_counter() >= deadline_s


def test_pass_time_grows_with_ids_and_sessions() -> None:
    profile = DeviceProfile(step_ms=10, per_draft_ms=1, per_session_ms=3)
    assert profile.pass_s(4, 2) == pytest.approx(0.017)
