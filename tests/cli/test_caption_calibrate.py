"""`edgedraft caption calibrate` and `synth`: a dataset is made, the threshold set, and then obeyed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from edgedraft.backends.captioner import CaptionerFamily

pytest.importorskip("soundfile")
pytest.importorskip("espeakng_loader")
pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def dataset(run, tmp_path: Path) -> Path:
    outcome = run("caption", "synth", "--out", str(tmp_path / "dev"), "--num", "3")
    assert outcome.code == 0
    assert Path(outcome.out.strip()) == tmp_path / "dev" / "captions.jsonl"
    return tmp_path / "dev"


def test_synth_makes_recordings_with_captions(run, tmp_path: Path) -> None:
    outcome = run("caption", "synth", "--out", str(tmp_path / "a"), "--split", "test", "--num", "2", "--json")
    assert outcome.json["num_per_language"] == 2
    rows = [json.loads(line) for line in Path(outcome.json["captions"]).read_text().splitlines()]
    assert [row["language"] for row in rows] == ["en", "en", "zh", "zh"]
    assert all((tmp_path / "a" / row["file"]).is_file() for row in rows)
    run("caption", "synth", "--out", str(tmp_path / "b"), "--split", "test", "--num", "2", "--seed", "1")
    assert (tmp_path / "a" / rows[0]["file"]).read_bytes() != (tmp_path / "b" / rows[0]["file"]).read_bytes()


def test_synth_leaves_another_split_alone(run, tmp_path: Path) -> None:
    out = str(tmp_path / "a")
    run("caption", "synth", "--out", out, "--split", "test", "--num", "1")
    outcome = run("caption", "synth", "--out", out, "--split", "dev", "--num", "1")
    assert outcome.code == 2
    assert f"{out}/captions.jsonl is there already" in outcome.err
    assert "Name another directory" in outcome.err
    assert run("caption", "synth", "--out", out, "--split", "test", "--num", "1").code == 0


def test_synth_names_the_package_that_is_missing(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgedraft.caption import espeak

    espeak.espeak.cache_clear()
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    outcome = run("caption", "synth", "--out", str(tmp_path / "a"), "--num", "1")
    assert outcome.code == 2
    assert "edgedraft[synth]" in outcome.err
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").write_text("")
    monkeypatch.undo()
    outcome = run("caption", "synth", "--out", str(tmp_path / "file" / "a"))
    assert outcome.code == 2
    assert "cannot be written" in outcome.err


def test_a_calibration_is_saved_and_used(run, pair: tuple[str, str], dataset: Path, tmp_path: Path) -> None:
    words = ("--draft", pair[0], "--max-tokens", "24", "--json")
    found = run("caption", "calibrate", str(dataset), "--share", "0.3", *words).json
    assert 0.2 < found["share"] <= 0.3
    assert found["num_clips"] == 6
    assert found["key"]["draft"].startswith("captioner:draft#"), "with these weights"
    assert found["rank"] == 1
    assert Path(found["saved_in"]).is_relative_to(tmp_path / "cache")
    assert found["ranks"] == []
    clip = str(next(dataset.glob("*.wav")))
    nobody = ("--url", "ws://127.0.0.1:1/v1/edgedraft")
    auto, given = (
        run("caption", clip, *words, *nobody, "--gamma", gamma).json for gamma in ("auto", str(found["threshold"]))
    )
    assert auto["notices"] == [], "it is calibrated now"
    unverified = [row["excerpts"][0]["caption"]["account"]["num_unverified"] for row in (auto, given)]
    assert unverified[0] == unverified[1] > 0


def test_ranks_are_tried_with_a_cloud(run, pair: tuple[str, str], dataset: Path, tmp_path: Path) -> None:
    pytest.importorskip("sacrebleu")
    words = ("--draft", pair[0], "--target", pair[1], "--max-tokens", "12", "--share", "0.5")
    out = tmp_path / "shipped.json"
    outcome = run("caption", "calibrate", str(dataset), *words, "--lang", "en", "--trade-clips", "2", "--out", str(out))
    assert outcome.code == 0, outcome.err
    assert "│ wished ┃ threshold" in outcome.out.replace("┃ wished", "│ wished")
    assert "BLEU-1 en" in outcome.out
    (saved,) = json.loads(out.read_text())["calibrations"]
    assert saved["target"] == "captioner:target", "whose verdicts the ranks were tried with"
    assert not (tmp_path / "cache").exists()


def test_ranks_without_a_cloud_are_no_table(run, pair: tuple[str, str], dataset: Path, tmp_path: Path) -> None:
    words = (
        "--draft",
        pair[0],
        "--max-tokens",
        "12",
        "--lang",
        "en",
        "--share",
        "0.5",
        "--out",
        str(tmp_path / "c.json"),
    )
    outcome = run("caption", "calibrate", str(dataset), *words, "--url", "ws://127.0.0.1:1/v1/edgedraft")
    assert outcome.code == 4, outcome.err
    assert "BLEU-1" not in outcome.out
    assert (tmp_path / "c.json").is_file(), "the threshold needs no cloud"


def test_recordings_that_cannot_be_used_are_told_all_at_once(
    run, pair: tuple[str, str], dataset: Path, tmp_path: Path
) -> None:
    names = sorted(path.name for path in dataset.glob("**/*.wav"))[:2]
    for path in dataset.glob("**/*.wav"):
        if path.name in names:
            path.write_bytes(b"RIFF")
    outcome = run("caption", "calibrate", str(dataset), "--draft", pair[0], "--out", str(tmp_path / "c.json"))
    assert outcome.code == 2
    assert all(name in outcome.err for name in names)
    assert not (tmp_path / "c.json").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--share", "0"], "share is 0"),
        (["--share", "1.5"], "share is 1.5"),
        (["--strategy", "exact"], "strategy 'exact' has no threshold"),
        (["--target", "captioner:cloud", "--url", "ws://127.0.0.1:1"], "target and url are both given"),
        (["--draft", "toy:vocab=300"], "a model of text"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_calibrated_is_refused(run, dataset: Path, words: list[str], said: str) -> None:
    outcome = run("caption", "calibrate", str(dataset), *words)
    assert outcome.code == 2
    assert said in outcome.err


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--max-tokens", "0"], "max_tokens is 0"), (["--url", "http://cloud"], "url is 'http://cloud'")],
    ids=["max-tokens", "url"],
)
def test_what_cannot_be_obeyed_is_refused_before_a_model_is_opened(
    run, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.setattr(CaptionerFamily, "open_tokenizer", lambda *_: pytest.fail("a model was opened"))
    outcome = run("caption", "calibrate", str(dataset), *words)
    assert outcome.code == 2
    assert said in outcome.err
    assert not (tmp_path / "cache").exists()


def test_a_target_that_is_none_is_refused_before_anything_is_saved(run, dataset: Path, tmp_path: Path) -> None:
    outcome = run("caption", "calibrate", str(dataset), "--target", "captioner:nothing-here")
    assert outcome.code == 3
    assert "there is no file 'nothing-here'" in outcome.err
    assert not (tmp_path / "cache").exists()


def test_a_dataset_with_missing_files_is_refused(run, pair: tuple[str, str], dataset: Path) -> None:
    gone = sorted(dataset.glob("*.wav"))[:2]
    for path in gone:
        path.unlink()
    outcome = run("caption", "calibrate", str(dataset), "--draft", pair[0])
    assert outcome.code == 2
    assert all(path.name in outcome.err for path in gone)
