"""`edgedraft doctor`: each line ok, warn or fail, with a remedy where it is not ok."""

from __future__ import annotations

from edgedraft.bench.cloud_process import CloudProcess
from edgedraft.cli.doctor import _cloud
from edgedraft.config import EdgeConfig

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
    (check,) = _cloud(EdgeConfig(url=NOWHERE), None, wanted=False)
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
