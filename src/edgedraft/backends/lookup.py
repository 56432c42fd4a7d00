"""Prompt lookup: a draft without a model, for text that repeats itself (code edits, summaries, retrieval).

The longest suffix of the text, of at most `ngram` ids, that occurred before proposes the id that followed it the last
time (known as prompt lookup decoding or n-gram speculation: Saxena 2023).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from edgedraft.backends.base import BackendOptions, TargetBackend, Tokenizer
from edgedraft.backends.contract_checks import check_can_draft, check_draft_fits, check_ids, check_rollback
from edgedraft.backends.spec import check_setting, parse_settings
from edgedraft.errors import UnsupportedError
from edgedraft.types import Float32Array, ModelInfo

DEFAULT_NGRAM = 3
DEFAULT_CONTEXT_LENGTH = 1 << 20
MAX_IDS = 1 << 21
"""Above every vocabulary in use; bounds the row where the size of the vocabulary is not told."""


class LookupDraft:
    """`DraftBackend` over the text alone; each id appended costs `ngram` dictionary writes, a rollback undoes them.

    `num_ids`: the real vocabulary of the tokenizer in use. Without it the row grows with the ids seen, to a power of
    two: ids past its end count as -inf.
    """

    def __init__(
        self,
        num_ids: int | None = None,
        *,
        ngram: int = DEFAULT_NGRAM,
        context_length: int = DEFAULT_CONTEXT_LENGTH,
    ) -> None:
        self.length = 0
        self.ngram = ngram
        self._fixed_width = num_ids is not None
        self._row = np.full(num_ids or 1, -np.inf, dtype=np.float32)
        self._token_ids: list[int] = []
        self._follower: dict[tuple[int, ...], int] = {}  # n-gram -> position of the id after its latest occurrence
        self._overwritten: list[list[int | None]] = []  # for each position, what its entries replaced
        self.info = ModelInfo(
            name="lookup",
            engine="lookup",
            vocab_size=self._row.size,
            num_ids=self._row.size,
            eos_ids=(),
            context_length=context_length,
            deterministic=True,
            exactness_note="a function of the ids alone",
        )

    def append(self, token_ids: Sequence[int]) -> None:
        self._check(token_ids)
        for token_id in token_ids:
            position = len(self._token_ids)
            replaced = []
            for gram in self._suffixes():
                replaced.append(self._follower.get(gram))
                self._follower[gram] = position
            self._overwritten.append(replaced)
            self._token_ids.append(token_id)
        self.length = len(self._token_ids)

    def rollback(self, length: int) -> None:
        check_rollback(length, self.length)
        while len(self._token_ids) > length:
            self._token_ids.pop()
            for gram, position in zip(self._suffixes(), self._overwritten.pop(), strict=True):
                if position is None:
                    del self._follower[gram]
                else:
                    self._follower[gram] = position
        self.length = length

    def proposal(self) -> int | None:
        """The id that the longest repeated suffix proposes, if any."""
        positions = [self._follower.get(gram) for gram in self._suffixes()]
        return next((self._token_ids[position] for position in reversed(positions) if position is not None), None)

    def draft(self) -> Float32Array:
        """One-hot row, float32, shape (info.vocab_size,): 0 for the proposal, -inf elsewhere. A new array."""
        check_can_draft(self.length)
        row = self._row.copy()
        token_id = self.proposal()
        if token_id is not None:
            row[token_id] = 0.0
        return row

    def close(self) -> None:
        self._token_ids.clear()
        self._follower.clear()
        self._overwritten.clear()
        self.length = 0

    def _suffixes(self) -> Iterator[tuple[int, ...]]:
        """The text's last 1, 2, ... `ngram` ids, as far as there are that many."""
        for size in range(1, min(self.ngram, len(self._token_ids)) + 1):
            yield tuple(self._token_ids[-size:])

    def _check(self, token_ids: Sequence[int]) -> None:
        check_ids(token_ids, self.info.num_ids if self._fixed_width else MAX_IDS)
        check_draft_fits(self.length + len(token_ids), self.info)
        highest = max(token_ids, default=0)
        if highest >= self._row.size:
            width = 1 << highest.bit_length()
            self._row = np.full(width, -np.inf, dtype=np.float32)
            self.info = replace(self.info, vocab_size=width, num_ids=width)


class LookupFamily:
    """`lookup`, or `lookup:ngram=3,ids=49152`. `ids` (0: as the options say) is the size of the vocabulary."""

    name = "lookup"

    def open_draft(self, rest: str, options: BackendOptions) -> LookupDraft:
        settings = parse_settings(self.name, rest, {"ngram": DEFAULT_NGRAM, "ids": 0})
        check_setting(self.name, "ngram", settings["ngram"], 1, 16)
        check_setting(self.name, "ids", settings["ids"], 0, MAX_IDS)
        return LookupDraft(
            int(settings["ids"]) or options.num_ids,
            ngram=int(settings["ngram"]),
            context_length=options.context_length or DEFAULT_CONTEXT_LENGTH,
        )

    def open_target(self, rest: str, options: BackendOptions) -> TargetBackend:
        raise UnsupportedError(
            "model 'lookup' can only draft: it has no weights.", field="model", remedy="Name another target model."
        )

    def open_tokenizer(self, rest: str) -> Tokenizer:
        raise UnsupportedError(
            "model 'lookup' has no tokenizer.",
            field="tokenizer",
            remedy="Add --tokenizer SPEC, naming a model with the target's tokenizer.",
        )

    def chat_template(self, rest: str) -> str:
        raise UnsupportedError(
            "model 'lookup' has no chat template.", field="model", remedy="Use the chat template of the target."
        )
