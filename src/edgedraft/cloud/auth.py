"""Who may talk to the cloud: static bearer tokens, kept as SHA-256 digests, and the rule about public addresses."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import re
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from edgedraft.config import CloudConfig
from edgedraft.errors import AuthError, InsecureBindError, InvalidRequestError

ANONYMOUS = "anonymous"
SUBJECT_KEY = "edgedraft.subject"
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")


def hash_token(token: str) -> str:
    """The hex digest that goes into `CloudConfig.token_sha256`. Raises `InvalidRequestError` for an empty token."""
    if not token.strip():
        raise InvalidRequestError("token is empty.", field="token", remedy="Make one with `openssl rand -hex 32`.")
    return hashlib.sha256(token.strip().encode()).hexdigest()


def check_tokens(token_sha256: Sequence[str]) -> None:
    """Raises `InvalidRequestError` where an entry is not a digest; it is not repeated, as it may be a token."""
    for number, digest in enumerate(token_sha256):
        if not _DIGEST.fullmatch(digest):
            raise InvalidRequestError(
                f"token_sha256[{number}] is not a SHA-256 digest; legal: 64 hexadecimal digits.",
                field="token_sha256",
                remedy="Give the digest of the token (`printf %s TOKEN | sha256sum`), not the token.",
            )


def subject_of(authorization: str, token_sha256: Sequence[str]) -> str:
    """Who sent this `Authorization` header: a name for the token, or `ANONYMOUS` where none is configured.

    Takes the same time for every wrong token. Raises `AuthError` for a missing or wrong one.
    """
    if not token_sha256:
        return ANONYMOUS
    scheme, _, token = authorization.partition(" ")
    given = hashlib.sha256(token.strip().encode()).hexdigest()
    matches = [hmac.compare_digest(given, digest.lower()) for digest in token_sha256]
    if scheme.lower() != "bearer" or not any(matches):
        raise AuthError("The token is missing or wrong.", remedy="Give the cloud's token (EDGEDRAFT_TOKEN, --token).")
    return given


class TokenGate:
    """ASGI middleware: every route, known or not, HTTP or WebSocket, answers 401 without a valid token."""

    def __init__(self, app: ASGIApp, *, token_sha256: Sequence[str]) -> None:
        self._app = app
        self._token_sha256 = tuple(token_sha256)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            scope[SUBJECT_KEY] = subject_of(Headers(scope=scope).get("authorization", ""), self._token_sha256)
        except AuthError as error:
            await _deny(scope, send, error)
            return
        await self._app(scope, receive, send)


async def _deny(scope: Scope, send: Send, error: AuthError) -> None:
    prefix = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    body = json.dumps({"error": {"code": error.code, "message": error.message, "remedy": error.remedy}}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"www-authenticate", b"Bearer"),
    ]
    await send({"type": f"{prefix}.start", "status": error.http_status, "headers": headers})
    await send({"type": f"{prefix}.body", "body": body})


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`. Names other than localhost count as public."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_bind(config: CloudConfig) -> None:
    """Raises `InsecureBindError` where a public address would be served without both a token and TLS."""
    if config.insecure or is_loopback(config.host):
        return
    missing = []
    if not config.token_sha256:
        missing.append("a token (--token)")
    if config.tls_cert is None:
        missing.append("TLS (--tls-cert and --tls-key)")
    if missing:
        raise InsecureBindError(
            f"host is '{config.host}', which others can reach, without {' and '.join(missing)}.",
            remedy="Give what is missing, bind to 127.0.0.1, or say --insecure.",
        )
