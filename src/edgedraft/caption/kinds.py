"""Checks that fields hold what they are declared to hold: callers from Python have no type checker at hand."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType

from edgedraft.errors import InvalidRequestError


def check_kinds(checked: object, kinds: Mapping[str, tuple[type, ...]]) -> None:
    """Raises `InvalidRequestError` naming the first field of another type. A bool is no number here."""
    for name, legal in kinds.items():
        value = getattr(checked, name)
        if not isinstance(value, legal) or (isinstance(value, bool) and bool not in legal):
            words = " or ".join("None" if kind is NoneType else kind.__name__ for kind in legal)
            raise InvalidRequestError(f"{name} is {value!r}; legal: {words}.", field=name)
