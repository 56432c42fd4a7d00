"""Speech from libespeak-ng, in process: a voice in numbers and a text in, a waveform out.

The library keeps state from one text to the next (phases, and the flutter of its voices). So every voice is given
without flutter, the random seed is set, and each text is spoken twice, of which the second counts: the same arguments
then give the same samples whatever was spoken before.
"""

from __future__ import annotations

import ctypes
import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgedraft.errors import BackendError, UnsupportedError
from edgedraft.types import Float32Array

_LIBRARY_RATE_HZ = 22_050
_RATIO = (320, 441)  # 16,000 to 22,050

_OUTPUT_SYNCHRONOUS = 2
_UTF8_AND_SSML = 0x1 | 0x10
_RATE, _VOLUME, _PITCH, _RANGE = 1, 2, 3, 4
_NUM_FORMANTS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """One speaker. `accent`: a language file of the library, such as `gmw/en-US`.

    `formants`: percent of the library's own frequencies, one for each of nine. `klatt`: 0 for the library's own
    synthesiser, 1 to 5 for a source of its Klatt synthesiser. `roughness`: 0 to 7. `consonants`: percent.
    """

    accent: str
    formants: tuple[int, ...]
    klatt: int
    roughness: int
    consonants: int

    def lines(self, low_hz: float, high_hz: float) -> str:
        """The part of a voice file behind the accent's, for a pitch between `low_hz` and `high_hz`."""
        formants = (f"formant {number} {percent} 100 100" for number, percent in enumerate(self.formants))
        rest = [
            f"pitch {low_hz:.0f} {high_hz:.0f}",
            "flutter 0",
            f"roughness {self.roughness}",
            f"consonants {self.consonants}",
            *([f"klatt {self.klatt}"] if self.klatt else []),
        ]
        return "\n".join([*formants, *rest, ""])


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class Espeak:
    """The library, loaded once in a process (`espeak`). Not for two threads at a time."""

    def __init__(self) -> None:
        try:
            import espeakng_loader
        except ImportError as error:
            raise UnsupportedError(
                "espeakng_loader is not installed, which synthetic speech needs.",
                field="synthetic",
                remedy="Install it with: pip install 'edgedraft[synth]'",
            ) from error
        self._data = Path(espeakng_loader.get_data_path())
        self._library = ctypes.CDLL(espeakng_loader.get_library_path())
        rate_hz = self._library.espeak_Initialize(_OUTPUT_SYNCHRONOUS, 0, str(self._data).encode(), 0)
        if rate_hz != _LIBRARY_RATE_HZ:
            raise BackendError(f"libespeak-ng speaks at {rate_hz} Hz; {_LIBRARY_RATE_HZ} was expected.")
        self._parts: list[npt.NDArray[np.int16]] = []
        self._callback = _Callback(self._collect)  # held, since the library keeps only its address
        self._library.espeak_SetSynthCallback(self._callback)
        self._library.espeak_ng_SetRandSeed.argtypes = [ctypes.c_long]

    def _collect(self, samples: ctypes._Pointer[ctypes.c_short], count: int, _events: int) -> int:
        if samples and count:
            self._parts.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    def _speak_once(self, text: bytes) -> None:
        self._parts.clear()
        self._library.espeak_ng_SetRandSeed(1)
        self._library.espeak_Synth(text, len(text) + 1, 0, 0, 0, _UTF8_AND_SSML, None, None)
        self._library.espeak_Synchronize()

    def speak(self, text: str, voice: Voice, *, low_hz: float, high_hz: float, words_per_minute: int) -> Float32Array:
        """`text` may hold SSML breaks. float32, 16 kHz, within -1 to 1, shape (num_samples,).

        Raises `BackendError` where the library refuses the voice or says nothing.
        """
        accent = (self._data / "lang" / voice.accent).read_text(encoding="utf-8", errors="ignore")
        with tempfile.NamedTemporaryFile("w", suffix=".voice", encoding="utf-8") as file:
            file.write(f"{accent}\n{voice.lines(low_hz, high_hz)}")
            file.flush()
            if self._library.espeak_ng_SetVoiceByFile(file.name.encode()) != 0:
                raise BackendError(f"libespeak-ng refuses the voice {voice}.")
        for parameter, value in ((_RATE, words_per_minute), (_VOLUME, 100), (_PITCH, 50), (_RANGE, 50)):
            self._library.espeak_SetParameter(parameter, value, 0)
        for _ in range(2):
            self._speak_once(text.encode())
        if not self._parts:
            raise BackendError(f"libespeak-ng says nothing for '{text}'.")
        return resampled(np.concatenate(self._parts).astype(np.float64) / 32768.0)


def resampled(samples: npt.NDArray[np.float64]) -> Float32Array:
    """From 22,050 to 16,000 Hz by cutting the spectrum. Shape (num_samples,) in, about 0.73 of it out."""
    blocks = -(-len(samples) // _RATIO[1])
    padded = np.zeros(blocks * _RATIO[1])
    padded[: len(samples)] = samples
    spectrum = np.fft.rfft(padded)[: blocks * _RATIO[0] // 2 + 1]
    return (np.fft.irfft(spectrum, blocks * _RATIO[0]) * (_RATIO[0] / _RATIO[1])).astype(np.float32)


@functools.cache
def espeak() -> Espeak:
    """The library of this process. Raises `UnsupportedError` where it is not installed."""
    return Espeak()
