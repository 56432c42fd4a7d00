"""Recorded draft and target pairs: what both said along the target's own greedy text, one JSON object a line.

A file of version 1 may start with a header line, `{"edgedraft_trace": 1, "target": ..., "num_texts": ...}`; one
without holds texts alone. Gzip is told by its first bytes, not by the file's name. Whatever is wrong with a file is a
`ModelFileError` that names the line and the field.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import math
import os
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import IO, Any

import msgspec

from edgedraft.errors import InvalidRequestError, ModelFileError

VERSION = 1
MAX_ID = 2**31 - 1
MAX_PROMPT_TOKENS = 2**20
PACKAGED = "bench/data/traces"
"""Where the traces that come with edgedraft lie inside the package."""
_GZIP_MAGIC = b"\x1f\x8b"


def _refuse(field: str, value: object, legal: str) -> InvalidRequestError:
    return InvalidRequestError(f"{field} is {value}; legal: {legal}.", field=field)


def _check_ids(field: str, token_ids: Iterable[int]) -> None:
    for token_id in token_ids:
        if not 0 <= token_id <= MAX_ID:
            raise _refuse(field, token_id, f"ids from 0 to {MAX_ID}")


def _check_probs(field: str, probs: Iterable[float]) -> None:
    for prob in probs:
        if not 0.0 <= prob <= 1.0:  # which no NaN fulfils
            raise _refuse(field, prob, "0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedText:
    """One prompt and the target's greedy answer to it, with what a draft said at each of its positions.

    Every tuple has one entry a position; the draft was given the target's text up to there (teacher-forced).
    `target_prob`, `draft_prob`: of their own arg max, temperature 1. `draft_entropy`: nats. `target_rank_of_draft`:
    from 1. `overlap`: sum over v of min(target, draft), the acceptance of rule *ratio* at temperature 1.
    `draft_top5_ids`, `draft_top5_probs`: most probable first. Raises `InvalidRequestError` naming the field.
    """

    id: str
    kind: str
    num_prompt_tokens: int
    target_ids: tuple[int, ...]
    target_prob: tuple[float, ...]
    draft_ids: tuple[int, ...]
    draft_prob: tuple[float, ...]
    draft_entropy: tuple[float, ...]
    target_rank_of_draft: tuple[int, ...]
    overlap: tuple[float, ...]
    draft_top5_ids: tuple[tuple[int, ...], ...]
    draft_top5_probs: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        if not self.id or not self.kind:
            raise _refuse("id" if not self.id else "kind", "empty", "a name")
        if self.id != self.id.strip():
            raise _refuse("id", repr(self.id), "a name without space around it")
        if not 1 <= self.num_prompt_tokens <= MAX_PROMPT_TOKENS:
            raise _refuse("num_prompt_tokens", self.num_prompt_tokens, f"1 to {MAX_PROMPT_TOKENS}")
        self._check_lengths()
        _check_ids("target_ids", self.target_ids)
        _check_ids("draft_ids", self.draft_ids)
        for name in ("target_prob", "draft_prob", "overlap"):
            _check_probs(name, getattr(self, name))
        for entropy in self.draft_entropy:
            if not 0.0 <= entropy < math.inf:
                raise _refuse("draft_entropy", entropy, "0 or more, finite")
        if min(self.target_rank_of_draft) < 1:
            raise _refuse("target_rank_of_draft", min(self.target_rank_of_draft), "ranks from 1")
        for ids, probs in zip(self.draft_top5_ids, self.draft_top5_probs, strict=True):
            if len(ids) != len(probs):
                raise _refuse("draft_top5_probs", f"{len(probs)} long", f"{len(ids)}, as its draft_top5_ids")
            _check_ids("draft_top5_ids", ids)
            _check_probs("draft_top5_probs", probs)

    def _check_lengths(self) -> None:
        if not self.target_ids:
            raise _refuse("target_ids", "empty", "at least one position")
        for name in _PER_POSITION:
            if len(getattr(self, name)) != self.num_tokens:
                raise _refuse(name, f"{len(getattr(self, name))} long", f"{self.num_tokens}, as target_ids")

    @property
    def num_tokens(self) -> int:
        """Positions recorded; the last one may be an end of sequence."""
        return len(self.target_ids)

    @property
    def right(self) -> tuple[bool, ...]:
        """For each position, whether the draft's choice is the target's."""
        return tuple(draft == target for draft, target in zip(self.draft_ids, self.target_ids, strict=True))

    def second(self, index: int) -> tuple[int, float]:
        """The draft's second choice at a position and its probability; -1 and 0 where none was recorded."""
        ids = self.draft_top5_ids[index]
        return (ids[1], self.draft_top5_probs[index][1]) if len(ids) > 1 else (-1, 0.0)


