"""Where calibrations are kept: the user's own file, and the one that is shipped with the weights.

{"edgedraft_calibration": 1, "calibrations": [{"key": {...}, "threshold": 0.66, "share": 0.149, ...}]}
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgedraft import backends
from edgedraft.backends.base import Tokenizer
from edgedraft.caption.calibration import Calibration, CalibrationKey
from edgedraft.caption.gate_choice import GateChoice
from edgedraft.core.gate import Measure
from edgedraft.core.strategy import Strategy
from edgedraft.errors import EdgedraftError, InvalidRequestError
from edgedraft.schedule.caption_catalogue import PAPER_THRESHOLD_NATS, SPARSE_MAX_PROBABILITY

VERSION = 1
MAX_FILE_BYTES = 1_000_000
SHIPPED = Path(backends.__file__).parent / "captioner_weights" / "calibration.json"
_GUESSES = {Measure.ENTROPY: PAPER_THRESHOLD_NATS, Measure.MAX_PROBABILITY: SPARSE_MAX_PROBABILITY}
_ELSEWHERE = "Name another place."
_REMEDY = "Delete the file, and run `edgedraft caption calibrate` again."


class _Content(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    edgedraft_calibration: int
    calibrations: list[Calibration]


class CalibrationFile:
    """One file, one calibration for each key. Whatever goes wrong is an `InvalidRequestError` naming the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of_user(cls, cache_dir: Path) -> CalibrationFile:
        """The user's own (`Environment.cache_dir`)."""
        return cls(cache_dir / "caption" / "calibration.json")

    def all(self) -> list[Calibration]:
        """What is kept; nothing where there is no file."""
        if self.path.exists() and not self.path.is_file():
            raise self._refusal("is not a file", _ELSEWHERE)
        try:
            with self.path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._refusal(f"cannot be read: {error.strerror}") from None
        if len(data) > MAX_FILE_BYTES:
            raise self._refusal(f"is larger than {MAX_FILE_BYTES} bytes")
        try:
            content = msgspec.json.decode(data, type=_Content)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._refusal(f"is not a calibration file, or is damaged: {error}") from None
        if content.edgedraft_calibration != VERSION:
            raise self._refusal(f"is of version {content.edgedraft_calibration}; this edgedraft reads {VERSION}")
        for each in content.calibrations:
            self._check(each)
        return content.calibrations

    def _check(self, calibration: Calibration) -> None:
        """A file may have been written by hand."""
        key = calibration.key
        try:
            GateChoice(
                strategy=key.strategy,
                measure=key.measure,
                unit=key.unit,
                threshold=calibration.threshold,
                rank=calibration.rank,
            )
        except EdgedraftError as error:
            raise self._refusal(f"holds what cannot be: {error.message.removesuffix('.')}") from None

    def get(self, key: CalibrationKey) -> Calibration | None:
        return next((each for each in self.all() if each.key == key), None)

    def put(self, calibration: Calibration) -> None:
        """Replace what is kept for its key. A reader sees the old file or the new one; of two writers the last wins."""
        kept = [each for each in self.all() if each.key != calibration.key]
        content = _Content(edgedraft_calibration=VERSION, calibrations=[*kept, calibration])
        data = msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, partial = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.stem, suffix=".partial")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                os.replace(partial, self.path)
            except BaseException:
                Path(partial).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise self._refusal(f"cannot be written: {error.strerror}", _ELSEWHERE) from None

    def _refusal(self, what: str, remedy: str = _REMEDY) -> InvalidRequestError:
        return InvalidRequestError(f"{self.path} {what}.", field="calibration", remedy=remedy)


def known_calibrations(cache_dir: Path) -> tuple[CalibrationFile, CalibrationFile]:
    """Where to look, in this order: the user's own file, then what is shipped with the weights."""
    return CalibrationFile.of_user(cache_dir), CalibrationFile(SHIPPED)


def find_calibration(key: CalibrationKey, files: Sequence[CalibrationFile]) -> Calibration | None:
    """What the first file knows of `key`, else of its draft in all languages; then the next file."""
    for_all = msgspec.structs.replace(key, language="")
    found = (file.get(each) for file in files for each in (key, for_all))
    return next((calibration for calibration in found if calibration is not None), None)


@dataclass(frozen=True, slots=True)
class CalibratedStrategy:
    """What a choice comes to with one draft. `target`: of the calibration, where one was used. `notice`: or empty."""

    strategy: Strategy
    target: str = ""
    notice: str = ""


def calibrated_strategy(
    choice: GateChoice, tokenizer: Tokenizer, draft: str, language: str, files: Sequence[CalibrationFile]
) -> CalibratedStrategy:
    """The strategy, with the calibrated threshold and rank where none are given.

    Where nothing is known of the draft it gets the paper's threshold (for max-probability: ours) and a notice about
    that. Raises `InvalidRequestError` for a measure that nobody has published a threshold for.
    """
    if not choice.is_gated or choice.threshold is not None:
        return CalibratedStrategy(choice.build(tokenizer, language, None))
    found = find_calibration(CalibrationKey.of(draft, choice, language), files)
    if found is not None:
        choice = choice if choice.rank is not None else dataclasses.replace(choice, rank=found.rank)
        return CalibratedStrategy(choice.build(tokenizer, language, found.threshold), found.target)
    guess = _GUESSES.get(choice.gate_measure)
    if guess is None:
        raise InvalidRequestError(
            f"threshold (gamma) is 'auto', and {choice.gate_measure} was not calibrated for {_name(draft)}.",
            field="threshold",
            remedy="Give a number, or run `edgedraft caption calibrate` with the same flags.",
        )
    notice = (
        f"the threshold ({choice.gate_measure} {guess:g}) was not calibrated for {_name(draft)} with these flags: it "
        "may have all verified, or nothing. Run `edgedraft caption calibrate DATASET`."
    )
    return CalibratedStrategy(choice.build(tokenizer, language, guess), notice=notice)


def _name(draft: str) -> str:
    return draft.partition("#")[0]
