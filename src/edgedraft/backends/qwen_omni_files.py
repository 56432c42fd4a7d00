"""What a `qwen-omni:` spec names, and what is read of the model's folder without an engine."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgedraft.backends.qwen_omni_prompts import DETAILED, LINES, REQUESTS, Line
from edgedraft.backends.transformers_files import ModelSource, TokenizerFiles, read_json, split_settings
from edgedraft.errors import InvalidRequestError, ModelFileError, UnsupportedError

FORMS = "qwen-omni:FOLDER or qwen-omni:ORG/NAME[@REVISION] of a hub"
REMEDY_INSTALL = "Install it with: pip install 'edgedraft[torch]'"
REMEDY_FETCH = "Fetch the model again, whole."
_HUB_NAME = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[^/@]+))?")
_FETCHED = ("*.json", "*.jinja", "merges.txt", "*.safetensors")
_INDEX = "model.safetensors.index.json"
_SAMPLE_BYTES = 1 << 16


def open_source(rest: str) -> tuple[ModelSource, Line, str]:
    """What `PATH_OR_HUB_NAME[,dtype=...][,device=...][,style=...]` names: folder, line of models, style of requests.

    The folder is fetched if need be. Raises `InvalidRequestError` (settings), `ModelFileError` (nothing there) or
    `UnsupportedError` (not Qwen-Omni).
    """
    path, settings = split_settings(rest, ("dtype", "device", "style"), family="qwen-omni", forms=FORMS)
    style = settings.pop("style", DETAILED)
    if style not in REQUESTS:
        raise InvalidRequestError(f"style is '{style}'; legal: {', '.join(REQUESTS)}.", field="model")
    source = ModelSource(path=_located(path), **settings)
    return source, read_line(source.path), style


def read_line(folder: Path) -> Line:
    """Which line of models the folder holds one of."""
    if not (folder / "config.json").is_file():
        raise ModelFileError(f"{folder} holds no config.json.", remedy=f"Legal: {FORMS}.")
    kind = str(read_json(folder, "config.json").get("model_type"))
    if kind not in LINES:
        raise UnsupportedError(
            f"{folder} has model type '{kind}', which this family cannot let hear a recording; legal: "
            f"{', '.join(LINES)}.",
            field="model",
            remedy="Use Qwen2.5-Omni or Qwen3-Omni; a model of text is opened with transformers:FOLDER.",
        )
    return LINES[kind]


def model_name(folder: Path) -> str:
    """`ORG/NAME` for a folder in a hub's cache, whose own name is a checksum; else the folder's name."""
    folder = folder.absolute()
    if folder.parent.name == "snapshots":
        return folder.parent.parent.name.removeprefix("models--").replace("--", "/")
    return folder.name


def weights_digest(folder: Path) -> str:
    """Tells other weights of the same name apart, from a few places of each file: all of them are many gigabytes."""
    found = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        size = path.stat().st_size
        with path.open("rb") as file:
            for place in (0, size // 2, max(size - _SAMPLE_BYTES, 0)):
                file.seek(place)
                found.update(file.read(_SAMPLE_BYTES))
        found.update(size.to_bytes(8, "little"))
    return found.hexdigest()[:12]


def read_tokenizer_files(folder: Path) -> TokenizerFiles:
    """Definition and settings of the tokenizer; the end ids are left to the caller.

    Qwen3-Omni is published without `tokenizer.json`: the definition is then put together from `vocab.json` and
    `merges.txt`.
    """
    definition = read_json(folder, "tokenizer.json") or _definition_of_parts(folder)
    return definition, read_json(folder, "tokenizer_config.json"), []


def _definition_of_parts(folder: Path) -> dict[str, Any]:
    absent = [name for name in ("vocab.json", "merges.txt") if not (folder / name).is_file()]
    if absent:
        raise ModelFileError(
            f"{folder} holds neither tokenizer.json nor {' and '.join(absent)}.",
            remedy="Fetch the tokenizer's files as well.",
        )
    try:
        library: Any = importlib.import_module("transformers")  # untyped, and slow to check
    except ImportError as error:
        raise UnsupportedError(
            f"transformers cannot be loaded: {error}.", field="model", remedy=REMEDY_INSTALL
        ) from error
    try:
        tokenizer = library.Qwen2Tokenizer.from_pretrained(str(folder), local_files_only=True)
        definition: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    except Exception as error:  # of the library or the one below it, each with classes of its own
        raise ModelFileError(
            f"the tokenizer in {folder} cannot be read: {type(error).__name__}.", remedy=REMEDY_FETCH
        ) from error
    return definition


def _located(path: str) -> Path:
    folder = Path(path).expanduser()
    if folder.exists():
        return folder
    match = _HUB_NAME.fullmatch(path)
    if match is None or ".." in path.split("/"):
        raise ModelFileError(f"{folder} does not exist.", remedy=f"Legal: {FORMS}.")
    return hub_folder(match["repo"], match["revision"])


def hub_folder(repo: str, revision: str | None) -> Path:
    """The model's folder in the hub's cache, without asking anybody where it is whole; else fetched.

    The hub's library shows the progress. Raises `ModelFileError`, or `UnsupportedError` where it is not installed.
    """
    try:
        import huggingface_hub.errors as errors
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise UnsupportedError(
            f"huggingface_hub cannot be loaded: {error}.", field="model", remedy=REMEDY_INSTALL
        ) from error
    wanted: dict[str, Any] = {"repo_id": repo, "revision": revision, "allow_patterns": list(_FETCHED)}
    try:
        folder = Path(snapshot_download(**wanted, local_files_only=True))
        if not _absent_files(folder):
            return folder
    except errors.LocalEntryNotFoundError:
        pass
    try:
        return Path(snapshot_download(**wanted))
    except errors.GatedRepoError as error:
        raise _failed(repo, "needs its terms to be accepted", "Accept them on the hub and log in there.") from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        remedy = "Check organisation, name and revision, or give the path of a folder that exists."
        raise _failed(repo, "is neither a folder here nor on the hub", remedy) from error
    except Exception as error:  # of the hub's library or its HTTP client, whichever that is
        what = f"is no folder here, and the hub could not be reached or did not deliver it ({type(error).__name__})"
        raise _failed(repo, what, "Check the connection, or bring the folder here and give its path.") from error


def _absent_files(folder: Path) -> Sequence[str]:
    """What an interrupted download has not brought: the weights' files, going by their index."""
    index = read_json(folder, _INDEX).get("weight_map") or {"": "model.safetensors"}
    return sorted({name for name in ["config.json", *index.values()] if not (folder / name).is_file()})


def _failed(repo: str, what: str, remedy: str) -> ModelFileError:
    return ModelFileError(f"{repo} {what}.", remedy=remedy)
