"""What is kept of a tuner between runs, as JSON text: the thresholds found for one draft, target and link.

{"edgedraft_tuner": 1, "draft": "...", "target": "...", "link": "...",
 "token_threshold": 0.62, "sequence_threshold": 0.41, "num_trials": 16}
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TypeVar

from edgedraft.errors import InvalidRequestError
from edgedraft.tune.search import Thresholds, check_thresholds

VERSION = 1
MAX_NAME_CHARS = 1_000
_VERSION_FIELD = "edgedraft_tuner"
_FIELDS = (_VERSION_FIELD, "draft", "target", "link", "token_threshold", "sequence_threshold", "num_trials")
_Value = TypeVar("_Value", str, float, int)
REMEDY = "Delete the file, or reset the tuner: it is found again while decoding."


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerKey:
    """What thresholds depend on. `draft`, `target`: names of the models; `link`: the name of the way between."""

    draft: str
    target: str
    link: str

    def __post_init__(self) -> None:
        for field in ("draft", "target", "link"):
            length = len(getattr(self, field))
            if not 1 <= length <= MAX_NAME_CHARS:
                raise InvalidRequestError(
                    f"{field} is a name of {length} characters; legal: 1 to {MAX_NAME_CHARS}.", field=field
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerRecord:
    """Thresholds held at the end, after how many trials. Raises `InvalidRequestError` naming the field."""

    key: TunerKey
    thresholds: Thresholds
    num_trials: int

    def __post_init__(self) -> None:
        check_thresholds(self.thresholds)
        if self.num_trials < 1:
            raise InvalidRequestError(f"num_trials is {self.num_trials}; legal: 1 or more.", field="num_trials")


def to_json(record: TunerRecord) -> str:
    values = (VERSION, record.key.draft, record.key.target, record.key.link, *record.thresholds, record.num_trials)
    return json.dumps(dict(zip(_FIELDS, values, strict=True)), indent=1) + "\n"


def from_json(text: str, key: TunerKey) -> TunerRecord:
    """The record in `text`, which must be that of `key`.

    Raises `InvalidRequestError` with a remedy for another version, for damaged and for foreign content.
    """
    record = record_in(text)
    if record.key != key:
        raise _refusal(f"belongs to {record.key}, not to {key}", "key")
    return record


def record_in(text: str) -> TunerRecord:
    """The record in `text`, whosever it is. Raises as `from_json`."""
    values = _parsed(text)
    version = values.get(_VERSION_FIELD)
    if version != VERSION or isinstance(version, bool):
        raise _refusal(f"is of version {version}; this edgedraft reads version {VERSION}")
    if set(values) != set(_FIELDS):
        odd = ", ".join(sorted(set(values) ^ set(_FIELDS)))[:200]
        raise _refusal(f"lacks fields or has unknown ones: {odd}")
    try:
        record = TunerRecord(
            key=TunerKey(**{name: _typed(values, name, str) for name in ("draft", "target", "link")}),
            thresholds=Thresholds(
                _typed(values, "token_threshold", float), _typed(values, "sequence_threshold", float)
            ),
            num_trials=_typed(values, "num_trials", int),
        )
    except InvalidRequestError as error:
        raise _refusal(f"is damaged: {error.message.rstrip('.')}", error.field) from None
    return record


def _parsed(text: str) -> dict[str, object]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise _refusal("is damaged: not JSON") from None
    if not isinstance(values, dict) or _VERSION_FIELD not in values:
        raise _refusal("is not a tuner's: it has no version")
    return values


def _typed(values: dict[str, object], field: str, kind: type[_Value]) -> _Value:
    value = values[field]
    if type(value) is not kind:
        raise InvalidRequestError(f"{field} is a {type(value).__name__}; legal: {kind.__name__}.", field=field)
    return value


def _refusal(what: str, field: str = "tuner_file") -> InvalidRequestError:
    return InvalidRequestError(f"the tuner file {what}.", field=field, remedy=REMEDY)
