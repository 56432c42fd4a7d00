"""Binding, TLS, the ready line and the end of the process."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import trustme
from websockets.sync.client import connect

from edgedraft.backends.toy import ToyTarget
from edgedraft.backends.toy_model import ToyModel, ToySettings
from edgedraft.backends.toy_tokenizer import ToyTokenizer
from edgedraft.cloud.app import create_app
from edgedraft.cloud.serve import CloudServer, OnReady
from edgedraft.config import CloudConfig
from edgedraft.errors import InsecureBindError, InvalidRequestError
from edgedraft.testing.cloud import running_cloud
from edgedraft.testing.wire import WireClient, wire_client

SETTINGS = ToySettings(vocab=64, seed=3)

CLOUD_PROGRAM = textwrap.dedent(
    """
    from edgedraft.backends.toy import ToyTarget
    from edgedraft.backends.toy_model import ToyModel, ToySettings
    from edgedraft.backends.toy_tokenizer import ToyTokenizer
    from edgedraft.cloud.app import create_app
    from edgedraft.cloud.serve import serve
    from edgedraft.config import CloudConfig

    config = CloudConfig(port=0)
    target = ToyTarget(ToyModel(ToySettings(vocab=64)))
    serve(config, create_app(config, target, ToyTokenizer(64), "", model_name="toy"))
    print("ended", flush=True)
    """
)


def toy_server(config: CloudConfig, on_ready: OnReady | None = None) -> CloudServer:
    target = ToyTarget(ToyModel(SETTINGS))
    app = create_app(config, target, ToyTokenizer(SETTINGS.num_ids), "", model_name="toy")
    return CloudServer(config, app, on_ready)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_quietly_and_tells_the_edges(sent: signal.Signals) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CLOUD_PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        line = child.stdout.readline().split()
        assert line[:2] == ["listening", "on"]
        with wire_client(line[2]) as client:
            child.send_signal(sent)
            assert client.close_code() == 1012
        output, errors = child.communicate(timeout=20)
    finally:
        child.kill()
        child.wait()
    assert (child.returncode, output, errors) == (0, "ended\n", "")


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidRequestError, match=rf"port {port} cannot be bound.*--port"):
            toy_server(CloudConfig(port=port))


def test_a_host_that_is_not_here_is_named() -> None:
    with pytest.raises(InvalidRequestError, match=r"host '192\.0\.2\.1'"):
        toy_server(CloudConfig(host="192.0.2.1", port=0, insecure=True))


def test_a_public_address_without_protection_is_refused_before_anything_is_bound() -> None:
    with pytest.raises(InsecureBindError, match="--insecure"):
        toy_server(CloudConfig(host="0.0.0.0", port=0))  # noqa: S104


def test_edges_connect_over_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "cloud.pem")
    config = CloudConfig(port=0, tls_cert=tmp_path / "cloud.pem", tls_key=tmp_path / "cloud.pem")
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with running_cloud(ToyTarget(ToyModel(SETTINGS)), ToyTokenizer(SETTINGS.num_ids), "", config) as cloud:
        assert cloud.url.startswith("wss://127.0.0.1:")
        with connect(cloud.url, ssl=trusting, compression=None, proxy=None) as websocket:
            assert WireClient(websocket).greet().model


def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("not a certificate")
    with pytest.raises(InvalidRequestError, match=r"bad\.pem.*PEM") as caught:
        toy_server(CloudConfig(port=0, tls_cert=bad, tls_key=bad))
    assert caught.value.field == "tls_cert"
    with pytest.raises(InvalidRequestError, match=r"missing\.pem"):
        toy_server(CloudConfig(port=0, tls_cert=tmp_path / "missing.pem", tls_key=tmp_path / "missing.pem"))


def test_ipv6_loopback_is_served_and_written_with_brackets() -> None:
    if not socket.has_ipv6:
        pytest.skip("this Python has no IPv6")
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback address")
    ready = threading.Event()
    server = toy_server(CloudConfig(host="::1", port=0), lambda _: ready.set())
    assert server.url.startswith("ws://[::1]:")
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert ready.wait(10)
        with wire_client(server.url):
            pass
    finally:
        server.stop()
        thread.join(10)
    assert not thread.is_alive()
