"""`edgedraft caption`: recordings of every kind, and what is none."""

from __future__ import annotations

import errno
import itertools
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.backends.captioner_pair import speech
from tests.cli.captions import NOBODY, rows, saved

pytest.importorskip("soundfile")
soxr = pytest.importorskip("soxr")
pytest.importorskip("espeakng_loader")

FORMATS = [
    ("a.wav", "PCM_U8", 8_000, 1),
    ("b.wav", "PCM_16", 44_100, 2),
    ("c.wav", "PCM_24", 48_000, 6),
    ("d.wav", "PCM_32", 96_000, 1),
    ("e.wav", "FLOAT", 192_000, 1),
    ("f.wav", "DOUBLE", 11_025, 2),
    ("g.flac", "PCM_16", 22_050, 1),
    ("h.flac", "PCM_24", 32_000, 2),
    ("i.ogg", "VORBIS", 44_100, 1),
    ("j.mp3", "MPEG_LAYER_III", 16_000, 2),
]


def test_ten_formats_and_rates(caption, tmp_path: Path) -> None:
    files = []
    for name, subtype, rate_hz, channels in FORMATS:
        mono = soxr.resample(speech(), 16_000, rate_hz).clip(-1, 1)
        files.append(saved(tmp_path / name, np.repeat(mono[:, None], channels, axis=1), rate_hz, subtype))
    outcome = caption(*files, "--gamma", "0.5", "--json")
    assert outcome.code == 0, outcome.out
    for row, (name, _, rate_hz, channels) in zip(rows(outcome), FORMATS, strict=True):
        assert Path(row["file"]).name == name
        assert (row["sample_rate_hz"], row["channels"]) == (rate_hz, channels)
        assert row["excerpts"][0]["caption"]["token_ids"]


def test_bad_recordings_do_not_stop_the_others(caption, clip: Path, tmp_path: Path) -> None:
    bad = {
        "empty.wav": b"",
        "cut.wav": clip.read_bytes()[:9_000],
        "words.mp3": b"these are words",
        "locked.zip": b"PK\x03\x04\x14\x00\x01\x00" + bytes(60),
    }
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
    not_finite = np.full(16_000, np.nan, np.float32)
    saved(tmp_path / "nan.wav", not_finite, subtype="FLOAT")
    saved(tmp_path / "short.wav", speech()[:800])
    saved(tmp_path / "one.wav", speech()[:1])
    saved(tmp_path / "long.flac", np.zeros(8_000 * 7_200, np.int16), 8_000)
    names = [*bad, "nan.wav", "short.wav", "one.wav", "long.flac", "nowhere.wav", "."]
    paths = [tmp_path / name for name in names]
    told = rows(caption(*paths, clip, "--json"))
    assert [row["file"] for row in told] == [*map(str, paths), str(clip)]
    for row in told[:-1]:
        assert row["error"]["message"].startswith(row["file"])
        assert row["error"]["remedy"]
    assert told[-1]["excerpts"][0]["caption"]
    outcome = caption(paths[0], clip)
    assert outcome.code == 2
    assert f"error: {paths[0]} is empty." in outcome.err
    assert outcome.out.startswith(f"{clip}:\n")


def test_a_recording_that_may_not_be_read_does_not_stop_the_others(
    caption, run, clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a user who may not: whoever asks beforehand hears no, whoever opens is refused."""
    locked = tmp_path / "locked.wav"
    locked.write_bytes(clip.read_bytes())
    opened = Path.open

    def guarded(path: Path, *mode: Any, **options: Any) -> Any:
        if path == locked:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opened(path, *mode, **options)

    monkeypatch.setattr(os, "access", lambda path, *_: str(path) != str(locked))
    monkeypatch.setattr(Path, "open", guarded)
    told = rows(caption(locked, clip, "--strategy", "edge-only", "--json"))
    assert told[0]["error"]["message"] == f"{locked} may not be read by you."
    assert told[1]["excerpts"][0]["caption"]
    outcome = run("caption", "privacy", str(locked), str(clip), "--strategy", "edge-only", "--url", NOBODY)
    assert outcome.code == 2
    assert f"error: {locked} may not be read by you." in outcome.err
    assert f"{clip}: nothing left" in outcome.out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "error: the name of the recording is empty. Name a file."),
        ("-", "error: - is no file, and stdin is not read. Name a file."),
    ],
)
def test_names_that_are_no_file(caption, clip: Path, name: str, said: str) -> None:
    outcome = caption(name, clip, "--strategy", "edge-only")
    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.out.startswith(f"{clip}:\n"), "the others are captioned"


def test_without_a_file_it_is_said_that_stdin_is_not_read(caption) -> None:
    outcome = caption("--strategy", "edge-only")
    assert outcome.code == 2
    assert "file is missing, and stdin is not read. Name a recording" in outcome.err


@pytest.mark.parametrize("kind", ["silence", "noise"])
def test_without_speech_nothing_is_sent(caption, tmp_path: Path, kind: str) -> None:
    samples = np.random.default_rng(0).normal(0, 0.1, 32_000).astype(np.float32) * (kind == "noise")
    path = saved(tmp_path / "quiet.wav", samples)
    outcome = caption(path, "--exact", url=NOBODY)
    assert outcome.code == 6
    assert outcome.out == ""
    assert "no speech found" in outcome.err
    (row,) = rows(caption(path, "--exact", "--json", url=NOBODY))
    assert row["seconds_used"] == 0.0
    assert [excerpt["caption"] for excerpt in row["excerpts"]] == [None]


def test_long_recordings_are_cut_at_their_pauses(caption, tmp_path: Path) -> None:
    pause = np.zeros(24_000, np.float32)
    samples = np.concatenate([speech(0), pause, speech(1), pause, speech(2)])
    path = saved(tmp_path / "long.wav", samples)
    (row,) = rows(caption(path, "--window-s", "6", "--gamma", "0.5", "--json"))
    bounds = [(each["start_s"], each["end_s"]) for each in row["excerpts"]]
    assert len(bounds) > 2
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(bounds))
    assert bounds[-1][1] == pytest.approx(len(samples) / 16_000, abs=0.5)
    assert max(end - start for start, end in bounds) <= 6.01
    outcome = caption(path, "--window-s", "6", "--gamma", "0.5")
    assert "seconds used: 0.0 to " in outcome.err
    assert outcome.out.count(" s] ") == sum(each["caption"] is not None for each in row["excerpts"])


def test_silence_around_speech_is_left_out_and_said(caption, tmp_path: Path) -> None:
    silence = np.zeros(32_000, np.float32)
    path = saved(tmp_path / "late.wav", np.concatenate([silence, speech(0), silence]))
    outcome = caption(path, "--gamma", "0.5")
    assert re.search(r"seconds used: [12]\.\d to ", outcome.err)


def test_loud_recordings_are_told(caption, tmp_path: Path) -> None:
    loud = saved(tmp_path / "loud.wav", (speech() * 200).clip(-1, 1))
    assert "clips in" in caption(loud, "--gamma", "0.5").err
