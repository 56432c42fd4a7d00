"""Qwen-Omni models: the published suites, and the models' own forward pass, on tiny random models of both lines."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgedraft.backends.base import BackendOptions, ListeningDraft, ListeningTarget, ScoreRequest
from edgedraft.backends.qwen_omni import QwenOmniDraft, QwenOmniFamily, QwenOmniTarget
from edgedraft.backends.qwen_omni_prompts import DETAILED, QWEN2_5_OMNI, REQUESTS
from edgedraft.backends.qwen_omni_tokenizer import QwenOmniTokenizer
from edgedraft.errors import (
    BackendError,
    ContextLengthError,
    InvalidRequestError,
    UnsupportedError,
)
from edgedraft.speech_features import LOGMEL_128, POOLED_25, FeatureDtype, SpeechFeatures
from edgedraft.testing.suites import DraftBackendSuite, OpenDraft, OpenTarget, TargetBackendSuite, sample_ids
from edgedraft.types import Float32Array

from .qwen_omni_fixtures import CONTEXT_TOKENS, TinyPair, extracted, logmel, write_pair

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")), reason="needs the extra torch"
)

FAMILY = QwenOmniFamily()
OPTIONS = BackendOptions(threads=1, max_sessions=4, prefill_chunk_tokens=64)
SMALL = BackendOptions(threads=1, max_sessions=4, prefill_chunk_tokens=64, context_length=512)
CLOSE = 1e-5
hear = cache(logmel)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    return write_pair(tmp_path_factory.mktemp("qwen omni"))


@pytest.fixture(scope="module", params=["qwen2.5", "qwen3"])
def folder(request: pytest.FixtureRequest, pair: TinyPair) -> Path:
    return pair.edge_folder if request.param == "qwen2.5" else pair.cloud_folder


@pytest.fixture
def draft(folder: Path) -> Iterator[QwenOmniDraft]:
    opened = FAMILY.open_draft(str(folder), OPTIONS)
    yield opened
    opened.close()


@pytest.fixture
def target(folder: Path) -> Iterator[QwenOmniTarget]:
    opened = FAMILY.open_target(str(folder), OPTIONS)
    yield opened
    opened.shutdown()


class ListeningDraftOfASuite(QwenOmniDraft):
    """Has heard a recording before its first token, which the suites know nothing of."""

    def __init__(self, rest: str, options: BackendOptions) -> None:
        super().__init__(rest, options)
        self.listen(hear(0.5))


class ListeningTargetOfASuite(QwenOmniTarget):
    def open(self, session_id: bytes, prompt_ids: Sequence[int], committed_ids: Sequence[int]) -> None:
        super().open(session_id, prompt_ids, committed_ids)
        self.listen(session_id, hear(0.5))


class TestEdge(DraftBackendSuite):
    """The other line, and the other role of each, are held to the same below."""

    @pytest.fixture
    def open_draft(self, pair: TinyPair) -> OpenDraft:
        return partial(ListeningDraftOfASuite, str(pair.edge_folder), SMALL)


class TestCloud(TargetBackendSuite):
    @pytest.fixture
    def open_target(self, pair: TinyPair) -> OpenTarget:
        return partial(ListeningTargetOfASuite, str(pair.cloud_folder), SMALL)


def start(
    target: QwenOmniTarget,
    session_id: bytes,
    features: SpeechFeatures,
    prompt: Sequence[int],
    committed: Sequence[int] = (),
) -> int:
    """Open, let hear and prefill; how many calls the latter took."""
    target.open(session_id, prompt, committed)
    target.listen(session_id, features)
    return prefill(target, session_id)


def prefill(target: QwenOmniTarget, session_id: bytes) -> int:
    calls = 1
    while target.prefill(session_id):
        calls += 1
    return calls


def score(
    target: QwenOmniTarget, session_id: bytes, length: int, committed: Sequence[int], drafted: Sequence[int] = ()
) -> Float32Array:
    return np.array(target.score([ScoreRequest(session_id, length, committed, drafted)])[0])


def caption_ids(folder: Path, count: int, salt: int = 0) -> list[int]:
    tokenizer = FAMILY.open_tokenizer(str(folder))
    return [(salt * 97 + 31 * index * index + 7) % tokenizer.silent_ids[0] for index in range(count)]


@cache
def own_model(folder: Path, class_name: str) -> Any:
    import transformers

    return getattr(transformers, class_name).from_pretrained(folder).eval()


def own_rows(
    folder: Path, language: str, caption: Sequence[int], make_inputs: Callable[[Any], dict[str, Any]]
) -> Float32Array:
    """Logits of the model's own forward pass over the whole chat template with the mel features: the row before each
    id of the caption, and the last one. Shape (len(caption) + 1, rows of the model).
    """
    import torch

    tokenizer = QwenOmniTokenizer(folder)
    third = not (folder / "tokenizer.json").is_file()
    model = own_model(folder, f"{'Qwen3OmniMoe' if third else 'Qwen2_5Omni'}ThinkerForConditionalGeneration")
    inputs = make_inputs(torch)
    with torch.inference_mode():
        num_audio = len(model.get_audio_features(**inputs).last_hidden_state)
        if third:
            audio = f"<|audio_start|>{'<|audio_pad|>' * num_audio}<|audio_end|>"
            system = ""
        else:
            audio = f"<|audio_bos|>{'<|AUDIO|>' * num_audio}<|audio_eos|>"
            system = f"<|im_start|>system\n{QWEN2_5_OMNI.system}<|im_end|>\n"
        text = f"{system}<|im_start|>user\n{audio}{REQUESTS[DETAILED][language]}<|im_end|>\n<|im_start|>assistant\n"
        ids = torch.tensor([[*tokenizer.encode(text, parse_special=True), *caption]])
        rows = model(input_ids=ids, attention_mask=torch.ones_like(ids), **inputs).logits
    found: Float32Array = rows[0, -len(caption) - 1 :].numpy()
    return found


def as_sent(features: SpeechFeatures) -> Callable[[Any], dict[str, Any]]:
    """What arrived, as the model's own inputs."""
    return lambda torch: {
        "input_features": torch.tensor(features.values().T[np.newaxis]),
        "feature_attention_mask": torch.ones((1, features.count), dtype=torch.long),
    }


