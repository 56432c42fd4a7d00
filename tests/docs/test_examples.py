"""What the documentation shows as runnable is run: examples with toy models, marked blocks as they stand."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from edgedraft.bench.cloud_process import CloudProcess, cloud_process

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
RUN_BLOCK = re.compile(r"<!-- run -->\n```(\w+)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
TOY_TARGET, TOY_DRAFT = "toy:seed=5,context=2048", "toy:seed=5,context=2048,agree=0.8"


def _blocks(language: str) -> list[tuple[Path, str]]:
    found = [(page, *block) for page in PAGES for block in RUN_BLOCK.findall(page.read_text(encoding="utf-8"))]
    return [(page, code) for page, of_language, code in found if of_language == language]


def _run(command: Sequence[str], *, url: str = "", directory: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "EDGEDRAFT_URL": url}  # noqa: TID251
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=50, env=environment, cwd=directory
    )
    assert done.returncode == 0, done.stderr or done.stdout
    return done


@pytest.fixture(scope="module")
def toy_cloud() -> Iterator[CloudProcess]:
    with cloud_process(TOY_TARGET) as cloud:
        yield cloud


def test_example_stream_text(toy_cloud: CloudProcess) -> None:
    example = ROOT / "examples" / "stream_text.py"
    done = _run([sys.executable, str(example), "hello", "--draft", TOY_DRAFT, "--max-tokens", "20"], url=toy_cloud.url)
    assert "20 tokens, finish reason length, exact: bitwise" in done.stdout


def test_example_resume_after_cut(toy_cloud: CloudProcess) -> None:
    example = ROOT / "examples" / "resume_after_cut.py"
    done = _run([sys.executable, str(example), "hello", "--draft", TOY_DRAFT, "--url", toy_cloud.url])
    assert done.stdout.count("[cut]") == 2
    assert "the same text as without cuts: yes" in done.stdout
    assert int(re.search(r"reconnects: (\d+)", done.stdout)[1]) >= 1  # type: ignore[index]


def test_every_example_is_run_here() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert not [path.name for path in (ROOT / "examples").glob("*.py") if path.name not in source]


@pytest.mark.model
def test_marked_python_blocks_run() -> None:
    blocks = _blocks("python")
    assert blocks
    with cloud_process("demo:target") as cloud:
        for _, code in blocks:
            assert _run([sys.executable, "-c", code], url=cloud.url).stdout.strip()


def _follow_tutorial(directory: Path, *, subject: str = "DNS:cloud.example") -> Path:
    """Run the shell blocks of docs/tutorial/two-machines.md in `directory`, with `subject` as the cloud's name."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    blocks = [code for page, code in _blocks("bash") if page.name == "two-machines.md"]
    assert blocks
    for code in blocks:
        named = code.replace("DNS:cloud.example", subject)
        _run(["bash", "-euo", "pipefail", "-c", named], directory=directory)
    return directory


@pytest.fixture(scope="module")
def tutorial_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _follow_tutorial(tmp_path_factory.mktemp("tutorial"))


def _handshake(server_context: ssl.SSLContext, client_context: ssl.SSLContext, host: str) -> None:
    """A TLS handshake in memory; raises what the client or the server objects to."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=host)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue


def test_the_tutorials_certificate_is_good_for_its_name_only(tutorial_files: Path) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tutorial_files / "cloud.pem", tutorial_files / "cloud-key.pem")
    client = ssl.create_default_context(cafile=tutorial_files / "authority.pem")
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # what Python 3.13 asks for by itself
    _handshake(server, client, "cloud.example")
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(server, client, "other.example")


def test_the_tutorials_secrets_are_for_their_owner_only(tutorial_files: Path) -> None:
    for name in ("edge.token", "cloud-key.pem", "authority-key.pem"):
        assert (tutorial_files / name).stat().st_mode & 0o077 == 0
    assert len((tutorial_files / "edge.token").read_text().strip()) == 64


def test_the_tutorials_cloud_and_edge_reach_each_other(tmp_path: Path) -> None:
    """By address, as the tutorial allows; with another token the doctor says which line is wrong."""
    files = _follow_tutorial(tmp_path, subject="IP:127.0.0.1")
    access = ["--token-file", str(files / "edge.token")]
    certificate = ["--tls-cert", str(files / "cloud.pem"), "--tls-key", str(files / "cloud-key.pem")]
    doctor = [
        sys.executable,
        "-m",
        "edgedraft",
        "doctor",
        "--draft",
        TOY_DRAFT,
        "--tls-ca",
        str(files / "authority.pem"),
    ]
    with cloud_process(TOY_TARGET, [*access, *certificate]) as cloud:
        assert cloud.url.startswith("wss://")
        token = (files / "edge.token").read_text().strip()
        done = _run([*doctor, "--token", token], url=cloud.url)
        refused = subprocess.run(
            [*doctor, "--token", "wrong", "--url", cloud.url], capture_output=True, text=True, check=False, timeout=50
        )
    lines = {line.split()[1].rstrip(":"): line.split()[0] for line in done.stdout.splitlines()}
    assert {lines[name] for name in ("cloud", "token", "protocol", "vocabulary", "round")} == {"ok"}
    assert refused.returncode != 0
    assert re.search(r"^fail +token", refused.stdout, flags=re.MULTILINE)
