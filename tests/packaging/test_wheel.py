"""The wheel that users install: what is in it, what is not, what it asks for."""

from __future__ import annotations

import configparser
import email
import email.message
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_WHEEL_BYTES = 4_000_000
FAMILIES = {"toy", "lookup", "llamacpp", "replay", "transformers", "captioner", "qwen-omni"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """Built without isolation: the build back end comes from the `dev` extra, so no network is needed."""
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(directory), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert built.returncode == 0, built.stderr
    (path,) = directory.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def _dist_info(wheel: zipfile.ZipFile, name: str) -> str:
    (member,) = (member for member in wheel.namelist() if member.endswith(f".dist-info/{name}"))
    return wheel.read(member).decode()


def _metadata(wheel: zipfile.ZipFile) -> email.message.Message:
    return email.message_from_string(_dist_info(wheel, "METADATA"))


def _core_requirements(wheel: zipfile.ZipFile) -> list[str]:
    return [line for line in _metadata(wheel).get_all("Requires-Dist") or [] if "extra ==" not in line]


def test_every_module_of_the_tree_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    source = ROOT / "src"
    expected = {str(path.relative_to(source)) for path in source.rglob("*.py")}
    assert expected <= set(wheel.namelist())


def test_nothing_but_the_package_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    outside = [name for name in wheel.namelist() if not name.startswith(("edgedraft/", "edgedraft-"))]
    weights = [name for name in wheel.namelist() if name.endswith((".gguf", ".safetensors", ".bin", ".so", ".pyc"))]
    assert not outside
    assert not weights
    assert sum(entry.compress_size for entry in wheel.infolist()) < MAX_WHEEL_BYTES


def test_the_embedded_captioner_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    """Weights, thresholds, card and two clips, 8 MB at the most."""
    weights = [
        entry for entry in wheel.infolist() if entry.filename.startswith("edgedraft/backends/captioner_weights/")
    ]
    names = {Path(entry.filename).name for entry in weights}
    assert names == {"edge.npz", "cloud.npz", "calibration.json", "MODEL_CARD.md"}
    assert sum(entry.file_size for entry in weights) < 8_000_000
    assert {"edgedraft/caption/clips/en.wav", "edgedraft/caption/clips/zh.wav"} <= set(wheel.namelist())


def test_types_and_licence_travel_along(wheel: zipfile.ZipFile) -> None:
    assert "edgedraft/py.typed" in wheel.namelist()
    assert "Apache License" in _dist_info(wheel, "licenses/LICENSE")
    assert _metadata(wheel)["License-Expression"] == "Apache-2.0"


def test_readme_is_the_long_description(wheel: zipfile.ZipFile) -> None:
    assert str(_metadata(wheel).get_payload()).strip() == (ROOT / "README.md").read_text(encoding="utf-8").strip()


def test_entry_points_name_objects_that_exist(wheel: zipfile.ZipFile) -> None:
    entry_points = configparser.ConfigParser()
    entry_points.read_string(_dist_info(wheel, "entry_points.txt"))
    assert set(entry_points["edgedraft.backends"]) == FAMILIES
    targets = [*entry_points["edgedraft.backends"].values(), *entry_points["console_scripts"].values()]
    for target in targets:
        path = target.split(":")[0].replace(".", "/")
        assert {f"{path}.py", f"{path}/__init__.py"} & set(wheel.namelist()), target


def test_core_install_is_light(wheel: zipfile.ZipFile) -> None:
    required = " ".join(_core_requirements(wheel)).lower()
    for heavy in ("torch", "transformers", "llama", "scipy", "vllm"):
        assert heavy not in required


def test_torch_is_pinned_and_its_companions_are_absent(wheel: zipfile.ZipFile) -> None:
    required = _metadata(wheel).get_all("Requires-Dist") or []
    torches = [line.split(";")[0].strip() for line in required if line.startswith("torch")]
    assert torches == ["torch==2.13.0"]


def test_extras_are_the_ones_the_readme_names(wheel: zipfile.ZipFile) -> None:
    extras = set(_metadata(wheel).get_all("Provides-Extra") or [])
    captions = {"caption", "containers", "microphone", "synth"}
    assert extras == captions | {"llamacpp", "demo", "torch", "bench", "gateway", "vllm", "dev"}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert not [extra for extra in extras if f"`{extra}`" not in readme]
