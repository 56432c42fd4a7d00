"""Stdout and stderr for the time of a command. A stderr that fails is done without; a stdout that fails ends it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast


class Guarded:
    """A stream that remembers its last `failure`, which stops what is going on only where it `is_needed`.

    A reader that has left stops it in any case.
    """

    def __init__(self, stream: TextIO, *, is_needed: bool) -> None:
        self.failure: OSError | None = None
        self._stream = stream
        self._is_needed = is_needed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._guard():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._guard():
            self._stream.flush()

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failure = error
            if self._is_needed or isinstance(error, BrokenPipeError):
                raise

    def leave(self) -> None:
        """What a stream that failed still holds goes nowhere, else the interpreter's last flush would complain."""
        if self.failure is not None:
            with contextlib.suppress(OSError), open(os.devnull, "w") as nowhere:  # in tests it is no file
                os.dup2(nowhere.fileno(), self._stream.fileno())


@contextlib.contextmanager
def guarded() -> Iterator[Guarded]:
    """Stdout, while both are guarded. Those that are closed are opened, so that no file or connection gets their place.

    To a stdout that is closed nobody can write; what goes to a stderr that is closed is lost; a stdin that is closed is
    empty.
    """
    sys.stdin = sys.stdin or os.fdopen(os.open(os.devnull, os.O_RDONLY))
    out = Guarded(sys.stdout or os.fdopen(os.open(os.devnull, os.O_RDONLY), "w"), is_needed=True)
    err = Guarded(sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"), is_needed=False)
    try:
        with contextlib.redirect_stdout(cast(TextIO, out)), contextlib.redirect_stderr(cast(TextIO, err)):
            yield out
    finally:
        out.leave()
        err.leave()
