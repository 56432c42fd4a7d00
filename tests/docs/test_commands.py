"""Every command line that the documentation shows is one that the program takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from edgedraft.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SHELL_BLOCK = re.compile(r"^ *```(?:bash|sh|console)\n(.*?)^ *```", flags=re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(edgedraft(?: [^`\n]+)?)`")
MAKE = re.compile(r"\bmake ((?:[a-z-]+)(?: [a-z-]+)*)\b")


def _shell_lines(text: str) -> Iterator[str]:
    for block in SHELL_BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            yield line.strip().removeprefix("$ ")


def _words(line: str) -> list[str]:
    """The words of a command line up to a pipe or comment, without assignments before it."""
    words = shlex.split(line, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        del words[0]
    end = next((at for at, word in enumerate(words) if word in {"|", "&&", ">", "2>", "&"}), len(words))
    return words[:end]


def _shown(*, inline: bool) -> list[tuple[str, str]]:
    """Page and command line: of shell blocks, which can be typed as they stand, or of prose, which may name a part."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        lines = INLINE.findall(text) if inline else _shell_lines(text)
        found += [(str(page.relative_to(ROOT)), line) for line in dict.fromkeys(lines)]
    return [(page, line) for page, line in found if _words(line)[:1] == ["edgedraft"]]


def _find(words: list[str]) -> tuple[Any, list[str]]:
    """The innermost command that the words name, and the words behind its name."""
    command: Any = typer.main.get_command(app)
    rest = words[1:]
    while rest and hasattr(command, "commands"):
        default = getattr(command, "default_command", None)
        if default is not None and rest[0] not in command.commands:
            return command.commands[default], rest
        if rest[0].startswith("-"):
            break
        assert rest[0] in command.commands, f"there is no command '{rest[0]}'"
        command, rest = command.commands[rest[0]], rest[1:]
    return command, rest


def _options(command: Any) -> set[str]:
    own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return own | {"--help", "-h"}


@pytest.mark.parametrize(("page", "line"), [*_shown(inline=False), *_shown(inline=True)], ids=lambda value: value)
def test_command_and_options_exist(page: str, line: str) -> None:
    command, rest = _find(_words(line))
    used = {word.split("=")[0] for word in rest if re.match(r"--?[a-zA-Z]", word)}
    assert used <= _options(command), page


@pytest.mark.parametrize(("page", "line"), _shown(inline=False), ids=lambda value: value)
def test_shown_command_lines_parse(page: str, line: str) -> None:
    """With every required option and argument, each of its type; nothing is run."""
    command, rest = _find(_words(line))
    if "--help" not in rest and not hasattr(command, "commands"):
        command.make_context("edgedraft", rest)


def test_the_check_sees_a_wrong_option() -> None:
    command, _ = _find(["edgedraft", "generate", "--no-such-option"])
    assert "--no-such-option" not in _options(command)
    with pytest.raises(AssertionError, match="no command"):
        _find(["edgedraft", "fly"])


def test_every_command_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    names = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert not [name for name in names if f"`edgedraft {name}" not in readme]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    text = page.read_text(encoding="utf-8")
    code = "\n".join([*_shell_lines(text), *re.findall(r"`(make [^`]+)`", text)])
    named = {match.split()[0] for match in MAKE.findall(code)}
    assert named <= targets
