"""Calibrations on disk: what was put is got, what is damaged is told, the user's own come first."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgedraft.backends.base import BackendOptions
from edgedraft.backends.registry import open_draft, open_tokenizer
from edgedraft.caption.calibration import CalibratedShare, Calibration, CalibrationKey
from edgedraft.caption.calibration_file import (
    CalibratedStrategy,
    CalibrationFile,
    calibrated_strategy,
    find_calibration,
    known_calibrations,
)
from edgedraft.caption.gate_choice import GateChoice
from edgedraft.core.gate import Threshold
from edgedraft.errors import InvalidRequestError

KEY = CalibrationKey.of("captioner:edge", GateChoice())


def calibration(threshold: float, key: CalibrationKey = KEY) -> Calibration:
    table = [CalibratedShare(wished=0.1, share=0.09, threshold=0.4)]
    return Calibration(key=key, threshold=threshold, share=0.1, num_clips=3, num_tokens=70, table=table, note="né")


def test_what_was_put_is_got(tmp_path: Path) -> None:
    file = CalibrationFile(tmp_path / "deep" / "er.json")
    assert file.get(KEY) is None
    other = msgspec.structs.replace(KEY, draft="another")
    file.put(calibration(0.5))
    file.put(calibration(0.7, other))
    file.put(calibration(0.6))
    assert CalibrationFile(file.path).get(KEY) == calibration(0.6)
    assert file.get(other) == calibration(0.7, other)
    assert len(file.all()) == 2
    assert [path.name for path in file.path.parent.iterdir()] == ["er.json"], "nothing partial is left"
    assert json.loads(file.path.read_text())["edgedraft_calibration"] == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is damaged"),
        (b"[]", "is damaged"),
        (b'{"edgedraft_calibration": 1}', "is damaged"),
        (b'{"edgedraft_calibration": 9, "calibrations": []}', "is of version 9"),
        (b'{"edgedraft_calibration": 1, "calibrations": [{"threshold": "x"}]}', "is damaged"),
        (b"\xff\xfe", "is damaged"),
        (b" " * 1_000_001, "is larger than"),
    ],
)
def test_a_damaged_file_is_told_by_name(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_bytes(content)
    with pytest.raises(InvalidRequestError, match=said) as caught:
        CalibrationFile(path).get(KEY)
    assert str(path) in caught.value.message
    assert "calibrate" in caught.value.remedy
    with pytest.raises(InvalidRequestError, match=said):
        CalibrationFile(path).put(calibration(0.5))
    assert path.read_bytes() == content, "what cannot be read is not overwritten"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"threshold": -5.0}, "threshold .* is -5"),
        ({"threshold": 50.0}, "threshold .* is 50"),
        ({"rank": 0}, "rank is 0"),
        ({"key": msgspec.structs.replace(KEY, unit="word")}, "unit is 'word'"),
    ],
)
def test_numbers_that_cannot_be_are_told_with_their_file(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    file = CalibrationFile(tmp_path / "calibration.json")
    file.put(msgspec.structs.replace(calibration(0.5), **fields))
    with pytest.raises(InvalidRequestError, match=f"calibration.json holds what cannot be: {said}"):
        file.all()


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="is not a file") as caught:
        CalibrationFile(tmp_path).put(calibration(0.5))
    assert caught.value.remedy == "Name another place."


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequestError, match="cannot be"):
        CalibrationFile(tmp_path / "file" / "calibration.json").put(calibration(0.5))


def test_the_users_own_comes_first_and_a_language_before_all(tmp_path: Path) -> None:
    own, shipped = CalibrationFile(tmp_path / "own.json"), CalibrationFile(tmp_path / "shipped.json")
    chinese = msgspec.structs.replace(KEY, language="zh")
    shipped.put(calibration(0.1))
    shipped.put(calibration(0.2, chinese))
    assert find_calibration(chinese, (own, shipped)) == calibration(0.2, chinese)
    own.put(calibration(0.3))
    assert find_calibration(chinese, (own, shipped)) == calibration(0.3)
    assert find_calibration(msgspec.structs.replace(KEY, block="7"), (own, shipped)) is None


def test_without_a_calibration_the_published_threshold_comes_with_a_notice(tmp_path: Path) -> None:
    files = (CalibrationFile(tmp_path / "none.json"),)
    found = settled(GateChoice(strategy="ugsd"), "captioner:edge", files)
    assert threshold_of(found) == 3.5
    assert "was not calibrated for captioner:edge" in found.notice
    with pytest.raises(InvalidRequestError, match="margin was not calibrated"):
        settled(GateChoice(measure="margin"), "captioner:edge", files)
    files[0].put(msgspec.structs.replace(calibration(0.31), target="a-target"))
    found = settled(GateChoice(), "captioner:edge", files)
    assert (threshold_of(found), found.target, found.notice) == (0.31, "a-target", "")


def settled(choice: GateChoice, draft: str, files: Sequence[CalibrationFile], lang: str = "en") -> CalibratedStrategy:
    return calibrated_strategy(choice, open_tokenizer("captioner:edge"), draft, lang, files)


def threshold_of(found: CalibratedStrategy) -> float:
    assert found.strategy.gating is not None
    gate = found.strategy.gating.gate
    assert isinstance(gate, Threshold)
    return gate.threshold


def shipped_draft() -> str:
    return open_draft("captioner:edge", BackendOptions()).info.identity


def test_other_weights_of_the_same_name_are_not_calibrated(tmp_path: Path) -> None:
    name = shipped_draft()
    assert name.startswith("captioner:edge#")
    other = name[:-1] + ("0" if name[-1] != "0" else "1")
    found = settled(GateChoice(), other, known_calibrations(tmp_path))
    assert "was not calibrated for captioner:edge with" in found.notice


def test_the_rank_that_was_saved_goes_with_the_threshold(tmp_path: Path) -> None:
    file = CalibrationFile(tmp_path / "calibration.json")
    file.put(msgspec.structs.replace(calibration(0.4), rank=2))
    saved, given = (settled(choice, "captioner:edge", [file]).strategy for choice in (GateChoice(), GateChoice(rank=3)))
    assert (saved.rank, given.rank) == (2, 3)


@pytest.mark.parametrize("strategy", ["ugsd-sparse", "ugsd"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_shipped_pair_is_calibrated(strategy: str, language: str, tmp_path: Path) -> None:
    """So that `--gamma auto` has nothing to excuse; no such threshold is one of the published guesses."""
    found = settled(GateChoice(strategy=strategy), shipped_draft(), known_calibrations(tmp_path), language)
    assert (found.notice, found.target) == ("", "captioner:cloud")
    assert 0.0 < threshold_of(found) < 1.0


def test_a_fifo_in_its_place_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    os.mkfifo(path)
    with pytest.raises(InvalidRequestError, match="is not a file"):
        CalibrationFile(path).all()
