"""The few calls of PyTorch and transformers that edgedraft needs: load, evaluate with rows of logits, forget.

Nothing here knows of drafts, targets or sessions. A text's cache is a plain `DynamicCache`, which keeps every key and
value even where a model looks through a sliding window, so that it can always be cut; it is cut by a negative `crop`
(a positive one meant a length in older versions and is an error now). One thread at a time for each model.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from edgedraft.backends.gguf import read_header
from edgedraft.backends.transformers_files import ModelSource, check_files
from edgedraft.errors import BackendError, ModelFileError, UnsupportedError
from edgedraft.types import Float32Array

DEFAULT_CONTEXT_TOKENS = 4096
REMEDY_INSTALL = "Install it with: pip install 'edgedraft[torch]'"
_PROBE_IDS = (3, 5, 2, 7, 1, 4, 6)
_PROBE_TOLERANCE = 0.25  # of a row's spread: far above rounding in bf16, far below another text
# Position tables that change for all texts of a pass once one of them is long.
_LENGTH_DEPENDENT_ROPES = frozenset({"dynamic", "longrope"})


@cache
def load_libraries() -> tuple[Any, Any]:
    """torch and transformers, silenced. Raises `UnsupportedError` where one is not installed."""
    torch: Any
    transformers: Any
    try:
        torch, transformers = map(importlib.import_module, ("torch", "transformers"))  # untyped, and slow to check
    except ImportError as error:
        raise UnsupportedError(
            f"PyTorch and transformers cannot be loaded: {error}.", field="model", remedy=REMEDY_INSTALL
        ) from error
    transformers.logging.set_verbosity_error()  # what matters of its words comes back as errors of ours
    transformers.logging.disable_progress_bar()
    return torch, transformers


def engine_name() -> str:
    torch, transformers = load_libraries()
    return f"torch {torch.__version__}, transformers {transformers.__version__}"


class TextCache:
    """Keys and values of one text, of which `length` ids are evaluated."""

    def __init__(self) -> None:
        self.length = 0
        self.entries: Any = load_libraries()[1].DynamicCache()

    def rollback(self, length: int) -> None:
        """Forget everything from `length` on, also what a pass that failed half-way has left."""
        for layer in self.entries.layers:
            surplus = layer.get_seq_length() - length
            if surplus > 0:
                layer.crop(-surplus)
        self.length = length


@dataclass(frozen=True, slots=True)
class Block:
    """Ids to evaluate after those of `text`; logits are wanted for the last `num_rows` of them."""

    text: TextCache
    token_ids: Sequence[int]
    num_rows: int


class LoadedModel:
    """A model in memory. `dtype`: `fp32` or `bf16`. `vocab_size`: the width of a row of logits."""

    def __init__(self, source: ModelSource, model: Any, dtype: str, device: str, threads: int | None) -> None:
        torch, _ = load_libraries()
        self.source = source
        self.dtype = dtype
        self.device = device
        self.threads: int = threads or torch.get_num_threads()
        self._torch = torch
        self._model = model
        self._accepted = frozenset(inspect.signature(model.forward).parameters)
        self._config = model.config.get_text_config(decoder=True)
        self.trained_length = _trained_length(self._config)
        self.mixes_rows = any("expert" in name for name, _ in model.named_modules())  # groups the ids of a pass
        self._check_cache_kind()
        self.vocab_size = self._check_cache_use()

    def evaluate(self, blocks: Sequence[Block]) -> list[Float32Array]:
        """Evaluate `blocks` in one pass; for each a float32 array, shape (num_rows, vocab_size).

        On `BackendError` every text is left as it was.
        """
        if self._model is None:
            raise BackendError("The model is closed.", remedy="Open it again.")
        lengths = [block.text.length for block in blocks]
        try:
            return [self._alone(blocks[0])] if len(blocks) == 1 else self._together(blocks)
        except Exception as error:  # out of memory, a kernel that is missing: the engine has no one class for it
            for block, length in zip(blocks, lengths, strict=True):
                block.text.rollback(length)
            num_ids = sum(len(block.token_ids) for block in blocks)
            raise BackendError(f"The engine failed in a pass over {num_ids} ids: {first_line(error)}.") from error

    def _alone(self, block: Block) -> Float32Array:
        start, end = block.text.length, block.text.length + len(block.token_ids)
        rows = self._logits([block.token_ids], [range(start, end)], None, block.text.entries, block.num_rows)
        block.text.length = end
        return rows[0, rows.shape[1] - block.num_rows :]

    def _together(self, blocks: Sequence[Block]) -> list[Float32Array]:
        """Texts are padded in front and new ids behind, so that each text stays in one piece: windows count along it.

        The new keys and values are then handed back to each text.
        """
        longest = max(block.text.length for block in blocks)
        widest = max(len(block.token_ids) for block in blocks)
        mask = np.zeros((len(blocks), longest + widest), dtype=np.int64)
        for row, block in zip(mask, blocks, strict=True):
            row[longest - block.text.length : longest + len(block.token_ids)] = 1
        last = self.trained_length - 1  # padding may lie past the last position that there is
        joined = self._joined(blocks, longest)
        kept = widest - min(len(block.token_ids) - block.num_rows for block in blocks)
        logits = self._logits(
            [[*block.token_ids, *[0] * (widest - len(block.token_ids))] for block in blocks],
            [[min(block.text.length + index, last) for index in range(widest)] for block in blocks],
            mask,
            joined,
            kept,
        )
        rows = []
        for index, block in enumerate(blocks):
            end = len(block.token_ids)
            self._hand_back(joined, index, slice(longest, longest + end), block.text)
            first = end - block.num_rows - (widest - logits.shape[1])
            rows.append(logits[index, first : first + block.num_rows])
        return rows

    def _joined(self, blocks: Sequence[Block], longest: int) -> Any:
        joined = TextCache().entries
        pad = self._torch.nn.functional.pad
        for number, layers in enumerate(zip(*(block.text.entries.layers for block in blocks), strict=True)):
            if not layers[0].is_initialized:  # it uses those of another layer
                continue
            keys, values = (
                self._torch.cat(
                    [
                        pad(getattr(layer, part), (0, 0, longest - block.text.length, 0))
                        for layer, block in zip(layers, blocks, strict=True)
                    ]
                )
                for part in ("keys", "values")
            )
            joined.update(keys, values, number)
        return joined

    @staticmethod
    def _hand_back(joined: Any, index: int, where: slice, text: TextCache) -> None:
        for number, layer in enumerate(joined.layers):
            if not layer.is_initialized:
                continue
            keys, values = (part[index : index + 1, :, where] for part in (layer.keys, layer.values))
            text.entries.update(keys, values, number)
        text.length += where.stop - where.start

    def _logits(
        self,
        token_ids: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
        mask: Any,
        entries: Any,
        num_rows: int,
    ) -> Float32Array:
        """Logits of the last `num_rows` (at least one) of each text: float32, shape (texts, rows, vocab_size)."""
        torch = self._torch
        torch.set_num_threads(self.threads)  # a setting of the calling thread, which need not be the one that loaded
        kept = max(1, num_rows)
        optional = {
            "position_ids": torch.tensor([list(row) for row in positions], device=self.device),
            "logits_to_keep": kept,
        }
        with torch.inference_mode():
            output = self._model(
                input_ids=torch.tensor([list(row) for row in token_ids], device=self.device),
                attention_mask=None if mask is None else torch.tensor(mask, device=self.device),
                cache=entries,
                use_cache=True,
                **{name: value for name, value in optional.items() if name in self._accepted},
            )
            rows: Float32Array = output.logits[:, -kept:].float().cpu().numpy()
        return rows

    def _check_cache_kind(self) -> None:
        """Refuse a state that is no list of keys and values, going by the cache that the library makes for it."""
        entries = load_libraries()[1].DynamicCache(config=self._config)
        kinds = {type(layer).__name__ for layer in entries.layers if not layer.is_croppable}
        if "cache" not in self._accepted or kinds:
            raise self._cannot_cut(f"its state is kept as {', '.join(sorted(kinds)) or 'no cache at all'}")

    def _check_cache_use(self) -> int:
        """Write on after a wrong branch that was cut off; the rows must be those of a fresh text. Their width."""
        prefix, wrong, right = _PROBE_IDS[:3], _PROBE_IDS[3:5], _PROBE_IDS[5:]
        fresh, text = TextCache(), TextCache()
        try:
            expected = self.evaluate([Block(fresh, [*prefix, *right], 1)])[0][0]
            self.evaluate([Block(text, [*prefix, *wrong], 1)])
            text.rollback(len(prefix))
            lengths = {layer.get_seq_length() for layer in text.entries.layers if layer.is_initialized}
            row = self.evaluate([Block(text, right, 1)])[0][0]
        except (AttributeError, BackendError, IndexError, TypeError, ValueError) as error:
            raise self._cannot_cut(first_line(error)) from error
        if lengths != {len(prefix)} or np.abs(row - expected).max() > _PROBE_TOLERANCE * np.std(expected):
            raise self._cannot_cut("a branch that was cut off still shows in the rows after it")
        return int(row.shape[0])

    def _cannot_cut(self, reason: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self.source.path} has model type '{self._config.model_type}', whose cache cannot be cut back to a "
            f"length ({reason}); rejected draft tokens would stay in it.",
            field="model",
            remedy="Use a plain transformer (llama, qwen2, qwen3, gemma, phi, ...).",
        )

    @property
    def name(self) -> str:
        return read_header(self.source.path).name if self.source.is_gguf else self.source.path.resolve().name

    @property
    def quantisation(self) -> str:
        """The type of the weights in memory, and what they were in a GGUF file."""
        in_memory = {"fp32": "F32", "bf16": "BF16"}[self.dtype]
        stored = read_header(self.source.path).quantisation if self.source.is_gguf else ""
        return f"{stored} as {in_memory}" if stored else in_memory

    @property
    def attention(self) -> str:
        return str(self._config._attn_implementation)

    @property
    def processor(self) -> str:
        """What the rounding depends on: `CPU AVX512` or the name of the accelerator."""
        if self.device == "cpu":
            return f"CPU {self._torch.backends.cpu.get_cpu_capability()}"
        return str(self._torch.cuda.get_device_name(self.device))

    def free(self) -> None:
        self._model = None


def load_model(source: ModelSource, *, threads: int | None = None, cpu_only: bool = False) -> LoadedModel:
    """Load a folder or GGUF file after checking it; the device is CUDA where there is one, the type bf16 there.

    Raises `ModelFileError` (missing, damaged or incomplete), `UnsupportedError` (a cache that cannot be cut, a missing
    package or device).
    """
    check_files(source)
    _, transformers = load_libraries()
    device, dtype = choose_device(source, cpu_only=cpu_only)
    if source.is_gguf:
        arguments = _gguf_arguments(source, transformers)
    else:
        arguments = {"pretrained_model_name_or_path": str(source.path), "use_safetensors": True}
    model = load_weights(transformers.AutoModelForCausalLM, source, dtype, arguments)
    return LoadedModel(source, placed(model, device), dtype, device, threads)


def choose_device(source: ModelSource, *, cpu_only: bool = False) -> tuple[str, str]:
    """Device and dtype as asked for, else CUDA where there is one, and bf16 there.

    Raises `UnsupportedError` for a device that PyTorch does not see.
    """
    torch, _ = load_libraries()
    has_cuda = bool(torch.cuda.is_available())
    device = source.device or ("cuda" if has_cuda and not cpu_only else "cpu")
    if device != "cpu" and not has_cuda:
        raise UnsupportedError(
            f"device is '{device}', and PyTorch ({torch.__version__}) sees none.",
            field="model",
            remedy="Use device=cpu, or install a build of PyTorch for this machine's accelerator.",
        )
    return device, source.dtype or ("fp32" if device == "cpu" else "bf16")


def load_weights(model_class: Any, source: ModelSource, dtype: str, arguments: Mapping[str, Any]) -> Any:
    """The model of `source`, whole: nothing fetched, no code of its own run. Raises `ModelFileError`."""
    torch, _ = load_libraries()
    shared = {
        "dtype": {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype],
        "local_files_only": True,
        "trust_remote_code": False,  # left open, the library asks on the terminal whether to run a folder's own code
    }
    try:
        model, report = model_class.from_pretrained(**shared, **arguments, output_loading_info=True)
    except Exception as error:  # each architecture and file format fails in its own way
        raise ModelFileError(
            f"{source.path} cannot be loaded: {first_line(error)}.",
            remedy="The file may be damaged, or of an architecture that this transformers cannot read.",
        ) from error
    absent = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
    if absent:  # the library would fill them with random numbers
        raise ModelFileError(
            f"{source.path} lacks {len(absent)} weights that its architecture needs, first {absent[0]}.",
            remedy="Fetch the model again, whole.",
        )
    return model


def placed(model: Any, device: str) -> Any:
    """`model` on `device`, for inference. Raises `BackendError` where it does not fit there."""
    try:
        return model.to(device).eval()
    except Exception as error:  # no such device, or no room on it: each accelerator has classes of its own
        raise BackendError(
            f"device {device} cannot take the model: {first_line(error)}.",
            remedy="Use another device, dtype=bf16 or a smaller model.",
        ) from error


def _gguf_arguments(source: ModelSource, transformers: Any) -> Mapping[str, Any]:
    for package in ("gguf", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise UnsupportedError(
                f"reading a GGUF file with transformers needs the package {package}.",
                field="model",
                remedy=REMEDY_INSTALL,
            )
    return {
        "pretrained_model_name_or_path": str(source.path.parent),
        "gguf_file": source.path.name,
        "quantization_config": transformers.GgufConfig(dequantize=True),
    }


def _trained_length(config: Any) -> int:
    """The context the model was trained for, in tokens.

    Where positions are rescaled once any text of a pass grows past a length, that length: rows of one session would
    otherwise depend on another's.
    """
    length = getattr(config, "max_position_embeddings", None) or DEFAULT_CONTEXT_TOKENS
    parameters = getattr(config, "rope_parameters", None) or {}
    ropes = list(parameters.values()) if all(isinstance(each, dict) for each in parameters.values()) else [parameters]
    for rope in ropes:
        if rope.get("rope_type") in _LENGTH_DEPENDENT_ROPES:
            before = rope.get("original_max_position_embeddings")
            length = min(length, before or getattr(config, "original_max_position_embeddings", None) or length)
    if length < 1:
        raise ModelFileError(
            f"config.json has a context of {length} tokens; legal: 1 or more.", remedy="Fetch the file again."
        )
    return int(length)


def first_line(error: BaseException) -> str:
    """Type and first line of a message that may run over pages."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__
