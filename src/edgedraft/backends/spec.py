"""Model specs: the one string by which a user names a model, `FAMILY:REST`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgedraft.errors import InvalidRequestError

STORED = ("hub", "demo")
"""Names that are not families: the model store turns them into a GGUF file, which family `llamacpp` serves."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """`family` is the name before the first colon, `rest` what is behind it (may be empty)."""

    family: str
    rest: str

    def __str__(self) -> str:
        return f"{self.family}:{self.rest}" if self.rest else self.family


def parse_spec(spec: str) -> ModelSpec:
    """Split a model spec; a bare path that ends in `.gguf` is one of family `llamacpp`.

    Knows nothing of what is installed. Raises `InvalidRequestError` for an empty name, and for `llamacpp`, `hub` and
    `demo` with nothing behind the colon.
    """
    text = spec.strip()
    family, colon, rest = text.partition(":")
    if not colon and text.lower().endswith(".gguf"):
        return ModelSpec("llamacpp", text)
    if not family:
        raise InvalidRequestError(
            f"model is '{spec}', which names no family.",
            field="model",
            remedy="Write FAMILY:REST, or a path to a GGUF.",
        )
    if not rest and family in ("llamacpp", *STORED):
        examples = {"llamacpp": "llamacpp:PATH.gguf", "hub": "hub:ORG/NAME/FILE.gguf", "demo": "demo:target"}
        raise InvalidRequestError(
            f"model is '{spec}', which names no file.", field="model", remedy=f"Write {examples[family]}."
        )
    return ModelSpec(family, rest)


def parse_settings(family: str, rest: str, defaults: Mapping[str, float]) -> dict[str, float]:
    """Read `key=value,key=value` into a copy of `defaults`; a whole number stays one.

    Raises `InvalidRequestError` naming an unknown or repeated key, or a value that is no number.
    """
    found: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        key, _, value = part.partition("=")
        if key not in defaults:
            raise InvalidRequestError(
                f"model '{family}' has no setting '{key}'; there are: {', '.join(defaults)}.", field="model"
            )
        if key in found:
            raise InvalidRequestError(f"model '{family}' sets '{key}' twice.", field="model")
        whole = isinstance(defaults[key], int)
        try:
            found[key] = int(value) if whole else float(value)
        except ValueError:
            kind = "a whole number" if whole else "a number"
            raise InvalidRequestError(f"{family} setting {key} is '{value}'; legal: {kind}.", field="model") from None
    return {**defaults, **found}


def check_setting(family: str, key: str, value: float, low: float, high: float) -> None:
    """Raise `InvalidRequestError` unless low <= value <= high."""
    if not low <= value <= high:
        raise InvalidRequestError(f"{family} setting {key} is {value}; legal: {low} to {high}.", field="model")
