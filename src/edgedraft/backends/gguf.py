"""Read and check the header of a GGUF file without an engine.

An engine that maps a truncated file can crash the process, so every file is checked here first. Format: the GGUF
specification, version 2 and 3 (little-endian): header, typed metadata, tensor infos, then aligned tensor data.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgedraft.errors import ModelFileError, UnsupportedError

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT_BYTES = 32
MAX_DIMS = 4
TOKENS_KEY = "tokenizer.ggml.tokens"
REMEDY_FETCH = "Fetch the file again, or give the path of a GGUF model file."

# Tensor type id -> (name, elements in a block, bytes of a block).
TENSOR_TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}

# `general.file_type` -> the name under which people know it.
FILE_TYPES: Mapping[int, str] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
}

# State-space and hybrid models: their state is a summary of the whole text and cannot be cut back to a length.
NO_ROLLBACK_ARCHITECTURES = frozenset(
    {
        "arwkv7",
        "falcon-h1",
        "granitehybrid",
        "jamba",
        "kimi-linear",
        "lfm2",
        "lfm2moe",
        "mamba",
        "mamba2",
        "nemotron_h",
        "nemotron_h_moe",
        "plamo2",
        "qwen35",
        "qwen35moe",
        "qwen3next",
        "rwkv6",
        "rwkv6qwen2",
        "rwkv7",
    }
)
MAX_LAYERS = 512  # of llama.cpp, which aborts beyond
NOT_A_LANGUAGE_MODEL_TYPES = frozenset({"adapter", "mmproj", "imatrix"})

_SCALARS: Mapping[int, str] = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9

# First bytes -> what the file looks like.
_LOOKS_LIKE: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "a Git LFS pointer; the model itself was not fetched"),
    (b"PK\x03\x04", "a zip archive or PyTorch checkpoint"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x80", "a Python pickle"),
    (b"<", "a web page or XML file"),
    (b"lmgg", "an old GGML file, from before GGUF"),
    (b"fmgg", "an old GGML file, from before GGUF"),
    (b"tjgg", "an old GGML file, from before GGUF"),
    (b"{", "a JSON file"),
    (b"\x7fELF", "a program"),
)

Scalar = int | float | bool | str


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: `type_name` is empty for a type unknown here, and `num_bytes` then 0."""

    name: str
    num_dims: int
    type_name: str
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """What a GGUF file says about itself.

    `metadata`: the scalar values only. `array_lengths`: how many elements each array value has.
    `size_bytes`: of the file; `needed_bytes`: where its last tensor ends.
    """

    path: Path
    version: int
    metadata: Mapping[str, Scalar]
    array_lengths: Mapping[str, int]
    tensors: tuple[TensorInfo, ...]
    size_bytes: int
    needed_bytes: int

    def text(self, key: str) -> str:
        value = self.metadata.get(key, "")
        return value if isinstance(value, str) else ""

    @property
    def architecture(self) -> str:
        return self.text("general.architecture")

    @property
    def name(self) -> str:
        """The model's name; the file's where the model has none."""
        return self.text("general.name") or self.path.stem

    @property
    def chat_template(self) -> str:
        return self.text("tokenizer.chat_template")

    @property
    def num_tokens(self) -> int:
        return self.array_lengths.get(TOKENS_KEY, 0)

    @property
    def context_length(self) -> int:
        """The context the model was trained for, in tokens; 0 where the file does not say."""
        value = self.metadata.get(f"{self.architecture}.context_length", 0)
        return int(value) if isinstance(value, int) else 0

    @property
    def quantisation(self) -> str:
        """`Q4_0`, `Q8_0`, `Q4_K_M`, ...; empty where the file does not say."""
        value = self.metadata.get("general.file_type")
        return FILE_TYPES.get(int(value), "") if isinstance(value, int) else ""

    @property
    def matrix_types(self) -> frozenset[str]:
        """Tensor types of the weights that are multiplied, that is, of two dimensions and more."""
        return frozenset(tensor.type_name for tensor in self.tensors if tensor.num_dims > 1)


