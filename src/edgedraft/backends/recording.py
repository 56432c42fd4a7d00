"""Make traces: the target's greedy text, and what a draft says at each of its positions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from edgedraft.backends.base import DraftBackend, ScoreRequest, TargetBackend, Tokenizer
from edgedraft.backends.template import encode_chat, encode_prompt
from edgedraft.backends.trace import RecordedText
from edgedraft.core.verify import rank_of
from edgedraft.errors import BackendError, ContextLengthError, InvalidRequestError, UnsupportedError
from edgedraft.types import SESSION_ID_BYTES, Float32Array, Float64Array

NUM_TOP = 5
DECIMALS = 6
"""Of recorded probabilities and entropies; more would only lengthen the file."""
DEFAULT_KIND = "text"
_SESSION_ID = b"recording".ljust(SESSION_ID_BYTES)


class TracePrompt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a prompt file: `prompt` is the user's message; `id` and `kind` may be left to the file."""

    prompt: str
    id: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class _Position:
    """What both models said of one position; the fields of `RecordedText` without their plural."""

    target_id: int
    target_prob: float
    draft_id: int
    draft_prob: float
    draft_entropy: float
    target_rank: int
    overlap: float
    top_ids: tuple[int, ...]
    top_probs: tuple[float, ...]


def read_prompts(path: Path, kind: str | None = None) -> list[TracePrompt]:
    """Prompts of a `.jsonl` file, one object a line, or of any other text file, one prompt a line; blank lines count
    for nothing. `kind` is for those that name none. An id is the file's name and the line's number where none is given.

    Raises `InvalidRequestError` naming file and line.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # JSON may hold other line separators as they are
    except UnicodeDecodeError as error:
        raise _bad_prompts(f"{path.name} is not UTF-8 text") from error
    except OSError as error:
        raise _bad_prompts(f"{path} cannot be read: {error.strerror}") from error
    prompts: dict[str, TracePrompt] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found = msgspec.json.decode(line, type=TracePrompt) if path.suffix == ".jsonl" else TracePrompt(prompt=line)
        except msgspec.MsgspecError as error:
            raise _bad_prompts(f"{path.name}, line {number}: {error}") from error
        if not found.prompt:
            raise _bad_prompts(f"{path.name}, line {number}: prompt is empty")
        name = (found.id.strip() or f"{path.stem}-{number}").strip()
        if name in prompts:
            raise _bad_prompts(f"{path.name}, line {number}: the id '{name}' is taken")
        prompts[name] = TracePrompt(prompt=found.prompt, id=name, kind=found.kind or kind or DEFAULT_KIND)
    if not prompts:
        raise _bad_prompts(f"{path.name} holds no prompt")
    return list(prompts.values())


def _bad_prompts(reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"prompts: {reason}.",
        field="prompts",
        remedy='Write one prompt a line, or {"prompt": ..., "id": ..., "kind": ...} a line in a .jsonl file.',
    )


def record(
    draft: DraftBackend,
    target: TargetBackend,
    tokenizer: Tokenizer,
    prompts: Iterable[TracePrompt],
    max_tokens: int,
    *,
    chat_template: str = "",
) -> Iterator[RecordedText]:
    """One text for each prompt, as it is done: at most `max_tokens` tokens and, where it ends, the end of sequence.

    `tokenizer`: of both models. Without `chat_template` a prompt goes in as it is. Raises, before the first text,
    `InvalidRequestError` for `max_tokens` below 1 and `ContextLengthError` for a prompt that leaves no room; later
    `UnsupportedError` for a draft that proposes nothing somewhere, and what the back ends raise.
    """
    if max_tokens < 1:
        raise InvalidRequestError(f"max_tokens is {max_tokens}; legal: 1 or more.", field="max_tokens")
    context_length = min(draft.info.context_length, target.info.context_length)
    for prompt, prompt_ids in list(_encoded(tokenizer, prompts, chat_template, context_length)):
        room = context_length - len(prompt_ids)
        positions = list(_positions(draft, target, tokenizer, prompt_ids, min(max_tokens, room)))
        yield _text(prompt, len(prompt_ids), positions)


def _encoded(
    tokenizer: Tokenizer, prompts: Iterable[TracePrompt], chat_template: str, context_length: int
) -> Iterator[tuple[TracePrompt, list[int]]]:
    for prompt in prompts:
        message = {"role": "user", "content": prompt.prompt}
        if chat_template:
            prompt_ids = encode_chat(tokenizer, chat_template, [message])
        else:
            prompt_ids = encode_prompt(tokenizer, prompt.prompt)
        if len(prompt_ids) >= context_length:
            raise ContextLengthError(
                f"prompt {prompt.id} has {len(prompt_ids)} tokens and leaves no room in a model's context.",
                field="prompts",
                remedy="Shorten it, or open the models with a longer context.",
            )
        yield prompt, prompt_ids


def _positions(
    draft: DraftBackend, target: TargetBackend, tokenizer: Tokenizer, prompt_ids: Sequence[int], max_tokens: int
) -> Iterator[_Position]:
    """Both models in step along the target's greedy choices."""
    end_ids = {*target.info.eos_ids, *tokenizer.eos_ids}
    num_prompt = len(prompt_ids)
    draft.rollback(0)
    draft.append(prompt_ids)
    target.open(_SESSION_ID, prompt_ids, ())
    try:
        while target.prefill(_SESSION_ID):
            pass
        newest: list[int] = []
        for index in range(max_tokens):
            length = num_prompt + max(0, index - 1)
            (rows,) = target.score([ScoreRequest(_SESSION_ID, length, newest, ())])
            position = _compared(rows[0], draft.draft(), tokenizer.num_ids)
            yield position
            if position.target_id in end_ids or index == max_tokens - 1:
                return
            newest = [position.target_id]
            draft.append(newest)
    finally:
        target.close(_SESSION_ID)


