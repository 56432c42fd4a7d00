from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from edgedraft.protocol.fingerprint import (
    Difference,
    committed_hash,
    compare,
    fingerprint,
    first_difference,
    id_hashes,
)
from edgedraft.protocol.messages import MAX_PROBE_IDS


def plain(token_id: int) -> bytes:
    return b"token %d" % token_id


@dataclass(frozen=True)
class Words:
    num_ids: int
    identity_of: Callable[[int], bytes] = plain
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = (0,)

    def identity(self, token_id: int) -> bytes:
        assert 0 <= token_id < self.num_ids, "an id outside the real vocabulary was asked for"
        return self.identity_of(token_id)


def changed(*ids: int) -> Callable[[int], bytes]:
    return lambda token_id: b"other" if token_id in ids else plain(token_id)


def first_differing_id(mine: Words, theirs: Words) -> int | None:
    """What two peers do: compare, probe range by range, name the first."""
    difference = compare(fingerprint(mine), fingerprint(theirs))
    if difference is None:
        return None
    for start, count in difference.probes():
        found = first_difference(id_hashes(mine, start, count), id_hashes(theirs, start, count), start)
        if found is not None:
            return found
    return difference.start + difference.count


@pytest.mark.parametrize("num_ids", [1, 5, 63, 64, 65, 1_000, 49_152, 152_000])
def test_equal_vocabularies_compare_equal(num_ids: int) -> None:
    assert compare(fingerprint(Words(num_ids)), fingerprint(Words(num_ids))) is None


def test_special_ids_travel_but_are_not_compared() -> None:
    mine = fingerprint(Words(100, bos_id=1, eos_ids=(9, 2)))
    assert (mine.bos_id, mine.eos_ids) == (1, [2, 9])
    assert fingerprint(Words(100)).bos_id == -1
    assert compare(mine, fingerprint(Words(100))) is None


@pytest.mark.parametrize("num_ids", [2, 64, 65, 129, 1_000, 152_000])
def test_one_changed_id_is_named_wherever_it_is(num_ids: int) -> None:
    for bad in {0, 1, num_ids // 2, num_ids - 1}:
        assert first_differing_id(Words(num_ids), Words(num_ids, changed(bad))) == bad


def test_the_first_of_several_changed_ids_is_named() -> None:
    assert first_differing_id(Words(1_000), Words(1_000, changed(900, 517, 516))) == 516


def test_difference_in_size_is_told_and_the_first_id_still_named() -> None:
    difference = compare(fingerprint(Words(50_257)), fingerprint(Words(32_000)))
    assert difference == Difference("one vocabulary has 50257 ids, the other 32000", 0, 32_000)
    assert first_differing_id(Words(50_257), Words(32_000, changed(20_000))) == 20_000
    assert first_differing_id(Words(32_000), Words(32_001)) == 32_000


def test_range_to_probe_covers_only_real_ids() -> None:
    assert compare(fingerprint(Words(100)), fingerprint(Words(100, changed(99)))) == Difference(
        "the vocabularies differ between id 98 and 99", 98, 2
    )
    assert list(Difference("", 5, 2 * MAX_PROBE_IDS + 1).probes()) == [
        (5, MAX_PROBE_IDS),
        (5 + MAX_PROBE_IDS, MAX_PROBE_IDS),
        (5 + 2 * MAX_PROBE_IDS, 1),
    ]


def test_moved_border_between_two_tokens_is_seen() -> None:
    """64 ids a range: `ab`,`c` and `a`,`bc` join to the same bytes."""
    left, right = {0: b"ab", 1: b"c"}, {0: b"a", 1: b"bc"}
    mine = Words(4_096, lambda token_id: left.get(token_id, b"x"))
    theirs = Words(4_096, lambda token_id: right.get(token_id, b"x"))
    assert first_differing_id(mine, theirs) == 0


def test_swapped_ids_are_seen() -> None:
    swap = {10: 11, 11: 10}
    assert first_differing_id(Words(4_096), Words(4_096, lambda token_id: plain(swap.get(token_id, token_id)))) == 10


def test_id_hashes_stay_inside_vocabulary_and_limit() -> None:
    assert len(id_hashes(Words(100), 90, 50)) == 4 * 10
    assert id_hashes(Words(100), 2**31 - 1, 8_192) == b""
    assert len(id_hashes(Words(20_000), 0, 2**31 - 1)) == 4 * MAX_PROBE_IDS


def test_first_difference_sees_a_short_answer() -> None:
    assert first_difference(b"aaaabbbb", b"aaaabbbb", 7) is None
    assert first_difference(b"aaaabbbb", b"aaaa", 7) == 8
    assert first_difference(b"aaaa", b"aaaabbbb", 7) == 8


def test_committed_hash_is_what_the_reference_says() -> None:
    ids = [0, 1, 258, 151_999, 2**31 - 1]
    little_endian = b"".join(token_id.to_bytes(4, "little") for token_id in ids)
    assert committed_hash(ids) == hashlib.blake2b(little_endian, digest_size=8).digest()
    assert committed_hash([]) == hashlib.blake2b(b"", digest_size=8).digest()
    assert committed_hash(range(30_000)) == committed_hash(tuple(range(30_000)))
    assert committed_hash(ids) != committed_hash(ids[::-1])
