"""The two captioners as functions of a clip and the ids before, each answer worked out once for all arms of a run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from edgedraft.backends import registry
from edgedraft.backends.base import (
    BackendOptions,
    CaptionTokenizer,
    ListeningDraft,
    ListeningTarget,
    ScoreRequest,
    Tokenizer,
)
from edgedraft.backends.listening import open_caption_tokenizer, open_listening_draft, open_listening_target
from edgedraft.bench.caption_clips import Clip
from edgedraft.caption.request import GREEDY
from edgedraft.core.events import DraftNext, RunPass
from edgedraft.core.sequence import common_prefix_length
from edgedraft.core.strategy import Strategy
from edgedraft.core.verify import Verdict, verify
from edgedraft.edge.drafter import DraftOrder, DraftSequence
from edgedraft.edge.handshake import Vocabulary
from edgedraft.errors import BackendError, UnsupportedError
from edgedraft.speech_features import SpeechFeatures
from edgedraft.types import DraftToken, Float32Array, Rule

SESSION_ID = b"caption bench..."
MEMORY_BYTES = 2**30
"""What rows of the target may take before those of the clips used longest ago are dropped."""


@dataclass(slots=True, eq=False)
class CaptionPair:
    """An edge captioner and a cloud captioner, both open here, and the tokenizer that they share.

    `draft_spec`, `target_spec`: what they were opened by. Closed by `close`.
    """

    draft_spec: str
    target_spec: str
    draft: ListeningDraft
    target: ListeningTarget
    tokenizer: CaptionTokenizer
    sequence: DraftSequence = field(init=False)

    def __post_init__(self) -> None:
        self.sequence = DraftSequence(self.draft)

    @classmethod
    def open(cls, draft_spec: str, target_spec: str, options: BackendOptions | None = None) -> Self:
        """Raises what the registry raises, `UnsupportedError` for models of text and for two that do not fit."""
        options = options or BackendOptions()
        tokenizer = open_caption_tokenizer(draft_spec)
        _require_same_words(tokenizer, registry.open_tokenizer(target_spec), draft_spec, target_spec)
        draft = open_listening_draft(draft_spec, options)
        try:
            target = open_listening_target(target_spec, options)
            if target.info.features is not None:
                target.info.features.require(draft.sends)
        except BaseException:
            draft.close()
            raise
        return cls(draft_spec, target_spec, draft, target, tokenizer)

    def close(self) -> None:
        self.draft.close()
        self.target.shutdown()

    def room_tokens(self, language: str) -> int:
        """How long a caption can be at the most."""
        context = min(self.draft.info.context_length, self.target.info.context_length)
        return context - len(self.tokenizer.caption_prompt(language))

    def text_of(self, token_ids: Sequence[int]) -> str:
        """The text of ids, without those that end it."""
        words = (self.tokenizer.token_bytes(each) for each in token_ids if each not in self.tokenizer.eos_ids)
        return b"".join(words).decode("utf-8", errors="replace")


def _require_same_words(draft: Tokenizer, target: Tokenizer, draft_spec: str, target_spec: str) -> None:
    if Vocabulary.of(draft).fingerprint != Vocabulary.of(target).fingerprint:
        raise UnsupportedError(
            f"draft is '{draft_spec}', whose vocabulary is not that of '{target_spec}'.",
            field="draft",
            remedy="Use a draft and a target that were made for each other.",
        )


class ClipModels:
    """Both models on one clip; `sim.models.TextModels`. Every row and every draft token is computed once.

    Rows of the target are float32, shape (vocab_size,), by the ids before them.
    """

    def __init__(self, pair: CaptionPair, clip: Clip, max_tokens: int) -> None:
        self.clip = clip
        self.prompt_ids = tuple(pair.tokenizer.caption_prompt(clip.language))
        self.eos_ids = frozenset(pair.tokenizer.eos_ids)
        self.max_tokens: int | None = min(max_tokens, pair.room_tokens(clip.language))
        self._pair = pair
        self._order = DraftOrder(
            sampling=GREEDY,
            rule=Rule.RANK,
            num_ids=pair.tokenizer.num_ids,
            num_prompt=len(self.prompt_ids),
            features=clip.heard,
        )
        self._drafts: dict[tuple[int, ...], DraftToken] = {}
        self._rows: dict[tuple[int, ...], Float32Array] = {}
        self._target_holds: list[int] | None = None

    @property
    def id(self) -> str:
        return self.clip.id

    @property
    def num_prompt(self) -> int:
        return len(self.prompt_ids)

    @property
    def features(self) -> SpeechFeatures | None:
        return self.clip.sent

    @property
    def num_bytes(self) -> int:
        """What its rows take."""
        return len(self._rows) * self._pair.target.info.vocab_size * 4

    def draft_token(self, position: int, held: Sequence[int], took_s: float) -> DraftToken:
        """Raises `BackendError` where the draft has no proposal."""
        key = tuple(held)
        token = self._drafts.get(key)
        if token is None:
            command = DraftNext(0, len(key), 0, key, with_second=True)
            token = self._pair.sequence.step(command, self._order, lambda: False)
            if token is None:
                raise BackendError(f"The draft has no proposal for clip {self.id}.")
        if token.draft_s != took_s:
            token = self._drafts[key] = replace(token, draft_s=took_s)
        return token

    def verdict(self, log: Sequence[int], command: RunPass) -> Verdict:
        """Judged by the same code as in the cloud, from the rows that the verdict depends on."""
        before, draft_ids = tuple(log[: command.position]), tuple(command.draft_ids)
        num_draft = len(draft_ids)
        offsets = set(range(num_draft) if command.judged is None else command.judged)
        if command.bonus or not draft_ids or command.rule is not Rule.RANK:
            offsets = {*range(num_draft + 1)}
        keys = {offset: before + draft_ids[:offset] for offset in offsets}
        if any(key not in self._rows for key in keys.values()):
            self._score(before, draft_ids)
        rows = np.zeros((num_draft + 1, self._pair.target.info.vocab_size), np.float32)
        for offset, key in keys.items():
            rows[offset] = self._rows[key]
        return verify(
            rows,
            draft_ids,
            command.sampling,
            position=command.position,
            num_ids=self._pair.tokenizer.num_ids,
            rule=command.rule,
            rank=command.rank,
            judged=command.judged,
            bonus=command.bonus,
        )

    def check(self, token_ids: Sequence[int], strategy: Strategy) -> None:
        """Nothing is recorded that the answer could be compared with."""

    def hand_over(self) -> None:
        """Another clip takes the target's session."""
        self._target_holds = None

    def _score(self, before: tuple[int, ...], draft_ids: tuple[int, ...]) -> None:
        target, held = self._pair.target, self._target_holds
        length = self.num_prompt
        if held is None or len(before) == length:  # without committed ids only straight after the prefill
            self._open()
        else:
            length = max(length, min(common_prefix_length(held, before), len(before) - 1))
        request = ScoreRequest(SESSION_ID, length, before[length:], draft_ids)
        self._target_holds = [*before, *draft_ids]
        for offset, row in enumerate(target.score([request])[0]):
            self._rows[before + draft_ids[:offset]] = row.copy()

    def _open(self) -> None:
        target = self._pair.target
        target.close(SESSION_ID)
        target.open(SESSION_ID, self.prompt_ids, ())
        target.listen(SESSION_ID, self.clip.sent)
        while target.prefill(SESSION_ID):
            pass


class ClipMemory:
    """What is known of each clip, kept as long as the target's rows fit into `max_bytes`."""

    def __init__(self, pair: CaptionPair, max_tokens: int, *, max_bytes: int = MEMORY_BYTES) -> None:
        self.pair = pair
        self._max_tokens = max_tokens
        self._max_bytes = max_bytes
        self._known: OrderedDict[Clip, ClipModels] = OrderedDict()  # names may be the same in two datasets
        self._newest: ClipModels | None = None

    def models(self, clip: Clip) -> ClipModels:
        """The models on `clip`, which is the only one to be asked until the next call."""
        models = self._known.pop(clip, None) or ClipModels(self.pair, clip, self._max_tokens)
        self._known[clip] = models
        if self._newest is not models:
            if self._newest is not None:
                self._newest.hand_over()
            self._newest = models
            self._make_room()
        return models

    def _make_room(self) -> None:
        taken = sum(models.num_bytes for models in self._known.values())
        while taken > self._max_bytes and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            taken -= oldest.num_bytes
