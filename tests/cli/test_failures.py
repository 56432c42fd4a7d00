"""Every failure is one clear line with a remedy, an exit code by class, and never a traceback."""

from __future__ import annotations

import http.server
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgedraft import errors
from edgedraft.bench.cloud_process import CloudProcess
from edgedraft.cli import report
from edgedraft.errors import EdgedraftError

TARGET = "toy:vocab=300,context=100000"
NOWHERE = "ws://127.0.0.1:9/v1/edgedraft"


def _check(outcome, code: int, *parts: str) -> None:
    assert outcome.code == code, outcome.err
    assert outcome.out == ""
    *steps, last = outcome.err.splitlines()
    assert last.startswith("error: ")
    assert all(step.endswith(" ...") for step in steps), "one line, after what was being done"
    assert "Traceback" not in outcome.err
    for part in parts:
        assert part in outcome.err


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["generate", ""], ["prompt", "empty"]),
        (["generate", " \n"], ["prompt", "empty"]),
        (["generate", "-"], ["stdin", "empty"]),
        (["generate"], ["PROMPT", "--help"]),
        (["generate", "hi", "--max-tokens", "0"], ["max_tokens is 0", "1 or more"]),
        (["generate", "hi", "--max-tokens", "many"], ["--max-tokens", "integer"]),
        (["generate", "hi", "--strategy", "fly"], ["strategy is 'fly'", "flow, cloud-only, edge-only"]),
        (["generate", "hi", "--draft-length", "0"], ["draft_length is 0"]),
        (["generate", "hi", "--strategy", "cloud-only", "--draft-length", "3"], ["draft_length", "cloud-only"]),
        (["generate", "hi", "--temperature", "-1"], ["temperature is -1"]),
        (["generate", "hi", "--top-p", "0"], ["top_p is 0"]),
        (["generate", "hi", "--seed", "-1"], ["seed is -1"]),
        (["generate", "hi", "--stop", ""], ["stop"]),
        (["generate", "hi", "--on-link-loss", "cry"], ["--on-link-loss", "wait"]),
        (["generate", "hi", "--raw", "--system", "Be."], ["raw and system"]),
        (["generate", "hi", "--draft", "nothing:here"], ["'nothing'", "toy"]),
        (["generate", "hi", "--draft", TARGET, "--url", "http://127.0.0.1"], ["url is 'http://127.0.0.1'", "ws://"]),
        (["generate", "hi", "--no-such-option"], ["--no-such-option", "edgedraft generate --help"]),
        (["chat", "--max-tokens", "0"], ["max_tokens is 0"]),
        (["fly"], ["fly", "--help"]),
        (["generat"], ["'generate'? See"]),
        (["cloud"], ["--model"]),
        (["cloud", "--model", "toy:wings=2"], ["wings", "vocab"]),
        (["cloud", "--model", TARGET, "--port", "99999"], ["port is 99999"]),
        (["cloud", "--model", TARGET, "--max-sessions", "0"], ["--max-sessions"]),
        (["cloud", "--model", TARGET, "--session-expiry-s", "0"], ["session_expiry_s is 0"]),
        (["cloud", "--model", TARGET, "--tls-cert", "cert.pem"], ["tls_cert and tls_key"]),
        (["cloud", "--model", TARGET, "--token-file", "/nowhere/tokens"], ["token_file '/nowhere/tokens'"]),
        (["demo", "--strategies", "vanilla,fly"], ["strategies", "'fly'", "lookup"]),
        (["models", "pull", "toy:vocab=9"], ["toy:vocab=9", "hub:ORG/NAME/FILE.gguf"]),
    ],
    ids=lambda value: " ".join(value)[:60],
)
def test_bad_usage_ends_with_code_2(run, arguments: list[str], parts: list[str]) -> None:
    _check(run(*arguments), 2, *parts)


@pytest.mark.parametrize("command", [["generate", "hi"], ["generate", "hi", "--strategy", "cloud-only"]])
def test_no_cloud_ends_with_code_4_and_says_how_to_start_one(run, command: list[str]) -> None:
    _check(run(*command, "--draft", TARGET, "--url", NOWHERE), 4, NOWHERE, "edgedraft cloud --model SPEC")


@pytest.fixture
def web_server() -> Iterator[int]:
    """The port of an HTTP server that knows nothing of WebSockets."""

    class Quiet(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_a_server_that_is_no_cloud_ends_with_code_4(run, web_server: int) -> None:
    outcome = run("generate", "hi", "--draft", TARGET, "--url", f"ws://127.0.0.1:{web_server}/v1/edgedraft")
    _check(outcome, 4, "HTTP 404", "/v1/edgedraft")


@pytest.mark.parametrize("token", [[], ["--token", "wrong"]])
def test_a_missing_or_wrong_token_ends_with_code_5(run, guarded_cloud: CloudProcess, token: list[str]) -> None:
    outcome = run("generate", "hi", "--draft", TARGET, "--url", guarded_cloud.url, *token)
    _check(outcome, 5, "token", "EDGEDRAFT_TOKEN")


def test_another_vocabulary_ends_with_code_3_and_names_the_first_id(ask) -> None:
    _check(ask("hi", draft="toy:vocab=280"), 3, "id 276", "280 ids", "300 ids")


def test_a_prompt_beyond_the_context_ends_with_code_2(ask) -> None:
    _check(ask("-", stdin="word " * 30_000), 2, "100000")


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        ([], ["token", "TLS"]),
        (["--token", "secret"], ["TLS"]),
    ],
)
def test_a_public_address_without_token_and_tls_is_refused(run, arguments: list[str], missing: list[str]) -> None:
    _check(run("cloud", "--model", TARGET, "--host", "0.0.0.0", *arguments), 5, "0.0.0.0", *missing)  # noqa: S104