class _TruncatedError(Exception):
    """The file ends inside its header; `position` is how many bytes were asked for."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class _DamagedError(Exception):
    """The header holds something that the format does not allow."""


class _Reader:
    """A cursor over the mapped file."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._size = len(data)
        self.position = 0

    def _advance(self, num_bytes: int) -> int:
        start = self.position
        if start + num_bytes > self._size:
            raise _TruncatedError(start + num_bytes)
        self.position = start + num_bytes
        return start

    def scalar(self, fmt: str) -> Scalar:
        start = self._advance(struct.calcsize(fmt))
        value: Scalar = struct.unpack_from(fmt, self._data, start)[0]
        return value

    def count(self, fmt: str = "<Q") -> int:
        return int(self.scalar(fmt))

    def string(self) -> str:
        length = self.count()
        start = self._advance(length)
        return self._data[start : start + length].decode("utf-8", errors="replace")

    def skip_array(self, *, distinct: bool = False) -> int:
        """Step over an array; how many elements it has. `distinct`: refuse a string that comes twice."""
        element_type = self.count("<I")
        length = self.count()
        if element_type in _SCALARS:
            self._advance(length * struct.calcsize(_SCALARS[element_type]))
        elif element_type == _STRING:
            self._skip_strings(length, distinct)
        else:
            raise _DamagedError(f"an array of values of type {element_type}")
        return length

    def _skip_strings(self, count: int, distinct: bool) -> None:
        seen: set[bytes] = set()
        for index in range(count):
            num_bytes = self.count()
            start = self._advance(num_bytes)
            if not distinct or num_bytes == 0:
                continue
            text = self._data[start : start + num_bytes]
            if text in seen:
                raise _DamagedError(f"the same text for token {index} and an earlier one")
            seen.add(text)


def read_header(path: Path) -> GgufHeader:
    """The header of the GGUF file `path`. Raises `ModelFileError` naming the path and what is wrong with it."""
    if path.is_dir():
        raise ModelFileError(f"{path} is a directory, not a model file.", remedy="Give the path of a GGUF file in it.")
    if not path.is_file():
        raise ModelFileError(f"{path} does not exist.", remedy="Check the path of the model file.")
    try:
        size_bytes = path.stat().st_size
        if size_bytes == 0:
            raise ModelFileError(f"{path} is empty.", remedy=REMEDY_FETCH)
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _check_magic(path, data[:32])
            return _parse(path, _Reader(data), size_bytes)
    except OSError as error:
        raise ModelFileError(
            f"{path} cannot be read: {error.strerror}.", remedy="Check the file's permissions."
        ) from error


def _check_magic(path: Path, start: bytes) -> None:
    if start.startswith(MAGIC):
        return
    looks = next((what for prefix, what in _LOOKS_LIKE if start.startswith(prefix)), "")
    if not looks and start[8:9] == b"{":
        looks = "a safetensors file"
    guess = f" It looks like {looks}." if looks else f" It starts with {start[:4].hex(' ')}, not with 'GGUF'."
    raise ModelFileError(f"{path} is not a GGUF file.{guess}", remedy="Give a model in GGUF format.")


