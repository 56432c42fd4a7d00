"""What a `transformers:` spec names, and what is read of a model's folder without an engine."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from edgedraft.backends.gguf import check_supported, read_header
from edgedraft.backends.spec import STORED
from edgedraft.errors import InvalidRequestError, ModelFileError

DTYPES = ("fp32", "bf16")
FORMS = "transformers:FOLDER, transformers:FILE.gguf, transformers:hub:ORG/NAME/FILE.gguf or transformers:demo:target"
FORMS_OF_SETTINGS = "dtype=fp32, dtype=bf16, device=cpu, device=cuda, device=cuda:N"
TokenizerFiles: TypeAlias = "tuple[dict[str, Any], dict[str, Any], list[int]]"
REMEDY_FOLDER = "Give a folder as `save_pretrained` writes it: config.json, tokenizer.json and *.safetensors."
_SETTING = re.compile(r"(?P<key>\w+)=(?P<value>[^=]*)")
_DEVICE = re.compile(r"cpu|cuda(:\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A folder or a GGUF file, and how to compute with it. `dtype` and `device` are empty where left to the engine."""

    path: Path
    dtype: str = ""
    device: str = ""

    def __post_init__(self) -> None:
        if self.dtype and self.dtype not in DTYPES:
            raise InvalidRequestError(f"dtype is '{self.dtype}'; legal: {', '.join(DTYPES)}.", field="model")
        if self.device and not _DEVICE.fullmatch(self.device):
            raise InvalidRequestError(f"device is '{self.device}'; legal: cpu, cuda, cuda:N.", field="model")

    @property
    def is_gguf(self) -> bool:
        return self.path.suffix.lower() == ".gguf"


def parse_source(rest: str) -> ModelSource:
    """Read `PATH[,dtype=fp32|bf16][,device=cpu|cuda]`; `hub:` and `demo:` paths are fetched or made if need be.

    Raises `InvalidRequestError` naming the setting, and what the model store raises.
    """
    path, settings = split_settings(rest, ("dtype", "device"), family="transformers", forms=FORMS)
    return ModelSource(path=_located(path), **settings)


def split_settings(rest: str, names: Sequence[str], *, family: str, forms: str) -> tuple[str, dict[str, str]]:
    """The path, which may hold commas, and the settings behind it. `family`, `forms`: for messages.

    Raises `InvalidRequestError` for other settings than `names`, empty or repeated ones, and for no path.
    """
    parts = rest.split(",")
    settings: dict[str, str] = {}
    while len(parts) > 1 and (match := _SETTING.fullmatch(parts[-1].strip())):
        if match["key"] not in names or match["key"] in settings:
            raise InvalidRequestError(
                f"model '{family}' has no setting '{match['key']}', or has it twice; there are: {', '.join(names)}.",
                field="model",
            )
        if not match["value"].strip():
            raise InvalidRequestError(f"setting {match['key']} is empty; legal: {FORMS_OF_SETTINGS}.", field="model")
        settings[match["key"]] = match["value"].strip()
        parts.pop()
    path = ",".join(parts).strip()
    if not path:
        raise InvalidRequestError(f"the model's path is empty; legal: {forms}.", field="model")
    return path, settings


def _located(path: str) -> Path:
    if path.partition(":")[0] not in STORED:
        return Path(path).expanduser()
    from edgedraft.backends import model_store  # heavy with hub and file work, needed for these two only

    return model_store.resolve(path)


def check_files(source: ModelSource) -> None:
    """Refuse what is no complete model before an engine reads it: `ModelFileError`, or `UnsupportedError`."""
    if source.is_gguf:
        check_supported(read_header(source.path))
        return
    _check_folder(source.path)
    if not list(source.path.glob("*.safetensors")):
        raise ModelFileError(
            f"{source.path} holds no *.safetensors; pickled weights are not read, since they can run code.",
            remedy=REMEDY_FOLDER,
        )


def _check_folder(folder: Path) -> None:
    if not os.path.isdir(folder):
        what = "is neither a folder nor a GGUF file" if os.path.exists(folder) else "does not exist"
        raise ModelFileError(f"{folder} {what}.", remedy=f"Legal: {FORMS}.")
    for name in ("config.json", "tokenizer.json"):
        if not (folder / name).is_file():
            raise ModelFileError(f"{folder} holds no {name}.", remedy=REMEDY_FOLDER)


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """One of the folder's JSON files; empty where there is none. Raises `ModelFileError` for one that is damaged."""
    path = folder / name
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path} cannot be read: {error}.", remedy="Fetch the file again.") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{path} holds no JSON object.", remedy="Fetch the file again.")
    return value


def read_chat_template(source: ModelSource) -> str:
    """The model's jinja chat template, empty where it has none."""
    if source.is_gguf:
        header = read_header(source.path)
        check_supported(header)
        return header.chat_template
    _check_folder(source.path)
    file = source.path / "chat_template.jinja"
    try:
        if file.is_file():
            return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFileError(f"{file} cannot be read: {error}.", remedy="Fetch the file again.") from error
    template = read_json(source.path, "tokenizer_config.json").get("chat_template") or ""
    if isinstance(template, list):  # several by name, as some models have for tools
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default") or ""
    if not isinstance(template, str):
        raise ModelFileError(
            f"{source.path / 'tokenizer_config.json'} has a chat_template that is no text.",
            remedy="Fetch the file again.",
        )
    return template


def read_tokenizer_files(folder: Path) -> TokenizerFiles:
    """`tokenizer.json`, `tokenizer_config.json`, and the end ids that the configurations name."""
    _check_folder(folder)
    end_ids: list[int] = []
    for name in ("generation_config.json", "config.json"):
        value = read_json(folder, name).get("eos_token_id")
        values = value if isinstance(value, list) else [value]
        end_ids += [token_id for token_id in values if type(token_id) is int and token_id >= 0]
    return read_json(folder, "tokenizer.json"), read_json(folder, "tokenizer_config.json"), end_ids
