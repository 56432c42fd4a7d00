"""Trace files: read whole or refused with a line and a field."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.backends.trace import (
    RecordedText,
    TraceHeader,
    check_writable,
    find_trace,
    packaged_traces,
    read_trace,
    read_traces,
    summarise,
    write_traces,
)
from edgedraft.errors import InvalidRequestError, ModelFileError

SHARED = "qwen25-coder-0.5b-to-1.5b"
HEADER = TraceHeader(target="big", draft="small", vocab_size=100, eos_ids=(99,), max_tokens=4)

Line = dict[str, Any]


def line(**changes: Any) -> Line:
    """A right text of three positions, the middle one wrong with a right second choice."""
    fields: Line = {
        "id": "a",
        "kind": "code",
        "num_prompt_tokens": 4,
        "target_ids": [5, 6, 9],
        "target_prob": [0.9, 0.5, 1.0],
        "draft_ids": [5, 7, 9],
        "draft_prob": [0.8, 0.4, 1.0],
        "draft_entropy": [0.5, 1.2, 0.0],
        "target_rank_of_draft": [1, 2, 1],
        "overlap": [0.8, 0.6, 1.0],
        "draft_top5_ids": [[5, 1], [7, 6], [9, 1]],
        "draft_top5_probs": [[0.8, 0.1], [0.4, 0.3], [1.0, 0.0]],
    }
    return {**fields, **changes}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write_lines(*lines: Line, name: str = "trace.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(found) + "\n" for found in lines))
        return path

    return write_lines


def test_the_shared_trace_is_read_whole() -> None:
    trace = read_trace(find_trace(SHARED))
    assert trace.header is None
    figures = {summary.kind: summary for summary in summarise(trace.texts)}
    assert {kind: round(summary.acceptance_rate, 3) for kind, summary in figures.items()} == {
        "code": 0.957,
        "maths": 0.918,
        "chat": 0.693,
    }
    assert {kind: summary.num_texts for kind, summary in figures.items()} == {"code": 20, "maths": 12, "chat": 8}
    assert round(figures["code"].second_choice_rate or 0.0, 2) == 0.52
    assert round(figures["chat"].mean_right_run_tokens or 0.0, 1) == 2.3


def test_summary_of_a_text(write) -> None:
    (summary,) = summarise(read_traces(write(line())))
    assert (summary.num_tokens, summary.mean_right_run_tokens, summary.second_choice_rate) == (3, 2.0, 1.0)


def test_summary_of_a_draft_that_is_never_wrong(write) -> None:
    (summary,) = summarise(read_traces(write(line(draft_ids=[5, 6, 9]))))
    assert (summary.acceptance_rate, summary.mean_right_run_tokens, summary.second_choice_rate) == (1.0, None, None)


def test_kinds_are_picked_in_the_order_of_the_file(write) -> None:
    path = write(line(id="a"), line(id="b", kind="chat"), line(id="c"))
    assert [text.id for text in read_traces(path, ["code"])] == ["a", "c"]
    with pytest.raises(InvalidRequestError, match=r"kind is 'maths'; trace.jsonl has: chat, code"):
        read_traces(path, ["code", "maths"])


def test_a_path_comes_before_a_packaged_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_trace(SHARED) == packaged_traces()[SHARED]
    (tmp_path / SHARED).touch()
    assert find_trace(SHARED) == Path(SHARED)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"target_prob": [0.9, 0.5]}, "target_prob is 2 long; legal: 3"),
        ({"draft_top5_ids": [[5], [7, 6], [9, 1]]}, "draft_top5_probs is 2 long; legal: 1"),
        ({"overlap": [0.8, 1.1, 1.0]}, "overlap is 1.1; legal: 0 to 1"),
        ({"draft_top5_probs": [[0.8, -0.1], [0.4, 0.3], [1, 0]]}, "draft_top5_probs is -0.1"),
        ({"draft_entropy": [0.5, -1.0, 0.0]}, "draft_entropy is -1.0"),
        ({"target_rank_of_draft": [1, 0, 1]}, "target_rank_of_draft is 0"),
        ({"draft_ids": [5, -7, 9]}, "draft_ids is -7"),
        ({"num_prompt_tokens": 0}, "num_prompt_tokens is 0"),
        ({"target_ids": []}, "target_ids is empty"),
        ({"kind": ""}, "kind is empty"),
        ({"target_ids": [5, "six", 9]}, r"target_ids\[1\]"),
        ({"tempo": 1}, "unknown field 'tempo'"),
        ({"draft_ids": [5, 2**31, 9]}, "draft_ids is 2147483648"),
        ({"num_prompt_tokens": 2**31 - 1}, "num_prompt_tokens is 2147483647; legal: 1 to 1048576"),
        ({"id": " b"}, "id is ' b'; legal: a name without space"),
    ],
)
def test_a_wrong_text_is_named_by_line_and_field(write, changes: Line, named: str) -> None:
    with pytest.raises(ModelFileError, match=f"trace.jsonl, line 2: .*{named}"):
        read_trace(write(line(), line(**{"id": "b", **changes})))


def test_a_missing_field_is_named(write) -> None:
    text = line()
    del text["draft_entropy"]
    with pytest.raises(ModelFileError, match=r"line 1: .*`draft_entropy`"):
        read_trace(write(text))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"edgedraft_trace": 2}, "edgedraft_trace is 2; this edgedraft reads version 1"),
        ({"num_texts": 3}, "announces num_texts 3 and holds 1"),
        ({"vocab_size": 9}, "has id 9, but the header's vocab_size is 9"),
        ({"colour": "red"}, "unknown field 'colour'"),
        ({"target": 5}, "target"),
        ({"max_tokens": -1}, "max_tokens is -1"),
        ({"num_texts": "one"}, "line 1: num_texts is 'one'"),
        ({"num_texts": None}, "line 1: num_texts is None"),
        ({"num_texts": -1}, "line 1: num_texts is -1"),
        ({"vocab_size": 50, "eos_ids": [50]}, "eos_ids is 50; legal: below vocab_size, which is 50"),
        ({"max_tokens": 2}, "line 2: text a has 3 tokens, but the header's max_tokens is 2"),
        ({"eos_ids": [9, 6]}, "line 2: text a goes on behind"),
    ],
)
def test_a_header_that_does_not_match_is_refused(write, changes: Line, named: str) -> None:
    header = {"edgedraft_trace": 1, "num_texts": 1, "target": "big", "draft": "small", **changes}
    with pytest.raises(ModelFileError, match=named):
        read_trace(write(header, line()))


@pytest.mark.parametrize("content", [b"", b"\n \n", b'{"edgedraft_trace":1,"num_texts":0,"target":"t","draft":"d"}\n'])
def test_a_file_without_texts_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "empty.jsonl").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"empty.jsonl holds no recorded text"):
        read_trace(tmp_path / "empty.jsonl")


def test_a_text_twice_is_refused(write) -> None:
    with pytest.raises(ModelFileError, match="the text 'a' twice"):
        read_trace(write(line(), line()))


@pytest.mark.parametrize("content", [b"not json", b"[1, 2]", b"\xff\xfe", b'{"id": "a"'])
def test_what_is_no_json_object_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.jsonl").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"bad.jsonl, line 1"):
        read_trace(tmp_path / "bad.jsonl")


def test_a_damaged_gzip_is_refused_wherever_it_is_cut(write, tmp_path: Path) -> None:
    whole = gzip.compress(write(line(), line(id="b")).read_bytes())
    path = tmp_path / "cut.jsonl.gz"
    for size in range(3, len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelFileError, match=r"cut.jsonl.gz is a damaged gzip"):
            read_trace(path)
    path.write_bytes(whole[:40] + b"\x00\x01" + whole[42:])
    with pytest.raises(ModelFileError):
        read_trace(path)


def test_what_cannot_be_read_or_written_is_an_error_of_ours(tmp_path: Path) -> None:
    text = RecordedText(**{name: _tuples(value) for name, value in line().items()})
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(ModelFileError, match=f"come with edgedraft: {SHARED}"):
            read_trace(path)
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for name in ("none/x.jsonl", "file/x.jsonl", "folder", "n" * 300):
        path = tmp_path / name
        with pytest.raises(ModelFileError, match="cannot be written"):
            write_traces(path, HEADER, [text])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"], "nothing half written is left"


def test_what_could_not_be_written_is_known_beforehand(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("kept")
    for name in ("none/x.jsonl", "n" * 300, "n" * 245):  # the last is a name, but not with what is added on the way
        with pytest.raises(ModelFileError, match="cannot be written"):
            check_writable(tmp_path / name)
    check_writable(tmp_path / "there")
    check_writable(tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert (tmp_path / "there").read_text() == "kept"


def test_a_name_that_no_file_can_have_is_not_found() -> None:
    with pytest.raises(ModelFileError, match="cannot be read"):
        read_trace(find_trace("n" * 300))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


probs = st.floats(0.0, 1.0, allow_nan=False)
ids = st.integers(0, 98)


@st.composite
def texts(draw: st.DrawFn) -> list[RecordedText]:
    def each(one: st.SearchStrategy[Any], size: int) -> Any:
        return tuple(draw(st.lists(one, min_size=size, max_size=size)))

    made = []
    for number in range(draw(st.integers(1, 3))):
        size = draw(st.integers(1, 4))
        widths = each(st.integers(0, 3), size)
        made.append(
            RecordedText(
                id=f"{number}",
                kind=draw(st.text(min_size=1, max_size=3)),
                num_prompt_tokens=draw(st.integers(1, 9)),
                target_ids=each(ids, size),
                target_prob=each(probs, size),
                draft_ids=each(ids, size),
                draft_prob=each(probs, size),
                draft_entropy=each(st.floats(0.0, 20.0), size),
                target_rank_of_draft=each(st.integers(1, 100), size),
                overlap=each(probs, size),
                draft_top5_ids=tuple(each(ids, width) for width in widths),
                draft_top5_probs=tuple(each(probs, width) for width in widths),
            )
        )
    return made


@given(made=texts(), name=st.sampled_from(["trace.jsonl", "trace.jsonl.gz"]))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, made: list[RecordedText], name: str) -> None:
    path = tmp_path_factory.mktemp("traces") / name
    write_traces(path, HEADER, made)
    trace = read_trace(path)
    assert trace.header == HEADER
    assert list(trace.texts) == made
    zipped = path.read_bytes()[:2] == b"\x1f\x8b"
    assert zipped == name.endswith("gz")
    assert not zipped or path.read_bytes()[4:8] == bytes(4), "no time in the file: equal texts are equal bytes"
