"""Optional libraries of captioning, imported only where they are used."""

from __future__ import annotations

import importlib
import warnings
from types import ModuleType

from edgedraft.errors import UnsupportedError


def library(name: str, *, purpose: str, extra: str = "caption") -> ModuleType:
    """The module `name`, e.g. "nltk.translate.meteor_score". Raises `UnsupportedError` that names the extra to install.

    Silent: some of these libraries warn about their own source while they are compiled.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except ImportError as error:
        raise UnsupportedError(
            f"{name.partition('.')[0]} is not installed, which {purpose}.",
            field="caption",
            remedy=f"Install it with: pip install 'edgedraft[{extra}]'",
        ) from error
