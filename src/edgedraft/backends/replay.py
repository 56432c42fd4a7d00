"""Recorded models: a draft and a target that say again what `trace` files hold, in the time that a profile gives.

`replay:FILE,draft_ms=36` drafts as the recorded draft did and takes 36 ms a token; `replay:FILE,step_ms=30` answers as
the recorded target did. So a data centre and a phone fit on one laptop, and nothing about them is made up but times.

A row depends on the text that the prompt names and on the position alone. After a wrong token a real draft goes on
from its own text, which no recording holds: here the doomed tokens behind it are the recorded choices of their
positions, with the confidence that was recorded there.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from edgedraft.backends.base import BackendOptions, ScoreRequest
from edgedraft.backends.contract_checks import check_ids
from edgedraft.backends.spec import check_setting, parse_settings
from edgedraft.backends.toy import ToyDraft, ToyTarget
from edgedraft.backends.trace import RecordedText, Trace, find_trace, read_trace
from edgedraft.errors import InvalidRequestError
from edgedraft.types import Float32Array, ModelInfo

if TYPE_CHECKING:
    from edgedraft.backends.toy_model import ToyModel

CHAT_TEMPLATE = "{{ messages[-1]['content'] }}"
DEFAULT_CONTEXT_LENGTH = 32768
MAX_MS = 600_000.0
SPIN_S = 2e-4
"""A sleep ends up to this much late; the rest of a time is waited for awake."""
LEAST_PROB = 1e-6
"""Kept for the ids that a recording rounded to nothing."""
_STEP = 1e-3
"""In logits, between ids that a target's row has to rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProfile:
    """Modelled times in milliseconds, 0 where the step shall take no time of its own.

    `draft_ms`: one draft step. `step_ms`: a target pass, and on top of it `per_draft_ms` for each draft id in it and
    `per_session_ms` for each session after the first. `prefill_ms_per_token`: each prompt id, of draft and target.
    """

    draft_ms: float = 0.0
    step_ms: float = 0.0
    per_draft_ms: float = 0.0
    per_session_ms: float = 0.0
    prefill_ms_per_token: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            check_setting("replay", field.name, getattr(self, field.name), 0.0, MAX_MS)

    def pass_s(self, num_draft_ids: int, num_sessions: int) -> float:
        """Seconds of one target pass."""
        return (self.step_ms + self.per_draft_ms * num_draft_ids + self.per_session_ms * (num_sessions - 1)) / 1e3

    def prefill_s(self, num_tokens: int) -> float:
        return self.prefill_ms_per_token * num_tokens / 1e3

    def __str__(self) -> str:
        times = [f"{field.name}={getattr(self, field.name):g}" for field in fields(self) if getattr(self, field.name)]
        return ", ".join(times) or "none"


def parse_replay(rest: str) -> tuple[Path, DeviceProfile]:
    """`FILE,key=value,...` behind `replay:`. Raises `InvalidRequestError` naming the setting, or where no file is."""
    name, _, settings = rest.partition(",")
    if not name.strip():
        raise InvalidRequestError(
            "model 'replay' names no file.", field="model", remedy="Write replay:FILE.jsonl.gz,draft_ms=36."
        )
    defaults: dict[str, Any] = {field.name: field.default for field in fields(DeviceProfile)}
    return find_trace(name.strip()), DeviceProfile(**parse_settings("replay", settings, defaults))


def wait_until(deadline_s: float) -> None:
    """Return at `deadline_s` of `time.perf_counter`, to a few hundredths of a millisecond on an idle machine."""
    while (left_s := deadline_s - time.perf_counter()) > 0.0:
        time.sleep(max(0.0, left_s - SPIN_S))  # sleep(0) lets other threads in