@pytest.mark.parametrize("language", ["en", "zh"])
def test_rows_are_those_of_the_models_own_forward_pass(folder: Path, target: QwenOmniTarget, language: str) -> None:
    """Frame, places of the audio, positions and the cache: all against one pass over the template as text."""
    features, caption = hear(3.04), caption_ids(folder, 9)
    prompt = FAMILY.open_tokenizer(str(folder)).caption_prompt(language)
    start(target, b"one", features, prompt)
    rows = score(target, b"one", len(prompt), [], caption)
    expected = own_rows(folder, language, caption, as_sent(features))
    spoken = np.isfinite(rows[0])
    assert spoken.sum() == target.info.num_ids - 2
    assert np.std(expected) > 0.5
    np.testing.assert_allclose(rows[:, spoken], expected[:, : target.info.num_ids][:, spoken], rtol=0, atol=CLOSE)


def test_what_is_lost_on_the_way_is_small(folder: Path, target: QwenOmniTarget) -> None:
    """Against the extractor's own output, padded to 30 s and unrounded: only rounding to fp16 or int8 is between."""
    caption = caption_ids(folder, 5)
    prompt = FAMILY.open_tokenizer(str(folder)).caption_prompt("en")
    features, mask = extracted(3.04)
    expected = own_rows(
        folder,
        "en",
        caption,
        lambda torch: {
            "input_features": torch.tensor(features),
            "feature_attention_mask": torch.tensor(mask, dtype=torch.long),
        },
    )[:, : target.info.num_ids]
    for dtype, most in ((FeatureDtype.FLOAT16, 0.01), (FeatureDtype.INT8, 0.2)):
        start(target, b"one", hear(3.04, dtype=dtype), prompt)
        rows = score(target, b"one", len(prompt), [], caption)
        spoken = np.isfinite(rows)
        assert np.abs(rows[spoken] - expected[spoken]).max() < most * np.std(expected)


