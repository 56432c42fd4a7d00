"""Help that helps: every command shows examples and every option says what it does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest

from edgedraft.cli.app import program


def _commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, child in getattr(command, "commands", {}).items():
        yield from _commands(child, (*words, name))


COMMANDS = list(_commands(program()))


@pytest.mark.parametrize("words", [words for words, _ in COMMANDS], ids=lambda words: " ".join(words) or "edgedraft")
def test_help_shows_an_example(run, words: tuple[str, ...]) -> None:
    outcome = run(*words, "--help")
    assert outcome.code == 0
    example = " ".join(("edgedraft", *words))
    assert f" {example} " in " ".join(outcome.out.split("Examples:")[1].split()) + " "


@pytest.mark.parametrize(("words", "command"), COMMANDS, ids=[" ".join(words) or "edgedraft" for words, _ in COMMANDS])
def test_every_option_has_a_help_text(words: tuple[str, ...], command: Any) -> None:
    assert not [parameter.name for parameter in command.params if not getattr(parameter, "help", None)]


@pytest.mark.parametrize(("words", "command"), COMMANDS, ids=[" ".join(words) or "edgedraft" for words, _ in COMMANDS])
def test_a_paragraph_of_help_is_not_broken_where_its_source_is(words: tuple[str, ...], command: Any) -> None:
    assert "\n" not in command.help.replace("\n\n", "")


def test_all_commands_are_there() -> None:
    names = {words[0] for words, _ in COMMANDS if words}
    assert names == {"demo", "cloud", "generate", "chat", "doctor", "models", "bench", "traces", "tuner", "caption"}


@pytest.mark.parametrize(
    "words",
    [[], ["models"], ["bench"], ["traces"], ["tuner"], ["caption"]],
    ids=lambda words: " ".join(words) or "edgedraft",
)
def test_without_a_command_the_help_is_shown(run, words: list[str]) -> None:
    outcome = run(*words)
    assert outcome.code == 2
    assert "Usage: edgedraft" in outcome.out
    assert outcome.err == ""


def test_version(run) -> None:
    assert run("--version").out == f"edgedraft {version('edgedraft')}\n"


def test_the_module_is_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "edgedraft", "--version"], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == f"edgedraft {version('edgedraft')}\n"
