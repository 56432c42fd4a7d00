"""`edgedraft caption privacy`: every byte accounted for, and the attack."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.captions import NOBODY

from edgedraft.backends.base import BackendOptions
from edgedraft.backends.registry import open_draft, open_target, open_tokenizer
from edgedraft.caption import calibration_file, recogniser
from edgedraft.caption.calibration import Calibration, CalibrationKey
from edgedraft.caption.gate_choice import GateChoice
from edgedraft.caption.tap import Tap
from edgedraft.cli.caption_flags import FEATURES
from edgedraft.cli.demo_captions import CLIPS
from edgedraft.sim.network import Way
from edgedraft.testing.cloud import RunningCloud, running_cloud

pytest.importorskip("soundfile")
EN, ZH = CLIPS / "en.wav", CLIPS / "zh.wav"
SENT = {"Hello", "Open", "Features", "Draft", "Close"}


@pytest.fixture(scope="module")
def cloud() -> Iterator[RunningCloud]:
    target = open_target("captioner:cloud", BackendOptions())
    with running_cloud(target, open_tokenizer("captioner:cloud")) as running:
        yield running


@pytest.fixture
def privacy(run: Any, cloud: RunningCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`edgedraft caption privacy` with a cloud that runs; None as `url`: it starts one of its own."""
    monkeypatch.setenv("EDGEDRAFT_CACHE", str(tmp_path / "cache"))

    def accounted(*words: object, url: str | None = cloud.url) -> Any:
        return run("caption", "privacy", *(() if url is None else ("--url", url)), *map(str, words))

    return accounted


def test_what_left_is_told_byte_by_byte(privacy: Callable[..., Any]) -> None:
    outcome = privacy(EN, ZH, "--lang", "en", "--strategy", "exact", "--json", url=None)
    assert outcome.code == 0
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    assert [row["file"] for row in rows] == [str(EN), str(ZH)]
    for row in rows:
        found, (caption,) = row["ledger"], row["captions"]
        assert found["holds_only_declared"]
        assert found["search_is_clean"]
        (features,) = found["features"]
        assert features["num_bytes"] == caption["account"]["feature_bytes"] > 0
        kinds = {entry["kind"] for entry in found["entries"] if entry["way"] == "up"}
        assert SENT <= kinds <= SENT | {"http", "control"}


def test_a_calibrated_threshold_needs_no_word(
    privacy: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No notice, and no empty line in its place; where there is no calibration, a notice."""
    monkeypatch.setattr(calibration_file, "SHIPPED", tmp_path / "none.json")
    assert "was not calibrated" in privacy(EN).err
    draft = open_draft("captioner:edge", BackendOptions()).info.identity
    key = CalibrationKey.of(draft, GateChoice())
    found = Calibration(key=key, threshold=1e-9, share=0.0, num_clips=1, num_tokens=1)
    calibration_file.CalibrationFile.of_user(tmp_path / "cache").put(found)
    outcome = privacy(EN)
    assert "nothing left this device" in outcome.out
    assert outcome.err == ""


def test_nothing_leaves_where_the_edge_is_alone(privacy: Callable[..., Any]) -> None:
    outcome = privacy(EN, "--strategy", "edge-only")
    assert outcome.code == 0
    assert "nothing left this device, not even a connection" in outcome.out


@pytest.mark.parametrize("words", [("--gamma", "0.99"), ("--strategy", "exact"), ("--strategy", "cloud-only")])
def test_a_cloud_that_is_not_reached_is_no_all_clear(privacy: Callable[..., Any], words: tuple[str, ...]) -> None:
    outcome = privacy(EN, *words, url=NOBODY)
    assert outcome.code == 4
    assert outcome.out == ""
    assert f"the cloud at {NOBODY} was called and not reached" in outcome.err
    assert "does not show what a caption sends" in outcome.err
    told = json.loads(privacy(EN, *words, "--json", url=NOBODY).err)
    assert told["error"]["code"] == "cloud_unreachable"


def test_what_passed_before_an_error_is_told(privacy: Callable[..., Any], hanging_up: str) -> None:
    outcome = privacy(EN, "--gamma", "0.99", "--token", "secret", url=hanging_up)
    assert outcome.code == 4
    assert "host and, where one is set, the token" in outcome.out
    assert "nothing left" not in outcome.out
    assert f"the cloud at {hanging_up} was called and not reached" in outcome.err


def test_waveform_that_leaks_is_found(privacy: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A tap that also sees 40 ms of the file's own samples: exit code 1, and said so."""
    take = Tap.take

    def leaking(tap: Tap) -> object:
        tap.hear(Way.UP, EN.read_bytes()[8000:9280])
        return take(tap)

    monkeypatch.setattr(Tap, "take", leaking)
    outcome = privacy(EN, "--strategy", "exact")
    assert outcome.code == 1
    assert "UNDECLARED" in outcome.out


def test_the_attack_writes_what_each_kind_gives_away(privacy: Callable[..., Any], tmp_path: Path) -> None:
    voices = []
    for speaker, clip in (("anna", EN), ("ben", ZH)):
        for number in range(2):
            path = tmp_path / speaker / f"{number}.wav"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(clip.read_bytes())
            voices.append(path)
    outcome = privacy(*voices, "--strategy", "edge-only", "--attack", tmp_path / "heard", "--json")
    assert outcome.code == 0
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    words = [row["attack_on_words"] for row in rows if "attack_on_words" in row]
    assert len(words) == len(voices)
    likeness = {(each["spec"]["kind"], each["spec"]["rate_hz"]): each["envelope_correlation"] for each in words[0]}
    assert likeness["logmel", 100.0] > likeness["pooled", 25.0] > likeness["prosody", 25.0]
    (told,) = [row["attack_on_voices"] for row in rows if "attack_on_voices" in row]
    assert {each["num_speakers"] for each in told} == {2}
    assert len(list((tmp_path / "heard").glob("*.wav"))) == len(FEATURES) * len(voices)


@pytest.mark.parametrize(
    ("installed", "said"),
    [
        ("faster_whisper", "faster-whisper is installed: give its model with --recogniser DIR"),
        (None, "No recogniser is given (--recogniser DIR)"),
    ],
)
def test_how_words_come_to_be_counted_is_told(
    privacy: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: str | None, said: str
) -> None:
    monkeypatch.setattr(recogniser, "installed_recogniser", lambda: installed)
    outcome = privacy(EN, "--strategy", "edge-only", "--attack", tmp_path / "heard")
    assert outcome.code == 0
    assert said in " ".join(outcome.err.split())


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--words", "hello"), "words is given without attack"),
        (("--recogniser", "here"), "recogniser is given without attack"),
        (("--url", "wss://cloud.example/v1/edgedraft"), "what passes under TLS"),
        (("--url", "ws://127.0.0.1:99999/"), "is no address: Port out of range"),
        (("--features", "pcm"), "features is 'pcm'"),
        (("--attack", "heard", "--recogniser", "/nowhere"), "/nowhere is not a folder"),
        (("--gamma", "2"), "gamma"),
    ],
)
def test_what_is_refused(privacy: Callable[..., Any], words: tuple[str, ...], named: str) -> None:
    outcome = privacy(EN, *words)
    assert outcome.code == 2
    assert named in outcome.err
    assert outcome.out == "", "nothing was captioned"


def test_a_bad_file_does_not_stop_the_others(privacy: Callable[..., Any], tmp_path: Path) -> None:
    outcome = privacy(tmp_path / "none.wav", EN, "--strategy", "edge-only")
    assert outcome.code == 2
    assert "does not exist" in outcome.err
    assert "nothing left this device" in outcome.out