def test_rounds_with_rollback_equal_from_scratch(folder: Path, target: QwenOmniTarget, draft: QwenOmniDraft) -> None:
    """Blocks of 3 to 7, each refused at another place and corrected, on both sides: as if written at once."""
    features = hear(2.0)
    prompt = FAMILY.open_tokenizer(str(folder)).caption_prompt("zh")
    kept: list[int] = []
    start(target, b"one", features, prompt)
    draft.listen(features)
    draft.append(prompt)
    for number, size in enumerate((3, 5, 7, 5, 3, 7)):
        block, accepted = caption_ids(folder, size, salt=number), number % size
        committed = [kept[-1]] if kept else []
        rows = score(target, b"one", len(prompt) + len(kept) - len(committed), committed, block)
        for token_id in block:
            draft.draft()
            draft.append([token_id])
        draft.rollback(len(prompt) + len(kept) + accepted)
        kept += [*block[:accepted], caption_ids(folder, 1, salt=number + 20)[0]]
        draft.append(kept[-1:])
        start(target, b"fresh", features, prompt, [*kept[:-1], *block[accepted:]])
        fresh = score(target, b"fresh", len(prompt) + len(kept) - 1 + len(block) - accepted, [], [])
        np.testing.assert_allclose(rows[-1:], fresh, rtol=0, atol=CLOSE)
    start(target, b"fresh", features, prompt, kept)
    fresh = score(target, b"fresh", len(prompt) + len(kept), [], [])[0]
    np.testing.assert_allclose(draft.draft(), fresh, rtol=0, atol=CLOSE)
    row = score(target, b"one", len(prompt) + len(kept) - 1, kept[-1:])[0]
    np.testing.assert_allclose(row, fresh, rtol=0, atol=CLOSE)


def test_the_request_may_arrive_in_pieces(folder: Path, draft: QwenOmniDraft) -> None:
    """And be rolled into: the assistant's header stands behind `<|im_end|>`, however the log came to be."""
    prompt = FAMILY.open_tokenizer(str(folder)).caption_prompt("en")
    caption = caption_ids(folder, 4)
    draft.listen(hear(1.0))
    draft.append([*prompt, *caption])
    expected = draft.draft().copy()
    for cut in (len(prompt) + 2, len(prompt), len(prompt) - 1, len(prompt) - 9, 0):
        draft.rollback(cut)
        for token_id in [*prompt, *caption][cut:]:
            draft.append([token_id])
        np.testing.assert_allclose(draft.draft(), expected, rtol=0, atol=CLOSE)


def test_a_recording_is_heard(folder: Path, draft: QwenOmniDraft) -> None:
    prompt = FAMILY.open_tokenizer(str(folder)).caption_prompt("en")
    rows = []
    for features in (hear(2.0), hear(2.0, seed=1), hear(1.0), hear(2.0)):
        draft.listen(features)
        assert draft.length == 0
        draft.append(prompt)
        rows.append(draft.draft().copy())
    spoken = np.isfinite(rows[0])
    for other in rows[1:3]:
        assert np.abs(other[spoken] - rows[0][spoken]).max() > 0.05 * np.std(rows[0][spoken])
    np.testing.assert_allclose(rows[3], rows[0], rtol=0, atol=CLOSE)


