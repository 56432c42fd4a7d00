"""`edgedraft doctor`: each line ok, warn or fail, with a remedy where it is not ok."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest

from edgedraft.backends.captioner import CaptionerFamily
from edgedraft.bench.cloud_process import CloudProcess
from edgedraft.caption import microphone
from edgedraft.cli import doctor
from edgedraft.config import EdgeConfig
from edgedraft.errors import UnsupportedError

TARGET = "toy:vocab=300,context=100000"
NOWHERE = "ws://127.0.0.1:9/v1/edgedraft"


def _by_name(outcome) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in outcome.json["checks"]}


def test_all_is_well(run, cloud: CloudProcess) -> None:
    outcome = run("doctor", "--url", cloud.url, "--draft", TARGET, "--json")
    checks = _by_name(outcome)
    assert outcome.code == 0
    assert outcome.json["ok"] is True
    for name in ("edgedraft", "draft", "cloud", "token", "protocol", "target", "vocabulary", "round trip"):
        assert checks[name]["status"] == "ok"
    assert "300 ids" in checks["vocabulary"]["detail"]
    assert " ms" in checks["round trip"]["detail"]


def test_captioning_is_looked_at(run, cloud: CloudProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(seconds: float) -> None:
        raise UnsupportedError("a microphone was not found.", remedy="Plug one in.")

    monkeypatch.setattr(microphone, "check", missing)
    outcome = run("doctor", "--url", cloud.url, "--json")
    checks = _by_name(outcome)
    assert outcome.code == 0, "nobody has to have a microphone"
    assert checks["captioner"]["status"] == "ok"
    assert checks["microphone"] == {
        "name": "microphone",
        "status": "warn",
        "detail": "a microphone was not found.",
        "remedy": "Plug one in.",
    }
    monkeypatch.setattr(microphone, "check", lambda _: None)
    assert _by_name(run("doctor", "--url", cloud.url, "--json"))["microphone"]["status"] == "ok"


def test_a_captioner_that_does_not_load_is_a_fault(run, cloud: CloudProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CaptionerFamily, "path", lambda self, rest: Path(f"/nowhere/{rest}.npz"))
    outcome = run("doctor", "--url", cloud.url, "--json")
    assert outcome.code == 1
    check = _by_name(outcome)["captioner"]
    assert check["status"] == "fail"
    assert "/nowhere/edge.npz" in check["detail"]


def test_each_extra_that_is_missing_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if package == "edgedraft":
            return "1.0"
        raise PackageNotFoundError(package)

    monkeypatch.setattr(doctor, "version", version)
    missing = {check.name: check for check in doctor._installed() if check.status == "warn"}
    extras = {
        "soundfile": "caption",
        "jieba": "caption",
        "av": "containers",
        "espeakng-loader": "synth",
        "torch": "torch",
    }
    for package, extra in extras.items():
        assert missing[package].remedy == f"pip install 'edgedraft[{extra}]'"


@pytest.mark.parametrize(("package", "extra", "purpose"), doctor._PACKAGES, ids=lambda value: value)
def test_the_extra_that_is_named_brings_the_package(package: str, extra: str, purpose: str) -> None:
    brought = [line for line in requires("edgedraft") or () if line.endswith(f"extra == '{extra}'")]
    assert any(line.startswith(package) for line in brought)


def test_people_get_a_line_for_each_check(run, cloud: CloudProcess) -> None:
    outcome = run("doctor", "--url", cloud.url, "--draft", TARGET)
    assert "ok   cloud: reached at" in outcome.out
    assert outcome.code == 0


def test_a_named_cloud_that_is_not_there_fails(run) -> None:
    outcome = run("doctor", "--url", NOWHERE, "--json")
    assert outcome.code == 1
    assert outcome.json["ok"] is False
    check = _by_name(outcome)["cloud"]
    assert check["status"] == "fail"
    assert "edgedraft cloud --model SPEC" in check["remedy"]


def test_a_cloud_that_nobody_named_is_only_missed() -> None:
    (check,) = doctor._cloud(EdgeConfig(url=NOWHERE), None, wanted=False)
    assert check.status == "warn"


def test_a_wrong_token_fails_where_the_cloud_is_reached(run, guarded_cloud: CloudProcess) -> None:
    outcome = run("doctor", "--url", guarded_cloud.url, "--token", "wrong", "--json")
    checks = _by_name(outcome)
    assert outcome.code == 1
    assert checks["cloud"]["status"] == "ok"
    assert checks["token"]["status"] == "fail"
    assert "EDGEDRAFT_TOKEN" in checks["token"]["remedy"]


def test_another_vocabulary_fails_with_its_first_differing_id(run, cloud: CloudProcess) -> None:
    outcome = run("doctor", "--url", cloud.url, "--draft", "toy:vocab=280", "--json")
    check = _by_name(outcome)["vocabulary"]
    assert outcome.code == 1
    assert check["status"] == "fail"
    assert "id 276" in check["detail"]


def test_without_a_draft_the_vocabularies_are_not_compared(run, cloud: CloudProcess) -> None:
    outcome = run("doctor", "--url", cloud.url, "--json")
    assert _by_name(outcome)["vocabulary"]["status"] == "warn"
    assert outcome.code == 0


def test_a_draft_that_cannot_be_opened_fails(run, cloud: CloudProcess) -> None:
    outcome = run("doctor", "--url", cloud.url, "--draft", "toy:wings=2", "--json")
    assert outcome.code == 1
    assert _by_name(outcome)["draft"]["status"] == "fail"
