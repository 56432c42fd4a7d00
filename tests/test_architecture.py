"""The rules that keep the code readable: purity, sizes, names (CONTRIBUTING). import-linter keeps the arrow rule."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "edgedraft"
SOURCES = sorted(PACKAGE.rglob("*.py"))
PURE = ("core", "schedule", "tune", "protocol", "metrics", "types.py", "speech_features.py", "errors.py")

_CLOCKS_AND_CHANCE = "time datetime random secrets uuid"
_INPUT_AND_OUTPUT = "os io pathlib shutil subprocess tempfile logging socket ssl select selectors http urllib"
_CONCURRENCY = "asyncio threading multiprocessing concurrent"
_ENGINES_AND_TRANSPORTS = "torch httpx fastapi starlette uvicorn websockets llama_cpp"
IMPURE_MODULES = frozenset(
    " ".join((_CLOCKS_AND_CHANCE, _INPUT_AND_OUTPUT, _CONCURRENCY, _ENGINES_AND_TRANSPORTS)).split()
)
IMPURE_CALLS = frozenset({"open", "print", "input"})
GLOBAL_GENERATOR = re.compile(r"\b(np|numpy)\.random\.(?!Generator\b)\w+")

# Nothing is told by these names, or two things are told by one of them.
BANNED_NAMES = frozenset({"alpha", "common", "helper", "misc", "n_past", "probs_list", "util"})
BANNED_WORDS = frozenset({"gamma", "helpers", "manager", "mbps", "utils"})
# Elsewhere a `p` may be a path; here it would be a probability, of one model or of the other.
BANNED_NAMES_IN_PURE_FILES = frozenset({"p", "q"})
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 80


def _name(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def _is_pure(path: Path) -> bool:
    return path.relative_to(PACKAGE).parts[0] in PURE


def _imported(tree: ast.AST) -> Iterator[str]:
    """Full names of what a file takes from elsewhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def impurities(source: str) -> Iterator[str]:
    """Each import, call or use of a global generator that a pure file may not have."""
    tree = ast.parse(source)
    for name in _imported(tree):
        if name.split(".")[0] in IMPURE_MODULES or name == "numpy.random" or GLOBAL_GENERATOR.fullmatch(name):
            yield f"import of {name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            yield f"line {node.lineno}: call of {node.func.id}"
        if isinstance(node, ast.Attribute) and GLOBAL_GENERATOR.fullmatch(ast.unparse(node)):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def _bound_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of what the source itself names; what it takes from elsewhere is named by others."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.alias) and node.asname:
            yield node.lineno, node.asname


def banned_names(source: str, banned: frozenset[str] = BANNED_NAMES) -> Iterator[str]:
    """Identifiers that are banned as a whole, or hold a banned word."""
    for line, name in _bound_names(ast.parse(source)):
        words = {word.lower() for word in re.findall(r"[a-z]+|[A-Z][a-z]*", name)}
        if name in banned or words & BANNED_WORDS:
            yield f"line {line}: {name}"


def long_functions(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            length = node.end_lineno - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield f"{node.name}: {length} lines"


@pytest.mark.parametrize("path", [path for path in SOURCES if _is_pure(path)], ids=_name)
def test_pure_files_do_no_io_and_read_no_clock(path: Path) -> None:
    assert not list(impurities(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from time import monotonic",
        "def f():\n    import asyncio",
        "import concurrent.futures",
        "from numpy import random",
        "from numpy.random import default_rng",
        "import numpy as np\nnp.random.default_rng()",
        "import numpy as np\nnp.random.shuffle([1])",
        "open('x')",
    ],
)
def test_the_purity_check_sees_each_kind_of_breach(source: str) -> None:
    assert list(impurities(source))


def test_the_purity_check_lets_a_generator_argument_pass() -> None:
    assert not list(
        impurities("import numpy as np\ndef f(rng: np.random.Generator) -> float:\n    return rng.random()")
    )


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_files_and_functions_stay_small(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= MAX_FILE_LINES, "split this file by what it owns"
    assert not list(long_functions(source))


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_no_banned_identifier(path: Path) -> None:
    banned = BANNED_NAMES | BANNED_NAMES_IN_PURE_FILES if _is_pure(path) else BANNED_NAMES
    assert not list(banned_names(path.read_text(encoding="utf-8"), banned))


@pytest.mark.parametrize(
    "source",
    [
        "gamma = 1",
        "link_mbps = 2",
        "class SessionManager: ...",
        "def f(alpha): ...",
        "self.n_past = 0",
        "import numpy as misc",
        "for q in []: ...",
    ],
)
def test_the_name_check_sees_whatever_binds_a_name(source: str) -> None:
    assert list(banned_names(source, BANNED_NAMES | BANNED_NAMES_IN_PURE_FILES))


def test_the_name_check_leaves_the_names_of_others_alone() -> None:
    assert not list(banned_names("import importlib.util\nfound = importlib.util.find_spec('a')\ntext = 'gamma'"))


def test_no_file_is_named_for_nothing() -> None:
    """Noun rule: a file is named for what it owns."""
    banned = BANNED_NAMES | BANNED_WORDS | {"handler", "service"}
    assert not [_name(path) for path in PACKAGE.rglob("*") if path.stem in banned]


def test_only_config_reads_the_environment() -> None:
    readers = {
        _name(path) for path in SOURCES if re.search(r"\bos\.(environ|getenv)\b", path.read_text(encoding="utf-8"))
    }
    assert readers <= {"config.py"}
