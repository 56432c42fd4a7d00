"""One door to every model, ours and third parties'; broken plug-ins hurt nobody else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from edgedraft.backends import model_store, registry
from edgedraft.backends.base import BackendOptions, DraftBackend, TargetBackend
from edgedraft.backends.registry import ModelSpec, parse_spec
from edgedraft.backends.toy import ToyFamily
from edgedraft.errors import BackendError, InvalidRequestError, ModelFileError, UnsupportedError

OPTIONS = BackendOptions()


def use_plugins(monkeypatch: pytest.MonkeyPatch, plugins: dict[str, str]) -> None:
    """Install entry points beside our own, as packages would."""
    own = list(registry.entry_points(group=registry.ENTRY_POINT_GROUP))
    extra = [EntryPoint(name, value, registry.ENTRY_POINT_GROUP) for name, value in plugins.items()]

    def entry_points(*, group: str) -> Sequence[EntryPoint]:
        assert group == registry.ENTRY_POINT_GROUP
        return [*own, *extra]

    monkeypatch.setattr(registry, "entry_points", entry_points)


@pytest.fixture
def plugin_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("acme_models")
    monkeypatch.setitem(sys.modules, "acme_models", module)
    return module


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("lookup", ModelSpec("lookup", "")),
        ("toy:vocab=64,seed=2", ModelSpec("toy", "vocab=64,seed=2")),
        ("llamacpp:/models/a:b.gguf", ModelSpec("llamacpp", "/models/a:b.gguf")),
        ("/models/Some.GGUF", ModelSpec("llamacpp", "/models/Some.GGUF")),
        ("models/a.gguf", ModelSpec("llamacpp", "models/a.gguf")),
        ("hub:org/name/file.gguf", ModelSpec("hub", "org/name/file.gguf")),
        (" demo:target ", ModelSpec("demo", "target")),
    ],
)
def test_spec_is_split(spec: str, expected: ModelSpec) -> None:
    assert parse_spec(spec) == expected
    assert parse_spec(str(expected)) == expected


@pytest.mark.parametrize("spec", ["", "  ", ":rest", "llamacpp:", "llamacpp", "hub", "demo:"])
def test_spec_without_family_or_file_is_refused(spec: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_spec(spec)
    assert caught.value.field == "model"
    assert caught.value.remedy


def test_importing_loads_no_engine() -> None:
    code = (
        "import sys, edgedraft, edgedraft.backends.registry as r; r.installed_families();"
        "print(sorted({'llama_cpp', 'torch', 'huggingface_hub', 'pytest'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_own_families_are_installed() -> None:
    assert {"llamacpp", "lookup", "toy"} <= set(registry.installed_families())


def test_toy_is_opened_in_each_role() -> None:
    assert isinstance(registry.open_draft("toy:vocab=32", OPTIONS), DraftBackend)
    target = registry.open_target("toy:vocab=32", BackendOptions(max_sessions=3))
    assert isinstance(target, TargetBackend)
    assert target.max_batch_sessions == 3
    assert registry.open_tokenizer("toy:vocab=32").num_ids == 32
    assert "im_start" in registry.chat_template("toy")


def test_unknown_family_names_those_there_are() -> None:
    with pytest.raises(InvalidRequestError, match=r"'tooy'.*llamacpp.*lookup.*toy.*hub:.*demo:"):
        registry.open_draft("tooy:vocab=32", OPTIONS)


def test_wrong_role_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="only draft"):
        registry.open_target("lookup", OPTIONS)


def test_stored_models_are_located_and_served_by_llamacpp(
    monkeypatch: pytest.MonkeyPatch, plugin_module: ModuleType
) -> None:
    opened: list[str] = []

    class Family(ToyFamily):
        def open_tokenizer(self, rest: str):  # type: ignore[no-untyped-def]
            opened.append(rest)
            return super().open_tokenizer("")

    plugin_module.Family = Family  # type: ignore[attr-defined]
    entry_point = EntryPoint("llamacpp", "acme_models:Family", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda *, group: [entry_point])
    monkeypatch.setattr(model_store, "resolve", lambda spec: Path("/cache") / f"{spec.replace(':', '-')}.gguf")
    registry.open_tokenizer("demo:target")
    registry.open_tokenizer("/models/own.gguf")
    assert opened == ["/cache/demo-target.gguf", "/models/own.gguf"]


def test_plugin_comes_through_the_same_door(monkeypatch: pytest.MonkeyPatch, plugin_module: ModuleType) -> None:
    class Family(ToyFamily):
        name = "acme"

    plugin_module.Family = Family  # type: ignore[attr-defined]
    plugin_module.family = Family()  # type: ignore[attr-defined]
    use_plugins(monkeypatch, {"acme": "acme_models:Family", "acme-made": "acme_models:family"})
    for spec in ("acme:vocab=32", "acme-made:vocab=32"):  # a class, or an object
        assert registry.open_draft(spec, OPTIONS).info.vocab_size == 32


def test_broken_plugin_breaks_only_itself(monkeypatch: pytest.MonkeyPatch, plugin_module: ModuleType) -> None:
    class Family:
        def __init__(self) -> None:
            raise RuntimeError("no such device")

    plugin_module.Family = Family  # type: ignore[attr-defined]
    use_plugins(
        monkeypatch, {"gone": "acme_not_there:Family", "old": "acme_models:Missing", "bad": "acme_models:Family"}
    )
    assert {"gone", "old", "bad", "toy"} <= set(registry.installed_families())
    for name, reason in (("gone", "acme_not_there"), ("old", "Missing"), ("bad", "no such device")):
        with pytest.raises(BackendError, match=rf"'{name}' cannot be loaded.*{reason}"):
            registry.open_draft(name, OPTIONS)
    assert registry.open_draft("toy", OPTIONS).length == 0


def test_engine_that_is_not_installed_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, plugin_module: ModuleType
) -> None:
    entry_point = EntryPoint("llamacpp", "acme_not_there:Family", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda *, group: [entry_point])
    with pytest.raises(UnsupportedError, match=r"pip install 'edgedraft\[llamacpp\]'"):
        registry.open_target("model.gguf", OPTIONS)

    class Family:
        def open_target(self, rest: str, options: BackendOptions) -> TargetBackend:
            raise ModuleNotFoundError("No module named 'llama_cpp'", name="llama_cpp")

    plugin_module.Family = Family  # type: ignore[attr-defined]
    entry_point = EntryPoint("llamacpp", "acme_models:Family", registry.ENTRY_POINT_GROUP)
    with pytest.raises(UnsupportedError, match=r"'llama_cpp'.*pip install 'edgedraft\[llamacpp\]'"):
        registry.open_target("model.gguf", OPTIONS)


def test_broken_engine_is_not_called_missing(monkeypatch: pytest.MonkeyPatch, plugin_module: ModuleType) -> None:
    entry_point = EntryPoint("llamacpp", "acme_models:Missing", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda *, group: [entry_point])
    with pytest.raises(BackendError, match="cannot be loaded: AttributeError"):
        registry.open_draft("model.gguf", OPTIONS)


def test_name_offered_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    use_plugins(monkeypatch, {"toy": "acme_models:Family"})
    with pytest.raises(BackendError, match="more than once"):
        registry.open_draft("toy", OPTIONS)


def test_same_offer_seen_twice_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """An editable install beside its build leaves two records of one package."""
    use_plugins(monkeypatch, {"toy": "edgedraft.backends.toy:ToyFamily"})
    assert registry.open_draft("toy", OPTIONS).length == 0


def test_failures_at_open_are_one_clear_line(monkeypatch: pytest.MonkeyPatch, plugin_module: ModuleType) -> None:
    class Family:
        def open_draft(self, rest: str, options: BackendOptions) -> DraftBackend:
            raise ModelFileError("file is truncated.") if rest == "known" else OSError("device lost")

    plugin_module.Family = Family  # type: ignore[attr-defined]
    use_plugins(monkeypatch, {"acme": "acme_models:Family"})
    with pytest.raises(ModelFileError, match="truncated"):
        registry.open_draft("acme:known", OPTIONS)
    with pytest.raises(BackendError, match=r"'acme:other' could not be opened: OSError: device lost"):
        registry.open_draft("acme:other", OPTIONS)
    with pytest.raises(UnsupportedError, match="cannot be a target"):
        registry.open_target("acme:known", OPTIONS)