def _parse(path: Path, reader: _Reader, size_bytes: int) -> GgufHeader:
    try:
        reader.position = len(MAGIC)
        version = reader.count("<I")
        if version not in (2, 3):
            raise _DamagedError(f"GGUF version {version}, and only 2 and 3, little-endian, can be read")
        num_tensors, num_values = reader.count(), reader.count()
        metadata, array_lengths = _read_metadata(reader, num_values)
        tensors = tuple(_read_tensor(reader) for _ in range(num_tensors))
    except _TruncatedError as error:
        raise _truncated(path, size_bytes, error.position) from None
    except _DamagedError as error:
        raise ModelFileError(f"{path} has {error}.", remedy=REMEDY_FETCH) from None
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT_BYTES)
    alignment_bytes = int(alignment) if isinstance(alignment, int) and alignment > 0 else DEFAULT_ALIGNMENT_BYTES
    data_start = -(-reader.position // alignment_bytes) * alignment_bytes
    needed = data_start + max((tensor.offset + tensor.num_bytes for tensor in tensors), default=0)
    if tensors and needed > size_bytes:
        raise _truncated(path, size_bytes, needed)
    return GgufHeader(
        path=path,
        version=version,
        metadata=metadata,
        array_lengths=array_lengths,
        tensors=tensors,
        size_bytes=size_bytes,
        needed_bytes=needed,
    )


def _truncated(path: Path, size_bytes: int, needed_bytes: int) -> ModelFileError:
    return ModelFileError(
        f"{path} is truncated or damaged: it has {size_bytes} bytes and needs at least {needed_bytes}.",
        remedy=REMEDY_FETCH,
    )


def _read_metadata(reader: _Reader, num_values: int) -> tuple[dict[str, Scalar], dict[str, int]]:
    metadata: dict[str, Scalar] = {}
    array_lengths: dict[str, int] = {}
    for _ in range(num_values):
        key = reader.string()
        value_type = reader.count("<I")
        if value_type in _SCALARS:
            metadata[key] = reader.scalar(_SCALARS[value_type])
        elif value_type == _STRING:
            metadata[key] = reader.string()
        elif value_type == _ARRAY:
            array_lengths[key] = reader.skip_array(distinct=key == TOKENS_KEY)  # the engine aborts on these
        else:
            raise _DamagedError(f"a metadata value of type {value_type}")
    return metadata, array_lengths


def _read_tensor(reader: _Reader) -> TensorInfo:
    name = reader.string()
    num_dims = reader.count("<I")
    if not 1 <= num_dims <= MAX_DIMS:
        raise _DamagedError(f"a tensor of {num_dims} dimensions")
    num_elements = 1
    for _ in range(num_dims):
        num_elements *= reader.count()
    type_name, block_elements, block_bytes = TENSOR_TYPES.get(reader.count("<I"), ("", 1, 0))
    offset = reader.count()
    return TensorInfo(name, num_dims, type_name, offset, num_elements // block_elements * block_bytes)


def check_supported(header: GgufHeader) -> None:
    """Refuse what is no text model (`ModelFileError`) or cannot be rolled back (`UnsupportedError`)."""
    kind = header.text("general.type")
    if kind in NOT_A_LANGUAGE_MODEL_TYPES or header.architecture in ("", "clip"):
        what = f"holds '{kind or header.architecture or 'no architecture'}'"
        raise ModelFileError(f"{header.path} {what}, not a language model.", remedy="Give the language model's file.")
    if not header.num_tokens or not header.tensors:
        lacks = "tokenizer" if not header.num_tokens else "weights"
        raise ModelFileError(f"{header.path} holds no {lacks}.", remedy="Give a complete language model in GGUF.")
    _check_numbers(header)
    if header.architecture in NO_ROLLBACK_ARCHITECTURES:
        raise no_rollback_error(header.path, header.architecture)


def _check_numbers(header: GgufHeader) -> None:
    """Refuse the numbers with which the engine would abort the whole process."""
    for key, value in header.metadata.items():
        bad = isinstance(value, float) and not (
            0 <= value < math.inf if key.endswith("_epsilon") else math.isfinite(value)
        )
        if key == f"{header.architecture}.block_count":
            bad = not isinstance(value, int) or not 1 <= value <= MAX_LAYERS
        if bad:
            raise ModelFileError(f"{header.path} is damaged: {key} is {value!s:.40}.", remedy=REMEDY_FETCH)


def no_rollback_error(path: Path, architecture: str) -> UnsupportedError:
    return UnsupportedError(
        f"{path} has architecture '{architecture}', a recurrent or hybrid model: its state cannot be rolled back, "
        "and rejected draft tokens would stay in it.",
        field="model",
        remedy="Use a plain transformer (llama, qwen2, qwen3, gemma, phi, ...).",
    )
