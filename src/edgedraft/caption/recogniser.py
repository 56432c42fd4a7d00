"""A speech recogniser for the attack, where the user has one installed. Nothing is ever downloaded."""

from __future__ import annotations

import importlib
import importlib.util
import json
from pathlib import Path
from types import ModuleType

import numpy as np

from edgedraft.caption.attack import Recogniser
from edgedraft.caption.mel import SAMPLE_RATE_HZ
from edgedraft.errors import InvalidRequestError, ModelFileError, UnsupportedError
from edgedraft.types import Float32Array

LIBRARIES = ("faster_whisper", "vosk")


def installed_recogniser() -> str | None:
    """The first library of `LIBRARIES` that is installed."""
    return next((name for name in LIBRARIES if importlib.util.find_spec(name) is not None), None)


def open_recogniser(folder: Path, language: str) -> Recogniser:
    """The recogniser of a model folder: for faster-whisper (`model.bin` of CTranslate2 inside) or Vosk.

    Raises `InvalidRequestError` for a folder that is missing, `UnsupportedError` where the library is not installed,
    `ModelFileError` where it cannot read the model.
    """
    if not folder.is_dir():
        raise InvalidRequestError(
            f"{folder} is not a folder; legal: the folder of a faster-whisper or Vosk model.", field="recogniser"
        )
    open_model = _whisper if (folder / "model.bin").is_file() else _vosk
    try:
        return open_model(folder, language)
    except UnsupportedError:
        raise
    except Exception as error:  # each library has its own, down to plain Exception
        raise ModelFileError(f"{folder} cannot be read as a recogniser: {error}.", remedy="Unpack it again.") from error


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnsupportedError(
            f"{name} is not installed, which this model needs.",
            field="recogniser",
            remedy=f"Install it with: pip install {name.replace('_', '-')}",
        ) from error


def _whisper(folder: Path, language: str) -> Recogniser:
    faster_whisper = _imported("faster_whisper")
    model = faster_whisper.WhisperModel(str(folder), device="cpu", compute_type="int8", local_files_only=True)

    def recognise(waveform: Float32Array) -> str:
        segments, _ = model.transcribe(
            waveform, language=language, beam_size=5, temperature=0.0, condition_on_previous_text=False
        )
        return " ".join(segment.text.strip() for segment in segments)

    return recognise


def _vosk(folder: Path, language: str) -> Recogniser:
    """A Vosk model knows its language."""
    vosk = _imported("vosk")
    vosk.SetLogLevel(-1)
    model = vosk.Model(str(folder))

    def recognise(waveform: Float32Array) -> str:
        listener = vosk.KaldiRecognizer(model, SAMPLE_RATE_HZ)
        listener.AcceptWaveform(np.clip(waveform * 32768, -32768, 32767).astype("<i2").tobytes())
        return str(json.loads(listener.FinalResult())["text"])

    return recognise