class ReplayTokenizer:
    """The ids that occur in a file, closely packed so that rows are short, then one id a text, padding and the end.

    A text's prompt is its own id and then padding, as many tokens as the recorded prompt had. `encode` knows the names
    of the texts and nothing else; the text of a recorded token is the number that it had.
    """

    bos_id: int | None = None
    add_bos = False

    def __init__(self, trace: Trace) -> None:
        self._texts = trace.texts
        self._numbers = {text.id: number for number, text in enumerate(trace.texts)}
        self._recorded_ids = sorted({token_id for text in trace.texts for token_id in _ids_of(text)})
        self._packed = {token_id: index for index, token_id in enumerate(self._recorded_ids)}
        self._first_text_id = len(self._recorded_ids)
        self._pad_id = self._first_text_id + len(trace.texts)
        self.end_id = self._pad_id + 1
        self.num_ids = self.end_id + 1
        recorded_ends = [self._packed[token_id] for token_id in _end_ids(trace) if token_id in self._packed]
        self.eos_ids: tuple[int, ...] = (self.end_id, *recorded_ends)

    def packed(self, recorded_id: int) -> int:
        """The id here of an id in the file."""
        return self._packed[recorded_id]

    def prompt_ids(self, number: int) -> list[int]:
        """The prompt of text `number`, which counts from 0 in the file's order."""
        return [self._first_text_id + number, *[self._pad_id] * (self._texts[number].num_prompt_tokens - 1)]

    def text_of(self, first_id: int) -> RecordedText:
        """The text that a prompt's first id names. Any id names one, so that a row exists for every prompt."""
        return self._texts[(first_id - self._first_text_id) % len(self._texts)]

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """The prompt of the recorded text of that name. Raises `InvalidRequestError` where there is none."""
        if not text:
            return []
        number = self._numbers.get(text.strip())
        if number is None:
            raise InvalidRequestError(
                f"prompt names none of the {len(self._texts)} recorded texts.",
                field="prompt",
                remedy=f"A replayed model answers names alone, such as '{self._texts[0].id}'.",
            )
        return self.prompt_ids(number)

    def token_bytes(self, token_id: int) -> bytes:
        check_ids([token_id], self.num_ids)
        if token_id in self.eos_ids or token_id == self._pad_id:
            return b""
        if token_id >= self._first_text_id:
            return self.text_of(token_id).id.encode()
        return f" {self._recorded_ids[token_id]}".encode()

    def identity(self, token_id: int) -> bytes:
        """The id in the file, the text's name, or which control token it is."""
        check_ids([token_id], self.num_ids)
        if token_id < self._first_text_id:
            return f"recorded:{self._recorded_ids[token_id]}".encode()
        if token_id < self._pad_id:
            return f"text:{self.text_of(token_id).id}".encode()
        return b"control:padding" if token_id == self._pad_id else b"control:end"


def _ids_of(text: RecordedText) -> set[int]:
    return {*text.target_ids, *text.draft_ids, *(token_id for ids in text.draft_top5_ids for token_id in ids)}


def _end_ids(trace: Trace) -> tuple[int, ...]:
    """Ids that end a text; where no header names them, the most frequent last id, if it never stands elsewhere."""
    if trace.header is not None and trace.header.eos_ids:
        return trace.header.eos_ids
    last_id, _ = Counter(text.target_ids[-1] for text in trace.texts).most_common(1)[0]
    return () if any(last_id in text.target_ids[:-1] for text in trace.texts) else (last_id,)


class _RecordedModel:
    """What `toy`'s back ends ask of a model: rows as a function of the ids before them."""

    def __init__(self, rest: str) -> None:
        path, self.profile = parse_replay(rest)
        trace = read_trace(path)
        self.tokenizer = ReplayTokenizer(trace)
        self._file_name = path.name

    def info(self, context_length: int | None) -> ModelInfo:
        return ModelInfo(
            name=f"replay:{self._file_name}",
            engine="replay",
            vocab_size=self.tokenizer.num_ids,
            num_ids=self.tokenizer.num_ids,
            eos_ids=self.tokenizer.eos_ids,
            context_length=context_length or DEFAULT_CONTEXT_LENGTH,
            deterministic=True,
            exactness_note=f"replayed from {self._file_name}, a row depends on its position alone; times modelled: "
            f"{self.profile}",
        )

    def logits(self, context: Sequence[int]) -> Float32Array:
        """The row after `context`, at least one id: float32, shape (num_ids,), a new array; the end of sequence where
        nothing is recorded.
        """
        text = self.tokenizer.text_of(context[0])
        index = len(context) - text.num_prompt_tokens
        return self.row(text, index) if 0 <= index < text.num_tokens else self.end_row()

    def row(self, text: RecordedText, index: int) -> Float32Array:
        raise NotImplementedError

    def end_row(self) -> Float32Array:
        return _target_row(self.tokenizer.num_ids, self.tokenizer.end_id, 1.0)


class _RecordedTarget(_RecordedModel):
    def row(self, text: RecordedText, index: int) -> Float32Array:
        """The recorded choice with its probability, the draft's at its recorded rank; the rest is shared evenly."""
        target_id = self.tokenizer.packed(text.target_ids[index])
        draft_id = self.tokenizer.packed(text.draft_ids[index])
        row = _target_row(self.tokenizer.num_ids, target_id, text.target_prob[index])
        if draft_id != target_id:
            row[draft_id] += _STEP
            rank = text.target_rank_of_draft[index]
            above = [token_id for token_id in range(min(rank, len(row))) if token_id not in (target_id, draft_id)]
            row[above[: max(0, rank - 2)]] += 2 * _STEP
        return row


