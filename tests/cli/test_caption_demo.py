"""The end of `edgedraft demo`: two clips, a real cloud process, and the exact mode compared with the cloud alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.backends.captioner_pair import speech, write_pair

from edgedraft.caption.synthetic import write_wav
from edgedraft.cli import demo, demo_captions

pytest.importorskip("soundfile")
pytest.importorskip("espeakng_loader")

TOY = (
    "--target",
    "toy:vocab=300",
    "--draft",
    "toy:vocab=300,noise=0.5",
    "--max-tokens",
    "4",
    "--strategies",
    "vanilla",
)


@pytest.fixture(autouse=True)
def _small_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft, target = write_pair(tmp_path)
    for language in demo_captions.LANGUAGES:
        write_wav(tmp_path / f"{language}.wav", speech(0, language))
    monkeypatch.setenv("EDGEDRAFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(demo_captions, "CLIPS", tmp_path)
    monkeypatch.setattr(demo_captions, "CAPTION_DRAFT", draft)
    monkeypatch.setattr(demo, "CAPTION_TARGET", target)


def test_two_clips_are_captioned_and_proved(run) -> None:
    outcome = run("demo", *TOY)
    assert outcome.code == 0, outcome.err
    assert outcome.out.count("left this device: pooled") == 2
    assert outcome.out.count("exact mode: equal to cloud-only") == 2
    assert "--- zh.wav, synthetic speech" in outcome.out
    assert "tokens: " in outcome.out


def test_captions_that_differ_end_with_code_1_and_json_lists_them(run, monkeypatch: pytest.MonkeyPatch) -> None:
    both = demo_captions._both

    async def differing(captioner, recording, language):
        _, alone = await both(captioner, recording, language)
        return await captioner.caption(recording, demo_captions._request(captioner, language, "edge-only")), alone

    monkeypatch.setattr(demo_captions, "_both", differing)
    outcome = run("demo", *TOY, "--json")
    assert outcome.code == 1
    assert "NOT EQUAL to cloud-only" in outcome.err
    assert outcome.json["equal"] is False
    assert [row["equal"] for row in outcome.json["rows"]] == [True]
    clips = outcome.json["captions"]
    assert [(clip["clip"], clip["caption"]["language"]) for clip in clips] == [("en.wav", "en"), ("zh.wav", "zh")]
    assert not any(clip["exact_equals_cloud_only"] for clip in clips)


def test_captions_may_be_left_out(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "caption_clips", lambda *_: pytest.fail("captions were made"))
    assert run("demo", *TOY, "--no-captions", "--json").json["captions"] == []
