"""The microphone, with a stand-in for the library: no test machine has one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgedraft.caption import libraries, microphone
from edgedraft.errors import InvalidRequestError, UnsupportedError


class PortAudioError(Exception):
    """As the library's."""


def stand_in(*, devices: int = 1, fails: bool = False, level: float = 0.1) -> Any:
    def query_devices(device: object, kind: str) -> dict[str, str]:
        assert kind == "input"
        if not devices or device == "no such":
            raise PortAudioError("Error querying device -1")
        return {"name": "microphone"}

    def rec(num_samples: int, rate_hz: int, **how: object) -> np.ndarray:
        assert (rate_hz, how["channels"], how["dtype"], how["blocking"]) == (16_000, 1, "float32", True)
        if fails:
            raise PortAudioError("Device unavailable")
        return np.full((num_samples, 1), level, np.float32)

    return SimpleNamespace(PortAudioError=PortAudioError, query_devices=query_devices, rec=rec)


def importing(monkeypatch: pytest.MonkeyPatch, result: Any) -> None:
    def import_module(name: str) -> Any:
        assert name == "sounddevice"
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(libraries.importlib, "import_module", import_module)


def test_records(monkeypatch: pytest.MonkeyPatch) -> None:
    importing(monkeypatch, stand_in(level=1.0))
    recording = microphone.record(1.5)
    assert recording.seconds == 1.5
    assert recording.source.format == "microphone, FLOAT"
    assert recording.clipped_share == 1.0


@pytest.mark.parametrize(
    ("library", "error", "words"),
    [
        (stand_in(devices=0), UnsupportedError, r"a microphone was not found: .*Plug one in"),
        (stand_in(fails=True), InvalidRequestError, r"the microphone failed: Device unavailable.*Allow its use"),
        (stand_in(level=np.nan), InvalidRequestError, r"NaN"),
        (
            ModuleNotFoundError("sounddevice"),
            UnsupportedError,
            r"sounddevice is not installed.*edgedraft\[microphone\]",
        ),
        (OSError("PortAudio library not found"), UnsupportedError, r"PortAudio is not installed.*libportaudio2"),
    ],
)
def test_what_can_be_missing(monkeypatch: pytest.MonkeyPatch, library: Any, error: type[Exception], words: str) -> None:
    importing(monkeypatch, library)
    with pytest.raises(error, match=words):
        microphone.record(1.0)


def test_a_check_records_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    importing(monkeypatch, stand_in(fails=True))
    microphone.check(1.0)
    importing(monkeypatch, stand_in(devices=0))
    with pytest.raises(UnsupportedError, match="a microphone was not found"):
        microphone.check(1.0)


def test_unknown_device_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    importing(monkeypatch, stand_in())
    with pytest.raises(UnsupportedError, match="the microphone 'no such' was not found"):
        microphone.record(1.0, "no such")


@pytest.mark.parametrize("seconds", [0.0, 0.4, 601.0, float("nan")])
def test_length_out_of_range(seconds: float) -> None:
    with pytest.raises(InvalidRequestError, match=r"seconds is .*; legal: 0.5 to 600"):
        microphone.record(seconds)
