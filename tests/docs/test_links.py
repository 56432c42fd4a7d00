"""The documentation points at things that exist, and gives nothing away that is not the reader's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TEXTS = [*PAGES, *sorted((ROOT / "examples").glob("*.py")), ROOT / "Makefile", ROOT / ".ci" / "run"]

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE_BLOCK = re.compile(r"^```.*?^```$", flags=re.MULTILINE | re.DOTALL)
PATH_IN_CODE = re.compile(r"`((?:src|tests|docs|examples|core|edge|cloud|protocol|metrics|backends)/[\w./-]*\w\.\w+)`")
FOREIGN = re.compile(r"/(?:work|tmp|home|root)/|\bissue #?\d")
HOST = re.compile(r"(?:https?|wss?)://([\w.-]+)")
# Standards that the pages cite, names that stand for the reader's own machines, and this one.
KNOWN_HOSTS = {"keepachangelog.com", "msgpack.org", "semver.org", "127.0.0.1", "localhost", "cloud.example"}


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, in the form that code forges make of them."""
    prose = CODE_BLOCK.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", prose, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_resolve(page: Path) -> None:
    broken = []
    for target in LINK.findall(CODE_BLOCK.sub("", page.read_text(encoding="utf-8"))):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in _anchors(file)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_named_files_exist(page: Path) -> None:
    """A path in code quotes is relative to the repository or to the package."""
    named = PATH_IN_CODE.findall(page.read_text(encoding="utf-8"))
    roots = (ROOT, ROOT / "src" / "edgedraft")
    assert not [path for path in named if not any((root / path).exists() for root in roots)]


@pytest.mark.parametrize("path", TEXTS, ids=_name)
def test_no_machine_of_ours_is_named(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not FOREIGN.findall(text)
    assert not set(HOST.findall(text)) - KNOWN_HOSTS


def test_every_page_is_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    reached, waiting = set[Path](), [index]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            file = (page.parent / target.partition("#")[0]).resolve()
            if file.suffix == ".md" and file.exists() and file not in reached:
                waiting.append(file)
    assert not {_name(page) for page in (ROOT / "docs").rglob("*.md")} - {_name(page) for page in reached}


def test_the_map_of_the_code_is_complete() -> None:
    """README's map has one line for each package and each module at the top."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "edgedraft"
    packages = [f"{path.name}/" for path in package.iterdir() if (path / "__init__.py").exists()]
    modules = [path.name for path in package.glob("*.py") if not path.name.startswith("__")]
    assert not [name for name in packages + modules if f"`{name}`" not in readme]


def test_numbered_decisions_are_listed() -> None:
    folder = ROOT / "docs" / "design" / "decisions"
    listed = (folder / "README.md").read_text(encoding="utf-8")
    assert not [path.name for path in folder.glob("[0-9]*.md") if path.name not in listed]
