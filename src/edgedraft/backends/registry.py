"""The one door to models: a spec string in, a back end out.

Families are found through the entry-point group `edgedraft.backends` and loaded when first asked for, so importing
edgedraft imports no engine, and a broken plug-in breaks nobody but itself.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar, cast

from edgedraft.backends.base import BackendFamily, BackendOptions, DraftBackend, TargetBackend, Tokenizer
from edgedraft.backends.spec import STORED, ModelSpec, parse_spec
from edgedraft.errors import BackendError, EdgedraftError, InvalidRequestError, UnsupportedError

__all__ = [
    "ENTRY_POINT_GROUP",
    "ModelSpec",
    "chat_template",
    "installed_families",
    "load_family",
    "open_draft",
    "open_target",
    "open_tokenizer",
    "parse_spec",
]

ENTRY_POINT_GROUP = "edgedraft.backends"
EXTRA_OF_FAMILY = {"llamacpp": "llamacpp", "transformers": "torch", "qwen-omni": "torch"}
"""Which extra of edgedraft brings the engine of one of its own families."""

Opened = TypeVar("Opened")


def _entry_points() -> dict[str, list[EntryPoint]]:
    found: dict[str, list[EntryPoint]] = {}
    for entry_point in entry_points(group=ENTRY_POINT_GROUP):
        same_name = found.setdefault(entry_point.name, [])
        if all(entry_point.value != other.value for other in same_name):
            same_name.append(entry_point)
    return found


def installed_families() -> tuple[str, ...]:
    """Names of the families there are, sorted. Loads none, so one of them may turn out broken."""
    return tuple(sorted(_entry_points()))


def _find(name: str) -> EntryPoint:
    found = _entry_points()
    if name not in found:
        known = ", ".join([*sorted(found), *(f"{stored}:..." for stored in STORED)])
        raise InvalidRequestError(
            f"model family is '{name}'; there are: {known}.",
            field="model",
            remedy="Write FAMILY:REST or a path to a .gguf file, or install the package that brings the family.",
        )
    if len(found[name]) > 1:
        values = ", ".join(entry_point.value for entry_point in found[name])
        raise BackendError(
            f"model family '{name}' is offered more than once ({values}).", remedy="Uninstall all but one."
        )
    return found[name][0]


def _cannot_load(name: str, error: Exception) -> EdgedraftError:
    extra = EXTRA_OF_FAMILY.get(name)
    if isinstance(error, ImportError) and extra is not None:
        return UnsupportedError(
            f"model family '{name}' is not installed (no module '{error.name}').",
            field="model",
            remedy=f"Run: pip install 'edgedraft[{extra}]'",
        )
    return BackendError(
        f"model family '{name}' cannot be loaded: {type(error).__name__}: {error}.",
        remedy="Reinstall or uninstall the package that brings it.",
    )


def load_family(name: str) -> BackendFamily:
    """The family of that name.

    Raises `InvalidRequestError` (no such family), `UnsupportedError` (its engine is not installed; the remedy names the
    extra) or `BackendError` (the plug-in is broken, or the name is offered twice).
    """
    entry_point = _find(name)
    try:
        loaded: Any = entry_point.load()
        return cast("BackendFamily", loaded() if isinstance(loaded, type) else loaded)
    except EdgedraftError:
        raise
    except Exception as error:  # a plug-in may fail in any way; the user gets one clear line
        raise _cannot_load(name, error) from error


def _located(spec: str) -> ModelSpec:
    """The spec with `hub:` and `demo:` turned into a file; may fetch or build it."""
    parsed = parse_spec(spec)
    if parsed.family not in STORED:
        return parsed
    from edgedraft.backends import model_store  # heavy with hub and file work, needed for these two only

    return ModelSpec("llamacpp", str(model_store.resolve(str(parsed))))


def _open(spec: str, method: str, role: str, call: Callable[[Any, str], Opened]) -> Opened:
    located = _located(spec)
    family = load_family(located.family)
    opener = getattr(family, method, None)
    if opener is None:
        raise UnsupportedError(f"model '{spec}' cannot be a {role}: its family has none.", field="model")
    try:
        return call(opener, located.rest)
    except EdgedraftError:
        raise
    except ImportError as error:
        raise _cannot_load(located.family, error) from error
    except Exception as error:  # an engine may fail in any way; the user gets one clear line
        raise BackendError(f"model '{spec}' could not be opened: {type(error).__name__}: {error}.") from error


def open_draft(spec: str, options: BackendOptions) -> DraftBackend:
    """Open a draft model. Raises what `load_family` does, `UnsupportedError` for a family without drafts,
    `ModelFileError` and others of the tree as the family says.
    """
    return _open(spec, "open_draft", "draft", lambda opener, rest: cast("DraftBackend", opener(rest, options)))


def open_target(spec: str, options: BackendOptions) -> TargetBackend:
    """Open a target model; errors as in `open_draft`."""
    return _open(spec, "open_target", "target", lambda opener, rest: cast("TargetBackend", opener(rest, options)))


def open_tokenizer(spec: str) -> Tokenizer:
    """Open only the tokenizer of a model; errors as in `open_draft`."""
    return _open(spec, "open_tokenizer", "tokenizer", lambda opener, rest: cast("Tokenizer", opener(rest)))


def chat_template(spec: str) -> str:
    """The model's jinja chat template, empty where it has none; errors as in `open_draft`."""
    return _open(spec, "chat_template", "source of a chat template", lambda opener, rest: cast("str", opener(rest)))
