"""The few calls of PyTorch that a thinker needs: load it, let it hear a recording, evaluate ids with rows of logits.

A thinker is the part of a Qwen-Omni model that listens, reads and writes; the parts that speak are never loaded, and
the one that sees is freed. Its own forward pass is not used: that computes logits for every position of the prompt,
which for 30 s of recording and 152,000 ids is half a gigabyte. Positions are given explicitly, the same in all three
rows, as the model itself numbers audio and text; so a position is the length of the cache, and cutting the cache is
all that a rollback needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from edgedraft.backends.qwen_omni_files import model_name
from edgedraft.backends.qwen_omni_prompts import Line
from edgedraft.backends.qwen_omni_tokenizer import QwenOmniTokenizer
from edgedraft.backends.transformers_engine import (
    TextCache,
    choose_device,
    engine_name,
    first_line,
    load_libraries,
    load_weights,
    placed,
)
from edgedraft.backends.transformers_files import ModelSource
from edgedraft.errors import BackendError, ModelFileError
from edgedraft.speech_features import SpeechFeatures
from edgedraft.types import Float32Array


class Thinker:
    """A thinker in memory; one thread at a time. Rows hold the tokenizer's `num_ids` ids, its `silent_ids` at -inf."""

    def __init__(
        self, model: Any, source: ModelSource, tokenizer: QwenOmniTokenizer, dtype: str, threads: int | None
    ) -> None:
        self._torch, _ = load_libraries()
        self._model = model
        self._silent_ids = list(tokenizer.silent_ids)
        self.num_ids = tokenizer.num_ids
        self.name = model_name(source.path)
        self.device = str(model.device)
        self.dtype = {"fp32": "F32", "bf16": "BF16"}[dtype]
        self.threads: int = threads or self._torch.get_num_threads()
        self.trained_length = int(model.config.text_config.max_position_embeddings)
        num_rows = int(model.lm_head.out_features)
        if self.num_ids > num_rows:
            raise ModelFileError(
                f"{source.path} has a tokenizer of {self.num_ids} ids and rows of {num_rows} logits.",
                remedy="Fetch tokenizer and weights of one model again.",
            )

    def begin(
        self, text: TextCache, before_audio: Sequence[int], features: SpeechFeatures, after_audio: Sequence[int]
    ) -> None:
        """Evaluate the recording between ids as the beginning of `text`. On `BackendError` it is left as it was."""
        with self._one_pass(text):
            parts = [self._embed(before_audio), self._hear(features), self._embed(after_audio)]
            self._run(text, self._torch.cat(parts))

    def evaluate(self, text: TextCache, token_ids: Sequence[int], places: Sequence[int]) -> Float32Array:
        """Evaluate ids after those of `text`; the rows of logits after the ids at `places` of them.

        Float32, shape (len(places), num_ids). On `BackendError` the text is left as it was.
        """
        with self._one_pass(text):
            hidden = self._run(text, self._embed(token_ids))
            logits = self._model.lm_head(hidden[list(places)])[:, : self.num_ids]
            rows: Float32Array = logits.float().cpu().numpy()
        rows[:, self._silent_ids] = -np.inf
        return rows

    @contextmanager
    def _one_pass(self, text: TextCache) -> Iterator[None]:
        if self._model is None:
            raise BackendError("The model is closed.", remedy="Open it again.")
        length = text.length
        self._torch.set_num_threads(self.threads)  # a setting of the calling thread
        try:
            with self._torch.inference_mode():
                yield
        except Exception as error:  # out of memory, a kernel that is missing: the engine has no one class for it
            text.rollback(length)
            raise BackendError(f"The engine failed in a pass after {length} ids: {first_line(error)}.") from error

    def _hear(self, features: SpeechFeatures) -> Any:
        """The model's own embeddings of a recording: shape (audio tokens, width)."""
        torch = self._torch
        mel = torch.tensor(features.values().T[np.newaxis], device=self.device)
        mask = torch.ones((1, features.count), dtype=torch.long, device=self.device)
        heard = self._model.get_audio_features(mel, feature_attention_mask=mask, return_dict=True).last_hidden_state
        return heard.to(self._model.lm_head.weight.dtype)

    def _embed(self, token_ids: Sequence[int]) -> Any:
        return self._model.get_input_embeddings()(self._torch.tensor(list(token_ids), device=self.device))

    def _run(self, text: TextCache, embeddings: Any) -> Any:
        """Hidden states of `embeddings`, shape (tokens, width), which are then part of `text`."""
        end = text.length + len(embeddings)
        positions = self._torch.arange(text.length, end, device=self.device).expand(3, 1, -1)
        output = self._model.model.language_model(
            inputs_embeds=embeddings[None], position_ids=positions, cache=text.entries, use_cache=True
        )
        text.length = end
        return output.last_hidden_state[0]

    @property
    def conditions(self) -> str:
        """What the rounding of a row depends on."""
        torch = self._torch
        cpu = self.device == "cpu"
        where = f"CPU {torch.backends.cpu.get_cpu_capability()}" if cpu else torch.cuda.get_device_name(self.device)
        return f"{engine_name()} on {where}; weights {self.dtype}; {self.threads} thread{'s'[: self.threads != 1]}"

    def free(self) -> None:
        self._model = None


def load_thinker(source: ModelSource, line: Line, tokenizer: QwenOmniTokenizer, threads: int | None) -> Thinker:
    """Load the thinker of a folder. Raises `ModelFileError`, `UnsupportedError` or `BackendError`."""
    if not list(source.path.glob("*.safetensors")):
        raise ModelFileError(
            f"{source.path} holds no *.safetensors; pickled weights are not read, since they can run code.",
            remedy="Fetch the model again, whole.",
        )
    _, transformers = load_libraries()
    device, dtype = choose_device(source)
    arguments: dict[str, Any] = {"pretrained_model_name_or_path": str(source.path), "use_safetensors": True}
    if device != "cpu":
        arguments["device_map"] = device  # straight to the accelerator: 60 GB need not fit in the host's memory first
    model = load_weights(getattr(transformers, line.thinker_class), source, dtype, arguments)
    _check_marks(model, source, line, tokenizer)
    del model.model.visual
    return Thinker(placed(model, device), source, tokenizer, dtype, threads)


def _check_marks(model: Any, source: ModelSource, line: Line, tokenizer: QwenOmniTokenizer) -> None:
    """Tokenizer and weights must agree where a recording begins: the two lines number their marks differently."""
    found, wanted = tokenizer.encode(line.audio_start, parse_special=True), model.config.audio_start_token_id
    if found != [wanted]:
        raise ModelFileError(
            f"{source.path} marks a recording with id {wanted}, its tokenizer writes {line.audio_start} as {found}.",
            remedy="Fetch tokenizer and weights of one model again.",
        )