def test_sessions_with_recordings_of_their_own(folder: Path, target: QwenOmniTarget) -> None:
    tokenizer = FAMILY.open_tokenizer(str(folder))
    recordings = {b"one": hear(2.0), b"two": hear(1.5, seed=1)}
    prompts = {b"one": tokenizer.caption_prompt("en"), b"two": tokenizer.caption_prompt("zh")}
    captions = {session_id: caption_ids(folder, 6, salt) for salt, session_id in enumerate(recordings)}
    expected = {}
    for session_id, features in recordings.items():
        start(target, session_id, features, prompts[session_id])
        expected[session_id] = score(target, session_id, len(prompts[session_id]), [], captions[session_id])
        target.close(session_id)
    for session_id in recordings:
        target.open(session_id, prompts[session_id], [])
    for session_id, features in recordings.items():
        target.listen(session_id, features)
    left = dict.fromkeys(recordings, 1)
    while any(left.values()):
        left = {session_id: target.prefill(session_id) for session_id in recordings}
    rows: dict[bytes, list[Float32Array]] = {each: [score(target, each, len(prompts[each]), [])] for each in recordings}
    for index in range(6):
        for session_id, caption in captions.items():
            length = len(prompts[session_id]) + index
            rows[session_id].append(score(target, session_id, length, caption[index : index + 1]))
    for session_id in recordings:
        np.testing.assert_allclose(np.concatenate(rows[session_id]), expected[session_id], rtol=0, atol=CLOSE)


def test_opened_again_a_session_keeps_its_recording(folder: Path, target: QwenOmniTarget) -> None:
    prompt = FAMILY.open_tokenizer(str(folder)).caption_prompt("en")
    caption = caption_ids(folder, 5)
    calls = start(target, b"one", hear(2.0), prompt)
    expected = score(target, b"one", len(prompt), [], caption)
    assert start(target, b"one", hear(2.0), prompt) < calls
    np.testing.assert_allclose(score(target, b"one", len(prompt), [], caption), expected, rtol=0, atol=CLOSE)
    target.open(b"one", prompt, caption[:2])
    prefill(target, b"one")
    rows = score(target, b"one", len(prompt) + 2, [], caption[2:])
    np.testing.assert_allclose(rows, expected[2:], rtol=0, atol=CLOSE)
    assert start(target, b"one", hear(2.0, seed=1), prompt) == calls
    assert not np.allclose(score(target, b"one", len(prompt), [], caption), expected, atol=1e-2)


def test_the_row_held_since_prefill_is_not_used_for_another_text(folder: Path, target: QwenOmniTarget) -> None:
    prompt, (one, two, other) = FAMILY.open_tokenizer(str(folder)).caption_prompt("en"), caption_ids(folder, 3)
    start(target, b"one", hear(1.0), prompt, [one, two])
    score(target, b"one", len(prompt) + 1, [other])
    with pytest.raises(BackendError, match="No row is held"):
        score(target, b"one", len(prompt) + 2, [])


def test_half_a_minute_fits_and_more_does_not(folder: Path, draft: QwenOmniDraft, target: QwenOmniTarget) -> None:
    """Also where the log fills the context: room for the longest recording is kept beside it."""
    window, longer = hear(30.0), SpeechFeatures.of(LOGMEL_128, np.zeros((3001, 128)), FeatureDtype.INT8, -20.0)
    draft.listen(window)
    draft.append([*FAMILY.open_tokenizer(str(folder)).caption_prompt("en"), *caption_ids(folder, 40)])
    draft.append(caption_ids(folder, draft.info.context_length - draft.length))
    assert np.isfinite(draft.draft()).any()
    assert draft._transcript._text.length == CONTEXT_TOKENS  # the model's own limit, to the token
    with pytest.raises(ContextLengthError, match=r"30.01 s long; legal: 0.1 to 30 s"):
        draft.listen(longer)
    target.open(b"one", [1, 2], [])
    with pytest.raises(ContextLengthError):
        target.listen(b"one", longer)


