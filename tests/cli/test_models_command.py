"""`edgedraft models`."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgedraft.cli import models


def test_list_as_json_names_specs_and_sizes(run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "own.gguf").write_bytes(b"not really")
    monkeypatch.setenv("EDGEDRAFT_CACHE", str(tmp_path))
    listed = {model["spec"]: model for model in run("models", "list", "--json").json["models"]}
    own = listed[f"llamacpp:{tmp_path / 'own.gguf'}"]
    assert own["size_bytes"] == 10
    assert own["quantisation"] == "unreadable"


def test_list_for_people_is_a_table(run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "own.gguf").write_bytes(b"not really")
    monkeypatch.setenv("EDGEDRAFT_CACHE", str(tmp_path))
    outcome = run("models", "list")
    assert outcome.code == 0
    assert str(tmp_path / "own.gguf") in outcome.out, "a pipe folds nothing"


def test_the_captioners_are_listed_as_shipped(run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "own.gguf").write_bytes(b"not really")
    monkeypatch.setenv("EDGEDRAFT_CACHE", str(tmp_path))
    listed = run("models", "list", "--json").json["models"]
    shipped = {model["spec"]: model for model in listed if model["is_shipped"]}
    assert list(shipped) == ["captioner:edge", "captioner:cloud"]
    for model in shipped.values():
        assert Path(model["path"]).stat().st_size == model["size_bytes"]
        assert model["quantisation"] == "float16"
    lines = [line for line in run("models", "list").out.splitlines() if "shipped with edgedraft" in line]
    assert [line.split()[1] for line in lines] == list(shipped)


def test_without_a_model_of_text_it_is_said_how_to_get_one(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "list_models", lambda: [])
    outcome = run("models", "list")
    assert "captioner:edge" in outcome.out
    assert "edgedraft models pull hub:ORG/NAME/FILE.gguf" in outcome.err
    assert run("models", "list", "--json").err == ""


@pytest.mark.model
def test_pull_makes_the_demo_model_and_prints_where(run) -> None:
    outcome = run("models", "pull", "demo:draft", "--json")
    assert Path(outcome.json["path"]).stat().st_size == outcome.json["size_bytes"]


@pytest.mark.model
@pytest.mark.timeout(180)
def test_quantize_writes_a_smaller_file_once(run, tmp_path: Path) -> None:
    source = run("models", "pull", "demo:target", "--json").json["path"]
    destination = tmp_path / "small.gguf"
    outcome = run("models", "quantize", source, str(destination), "--type", "Q4_0", "--json")
    assert outcome.code == 0
    assert outcome.json["spec"] == f"llamacpp:{destination}"
    assert outcome.json["size_bytes"] == destination.stat().st_size < Path(source).stat().st_size
    again = run("models", "quantize", source, str(destination), "--type", "Q4_0")
    assert again.code == 2
    assert str(destination) in again.err


@pytest.mark.model
def test_quantize_refuses_what_it_cannot_do(run, tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("not a model")
    destination = str(tmp_path / "out.gguf")
    (tmp_path / "folder").mkdir()
    wrong_type = run("models", "quantize", str(tmp_path / "text.gguf"), destination, "--type", "Q9_9")
    assert wrong_type.code == 2
    assert "Q8_0" in wrong_type.err
    assert run("models", "quantize", str(tmp_path / "text.gguf"), destination).code == 3
    assert run("models", "quantize", str(tmp_path / "missing.gguf"), destination).code == 3
    assert not Path(destination).exists()
    source = run("models", "pull", "demo:draft", "--json").json["path"]
    for bad in (str(tmp_path / "folder"), source, str(tmp_path / ("n" * 300))):
        refused = run("models", "quantize", source, bad, "--overwrite")
        assert refused.code in (2, 3)
        assert "unexpected" not in refused.err


def test_a_link_to_nowhere_in_the_cache_is_listed_as_unreadable(
    run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "gone.gguf").symlink_to("/nowhere/model.gguf")
    monkeypatch.setenv("EDGEDRAFT_CACHE", str(tmp_path))
    listed = {model["spec"]: model for model in run("models", "list", "--json").json["models"]}
    assert listed[f"llamacpp:{tmp_path / 'gone.gguf'}"]["quantisation"] == "unreadable"
