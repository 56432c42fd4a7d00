"""Draft on the edge, verify in the cloud: exactly the cloud model's text, with far fewer of its passes.

Names are imported on first use, so that `import edgedraft` alone loads nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgedraft.config import EdgeConfig as EdgeConfig
    from edgedraft.core.strategy import Strategy as Strategy
    from edgedraft.edge.answer import Answer as Answer
    from edgedraft.edge.answer import Piece as Piece
    from edgedraft.edge.blocking import EdgeClient as EdgeClient
    from edgedraft.edge.client import AsyncEdgeClient as AsyncEdgeClient
    from edgedraft.errors import EdgedraftError as EdgedraftError

    __version__: str

_HOMES = {
    "Answer": "edgedraft.edge.answer",
    "AsyncEdgeClient": "edgedraft.edge.client",
    "EdgeClient": "edgedraft.edge.blocking",
    "EdgeConfig": "edgedraft.config",
    "EdgedraftError": "edgedraft.errors",
    "Piece": "edgedraft.edge.answer",
    "Strategy": "edgedraft.core.strategy",
}

__all__ = [
    "Answer",
    "AsyncEdgeClient",
    "EdgeClient",
    "EdgeConfig",
    "EdgedraftError",
    "Piece",
    "Strategy",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = import_module("importlib.metadata").version("edgedraft")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'edgedraft' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
