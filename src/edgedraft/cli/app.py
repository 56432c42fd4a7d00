"""The program `edgedraft`: its commands, and what happens to their errors."""

from __future__ import annotations

import contextlib
import errno
import inspect
import io
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from types import FrameType
from typing import Annotated, Any

import typer

from edgedraft.cli import bench, caption, chat, cloud, demo, doctor, generate, models, traces, tuner
from edgedraft.cli.options import examples
from edgedraft.cli.report import (
    EXIT_INTERRUPTED,
    EXIT_OTHER,
    EXIT_USAGE,
    exit_code,
    print_error,
    print_unexpected,
)
from edgedraft.cli.streams import Guarded, guarded
from edgedraft.config import forget_unusable_sizes
from edgedraft.errors import EdgedraftError

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

# Newer typer carries its own copy of click; this is the usage error of whichever it uses.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="edgedraft",
    help="Draft on the edge, verify in the cloud: a small local model proposes, a large one checks, "
    "and you get exactly the large model's text.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "edgedraft demo",
        "edgedraft cloud --model demo:target",
        'edgedraft generate "Why is the sky blue?" --draft demo:draft',
        "edgedraft caption speech.wav",
    ),
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"edgedraft {version('edgedraft')}")
        raise typer.Exit


@app.callback()
def _root(
    show_version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and leave.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Holds the options that come before a command."""


for command in (demo, cloud, generate, chat, doctor):
    command.register(app)
app.add_typer(caption.app, name="caption")
app.add_typer(models.app, name="models")
app.add_typer(bench.app, name="bench")
app.add_typer(traces.app, name="traces")
app.add_typer(tuner.app, name="tuner")


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the program, so that child processes are ended and sessions closed on the way out."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _forgive_streams() -> None:
    """What the terminal cannot show becomes '?'; input that is no text reaches the request, which refuses it."""
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "replace")):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(io.UnsupportedOperation):  # it was read from before
                stream.reconfigure(errors=errors)


def program() -> Any:
    """All commands, each paragraph of their help in one line: where a docstring breaks is not where a terminal does."""

    def reflow(command: Any) -> None:
        paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        for child in getattr(command, "commands", {}).values():
            reflow(child)

    root = typer.main.get_command(app)
    reflow(root)
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; prints every error itself.

    0 done, 1 other failure, 2 invalid request or usage, 3 model, 4 link or cloud, 5 authentication, 6 no speech found
    (caption), 130 interrupted.
    """
    _forgive_streams()
    forget_unusable_sizes()
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in words
    with guarded() as stdout:
        code = _run(words, stdout, as_json=as_json)
        if stdout.failure is None or isinstance(stdout.failure, BrokenPipeError):
            return code
        remedy = "Make room." if stdout.failure.errno in _DISK_FULL else "Send it to a terminal, a file or a pipe."
        print_error("output", f"stdout cannot be written: {stdout.failure.strerror}.", remedy, as_json=as_json)
        return EXIT_OTHER


def _run(words: list[str], stdout: Guarded, *, as_json: bool) -> int:
    try:
        with _ended_by_sigterm():
            result = program().main(args=words, prog_name="edgedraft", standalone_mode=False)
    except EdgedraftError as error:
        print_error(error.code, error.message, error.remedy, as_json=as_json)
        return exit_code(error)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except _UsageError as error:
        return _usage_error(error, as_json=as_json)
    except BrokenPipeError:  # the reader of a pipe has gone: leave quietly
        return EXIT_OTHER
    except Exception as error:  # a fault of ours: one line, no traceback
        if error is not stdout.failure:
            print_unexpected(error, as_json=as_json)
        return EXIT_OTHER
    return result if isinstance(result, int) else 0


def _usage_error(error: Exception, *, as_json: bool) -> int:
    context = getattr(error, "ctx", None)
    message = getattr(error, "format_message", lambda: str(error))()
    if message:  # empty: no command was given, and the help that belongs there is already printed
        name = context.command_path if context is not None else "edgedraft"
        sentence = message if message[-1] in ".?!" else f"{message}."
        print_error("usage", sentence, f"See `{name} --help`.", as_json=as_json)
    return EXIT_USAGE