class _RecordedDraft(_RecordedModel):
    def row(self, text: RecordedText, index: int) -> Float32Array:
        """The recorded five choices with their probabilities, and about the recorded entropy."""
        head = {self.tokenizer.packed(text.draft_ids[index]): max(text.draft_prob[index], LEAST_PROB)}
        top = 0.9999 * next(iter(head.values()))  # a tie in the rounded file must not change the choice
        for token_id, prob in zip(text.draft_top5_ids[index], text.draft_top5_probs[index], strict=True):
            head.setdefault(self.tokenizer.packed(token_id), min(max(prob, LEAST_PROB), top))
        return _draft_row(self.tokenizer.num_ids, head, text.draft_entropy[index])


def _target_row(width: int, target_id: int, prob: float) -> Float32Array:
    prob = min(max(prob, 2.0 / width), 1.0 - LEAST_PROB)
    row = np.full(width, math.log((1.0 - prob) / (width - 1)), dtype=np.float32)
    row[target_id] = math.log(prob)
    return row


def _draft_row(width: int, head: dict[int, float], entropy: float) -> Float32Array:
    """`head` as it is, the rest of the probability even over as many further ids as give about `entropy` nats."""
    row = np.full(width, -np.inf, dtype=np.float32)
    rest = 1.0 - sum(head.values())
    if rest > LEAST_PROB:
        head_entropy = -sum(prob * math.log(prob) for prob in head.values())
        log_size = (entropy - head_entropy + rest * math.log(rest)) / rest
        size = round(math.exp(min(max(log_size, 0.0), math.log(width))))
        least = 0.99 * min(head.values())  # the tail stays below the head, for which it may have to be longer
        end = min(max(size, math.ceil(rest / least)) + len(head), width)
        size = end - sum(token_id < end for token_id in head)
        row[:end] = math.log(min(rest / size, least))
    row[list(head)] = np.log(list(head.values()))
    return row


class ReplayDraft(ToyDraft):
    """`DraftBackend` over a recorded draft. Appending more than one id counts as prefill."""

    def __init__(self, model: _RecordedDraft, *, context_length: int | None = None) -> None:
        super().__init__(_as_toy(model), context_length=context_length)
        self._profile = model.profile

    def append(self, token_ids: Sequence[int]) -> None:
        started_s = time.perf_counter()
        super().append(token_ids)
        wait_until(started_s + self._profile.prefill_s(max(0, len(token_ids) - 1)))

    def draft(self) -> Float32Array:
        started_s = time.perf_counter()
        row = super().draft()
        wait_until(started_s + self._profile.draft_ms / 1e3)
        return row


class ReplayTarget(ToyTarget):
    """`TargetBackend` over a recorded target."""

    def __init__(
        self, model: _RecordedTarget, *, context_length: int | None, max_sessions: int, prefill_chunk_tokens: int
    ) -> None:
        super().__init__(
            _as_toy(model),
            context_length=context_length,
            max_sessions=max_sessions,
            max_batch_sessions=max_sessions,
            prefill_chunk_tokens=prefill_chunk_tokens,
        )
        self._profile = model.profile

    def prefill(self, session_id: bytes) -> int:
        started_s = time.perf_counter()
        session = self._session(session_id)
        num_before = session.num_held
        num_left = super().prefill(session_id)
        wait_until(started_s + self._profile.prefill_s(session.num_held - num_before))
        return num_left

    def score(self, requests: Sequence[ScoreRequest]) -> Sequence[Float32Array]:
        started_s = time.perf_counter()
        rows = super().score(requests)
        num_draft_ids = sum(len(request.draft_ids) for request in requests)
        wait_until(started_s + self._profile.pass_s(num_draft_ids, len(requests)))
        return rows


def _as_toy(model: _RecordedModel) -> ToyModel:
    """The toy back ends use no more of a model than `info` and `logits`."""
    return cast("ToyModel", model)


class ReplayFamily:
    """`replay:FILE,draft_ms=36,...`: a file as `edgedraft traces record` writes it, or the name of one that comes with
    edgedraft; the settings are those of `DeviceProfile`. A comma cannot be in FILE.
    """

    name = "replay"

    def open_draft(self, rest: str, options: BackendOptions) -> ReplayDraft:
        return ReplayDraft(_RecordedDraft(rest), context_length=options.context_length)

    def open_target(self, rest: str, options: BackendOptions) -> ReplayTarget:
        return ReplayTarget(
            _RecordedTarget(rest),
            context_length=options.context_length,
            max_sessions=options.max_sessions,
            prefill_chunk_tokens=options.prefill_chunk_tokens,
        )

    def open_tokenizer(self, rest: str) -> ReplayTokenizer:
        path, _ = parse_replay(rest)
        return ReplayTokenizer(read_trace(path))

    def chat_template(self, rest: str) -> str:
        parse_replay(rest)
        return CHAT_TEMPLATE
