"""How a command fails: one line, an exit code by class of error, never a traceback."""

from __future__ import annotations

import json
import sys
import traceback

from rich.text import Text

from edgedraft.cli.render import err_console, escaped
from edgedraft.config import read_environment
from edgedraft.errors import (
    AuthError,
    EdgedraftError,
    InsecureBindError,
    InvalidRequestError,
    LinkError,
    ModelError,
    ProtocolError,
    SaturatedError,
    SessionLostError,
)

EXIT_OTHER, EXIT_USAGE, EXIT_MODEL, EXIT_CLOUD, EXIT_AUTH, EXIT_INTERRUPTED = 1, 2, 3, 4, 5, 130

_EXIT_CODES: tuple[tuple[type[EdgedraftError], int], ...] = (
    (InvalidRequestError, EXIT_USAGE),
    (ModelError, EXIT_MODEL),
    (LinkError, EXIT_CLOUD),
    (ProtocolError, EXIT_CLOUD),
    (SessionLostError, EXIT_CLOUD),
    (SaturatedError, EXIT_CLOUD),
    (AuthError, EXIT_AUTH),
    (InsecureBindError, EXIT_AUTH),
)


def exit_code(error: EdgedraftError) -> int:
    """The exit code of the error's class; 1 for a class that has none."""
    return next((code for cls, code in _EXIT_CODES if isinstance(error, cls)), EXIT_OTHER)


def print_error(code: str, message: str, remedy: str = "", *, as_json: bool) -> None:
    """One error on stderr, as one JSON object or as one line."""
    if as_json:
        body = {"error": {"code": code, "message": message, "remedy": remedy}}
        print(json.dumps(body), file=sys.stderr)  # noqa: T201
        return
    line = Text.assemble(("error: ", "bold red"), escaped(message))
    if remedy:
        line.append(f" {escaped(remedy)}", style="yellow")
    err_console().print(line, soft_wrap=True)


def print_unexpected(error: BaseException, *, as_json: bool) -> None:
    """An exception that nobody raised on purpose: one line, and the traceback only where it was asked for."""
    if read_environment().debug:
        traceback.print_exception(error)
    first_line = (str(error).splitlines() or [""])[0]
    print_error(
        "internal",
        f"unexpected {type(error).__name__}: {first_line}",
        "This is a bug; set EDGEDRAFT_DEBUG=1 to see where it happened.",
        as_json=as_json,
    )
