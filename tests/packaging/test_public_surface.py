"""What `import edgedraft` gives and costs, and the one tree of errors."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections import Counter

import edgedraft
from edgedraft import errors
from edgedraft.errors import EdgedraftError

HEAVY = ("torch", "llama_cpp", "transformers", "fastapi", "uvicorn", "scipy", "typer")


def _fresh_python(code: str) -> str:
    """What `code` prints in an interpreter that has imported nothing yet."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_edgedraft_loads_no_engine_and_no_server() -> None:
    code = f"import sys, edgedraft; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert _fresh_python(code) == "[]"


def test_using_every_public_name_loads_no_engine() -> None:
    code = (
        "import sys, edgedraft; [getattr(edgedraft, name) for name in edgedraft.__all__]; "
        "print([name for name in ('torch', 'llama_cpp', 'transformers') if name in sys.modules])"
    )
    assert _fresh_python(code) == "[]"


def test_starting_the_program_loads_no_report_no_attack_and_no_synthesis() -> None:
    code = (
        "import sys, edgedraft.cli.app; "
        "print([name for name in ('bench.caption_report', 'caption.attack', 'caption.synthetic') "
        "if 'edgedraft.' + name in sys.modules])"
    )
    assert _fresh_python(code) == "[]"


def test_public_names_are_sorted_and_exist() -> None:
    assert sorted(edgedraft.__all__) == list(edgedraft.__all__)
    assert not [name for name in edgedraft.__all__ if not hasattr(edgedraft, name)]
    assert {"AsyncEdgeClient", "EdgeClient"} <= set(edgedraft.__all__)


def test_version_is_the_one_installed() -> None:
    assert edgedraft.__version__ == importlib.import_module("importlib.metadata").version("edgedraft")


def _tree(cls: type[EdgedraftError], depth: int = 0) -> list[tuple[int, str]]:
    children = [child for child in cls.__subclasses__() if child.__module__ == errors.__name__]
    return [(depth, cls.__name__), *(entry for child in children for entry in _tree(child, depth + 1))]


def test_the_tree_drawn_in_errors_is_the_real_tree() -> None:
    drawn = re.findall(r"^( *)\* (\w+)", errors.__doc__ or "", flags=re.MULTILINE)
    assert [(len(indent) // 4, name) for indent, name in drawn] == _tree(EdgedraftError)


def test_every_error_has_its_own_wire_code() -> None:
    classes = [getattr(errors, name) for _, name in _tree(EdgedraftError)]
    assert all("code" in vars(cls) for cls in classes)
    assert not [code for code, count in Counter(cls.code for cls in classes).items() if count > 1]
    assert all(errors.error_class(cls.code) is cls for cls in classes)


def test_every_error_has_a_sensible_http_status() -> None:
    assert all(400 <= getattr(errors, name).http_status < 600 for _, name in _tree(EdgedraftError))


def test_no_error_class_lives_outside_the_tree() -> None:
    """Everything that edgedraft raises on purpose is caught by `except EdgedraftError`."""
    code = (
        "import pkgutil, importlib, inspect, edgedraft\n"
        "strays = set()\n"
        "for module in pkgutil.walk_packages(edgedraft.__path__, 'edgedraft.'):\n"
        "    if module.name.endswith('__main__') or '.testing' in module.name: continue\n"
        "    for _, cls in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):\n"
        "        if issubclass(cls, Exception) and cls.__module__.startswith('edgedraft.'):\n"
        "            private = cls.__name__.startswith('_')\n"
        "            if cls.__module__ != 'edgedraft.errors' and not private: strays.add(cls.__qualname__)\n"
        "print(sorted(strays))"
    )
    assert _fresh_python(code) == "[]"