def _compared(target_row: Float32Array, draft_row: Float32Array, num_ids: int) -> _Position:
    """Rows of logits, float32, shape (at least num_ids,), the draft's maybe narrower."""
    target_probs, draft_probs = _probs(target_row, num_ids, "target"), _probs(draft_row, num_ids, "draft")
    target_id = int(target_probs.argmax())
    top = np.argsort(-draft_probs, kind="stable")[:NUM_TOP]
    draft_id = int(top[0])
    seen = draft_probs[draft_probs > 0.0]
    return _Position(
        target_id=target_id,
        target_prob=_rounded(target_probs[target_id]),
        draft_id=draft_id,
        draft_prob=_rounded(draft_probs[draft_id]),
        draft_entropy=max(0.0, round(float(-(seen * np.log(seen)).sum()), DECIMALS)),
        target_rank=int(min(rank_of(target_row[:num_ids], draft_id), num_ids)),
        overlap=_rounded(np.minimum(target_probs, draft_probs).sum()),
        top_ids=tuple(top.tolist()),
        top_probs=tuple(map(_rounded, draft_probs[top])),
    )


def _probs(row: Float32Array, num_ids: int, role: str) -> Float64Array:
    """Softmax over the real ids: float64, shape (num_ids,)."""
    logits = np.full(num_ids, -np.inf)
    logits[: len(row)] = row[:num_ids]
    top = logits.max()
    if top == -math.inf:
        raise UnsupportedError(
            f"the {role} proposes nothing at a position.", field=role, remedy="Record with a model that has logits."
        )
    if not math.isfinite(top):
        raise BackendError(f"The {role} gave a row of logits that holds {top}.")
    weights = np.exp(logits - top)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _rounded(prob: float) -> float:
    return min(1.0, round(float(prob), DECIMALS))


def _text(prompt: TracePrompt, num_prompt: int, positions: Sequence[_Position]) -> RecordedText:
    return RecordedText(
        id=prompt.id,
        kind=prompt.kind,
        num_prompt_tokens=num_prompt,
        target_ids=tuple(position.target_id for position in positions),
        target_prob=tuple(position.target_prob for position in positions),
        draft_ids=tuple(position.draft_id for position in positions),
        draft_prob=tuple(position.draft_prob for position in positions),
        draft_entropy=tuple(position.draft_entropy for position in positions),
        target_rank_of_draft=tuple(position.target_rank for position in positions),
        overlap=tuple(position.overlap for position in positions),
        draft_top5_ids=tuple(position.top_ids for position in positions),
        draft_top5_probs=tuple(position.top_probs for position in positions),
    )
