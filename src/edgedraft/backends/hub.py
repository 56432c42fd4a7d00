"""Model files from a hub, through its own library: `org/name/file.gguf`, or `org/name@revision/file.gguf`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgedraft.backends.gguf import read_header
from edgedraft.backends.quantize import ProgressCallback
from edgedraft.errors import InvalidRequestError, ModelFileError, UnsupportedError

_SPEC = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[^/@]+))?/(?P<file>[^@]+\.gguf)")


@dataclass(frozen=True, slots=True)
class _HubFile:
    repo: str
    file: str
    revision: str | None


def _parse(rest: str) -> _HubFile:
    match = _SPEC.fullmatch(rest)
    if match is None or ".." in rest.split("/"):
        raise InvalidRequestError(
            f"model spec 'hub:{rest}' is not a file on a hub; legal: hub:ORG/NAME/FILE.gguf or "
            "hub:ORG/NAME@REVISION/FILE.gguf.",
            field="model",
        )
    return _HubFile(match["repo"], match["file"], match["revision"])


def _library() -> Any:
    try:
        import huggingface_hub.errors
        import huggingface_hub.utils
    except ImportError as error:
        raise UnsupportedError(
            f"huggingface_hub cannot be loaded: {error}.",
            field="model",
            remedy="Install it with: pip install 'edgedraft[llamacpp]', or use llamacpp:PATH.gguf.",
        ) from error
    return huggingface_hub


def find(rest: str, *, cache: Path | None = None) -> Path | None:
    """The file where it is in the local cache, without asking anybody."""
    wanted = _parse(rest)
    library = _library()
    found = library.try_to_load_from_cache(wanted.repo, wanted.file, cache_dir=cache, revision=wanted.revision)
    return Path(found) if isinstance(found, str) else None


def download(
    rest: str, *, cache: Path | None = None, endpoint: str | None = None, progress: ProgressCallback | None = None
) -> Path:
    """Fetch the newest version of the file, or use the cached one where it is that. `progress` counts bytes.

    Without `progress` the hub's library shows its own bar. Raises `ModelFileError` naming the file and the remedy.
    """
    wanted = _parse(rest)
    library = _library()
    errors = library.errors
    try:
        # Asked for once first: for a file that is not here the download itself would try for half a minute.
        library.get_hf_file_metadata(
            library.hf_hub_url(wanted.repo, wanted.file, revision=wanted.revision, endpoint=endpoint)
        )
        path = library.hf_hub_download(
            wanted.repo,
            wanted.file,
            revision=wanted.revision,
            cache_dir=cache,
            endpoint=endpoint,
            tqdm_class=None if progress is None else _bar_class(library, progress),
        )
    except errors.GatedRepoError as error:
        raise _failed(rest, "needs its terms to be accepted", "Accept them on the hub and log in there.") from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.EntryNotFoundError) as error:
        remedy = "Check organisation, name, revision and file name; a private one needs a log-in."
        raise _failed(rest, "is not on the hub", remedy) from error
    except Exception as error:  # of the hub's library or its HTTP client, whichever that is
        what = f"is not here, and the hub could not be reached or did not deliver it ({type(error).__name__})"
        remedy = "Check the connection, or bring the file here and use llamacpp:PATH.gguf."
        raise _failed(rest, what, remedy) from error
    read_header(Path(path))
    return Path(path)


def _failed(rest: str, what: str, remedy: str) -> ModelFileError:
    return ModelFileError(f"hub:{rest} {what}.", remedy=remedy)


def _bar_class(library: Any, progress: ProgressCallback) -> Any:
    """A progress bar for the hub's library that draws nothing and calls `progress`."""

    class Bar(library.utils.tqdm):  # type: ignore[misc]
        def __init__(self, *args: object, **keywords: Any) -> None:
            self._num_done = int(keywords.get("initial") or 0)
            super().__init__(*args, **{**keywords, "disable": True})  # which also stops its own counting

        def update(self, n: float | None = 1) -> None:
            self._num_done += int(n or 0)
            progress(self._num_done, int(self.total or 0))

    return Bar


def cached_files(*, cache: Path | None = None) -> Sequence[tuple[str, Path]]:
    """Spec and path of every GGUF file in the hub's local cache; none where its library is not installed."""
    try:
        library = _library()
    except UnsupportedError:
        return []
    try:
        scan = library.scan_cache_dir(cache)
    except library.errors.CacheNotFound:
        return []
    found = {
        f"hub:{repo.repo_id}/{file.file_path.relative_to(revision.snapshot_path).as_posix()}": Path(file.file_path)
        for repo in scan.repos
        for revision in sorted(repo.revisions, key=lambda revision: revision.last_modified)
        for file in revision.files
        if file.file_name.endswith(".gguf")
    }
    return sorted(found.items())