_FIELDS = tuple(field.name for field in fields(RecordedText))
_PER_POSITION = _FIELDS[_FIELDS.index("target_ids") :]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceHeader:
    """Where recorded texts come from: names of the models, size of the real vocabulary (0: not known), ids that end a
    text, the most tokens a text may have had (0: not known), and whatever else is worth knowing.
    """

    target: str
    draft: str
    vocab_size: int = 0
    eos_ids: tuple[int, ...] = ()
    max_tokens: int = 0
    note: str = ""

    def __post_init__(self) -> None:
        for name in ("vocab_size", "max_tokens"):
            if not 0 <= getattr(self, name) <= MAX_ID:
                raise _refuse(name, getattr(self, name), "0 (not known) or more")
        _check_ids("eos_ids", self.eos_ids)
        if self.vocab_size and max(self.eos_ids, default=0) >= self.vocab_size:
            raise _refuse("eos_ids", max(self.eos_ids), f"below vocab_size, which is {self.vocab_size}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A whole file; `header` is None where it has none."""

    header: TraceHeader | None
    texts: tuple[RecordedText, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KindSummary:
    """What a draft is worth on texts of one kind. Shares are None where there is nothing to share out.

    `acceptance_rate`: positions where the draft's choice is the target's. `mean_right_run_tokens`: right tokens for
    each wrong one. `second_choice_rate`: wrong positions where the draft's second choice is the target's.
    """

    kind: str
    num_texts: int
    num_tokens: int
    acceptance_rate: float
    mean_right_run_tokens: float | None
    second_choice_rate: float | None


def summarise(texts: Iterable[RecordedText]) -> list[KindSummary]:
    """One summary a kind, in the order in which the kinds first occur."""
    by_kind: dict[str, list[RecordedText]] = {}
    for text in texts:
        by_kind.setdefault(text.kind, []).append(text)
    return [_summary(kind, texts_of_kind) for kind, texts_of_kind in by_kind.items()]


def _summary(kind: str, texts: Sequence[RecordedText]) -> KindSummary:
    num_tokens = sum(text.num_tokens for text in texts)
    num_right = sum(sum(text.right) for text in texts)
    num_wrong = num_tokens - num_right
    num_second = sum(
        text.draft_top5_ids[index][1:2] == (text.target_ids[index],)
        for text in texts
        for index, right in enumerate(text.right)
        if not right
    )
    return KindSummary(
        kind=kind,
        num_texts=len(texts),
        num_tokens=num_tokens,
        acceptance_rate=num_right / num_tokens,
        mean_right_run_tokens=num_right / num_wrong if num_wrong else None,
        second_choice_rate=num_second / num_wrong if num_wrong else None,
    )


def packaged_traces() -> dict[str, Path]:
    """The files that come with edgedraft, by name."""
    folder = Path(str(files("edgedraft"))) / PACKAGED
    return {path.name.removesuffix(".jsonl.gz"): path for path in sorted(folder.glob("*.jsonl.gz"))}


def find_trace(name: str) -> Path:
    """The file of that path, or else the one that comes with edgedraft under that name."""
    return Path(name) if os.path.exists(name) else packaged_traces().get(name, Path(name))


def read_traces(path: str | Path, kinds: Collection[str] | None = None) -> list[RecordedText]:
    """The texts of a .jsonl or .jsonl.gz file, those of `kinds` alone where given, in the file's order.

    Raises `ModelFileError` for a file that cannot be read or is wrong, `InvalidRequestError` for a kind it has not.
    """
    texts = read_trace(path).texts
    if kinds is None:
        return list(texts)
    there = {text.kind for text in texts}
    missing = sorted(set(kinds) - there)
    if missing:
        raise InvalidRequestError(
            f"kind is '{missing[0]}'; {Path(path).name} has: {', '.join(sorted(there))}.", field="kind"
        )
    return [text for text in texts if text.kind in kinds]


def read_trace(path: str | Path) -> Trace:
    """Header and texts of a file. Raises `ModelFileError`."""
    path = Path(path)
    header: TraceHeader | None = None
    num_announced: int | None = None
    texts: list[RecordedText] = []
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            found = msgspec.json.decode(line, type=dict[str, Any])
            if "edgedraft_trace" in found and not texts and header is None:
                header, num_announced = _parse_header(found)
            else:
                texts.append(_parse_text(found, header))
        except (InvalidRequestError, msgspec.MsgspecError) as error:
            raise ModelFileError(
                f"{path.name}, line {number}: {_one_line(error)}", remedy="Record it again."
            ) from error
    _check_whole(path, texts, num_announced)
    return Trace(header=header, texts=tuple(texts))


def write_traces(path: str | Path, header: TraceHeader, texts: Sequence[RecordedText]) -> None:
    """Write a file with a header line, gzipped where its name ends in `.gz`; it appears whole or not at all.

    The same texts give the same bytes. Raises `ModelFileError` where it cannot be written.
    """
    path = Path(path)
    head = {"edgedraft_trace": VERSION, "num_texts": len(texts), **asdict(header)}
    data = b"".join(msgspec.json.encode(line) + b"\n" for line in (head, *texts))
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    with _whole(path) as file:
        file.write(data)


def check_writable(path: str | Path) -> None:
    """Raise now what `write_traces` would raise later; leaves no file, and one that is there as it was."""
    with contextlib.suppress(_LeftOut), _whole(Path(path)):
        raise _LeftOut


class _LeftOut(Exception):
    """Ends the writing of a file that is not to appear."""


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of `path` at the end of the block if that ends well."""
    if not path.name:
        raise InvalidRequestError(f"out is '{path}', which names no file.", field="out")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        try:
            with partial.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise ModelFileError(
            f"{path} cannot be written: {error.strerror}.", remedy="Give another name or place."
        ) from error


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            zipped = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            file.seek(0)
            source: Iterable[bytes] = io.BufferedReader(gzip.GzipFile(fileobj=file)) if zipped else file
            yield from source
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ModelFileError(f"{path.name} is a damaged gzip file: {error}.", remedy="Copy it again.") from error
    except OSError as error:
        raise ModelFileError(
            f"{path} cannot be read: {error.strerror}.",
            remedy=f"Check the path; these come with edgedraft: {', '.join(packaged_traces())}.",
        ) from error


def _parse_header(found: dict[str, Any]) -> tuple[TraceHeader, int]:
    version = found.pop("edgedraft_trace")
    if version != VERSION:
        raise InvalidRequestError(f"edgedraft_trace is {version}; this edgedraft reads version {VERSION}.")
    num_texts = found.pop("num_texts", None)
    if type(num_texts) is not int or num_texts < 0:
        raise _refuse("num_texts", repr(num_texts), "a whole number, 0 or more")
    _check_fields(found, [field.name for field in fields(TraceHeader)])
    return msgspec.convert(found, TraceHeader), num_texts


def _parse_text(found: dict[str, Any], header: TraceHeader | None) -> RecordedText:
    _check_fields(found, _FIELDS)
    text = msgspec.convert(found, RecordedText)
    if header is not None:
        _check_header(text, header)
    return text


def _check_header(text: RecordedText, header: TraceHeader) -> None:
    highest = max(*text.target_ids, *text.draft_ids, *(max(ids, default=0) for ids in text.draft_top5_ids))
    if header.vocab_size and highest >= header.vocab_size:
        raise InvalidRequestError(
            f"text {text.id} has id {highest}, but the header's vocab_size is {header.vocab_size}."
        )
    if header.max_tokens and text.num_tokens > header.max_tokens:
        raise InvalidRequestError(
            f"text {text.id} has {text.num_tokens} tokens, but the header's max_tokens is {header.max_tokens}."
        )
    if not set(header.eos_ids).isdisjoint(text.target_ids[:-1]):
        raise InvalidRequestError(f"text {text.id} goes on behind one of the header's eos_ids.")


def _check_fields(found: dict[str, Any], known: Collection[str]) -> None:
    unknown = [name for name in found if name not in known]
    if unknown:
        raise InvalidRequestError(f"unknown field '{unknown[0]}'; there are: {', '.join(known)}.", field=unknown[0])


def _check_whole(path: Path, texts: Sequence[RecordedText], num_announced: int | None) -> None:
    if num_announced is not None and num_announced != len(texts):
        raise ModelFileError(
            f"{path.name} announces num_texts {num_announced} and holds {len(texts)}.",
            remedy="Copy or record it again.",
        )
    if not texts:
        raise ModelFileError(f"{path.name} holds no recorded text.", remedy="Give a file that has some.")
    seen: set[str] = set()
    for text in texts:
        if text.id in seen:
            raise ModelFileError(f"{path.name} holds the text '{text.id}' twice.", remedy="Rename one of them.")
        seen.add(text.id)


def _one_line(error: Exception) -> str:
    words = " ".join(str(error).split())
    return words if words.endswith(".") else f"{words}."
