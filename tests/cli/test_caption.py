"""`edgedraft caption` against a real cloud: what it says, what leaves, what it refuses, and how it goes on."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.backends.captioner_pair import speech
from tests.cli.captions import NOBODY, only, rows, saved

from edgedraft.backends.base import BackendOptions, ScoreRequest
from edgedraft.backends.captioner import CaptionerFamily, CaptionerTarget
from edgedraft.backends.registry import open_target, open_tokenizer
from edgedraft.caption.audio import load
from edgedraft.caption.recording import Recording, Source
from edgedraft.cli import caption as command
from edgedraft.cli.demo_captions import CLIPS
from edgedraft.testing.cloud import running_cloud
from edgedraft.types import Float32Array

pytest.importorskip("soundfile")
pytest.importorskip("soxr")
pytest.importorskip("espeakng_loader")
pytestmark = pytest.mark.usefixtures("own_cache")


# -- what it says ------------------------------------------------------------------------------------------------------


def test_the_text_goes_to_stdout_and_the_account_to_stderr(caption, clip: Path) -> None:
    text = only(caption(clip, "--gamma", "0.6", "--json"))["text"]
    outcome = caption(clip, "--gamma", "0.6")
    assert outcome.code == 0
    assert outcome.out == text + "\n"
    assert "s of audio · left this device: pooled from 'edgedraft-mel-40', 40 values at 25 Hz, int8:" in outcome.err
    assert "of the draft verified" in outcome.err
    assert "first token after" in outcome.err
    assert "\x1b" not in outcome.out + outcome.err, "no colours into a pipe"


def test_json_is_one_object_a_recording(caption, clip: Path) -> None:
    outcome = caption(clip, "--gamma", "0.6", "--json")
    assert outcome.err == ""
    (row,) = rows(outcome)
    assert list(row) == [
        *("file", "format", "sample_rate_hz", "channels", "seconds", "seconds_used", "level_db", "clipped_share"),
        *("notices", "excerpts", "gate"),
    ]
    assert row["file"] == str(clip)
    assert row["seconds"] == row["seconds_used"] == pytest.approx(len(speech()) / 16_000)
    account = row["excerpts"][0]["caption"]["account"]
    assert account["feature_bytes"] == 40 * -(-len(speech()) // 640)
    assert account["bytes_up"] > account["feature_bytes"]
    assert 0 < account["verified_share"] < 1
    assert account["num_cloud_calls"] > 0


def test_json_tells_what_the_gate_was(caption, clip: Path) -> None:
    def gate(*words: str) -> dict[str, Any]:
        return rows(caption(clip, *words, "--json"))[0]["gate"]

    assert gate("--gamma", "0.6") == {
        "strategy": "ugsd-sparse",
        "measure": "max-probability",
        "threshold": 0.6,
        "rank": 1,
        "unit": "tokens",
        "block_tokens": [1],
        "count_local": True,
        "forced": [],
        "bonus": False,
        "draft_ahead": True,
    }
    words = "--strategy ugsd --rank 7 --unit from-first --forced cycle,language --bonus --no-draft-ahead"
    assert gate(*words.split()) == {
        "strategy": "ugsd",
        "measure": "entropy",
        "threshold": 3.5,
        "rank": 7,
        "unit": "from-first",
        "block_tokens": [3, 5, 7],
        "count_local": True,
        "forced": ["cycle", "language"],
        "bonus": True,
        "draft_ahead": False,
    }
    exact = gate("--exact", "--block", "4")
    assert (exact["measure"], exact["threshold"], exact["rank"], exact["block_tokens"]) == (None, None, 1, [4])
    for strategy in ("edge-only", "cloud-only"):
        assert {name for name, value in gate("--strategy", strategy).items() if value is not None} == {"strategy"}


def test_tokens_and_entropies_are_shown_on_request(caption, clip: Path) -> None:
    plain = caption(clip, "--gamma", "0.6")
    shown = caption(clip, "--gamma", "0.6", "--show-tokens", "--show-entropy")
    assert shown.out == plain.out
    assert "tokens: " in shown.err
    assert "local" in shown.err
    bars = [line for line in shown.err.splitlines() if "█" in line]
    assert 0 < len(bars) <= 24


def test_the_word_file_may_be_left_out(caption, run, clip: Path) -> None:
    assert rows(caption(clip, "--json"))[0]["file"] == str(clip)
    assert "edgedraft caption file" in run("caption", "--help").out


def test_a_file_that_is_named_like_a_command(
    run, pair: tuple[str, str], clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clip.rename(clip.with_name("calibrate"))
    monkeypatch.chdir(clip.parent)
    words = ("--draft", pair[0], "--strategy", "edge-only", "--max-tokens", "4", "--json")
    for first in (["./calibrate"], ["file", "calibrate"]):
        assert rows(run("caption", *first, *words))[0]["excerpts"][0]["caption"]
    assert "Missing argument 'DATASET'" in run("caption", "calibrate").err


def test_names_cannot_command_the_terminal(caption, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    odd = clip.rename(clip.with_name("a\x1b[2J[-bold]:cat:.wav"))
    gone = clip.with_name("gone\r\x1b]0;x\x07.wav")
    outcome = caption(odd, gone, "--strategy", "edge-only")
    assert "\x1b[2J" not in outcome.out + outcome.err
    assert "\x1b]0" not in outcome.out + outcome.err
    assert rf"{clip.parent}/a\x1b[2J[-bold]:cat:.wav:" in outcome.out
    assert rf"{clip.parent}/gone\x0d\x1b]0;x\x07.wav does not exist." in outcome.err
    told = rows(caption(odd, gone, "--strategy", "edge-only", "--json"))
    assert [row["file"] for row in told] == [str(odd), str(gone)], "JSON has the name itself"


def test_a_name_that_looks_like_markup_is_a_name(caption, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.chdir(clip.parent)
    Path("[").mkdir()
    clip.rename("[/bold].wav")
    outcome = caption("[/bold].wav", "--strategy", "edge-only")
    assert outcome.code == 0, outcome.err
    assert "reading [/bold].wav ..." in outcome.err


# -- exactness and strategies ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(3))
def test_exact_is_the_clouds_own_caption(caption, tmp_path: Path, number: int) -> None:
    clip = saved(tmp_path / "clip.wav", speech(number))
    alone = only(caption(clip, "--strategy", "cloud-only", "--json"))
    for words in (["--exact"], ["--strategy", "exact", "--block", "2", "--no-draft-ahead"]):
        exact = only(caption(clip, *words, "--json"))
        assert exact["token_ids"] == alone["token_ids"]
        assert exact["exact"] == alone["exact"] == "bitwise"
        assert exact["account"]["verified_share"] == 1.0
    draft = only(caption(clip, "--strategy", "edge-only", "--json"))
    assert draft["token_ids"] != alone["token_ids"], "else this shows nothing"


def test_the_shipped_pair_on_the_shipped_clips(run) -> None:
    files = [str(CLIPS / f"{language}.wav") for language in ("en", "zh")]
    target = open_target("captioner:cloud", BackendOptions(deterministic=True))
    with running_cloud(target, open_tokenizer("captioner:cloud")) as shipped:
        exact, alone, gated, draft = (
            [row["excerpts"][0]["caption"] for row in rows(run("caption", *files, "--url", shipped.url, *words))]
            for words in (
                ["--json", "--exact"],
                ["--json", "--strategy", "cloud-only"],
                ["--json"],
                ["--json", "--strategy", "edge-only"],
            )
        )
    texts = [[caption["token_ids"] for caption in captions] for captions in (exact, alone, draft)]
    assert texts[0] == texts[1] != texts[2]
    for account in (caption["account"] for caption in gated):
        assert 0 < account["verified_share"] < 0.5
        assert account["feature_bytes"] < 0.02 * account["seconds"] * 32_000
    assert {caption["finish_reason"] for caption in gated} == {"stop"}


def test_flags_reach_the_strategy(caption, clip: Path) -> None:
    def share(*words: str) -> float:
        return only(caption(clip, *words, "--json"))["account"]["verified_share"]

    assert share("--gamma", "0.01") < share("--gamma", "0.5") < share("--gamma", "0.99")
    assert share("--gamma", "0.4", "--unit", "block") > share("--gamma", "0.4")
    ranked, strict = (only(caption(clip, "--gamma", "0.99", "--rank", rank, "--json")) for rank in ("250", "1"))
    assert ranked["account"]["num_corrections"] == 0
    assert strict["account"]["num_corrections"] > 0
    assert share("--gamma", "0.01", "--forced", "cycle") > share("--gamma", "0.01")
    assert only(caption(clip, "--strategy", "ugsd", "--json"))["strategy"] == "ugsd"
    judged = rows(caption(clip, "--strategy", "ugsd", "--gamma", "0.5", "--no-count-local", "--json"))[0]
    assert not judged["gate"]["count_local"]
    float16 = only(caption(clip, "--exact", "--dtype", "float16", "--json"))["account"]
    assert float16["features"].endswith("float16")


def test_an_uncalibrated_threshold_is_said_so(caption, clip: Path) -> None:
    assert "was not calibrated" in caption(clip).err
    assert "was not calibrated" in rows(caption(clip, "--json"))[0]["notices"][0]
    assert "was not calibrated" not in caption(clip, "--gamma", "0.5").err


# -- the cloud ---------------------------------------------------------------------------------------------------------


def test_edge_only_makes_no_connection(caption, clip: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"ws://127.0.0.1:{server.getsockname()[1]}/v1/edgedraft"
        outcome = caption(clip, "--strategy", "edge-only", url=url)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert outcome.code == 0
    assert "nothing left this device" in outcome.err


def test_without_a_cloud_the_caption_is_the_edges_own_and_labelled(caption, clip: Path) -> None:
    draft = only(caption(clip, "--strategy", "edge-only", "--json"))
    alone = only(caption(clip, "--gamma", "0.9", "--json", url=NOBODY))
    assert alone["token_ids"] == draft["token_ids"]
    assert alone["account"]["num_unverified"] > 0
    assert "no cloud at" in alone["notices"][0]
    assert "out of reach" in alone["notices"][1]
    assert "unverified: no verdict came" in caption(clip, "--gamma", "0.9", url=NOBODY).err


def test_nothing_left_is_said_only_where_nobody_was_called(caption, clip: Path, hanging_up: str) -> None:
    for url in (NOBODY, hanging_up):
        account = only(caption(clip, "--gamma", "0.9", "--json", url=url))["account"]
        assert (account["called_cloud"], account["bytes_up"]) == (True, 0)
        told = caption(clip, "--gamma", "0.9", url=url).err
        assert "the cloud was called, but no features and no text left this device" in told
        assert "nothing left" not in told
    assert not only(caption(clip, "--strategy", "edge-only", "--json"))["account"]["called_cloud"]
    assert not only(caption(clip, "--gamma", "0.001", "--json"))["account"]["called_cloud"], "nothing was doubted"


@pytest.mark.parametrize("words", [["--strategy", "cloud-only"], ["--gamma", "0.9", "--on-link-loss", "fail"]])
def test_where_the_cloud_is_needed_its_absence_is_an_error(caption, clip: Path, words: list[str]) -> None:
    outcome = caption(clip, *words, url=NOBODY)
    assert outcome.code == 4
    assert "no cloud at" in outcome.err


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_a_signal_ends_it_without_a_word(pair: tuple[str, str], clip: Path, number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(30)
        url = f"ws://127.0.0.1:{silent.getsockname()[1]}/v1/edgedraft"
        words = [sys.executable, "-m", "edgedraft", "caption", str(clip), "--draft", pair[0], "--url", url, "--exact"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            connection, _ = silent.accept()  # now it waits for the cloud's greeting
            child.send_signal(number)
            out, errors = child.communicate(timeout=30)
            connection.close()
    assert child.returncode == 128 + number
    assert (out, errors) == ("", "")


class _Mortal(CaptionerTarget):
    """Calls `die` at the third pass, which does not end before `buried`."""

    num_passes = 0
    die: Callable[[], None]
    buried: threading.Event

    def score(self, requests: Sequence[ScoreRequest]) -> Sequence[Float32Array]:
        self.num_passes += 1
        if self.num_passes == 3:
            self.die()
            assert self.buried.wait(20)
        return super().score(requests)


def test_a_cloud_that_dies_midway_and_comes_back(
    caption, pair: tuple[str, str], clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = open_target(pair[1], BackendOptions(deterministic=True))
    assert isinstance(whole, CaptionerTarget)
    target = _Mortal(whole.model, "mortal", max_batch_sessions=1)
    target.buried = threading.Event()
    second = saved(tmp_path / "second.wav", speech(1))
    with running_cloud(target, open_tokenizer(pair[1])) as mortal:
        target.die = lambda: threading.Thread(target=mortal.stop, daemon=True).start()

        def load_it(path: str) -> Any:
            if path == str(second):
                target.buried.set()
                mortal.restart()
            return load(path)

        monkeypatch.setattr(command, "load", load_it)
        words = ("--gamma", "0.9", "--block", "3", "--json")
        first, after = rows(caption(clip, second, *words, url=mortal.url))
    account = first["excerpts"][0]["caption"]["account"]
    assert account["num_cloud_calls"] > 0, "it was there at first"
    assert account["num_unverified"] > 0
    assert "out of reach" in first["excerpts"][0]["caption"]["notices"][0]
    assert after["excerpts"][0]["caption"]["account"]["num_unverified"] == 0, "and it is asked again"
    assert after["excerpts"][0]["caption"]["account"]["num_cloud_calls"] > 0


def test_other_features_than_the_cloud_listens_to_are_refused(caption, clip: Path) -> None:
    outcome = caption(clip, "--features", "logmel", "--exact")
    assert outcome.code == 2
    assert "the target listens to pooled" in outcome.err


# -- what it refuses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gamma", "1"], "legal for max-probability: above 0, below 1"),
        (["--gamma", "0"], "legal for max-probability: above 0, below 1"),
        (["--gamma", "nan", "--measure", "entropy"], "threshold (gamma) is nan"),
        (["--gamma", "x"], "gamma is 'x'"),
        (["--gamma", "0", "--measure", "log-probability"], "below 0"),
        (["--strategy", "best"], "legal: ugsd-sparse, ugsd, exact, cloud-only, edge-only"),
        (["--exact", "--strategy", "ugsd"], "exact is given with strategy 'ugsd'"),
        (["--exact", "--gamma", "0.3"], "threshold (gamma) is set, which strategy 'exact' has no use for"),
        (["--strategy", "edge-only", "--block", "3"], "lengths (block) is set"),
        (["--strategy", "edge-only", "--rank", "3"], "strategy 'edge-only' has no use for"),
        (["--rank", "0"], "rank is 0"),
        (["--rank", "x"], "rank is 'x'"),
        (["--block", "0"], "block is 0; legal: dynamic, or 1 to 32"),
        (["--block", "long"], "legal: dynamic or a whole number"),
        (["--unit", "word"], "legal: block, from-first, tokens"),
        (["--measure", "mood"], "measure is 'mood'"),
        (["--forced", "cycle,moon"], "forced is 'moon'; legal: punctuation"),
        (["--features", "wave"], "features is 'wave'; legal: auto, logmel"),
        (["--max-tokens", "0"], "max_tokens is 0"),
        (["--window-s", "0.5"], "window_s is 0.5; legal: 1 to 60"),
        (["--window-s", "61"], "window_s is 61; legal: 1 to 60"),
        (["--window-s", "nan"], "window_s is nan; legal: 1 to 60"),
        (["--url", "http://cloud"], "url is 'http://cloud'"),
        (["--bonus", "--draft-ahead"], "draft_ahead is set together with bonus"),
        (["--no-count-local"], "count_local is given for blocks of one length"),
        (["--exact", "--no-count-local"], "count_local is set, which strategy 'exact' has no use for"),
        (["--mic", "3"], "mic is given together with files"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_obeyed_is_refused_before_a_model_is_opened(
    caption, clip: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.setattr(CaptionerFamily, "open_tokenizer", lambda *_: pytest.fail("a model was opened"))
    outcome = caption(clip, *words)
    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.out == ""


def test_an_entropy_that_cannot_be_and_an_unknown_language(caption, clip: Path) -> None:
    outcome = caption(clip, "--strategy", "ugsd", "--gamma", "5.56")
    assert outcome.code == 2
    assert "below ln 259 = 5.557" in outcome.err
    outcome = caption(clip, "--lang", "fr")
    assert outcome.code == 2
    assert "language is 'fr'" in outcome.err


def test_a_model_of_text_is_refused(run, clip: Path) -> None:
    outcome = run("caption", str(clip), "--draft", "toy:vocab=300")
    assert outcome.code == 2
    assert "a model of text" in outcome.err


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--mic", "0.1"], "seconds is 0.1"), (["--mic", "5", "--window-s", "0.5"], "window_s is 0.5")],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_the_microphone_waits_for_no_model_to_be_refused(
    caption, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.setattr(CaptionerFamily, "open_tokenizer", lambda *_: pytest.fail("a model was opened"))
    outcome = caption(*words)
    assert outcome.code == 2
    assert said in outcome.err


def test_the_microphone_is_recorded(caption, monkeypatch: pytest.MonkeyPatch) -> None:
    def recorded(seconds: float) -> Recording:
        assert seconds == 2.0
        source = Source(sample_rate_hz=16_000, channels=1, format="microphone, FLOAT")
        return Recording(waveform=speech(), source=source, name="microphone")

    monkeypatch.setattr(command.microphone, "check", lambda _: None)
    monkeypatch.setattr(command.microphone, "record", recorded)
    (row,) = rows(caption("--mic", "2", "--gamma", "0.5", "--json"))
    assert row["file"] == "microphone"
    assert row["excerpts"][0]["caption"]["token_ids"]


def test_a_window_that_the_model_cannot_take_is_refused_before_anything_is_recorded(
    run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command.microphone, "check", lambda _: None)
    monkeypatch.setattr(command.microphone, "record", lambda _: pytest.fail("it was recorded"))
    outcome = run("caption", "--mic", "2", "--strategy", "edge-only", "--window-s", "30")
    assert outcome.code == 2
    assert "window_s is 30; legal: 1 to 12" in outcome.err


def test_recordings_longer_than_the_model_takes_are_cut_by_themselves(run, tmp_path: Path) -> None:
    """The shipped pair takes 12 s: half a minute is cut at pauses, and a wider window is refused."""
    samples = np.concatenate([part for seed in range(8) for part in (speech(seed), np.zeros(16_000, np.float32))])
    path = saved(tmp_path / "long.wav", samples)
    assert len(samples) / 16_000 > 20
    (row,) = rows(run("caption", str(path), "--strategy", "edge-only", "--json"))
    assert max(each["end_s"] - each["start_s"] for each in row["excerpts"]) <= 12.0
    assert all(each["caption"] for each in row["excerpts"])
    outcome = run("caption", str(path), "--strategy", "edge-only", "--window-s", "30")
    assert outcome.code == 2
    assert "legal: 1 to 12" in outcome.err
