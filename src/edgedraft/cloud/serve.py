"""Runs the application on a socket until it is told to stop."""

from __future__ import annotations

import contextlib
import signal
import socket
import ssl
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI

from edgedraft.cloud.app import WEBSOCKET_PATH
from edgedraft.cloud.auth import check_bind
from edgedraft.config import CloudConfig
from edgedraft.errors import InvalidRequestError
from edgedraft.protocol.messages import MAX_FRAME_BYTES

SHUTDOWN_TIMEOUT_S = 5
MAX_READ_BYTES = 2 * MAX_FRAME_BYTES
"""Frames between the protocol's bound and this one get an `Error` before the close; larger ones are not read."""

OnReady = Callable[[str], None]


class CloudServer:
    """One application on one socket, which is bound here: a bad address fails before anything runs.

    Raises `InsecureBindError`, and `InvalidRequestError` for an address or certificate that cannot be used.
    """

    def __init__(self, config: CloudConfig, app: FastAPI, on_ready: OnReady | None = None) -> None:
        check_bind(config)
        self._server = _Server(_uvicorn_config(config, app), self._started)
        self._socket = _listen(config)
        self._on_ready = on_ready
        port = self._socket.getsockname()[1]
        host = f"[{config.host}]" if ":" in config.host.strip("[]") else config.host
        scheme = "ws" if config.tls_cert is None else "wss"
        self.port: int = port
        self.url = f"{scheme}://{host}:{port}{WEBSOCKET_PATH}"

    def run(self) -> None:
        """Serve until `stop`, SIGTERM or SIGINT; connections are closed with 1012 and given a few seconds."""
        with contextlib.closing(self._socket):
            self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Ask the server to end; from any thread."""
        self._server.should_exit = True

    def _started(self) -> None:
        if self._on_ready is not None:
            self._on_ready(self.url)


def serve(config: CloudConfig, app: FastAPI, on_ready: OnReady | None = None) -> None:
    """Serve `app` until the process is told to stop.

    `on_ready` is told the WebSocket address, with the real port, once connections are taken; by default it is printed.
    """
    CloudServer(config, app, on_ready or _announce).run()


def _announce(url: str) -> None:
    print(f"listening on {url}", flush=True)  # noqa: T201 - the one line that other programs wait for


class _Server(uvicorn.Server):
    """Tells when it takes connections, and ends quietly on a signal instead of raising it again."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True


def _uvicorn_config(config: CloudConfig, app: FastAPI) -> uvicorn.Config:
    uvicorn_config = uvicorn.Config(
        app,
        ws="websockets-sansio",
        ws_max_size=MAX_READ_BYTES,
        ws_ping_interval=config.ping_interval_s,
        ws_ping_timeout=config.ping_timeout_s,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
        ssl_certfile=config.tls_cert,
        ssl_keyfile=config.tls_key,
    )
    try:
        uvicorn_config.load()
    except (OSError, ssl.SSLError) as error:
        raise InvalidRequestError(
            f"tls_cert '{config.tls_cert}' and tls_key '{config.tls_key}' cannot be used: {error}.",
            field="tls_cert",
            remedy="Give a PEM certificate and its key, without a passphrase.",
        ) from None
    return uvicorn_config


def _listen(config: CloudConfig) -> socket.socket:
    host = config.host.strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _cannot_bind(config, error) from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _drop_stalled_peers(listener, config.ping_interval_s + config.ping_timeout_s)
        listener.bind(address)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _cannot_bind(config, error) from None
    return listener


def _drop_stalled_peers(listener: socket.socket, after_s: float) -> None:
    """Let the kernel drop a peer that takes no bytes: what waits for it could not be flushed for ever after a close."""
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if option is not None:
        listener.setsockopt(socket.IPPROTO_TCP, option, int(after_s * 1000))


def _cannot_bind(config: CloudConfig, error: OSError) -> InvalidRequestError:
    return InvalidRequestError(
        f"host '{config.host}' port {config.port} cannot be bound: {error.strerror or error}.",
        field="port",
        remedy="Stop what uses it, or choose another with --port (0: any free one).",
    )
