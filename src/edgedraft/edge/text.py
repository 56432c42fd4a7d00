"""Token bytes in, text out: characters stay whole, and nothing from a stop string on is ever shown."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from edgedraft.errors import InvalidRequestError

MAX_STOP_STRINGS = 16
MAX_STOP_CHARACTERS = 256


def check_text(name: str, value: object) -> None:
    """Raises `InvalidRequestError` for what is no string, or holds half a character: a lone surrogate, which is what
    bytes that are no UTF-8 become. `name`: the field, or one of its elements as in `stop[1]`.
    """
    field = name.partition("[")[0]
    if not isinstance(value, str):
        raise InvalidRequestError(f"{name} is {type(value).__name__}; legal: a string.", field=field)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"{name} holds U+{ord(value[error.start]):04X}, which is no character.",
            field=field,
            remedy="Send text that is valid Unicode; files and arguments must be UTF-8.",
        ) from None


def check_stop(stop: str | Sequence[str]) -> tuple[str, ...]:
    """The stop strings of a request, one or several.

    Raises `InvalidRequestError` naming `stop`: no strings, more than 16, an empty one, or one above 256 characters.
    """
    if isinstance(stop, bytes) or not isinstance(stop, Sequence):
        raise InvalidRequestError(f"stop is {type(stop).__name__}; legal: a string or several.", field="stop")
    strings = (stop,) if isinstance(stop, str) else tuple(stop)
    if len(strings) > MAX_STOP_STRINGS:
        raise InvalidRequestError(f"stop has {len(strings)} strings; legal: at most {MAX_STOP_STRINGS}.", field="stop")
    for index, string in enumerate(strings):
        check_text(f"stop[{index}]", string)
        if not 1 <= len(string) <= MAX_STOP_CHARACTERS:
            raise InvalidRequestError(
                f"stop[{index}] has {len(string)} characters; legal: 1 to {MAX_STOP_CHARACTERS}.", field="stop"
            )
    return strings


class TextStream:
    """The text of one answer, growing by tokens.

    Bytes that are part of a character wait until it is whole; bytes that can never be UTF-8 become U+FFFD. The text
    ends before the stop string that is complete first (of several complete at the same character: the longest), which
    does not depend on how the text is cut into tokens. Only the longest end of the text that could begin a stop string
    is held back.

    `stopped`: a stop string is complete. `num_tokens`: tokens taken, up to and with the one that completed it.
    """

    def __init__(self, stop: str | Sequence[str] = ()) -> None:
        self.stopped = False
        self.num_tokens = 0
        self._stop = check_stop(stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        self._shown: list[str] = []

    @property
    def text(self) -> str:
        """All text shown so far."""
        return "".join(self._shown)

    def push(self, piece: bytes) -> str:
        """Take one token's bytes (empty for a control token); the text that may be shown now. Nothing once stopped."""
        if self.stopped:
            return ""
        self.num_tokens += 1
        return self._show(self._decoder.decode(piece), at_end=False)

    def flush(self) -> str:
        """The answer is over: what was held back, with U+FFFD for a character that stays incomplete."""
        if self.stopped:
            return ""
        return self._show(self._decoder.decode(b"", final=True), at_end=True)

    def _show(self, new_text: str, *, at_end: bool) -> str:
        pending = self._held + new_text
        cut = self._stop_start(pending)
        if cut is not None:
            self.stopped = True
        else:
            cut = len(pending) if at_end else len(pending) - self._num_held_back(pending)
        ready = pending[:cut]
        self._held = "" if self.stopped else pending[cut:]
        if ready:
            self._shown.append(ready)
        return ready

    def _stop_start(self, pending: str) -> int | None:
        """Where the stop string that is complete first begins; the longest of those that end together."""
        found = ((pending.find(string), len(string)) for string in self._stop)
        ends = [(start + size, start) for start, size in found if start >= 0]
        return min(ends)[1] if ends else None

    def _num_held_back(self, pending: str) -> int:
        """Length of the longest end of `pending` that a stop string begins with."""
        longest = max(map(len, self._stop), default=1) - 1
        for size in range(min(longest, len(pending)), 0, -1):
            if any(string.startswith(pending[-size:]) for string in self._stop):
                return size
        return 0
