"""A tuner's files: saved whole, found again, and never in the way when damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgedraft.edge.tuner_store import MAX_FILE_BYTES, TunerStore
from edgedraft.errors import InvalidRequestError
from edgedraft.tune.search import Thresholds
from edgedraft.tune.tuner_file import TunerKey, TunerRecord

KEY = TunerKey(draft="../../draft", target="target:\0/", link="wss://cloud")
RECORD = TunerRecord(key=KEY, thresholds=Thresholds(0.62, 0.41), num_trials=16)


def test_nothing_saved_is_nothing_known(tmp_path: Path) -> None:
    assert TunerStore(tmp_path).load(KEY) is None
    TunerStore(tmp_path).forget(KEY)


def test_what_was_saved_is_loaded_until_forgotten(tmp_path: Path) -> None:
    store = TunerStore(tmp_path / "not" / "there")
    store.save(RECORD)
    store.save(TunerRecord(key=KEY, thresholds=Thresholds(0.7, 0.3), num_trials=16))
    assert store.load(KEY) == TunerRecord(key=KEY, thresholds=Thresholds(0.7, 0.3), num_trials=16)
    assert [path.name for path in store.path(KEY).parent.iterdir()] == [store.path(KEY).name]
    store.forget(KEY)
    assert store.load(KEY) is None


def test_every_part_of_the_key_counts(tmp_path: Path) -> None:
    store = TunerStore(tmp_path)
    store.save(RECORD)
    for field in ("draft", "target", "link"):
        parts = {"draft": KEY.draft, "target": KEY.target, "link": KEY.link} | {field: "other"}
        assert store.load(TunerKey(**parts)) is None


def test_files_stay_inside_the_cache(tmp_path: Path) -> None:
    store = TunerStore(tmp_path)
    assert store.path(KEY).parent == tmp_path / "tuner"


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"{", b"x" * (MAX_FILE_BYTES + 1)])
def test_a_damaged_file_is_named_with_a_remedy(tmp_path: Path, content: bytes) -> None:
    store = TunerStore(tmp_path)
    store.save(RECORD)
    store.path(KEY).write_bytes(content)
    with pytest.raises(InvalidRequestError) as raised:
        store.load(KEY)
    assert str(store.path(KEY)) in str(raised.value)
    assert raised.value.remedy
    store.save(RECORD)
    assert store.load(KEY) == RECORD


def test_a_directory_in_the_way_is_an_error_of_ours(tmp_path: Path) -> None:
    store = TunerStore(tmp_path)
    store.path(KEY).mkdir(parents=True)
    for call in (lambda: store.load(KEY), lambda: store.save(RECORD), lambda: store.forget(KEY)):
        with pytest.raises(InvalidRequestError):
            call()
    assert [path.name for path in store.path(KEY).parent.iterdir()] == [store.path(KEY).name]


def test_a_cache_that_is_a_file_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "tuner").write_text("in the way")
    with pytest.raises(InvalidRequestError, match="EDGEDRAFT_CACHE"):
        TunerStore(tmp_path).save(RECORD)
    with pytest.raises(InvalidRequestError):
        TunerStore(tmp_path).load(KEY)
