"""Text out of tokens: whole characters, nothing lost before a stop string, nothing shown from it on."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgedraft.edge.text import MAX_STOP_CHARACTERS, MAX_STOP_STRINGS, TextStream, check_stop
from edgedraft.errors import InvalidRequestError

HARD_TEXTS = ["👩‍💻👍🏽", "数据 и данные", "naïve é", "🇪🇺🏳️‍🌈", "ab\U0010ffffc", "ok"]


def stream(pieces: list[bytes], stop: list[str] | None = None) -> tuple[TextStream, list[str]]:
    made = TextStream(stop or [])
    return made, [*(made.push(piece) for piece in pieces), made.flush()]


def truncated(text: str, stop: list[str]) -> str:
    """The definition, one character at a time: the first to be complete, then the longest."""
    for end in range(1, len(text) + 1):
        complete = [string for string in stop if text[:end].endswith(string)]
        if complete:
            return text[: end - max(map(len, complete))]
    return text


def cut(data: bytes, marks: list[int]) -> list[bytes]:
    edges = [0, *sorted(mark % (len(data) + 1) for mark in marks), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@pytest.mark.parametrize("text", HARD_TEXTS)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_characters_split_over_tokens_stay_whole(text: str, size: int) -> None:
    data = text.encode()
    made, shown = stream([data[start : start + size] for start in range(0, len(data), size)])
    assert "".join(shown) == made.text == text
    assert "\ufffd" not in made.text


def test_a_character_is_shown_as_soon_as_it_is_whole() -> None:
    _, shown = stream([b"a", b"\xf0\x9f", b"\x91\x8d", b"b"])
    assert shown == ["a", "", "👍", "b", ""]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([b"a\xff", b"b"], ["a\ufffd", "b", ""]),
        ([b"\xf0\x9f", b"x"], ["", "\ufffdx", ""]),  # now it can never become a character
        ([b"\xf0\x9f"], ["", "\ufffd"]),  # incomplete at the end: known only at the flush
        ([b"\xc0\xaf"], ["\ufffd\ufffd", ""]),
        ([b"\xed\xa0\x80"], ["\ufffd\ufffd\ufffd", ""]),  # half of a surrogate pair
    ],
)
def test_bytes_that_are_no_text_become_replacement_characters(pieces: list[bytes], expected: list[str]) -> None:
    assert stream(pieces)[1] == expected


@given(st.binary(max_size=40), st.lists(st.integers(0, 40), max_size=8))
@example(b"\xe2\x82\xac\xe2\x82", [1, 2, 4])
def test_any_bytes_any_cuts_equal_decoding_at_once(data: bytes, marks: list[int]) -> None:
    made, shown = stream(cut(data, marks))
    assert "".join(shown) == made.text == data.decode("utf-8", errors="replace")


@given(
    st.text(alphabet="ab👍", max_size=30),
    st.lists(st.text(alphabet="ab👍", min_size=1, max_size=5), min_size=1, max_size=4),
    st.lists(st.integers(0, 200), max_size=12),
)
@example("abcd", ["abcd", "bc"], [1, 2, 3])
@example("xabcd", ["abcd", "bcd"], [])
def test_streamed_text_equals_truncated_text(text: str, stop: list[str], marks: list[int]) -> None:
    """Case 24: whatever the stops and the cuts, the pieces add up to the whole text cut once."""
    made, shown = stream(cut(text.encode(), marks), stop)
    expected = truncated(text, stop)
    assert "".join(shown) == made.text == expected
    assert made.stopped == (expected != text)


@given(
    st.text(alphabet="ab👍", max_size=20),
    st.lists(st.text(alphabet="ab👍", min_size=1, max_size=5), min_size=1, max_size=3),
)
def test_only_what_could_begin_a_stop_string_is_held_back(text: str, stop: list[str]) -> None:
    made, seen = TextStream(stop), ""
    for character in text:
        seen += character
        made.push(character.encode())
        if made.stopped:
            return
        held = seen[len(made.text) :]
        assert not held or any(string.startswith(held) for string in stop)
        assert not any(string.startswith(seen[start:]) for string in stop for start in range(len(made.text)))


@pytest.mark.parametrize("num_tokens", [1, 2, 3, 4])
@pytest.mark.parametrize("offset", range(16))
def test_stop_string_at_each_offset_of_an_accepted_run(offset: int, num_tokens: int) -> None:
    """Case 21: sixteen tokens with the stop string split over one to four of them, also past the end of the round."""
    stop = "STOP"
    size = -(-len(stop) // num_tokens)
    stop_pieces = [stop[start : start + size].encode() for start in range(0, len(stop), size)]
    pieces = [b"w%d " % number for number in range(16)]
    pieces[offset:offset] = stop_pieces
    before = "".join(f"w{number} " for number in range(offset))
    made = TextStream([stop])
    shown_by_round = ["".join(made.push(piece) for piece in pieces[start : start + 8]) for start in (0, 8, 16)]
    assert "".join(shown_by_round) + made.flush() == before
    assert made.stopped
    assert made.num_tokens == offset + len(stop_pieces)


def test_stop_ends_the_answer_before_the_token_budget() -> None:
    """Case 22, at this level: tokens 10, 11, STOP, 20, ...; the third completes it, nothing after it counts."""
    made, shown = stream([b"ten ", b"eleven ", b"STOP", b"twenty", b"more"], ["STOP"])
    assert "".join(shown) == "ten eleven "
    assert (made.stopped, made.num_tokens) == (True, 3)


def test_text_in_the_token_of_the_stop_is_shown_up_to_it() -> None:
    assert stream([b"a", b"b\n\nc"], ["\n\n"])[1] == ["a", "b", ""]


def test_one_delta_with_several_markers_is_delivered_whole() -> None:
    """Case 30: what a parser downstream looks for is not taken apart or dropped."""
    delta = "so.</think><tool_call>{}"
    assert stream([delta.encode()])[1] == [delta, ""]
    assert stream([delta.encode()], ["</tool_call>"])[1] == [delta, ""]


def test_beginning_of_a_stop_string_is_shown_when_it_does_not_go_on() -> None:
    assert stream([b"a<", b"/", b"b", b"<"], ["</s>"])[1] == ["a", "", "</b", "", "<"]


def test_stop_string_across_a_split_character() -> None:
    made, shown = stream(["a👍".encode()[:3], "a👍".encode()[3:], b"b"], ["👍b"])
    assert shown == ["a", "", "", ""]
    assert made.stopped


def test_control_tokens_count_but_show_nothing() -> None:
    made, shown = stream([b"a", b"", b"b"])
    assert shown == ["a", "", "b", ""]
    assert made.num_tokens == 3


def test_one_string_is_one_stop_string() -> None:
    assert check_stop("ab") == ("ab",)


@pytest.mark.parametrize(
    ("stop", "named"),
    [
        ([""], r"stop\[0\] has 0"),
        (["a", "x" * (MAX_STOP_CHARACTERS + 1)], r"stop\[1\] has 257"),
        (["a"] * (MAX_STOP_STRINGS + 1), "17 strings"),
        (["a", 3], r"stop\[1\] is int"),
    ],
)
def test_bad_stop_strings_are_named(stop: list[str], named: str) -> None:
    with pytest.raises(InvalidRequestError, match=named) as caught:
        TextStream(stop)
    assert caught.value.field == "stop"
