"""The captioner back ends, on small random weights and on the shipped ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from edgedraft.backends.base import BackendOptions, ListeningDraft, ListeningTarget, ScoreRequest
from edgedraft.backends.captioner import CaptionerDraft, CaptionerFamily, CaptionerTarget
from edgedraft.backends.captioner_file import load_captioner, save_captioner
from edgedraft.backends.captioner_model import Captioner, CaptionerConfig, shapes
from edgedraft.backends.captioner_tokenizer import EOS_ID
from edgedraft.errors import (
    BackendError,
    ContextLengthError,
    InvalidRequestError,
    ModelFileError,
    UnsupportedError,
)
from edgedraft.speech_features import POOLED_25, PROSODY_12, PROSODY_25, FeatureDtype, FeatureSpec, SpeechFeatures
from edgedraft.testing.suites import DraftBackendSuite, OpenDraft, OpenTarget, TargetBackendSuite, sample_ids
from edgedraft.types import SESSION_ID_BYTES, Float32Array

FIRST, SECOND = (bytes([number]) * SESSION_ID_BYTES for number in (1, 2))
NUM_IDS = 259


def small_config(spec: FeatureSpec = PROSODY_25, statistics_tokens: int = 2) -> CaptionerConfig:
    return CaptionerConfig(
        spec=spec,
        sends=PROSODY_12,
        width=16,
        hidden=24,
        num_heads=2,
        num_encoder_layers=1,
        num_decoder_layers=2,
        num_statistics_tokens=statistics_tokens,
        num_ids=NUM_IDS,
        max_seconds=5.0,
    )


def small_weights(config: CaptionerConfig) -> dict[str, Float32Array]:
    generator = np.random.default_rng(4)
    found = {name: 0.3 * generator.standard_normal(shape) for name, shape in shapes(config).items()}
    for name in found:
        if name.endswith("spread"):
            found[name] = np.ones_like(found[name])
    return {name: value.astype(np.float16).astype(np.float32) for name, value in found.items()}


@pytest.fixture(scope="module")
def model() -> Captioner:
    config = small_config()
    return Captioner(config, small_weights(config))


def features(seed: int = 0, spec: FeatureSpec = PROSODY_25, count: int = 60, level_db: float = -20.0) -> SpeechFeatures:
    values = np.random.default_rng(seed).standard_normal((count, spec.dims)).astype(np.float32)
    return SpeechFeatures.of(spec, values, FeatureDtype.INT8, level_db)


class HearingTarget(CaptionerTarget):
    """Hears the same recording in every session, for the suite, which knows of none."""

    def open(self, session_id: bytes, prompt_ids: Sequence[int], committed_ids: Sequence[int]) -> None:
        super().open(session_id, prompt_ids, committed_ids)
        self.listen(session_id, features())


class TestCaptionerDraft(DraftBackendSuite):
    @pytest.fixture
    def open_draft(self, model: Captioner) -> OpenDraft:
        def opened() -> CaptionerDraft:
            draft = CaptionerDraft(model, "small", context_length=64)
            draft.listen(features())
            return draft

        return opened


class TestCaptionerTarget(TargetBackendSuite):
    num_prompt_tokens: ClassVar[int] = 40

    @pytest.fixture
    def open_target(self, model: Captioner) -> OpenTarget:
        return lambda: HearingTarget(model, "small", context_length=96, max_sessions=4, prefill_chunk_tokens=16)


def rows_of(
    target: CaptionerTarget, session_id: bytes, ids: Sequence[int], cuts: Sequence[int], heard: SpeechFeatures
) -> Float32Array:
    """Rows after each of `ids[1:]`, verified in the pieces between `cuts`."""
    target.open(session_id, ids[:1], [])
    target.listen(session_id, heard)
    while target.prefill(session_id):
        pass
    rows = []
    for start, stop in itertools.pairwise([1, *cuts, len(ids)]):
        length = start - 1 if start > 1 else 1
        committed = ids[start - 1 : start] if start > 1 else []
        (found,) = target.score([ScoreRequest(session_id, length, committed, ids[start:stop])])
        rows.append(found[:-1].copy())
    return np.concatenate(rows)


def test_rows_do_not_depend_on_how_a_text_is_split(model: Captioner) -> None:
    """Bit for bit: stepping, drafting, and passes of any size, after other recordings were heard."""
    ids = sample_ids(CaptionerDraft(model, "small").info, 30)
    draft = CaptionerDraft(model, "small")
    draft.listen(features())
    stepped = []
    for token_id in ids[:-1]:
        draft.append([token_id])
        stepped.append(draft.draft().copy())
    generator = np.random.default_rng(1)
    target = CaptionerTarget(model, "small")
    for _ in range(20):
        rows_of(target, SECOND, ids[::-1], [], features(seed=9, count=int(generator.integers(5, 100))))
        cuts = sorted({int(cut) for cut in generator.integers(2, len(ids), size=5)})
        found = rows_of(target, FIRST, ids, cuts, features())
        assert np.array_equal(found, np.stack(stepped))


def test_rollback_is_exact(model: Captioner) -> None:
    draft = CaptionerDraft(model, "small")
    draft.listen(features())
    ids = sample_ids(draft.info, 20)
    draft.append(ids)
    draft.rollback(7)
    again = draft.draft().copy()
    fresh = CaptionerDraft(model, "small")
    fresh.listen(features())
    fresh.append(ids[:7])
    assert np.array_equal(again, fresh.draft())


def test_what_is_heard_changes_the_rows(model: Captioner) -> None:
    draft = CaptionerDraft(model, "small")
    rows = []
    for heard in (features(), features(seed=1), features(level_db=-40.0), features(count=59)):
        draft.listen(heard)
        assert draft.length == 0
        draft.append([0])
        rows.append(draft.draft().copy())
    for one, other in itertools.combinations(rows, 2):
        assert not np.array_equal(one, other)


def test_equal_features_keep_what_was_heard(model: Captioner, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = []
    hear: Callable[[SpeechFeatures], object] = model.hear
    monkeypatch.setattr(model, "hear", lambda heard: encoded.append(heard) or hear(heard))
    target, draft = CaptionerTarget(model, "small"), CaptionerDraft(model, "small")
    for _ in range(2):
        draft.listen(features())
        target.open(FIRST, [0], [5, 6])
        target.listen(FIRST, features())
        assert target.prefill(FIRST) == 0
    assert len(encoded) == 2
    target.open(FIRST, [0], [5, 6])
    target.listen(FIRST, features(seed=3))
    assert target.prefill(FIRST) == 0
    assert len(encoded) == 3


def test_another_recording_forgets_the_text_about_the_first(model: Captioner) -> None:
    ids = sample_ids(CaptionerDraft(model, "small").info, 12)
    target = CaptionerTarget(model, "small")
    rows = []
    for session_id, heard in ((FIRST, features(seed=1)), (FIRST, features()), (SECOND, features())):
        target.open(session_id, ids[:1], ids[1:])
        target.listen(session_id, heard)
        assert target.prefill(session_id) == 0
        (found,) = target.score([ScoreRequest(session_id, len(ids), [], [])])
        rows.append(found.copy())
    assert not np.array_equal(rows[0], rows[1])
    assert np.array_equal(rows[1], rows[2])


def test_listening_comes_first(model: Captioner) -> None:
    draft, target = CaptionerDraft(model, "small"), CaptionerTarget(model, "small")
    with pytest.raises(BackendError, match="listen comes first"):
        draft.append([0])
    target.open(FIRST, [0], [])
    with pytest.raises(BackendError, match="no recording"):
        target.prefill(FIRST)
    target.listen(FIRST, features())
    target.prefill(FIRST)
    with pytest.raises(BackendError, match="listen after the prefill"):
        target.listen(FIRST, features())
    target.open(FIRST, [0], [])  # keeps the recording, but wants to hear so
    with pytest.raises(BackendError, match="no recording"):
        target.prefill(FIRST)


@pytest.mark.parametrize("spec", [POOLED_25, PROSODY_12])
def test_features_of_another_spec_are_refused(model: Captioner, spec: FeatureSpec) -> None:
    draft, target = CaptionerDraft(model, "small"), CaptionerTarget(model, "small")
    target.open(FIRST, [0], [])
    with pytest.raises(UnsupportedError, match="the target listens to prosody"):
        draft.listen(features(spec=spec))
    with pytest.raises(UnsupportedError, match="the target listens to prosody"):
        target.listen(FIRST, features(spec=spec))


def test_more_than_it_hears_is_refused(model: Captioner) -> None:
    draft = CaptionerDraft(model, "small")
    draft.listen(features(count=125))
    with pytest.raises(ContextLengthError, match=r"lasts 5\.0 s; the model hears at most 5 s"):
        draft.listen(features(count=126))
    draft.listen(features(count=1))


def test_both_are_what_they_claim(model: Captioner) -> None:
    assert isinstance(CaptionerDraft(model, "small"), ListeningDraft)
    assert isinstance(CaptionerTarget(model, "small"), ListeningTarget)
    assert CaptionerDraft(model, "small").info.features == PROSODY_25
    assert CaptionerDraft(model, "small").sends == PROSODY_12


@pytest.mark.parametrize("statistics_tokens", [0, 2])
def test_a_file_is_read_back(tmp_path: Path, statistics_tokens: int) -> None:
    config = small_config(POOLED_25, statistics_tokens)
    weights = small_weights(config)
    save_captioner(tmp_path / "small.npz", config, weights, [])
    model, tokenizer = load_captioner(tmp_path / "small.npz")
    assert model.config == config
    assert tokenizer.num_ids == NUM_IDS
    heard, expected = model.hear(features(spec=POOLED_25)), Captioner(config, weights).hear(features(spec=POOLED_25))
    assert np.array_equal(heard.keys, expected.keys)
    draft = CaptionerFamily().open_draft(str(tmp_path / "small.npz"), BackendOptions(context_length=32))
    assert draft.info.name == "captioner:small"
    assert draft.info.context_length == 32


def test_a_spoilt_file_is_a_clear_error(tmp_path: Path) -> None:
    config = small_config()
    path = tmp_path / "small.npz"
    save_captioner(path, config, small_weights(config), [])
    whole = path.read_bytes()
    for kept in (0, 10, len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:kept])
        with pytest.raises(ModelFileError, match="no captioner model, or not all of it"):
            load_captioner(path)
    path.write_bytes(whole[:2000] + bytes(200) + whole[2200:])
    with pytest.raises(ModelFileError):
        load_captioner(path)
    with pytest.raises(ModelFileError, match="there is no file"):
        load_captioner(tmp_path / "none.npz")
    with pytest.raises(ModelFileError):
        load_captioner(tmp_path)


def test_arrays_that_do_not_fit_are_named(tmp_path: Path) -> None:
    config = small_config()
    weights = small_weights(config)
    with pytest.raises(ModelFileError, match=r"'encoder_norm' has shape \(3,\); legal: shape \(16,\)"):
        save_captioner(tmp_path / "x.npz", config, {**weights, "encoder_norm": np.ones(3, np.float32)}, [])
    with pytest.raises(ModelFileError, match="'embedding' holds NaN"):
        save_captioner(tmp_path / "x.npz", config, {**weights, "embedding": weights["embedding"] * np.nan}, [])
    with pytest.raises(ModelFileError, match="'frame_mean' is missing"):
        save_captioner(tmp_path / "x.npz", config, {}, [])


def test_the_family_says_what_it_has() -> None:
    family = CaptionerFamily()
    with pytest.raises(InvalidRequestError, match="captioner:edge, captioner:cloud or captioner:PATH"):
        family.open_tokenizer("")
    with pytest.raises(ModelFileError, match="there is no file"):
        family.open_tokenizer("nowhere.npz")
    with pytest.raises(UnsupportedError, match="edgedraft caption"):
        family.chat_template("edge")
    with pytest.raises(InvalidRequestError, match="context_length is 1"):
        family.open_draft("edge", BackendOptions(context_length=1))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_shipped_pair_captions(language: str) -> None:
    """One tokenizer for both, and text in the language asked for, to the end."""
    family = CaptionerFamily()
    tokenizer = family.open_tokenizer("edge")
    cloud_tokenizer = family.open_tokenizer("cloud")
    assert tokenizer.num_ids == cloud_tokenizer.num_ids
    assert all(tokenizer.identity(one) == cloud_tokenizer.identity(one) for one in range(tokenizer.num_ids))
    for name in ("edge", "cloud"):
        draft = family.open_draft(name, BackendOptions())
        assert draft.info.features is not None
        draft.listen(features(spec=draft.info.features, count=70))
        draft.append(tokenizer.caption_prompt(language))
        ids: list[int] = []
        while (token_id := int(draft.draft().argmax())) != EOS_ID:
            ids.append(token_id)
            draft.append([token_id])
        text = b"".join(map(tokenizer.token_bytes, ids)).decode()
        assert text.endswith("." if language == "en" else "。")
        assert text.isascii() == (language == "en")
