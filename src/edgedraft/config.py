"""Configuration as frozen values, parsed once and passed down. The only reader of the environment."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from edgedraft.errors import InvalidRequestError

DEFAULT_PORT = 8765
DEFAULT_URL = f"ws://127.0.0.1:{DEFAULT_PORT}/v1/edgedraft"


def _positive(field: str, value: float) -> None:
    if not value > 0:
        raise InvalidRequestError(f"{field} is {value}; legal: above 0.", field=field)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudConfig:
    """How a cloud serves. Times in seconds.

    `token_sha256`: hex digests of the accepted tokens; empty: no authentication. `session_expiry_s`: how long a session
    without a connection keeps its log and KV. `max_pending_tokens`: unjudged draft ids held per session.
    `assist_lead_tokens`: how far the target writes past what the edge has confirmed when it writes by itself.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    token_sha256: tuple[str, ...] = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False
    max_sessions: int = 8
    session_expiry_s: float = 60.0
    max_pending_tokens: int = 256
    assist_lead_tokens: int = 64
    ping_interval_s: float = 10.0
    ping_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InvalidRequestError(f"port is {self.port}; legal: 0 (any free one) to 65535.", field="port")
        for field in (
            "max_sessions",
            "session_expiry_s",
            "max_pending_tokens",
            "assist_lead_tokens",
            "ping_interval_s",
            "ping_timeout_s",
        ):
            _positive(field, getattr(self, field))
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidRequestError("tls_cert and tls_key go together; one is missing.", field="tls_cert")


def _check_url(url: str) -> None:
    """Raises for what no waiting will heal."""
    if not url.startswith(("ws://", "wss://")):
        raise InvalidRequestError(f"url is '{url}'; legal: ws://HOST:PORT/v1/edgedraft or wss://...", field="url")
    try:
        address = urlsplit(url)
        host, _ = (address.hostname or "").encode("idna"), address.port
        reason = "it names no host" if not host else "nothing may follow a '#'" if address.fragment else ""
    except ValueError as error:  # a UnicodeError too
        reason = str(error)
    if reason:
        raise InvalidRequestError(
            f"url '{url}' is no address: {reason}.",
            field="url",
            remedy="Write ws://HOST:PORT/v1/edgedraft or wss://...",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeConfig:
    """How an edge reaches its cloud. Times in seconds.

    `connect_timeout_s`: how long the first connection of a client may take before the cloud counts as not there.
    `reconnect_timeout_s`: how long a request waits for a lost link before it fails. `silence_s`: the least time
    without an answer after which the session is resumed (docs/protocol.md, rule 6).
    """

    url: str = DEFAULT_URL
    token: str | None = None
    tls_ca: Path | None = None
    connect_timeout_s: float = 10.0
    reconnect_timeout_s: float = 120.0
    silence_s: float = 2.0
    ping_interval_s: float = 10.0
    ping_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        _check_url(self.url)
        if self.token and not (self.token.isascii() and self.token.isprintable()):
            raise InvalidRequestError(  # the token is not repeated: errors end in logs
                "token holds a line end or another character that a header cannot carry.",
                field="token",
                remedy="Give the token alone, in ASCII (--token, EDGEDRAFT_TOKEN).",
            )
        for field in ("connect_timeout_s", "reconnect_timeout_s", "silence_s", "ping_interval_s", "ping_timeout_s"):
            _positive(field, getattr(self, field))


@dataclass(frozen=True, slots=True)
class Environment:
    """What the environment says. Flags override it.

    `EDGEDRAFT_URL`, `EDGEDRAFT_TOKEN`, `EDGEDRAFT_CACHE` (models and other made files; default
    `$XDG_CACHE_HOME/edgedraft` or `~/.cache/edgedraft`), `EDGEDRAFT_DEBUG` (anything but empty or 0: print the
    traceback of an unexpected error).
    """

    url: str | None
    token: str | None
    cache_dir: Path
    debug: bool = False


def read_environment() -> Environment:
    cache = os.environ.get("EDGEDRAFT_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Environment(
        url=os.environ.get("EDGEDRAFT_URL") or None,
        token=os.environ.get("EDGEDRAFT_TOKEN") or None,
        cache_dir=Path(cache) if cache else Path(base) / "edgedraft",
        debug=os.environ.get("EDGEDRAFT_DEBUG", "") not in ("", "0"),
    )


_SIZE = re.compile("[1-9][0-9]{0,3}")


def forget_unusable_sizes() -> None:
    """COLUMNS and LINES tell libraries how large the terminal is.

    With 0, or no number, they print nothing or fail, and with a large one without end.
    """
    for name in ("COLUMNS", "LINES"):
        if name in os.environ and not _SIZE.fullmatch(os.environ[name]):
            del os.environ[name]