def test_what_cannot_be_heard_is_refused(draft: QwenOmniDraft, target: QwenOmniTarget) -> None:
    pooled = SpeechFeatures.of(POOLED_25, np.zeros((50, 40)), FeatureDtype.INT8, -20.0)
    short = SpeechFeatures.of(LOGMEL_128, np.zeros((9, 128)), FeatureDtype.INT8, -20.0)
    target.open(b"one", [1, 2], [])
    for listen in (draft.listen, partial(target.listen, b"one")):
        with pytest.raises(UnsupportedError, match="whisper-logmel-128"):
            listen(pooled)
        with pytest.raises(InvalidRequestError, match=r"0.09 s long"):
            listen(short)


def test_nothing_is_written_without_a_recording(draft: QwenOmniDraft, target: QwenOmniTarget) -> None:
    with pytest.raises(InvalidRequestError, match="no recording"):
        draft.append([1, 2])
    assert draft.length == 0
    target.open(b"one", [1, 2], [])
    with pytest.raises(InvalidRequestError, match="no recording"):
        target.prefill(b"one")


def test_only_text_and_the_end_can_be_chosen(folder: Path, draft: QwenOmniDraft, target: QwenOmniTarget) -> None:
    tokenizer = FAMILY.open_tokenizer(str(folder))
    draft.listen(hear(1.0))
    draft.append(tokenizer.caption_prompt("en"))
    row = draft.draft()
    (end_id,) = draft.info.eos_ids
    assert row.shape == (draft.info.vocab_size,) == (draft.info.num_ids,) == (end_id + 1,)
    assert np.flatnonzero(np.isneginf(row)).tolist() == list(tokenizer.silent_ids) == [end_id - 2, end_id - 1]
    audio_id = tokenizer.encode("<|audio_bos|>", parse_special=True)[0] if "edge" in str(folder) else end_id + 5
    with pytest.raises(InvalidRequestError, match="not in the vocabulary"):
        draft.append([audio_id])
    with pytest.raises(InvalidRequestError, match="not in the vocabulary"):
        target.open(b"one", [audio_id], [])


def test_draft_and_target_keep_their_word(draft: QwenOmniDraft, target: QwenOmniTarget) -> None:
    assert isinstance(draft, ListeningDraft)
    assert isinstance(target, ListeningTarget)
    assert draft.sends == LOGMEL_128
    for info in (draft.info, target.info):
        assert info.features == LOGMEL_128
        assert not info.deterministic
        assert "last bits" in info.exactness_note
        assert (info.quantisation, info.on_gpu) == ("F32", False)


def test_a_failed_pass_changes_nothing(folder: Path, draft: QwenOmniDraft, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = caption_ids(folder, 12)
    draft.listen(hear(1.0))
    draft.append(ids)
    expected = draft.draft().copy()

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    draft.rollback(8)
    with monkeypatch.context() as patch:  # after the last layer has written into the cache
        patch.setattr(draft._thinker._model.model.language_model.norm, "forward", fail)
        with pytest.raises(BackendError, match="RuntimeError: out of memory"):
            draft.append(ids[8:])
    assert draft.length == 8
    draft.append(ids[8:])
    np.testing.assert_allclose(draft.draft(), expected, rtol=0, atol=CLOSE)


def test_closed_models_say_so(draft: QwenOmniDraft) -> None:
    draft.listen(hear(1.0))
    draft.close()
    with pytest.raises((BackendError, InvalidRequestError)):
        draft.append([1])


def test_bf16_is_close(folder: Path) -> None:
    rows = []
    for settings in ("", ",dtype=bf16"):
        draft = FAMILY.open_draft(f"{folder}{settings}", OPTIONS)
        draft.listen(hear(1.0))
        draft.append(sample_ids(draft.info, 20))
        rows.append(draft.draft().copy())
        assert draft.info.quantisation == ("BF16" if settings else "F32")
        draft.close()
    assert rows[1].dtype == np.float32
    spoken = np.isfinite(rows[0])
    assert np.corrcoef(rows[0][spoken], rows[1][spoken])[0, 1] > 0.95
