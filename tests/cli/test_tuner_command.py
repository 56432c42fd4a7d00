"""`edgedraft tuner`."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgedraft.edge.tuner_store import TunerStore
from edgedraft.tune.search import Thresholds
from edgedraft.tune.tuner_file import TunerKey, TunerRecord


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TunerStore:
    monkeypatch.setenv("EDGEDRAFT_CACHE", str(tmp_path))
    return TunerStore(tmp_path)


def save(store: TunerStore, draft: str) -> None:
    key = TunerKey(draft=draft, target="large", link="ws://cloud")
    store.save(TunerRecord(key=key, thresholds=Thresholds(0.6, 0.35), num_trials=16))


def test_nothing_kept_is_said(run, store: TunerStore) -> None:
    assert "Nothing is kept" in run("tuner", "show").out
    assert run("tuner", "show", "--json").json == {"tuned": []}
    assert run("tuner", "reset", "--json").json == {"num_forgotten": 0}


def test_what_is_kept_is_shown_by_draft_and_forgotten_at_once(run, store: TunerStore) -> None:
    save(store, "two")
    save(store, "one")
    (store.path(TunerKey(draft="x", target="y", link="z"))).write_text("damaged")
    shown = run("tuner", "show", "--json").json["tuned"]
    assert [each["draft"] for each in shown] == ["one", "two"]
    assert (shown[0]["token_threshold"], shown[0]["sequence_threshold"], shown[0]["num_trials"]) == (0.6, 0.35, 16)
    table = run("tuner", "show").out
    assert "0.600" in table
    assert "ws://cloud" in table
    assert run("tuner", "reset").out == "3 forgotten.\n"
    assert store.all() == []