def test_a_port_in_use_is_named(run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        outcome = run("cloud", "--model", TARGET, "--port", port)
    assert outcome.code == 2
    assert port in outcome.err
    assert "--port" in outcome.err


def test_an_empty_token_file_is_refused(run, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("\n")
    _check(run("cloud", "--model", TARGET, "--token-file", str(tmp_path / "tokens")), 2, "holds no token")


@pytest.mark.model
@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (None, ["missing.gguf"]),
        (b"this is not a model, whatever its name says " * 100, ["not a GGUF"]),
        (b"", ["missing.gguf"]),
        (b"GGUF\x03\x00\x00\x00\x05", ["missing.gguf"]),
    ],
    ids=["missing", "text", "empty", "truncated"],
)
@pytest.mark.parametrize("command", [["cloud", "--model"], ["generate", "hi", "--draft"]], ids=["cloud", "generate"])
def test_a_bad_model_file_ends_with_code_3(
    run, tmp_path: Path, command: list[str], content: bytes | None, parts: list[str]
) -> None:
    path = tmp_path / "missing.gguf"
    if content is not None:
        path.write_bytes(content)
    _check(run(*command, f"llamacpp:{path}"), 3, *parts)


def test_with_json_an_error_is_one_object_on_stderr(run) -> None:
    outcome = run("generate", "hi", "--draft", TARGET, "--url", NOWHERE, "--json")
    assert outcome.code == 4
    assert outcome.out == ""
    body = json.loads(outcome.err)["error"]
    assert list(body) == ["code", "message", "remedy"]
    assert body["code"] == "cloud_unreachable"


def test_with_json_a_usage_error_is_one_object_too(run) -> None:
    assert json.loads(run("generate", "hi", "--fly", "--json").err)["error"]["code"] == "usage"


def _program(cloud: CloudProcess, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
    """Run in a process of its own, whose streams are real."""
    command = [
        sys.executable,
        "-m",
        "edgedraft",
        *arguments,
        "--url",
        cloud.url,
        "--draft",
        TARGET,
        "--max-tokens",
        "9",
    ]
    ran = subprocess.run(command, input=stdin, capture_output=True, timeout=50, check=False)
    return ran.returncode, ran.stdout.decode(), ran.stderr.decode()


@pytest.mark.parametrize("command", [["generate", "-"], ["chat"]], ids=["generate", "chat"])
def test_input_that_is_no_text_is_named(
    cloud: CloudProcess, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8:strict")
    code, out, err = _program(cloud, *command, stdin=b"\xff\xfe\n")
    assert (code, out) == (2, "")
    assert "UTF-8" in err
    assert "unexpected" not in err


def test_a_terminal_that_cannot_show_a_character_shows_another(
    cloud: CloudProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    code, out, err = _program(cloud, "generate", "hi")
    assert code == 0, err
    assert "?" in out


def test_json_is_ascii_whatever_the_text(cloud: CloudProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    code, out, _ = _program(cloud, "generate", "hi", "--json")
    assert code == 0
    assert "\ufffd" in json.loads(out)["text"]
    assert out.isascii()


def test_errors_never_hold_the_prompt(run) -> None:
    outcome = run("generate", "my private question", "--draft", TARGET, "--url", NOWHERE)
    assert "private" not in outcome.err


def _all_errors(cls: type[EdgedraftError]) -> list[type[EdgedraftError]]:
    return [cls, *(deeper for child in cls.__subclasses__() for deeper in _all_errors(child))]


@pytest.mark.parametrize("cls", _all_errors(EdgedraftError), ids=lambda cls: cls.__name__)
def test_each_error_class_has_its_exit_code(cls: type[EdgedraftError]) -> None:
    if issubclass(cls, errors.InvalidRequestError):
        wanted = 2
    elif issubclass(cls, errors.ModelError):
        wanted = 3
    elif issubclass(cls, errors.AuthError | errors.InsecureBindError):
        wanted = 5
    else:
        wanted = 1 if cls is EdgedraftError else 4
    assert report.exit_code(cls("wrong")) == wanted


def _break(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("edgedraft.cli.generate.edge_client", fail)


def test_an_unexpected_exception_is_one_line(run, monkeypatch: pytest.MonkeyPatch) -> None:
    _break(monkeypatch, RuntimeError("boom\nsecond line"))
    _check(run("generate", "hi"), 1, "unexpected RuntimeError: boom", "EDGEDRAFT_DEBUG")


def test_debug_shows_the_traceback(run, monkeypatch: pytest.MonkeyPatch) -> None:
    _break(monkeypatch, RuntimeError("boom"))
    monkeypatch.setenv("EDGEDRAFT_DEBUG", "1")
    assert "Traceback" in run("generate", "hi").err


def test_ctrl_c_ends_quietly_with_code_130(run, monkeypatch: pytest.MonkeyPatch) -> None:
    _break(monkeypatch, KeyboardInterrupt())
    outcome = run("generate", "hi")
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "")


def test_a_reader_that_leaves_is_no_error(cloud: CloudProcess) -> None:
    """`edgedraft ... | head` must not complain on stderr."""
    command = f"{sys.executable} -m edgedraft generate hi --draft {TARGET} --url {cloud.url} --max-tokens 20000"
    shell = subprocess.run(["sh", "-c", f"{command} | head -c 5"], capture_output=True, timeout=50, check=False)
    assert b"error" not in shell.stderr
    assert b"Traceback" not in shell.stderr
