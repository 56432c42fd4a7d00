"""The first seconds of a connection: reach the cloud, speak its version, share its vocabulary, or say why not."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from time import perf_counter
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidProxy, InvalidStatus, InvalidURI

from edgedraft.backends.base import Tokenizer
from edgedraft.config import EdgeConfig
from edgedraft.errors import (
    AuthError,
    CloudUnreachableError,
    EdgedraftError,
    ProtocolError,
    SaturatedError,
    UnsupportedError,
    VocabularyMismatchError,
)
from edgedraft.protocol.codec import decode_from_cloud, encode, error_from_wire
from edgedraft.protocol.fingerprint import Difference, compare, fingerprint, first_difference, id_hashes
from edgedraft.protocol.messages import (
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    Error,
    Fingerprint,
    FromCloud,
    Hello,
    Probe,
    Probed,
    Welcome,
)
from edgedraft.protocol.version import check_version
from edgedraft.speech_features import FeatureSpec

CLIENT_NAME = "edgedraft-python"
CLOSE_TIMEOUT_S = 2.0
WRITE_BUFFER_BYTES = 16_384
"""Bytes that may wait behind a message inside this process and the kernel; more would delay a draft."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The edge's tokenizer and its fingerprint, which is computed once."""

    tokenizer: Tokenizer
    fingerprint: Fingerprint

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Vocabulary:
        return cls(tokenizer, fingerprint(tokenizer))


@dataclass(frozen=True, slots=True)
class Dialled:
    """An open connection whose handshake is done. `rtt_s`: one message there and back."""

    socket: ClientConnection
    welcome: Welcome
    rtt_s: float


async def dial(config: EdgeConfig, vocabulary: Vocabulary | None, *, timeout_s: float) -> Dialled:
    """Connect and shake hands.

    Raises `InvalidRequestError` (url, token), `CloudUnreachableError`, `AuthError`, `SaturatedError`, `VersionError`,
    `VocabularyMismatchError`, or another `EdgedraftError` that the cloud gave as its answer.
    """
    try:
        async with asyncio.timeout(timeout_s):
            link = await _connect(config)
            try:
                return await _shake_hands(link, vocabulary)
            except BaseException:
                link.transport.abort()
                raise
    except TimeoutError:
        raise CloudUnreachableError(
            f"the cloud at {config.url} did not answer within {timeout_s:g} s.", remedy=_CHECK_CLOUD
        ) from None
    except ConnectionClosed as error:
        raise CloudUnreachableError(
            f"the cloud at {config.url} closed the connection during the handshake ({error.rcvd or error}).",
            remedy=_CHECK_CLOUD,
        ) from None


_CHECK_CLOUD = "Start one with `edgedraft cloud --model SPEC`, or check the address (--url, EDGEDRAFT_URL)."


async def _connect(config: EdgeConfig) -> ClientConnection:
    headers = {"Authorization": f"Bearer {config.token}"} if config.token else None
    try:
        link = await connect(
            config.url,
            additional_headers=headers,
            compression=None,
            proxy=None if is_loopback(config.url) else True,
            ssl=_tls(config),
            open_timeout=None,
            close_timeout=CLOSE_TIMEOUT_S,
            ping_interval=config.ping_interval_s,
            ping_timeout=config.ping_timeout_s,
            max_size=MAX_FRAME_BYTES,
            write_limit=WRITE_BUFFER_BYTES,
        )
    except InvalidStatus as error:
        raise _refused(config.url, error) from None
    except ssl.SSLError as error:
        raise CloudUnreachableError(
            f"TLS with {config.url} failed: {error.reason or error}.",
            remedy="Give the certificate authority with --tls-ca, or check that the cloud serves wss://.",
        ) from None
    except (InvalidHandshake, InvalidProxy, InvalidURI, ImportError) as error:
        raise CloudUnreachableError(
            f"no WebSocket connection to {config.url}: {error}.",
            remedy="Check the address and, if the environment names a proxy, the proxy.",
        ) from None
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise CloudUnreachableError(f"no cloud at {config.url}: {reason}.", remedy=_CHECK_CLOUD) from None
    _keep_queue_short(link)
    return link


def _refused(url: str, error: InvalidStatus) -> EdgedraftError:
    status = error.response.status_code
    if status in (401, 403):
        return AuthError(
            f"the cloud at {url} refused the access token (HTTP {status}).",
            remedy="Give the right one with --token or EDGEDRAFT_TOKEN.",
        )
    if status == 503:
        wait = error.response.headers.get("Retry-After", "")
        return SaturatedError(
            f"the cloud at {url} has no room now.", retry_after_s=float(wait) if wait.isdecimal() else 1.0
        )
    return CloudUnreachableError(
        f"{url} answered HTTP {status}, so there is no edgedraft cloud at this address.",
        remedy="Check the path, which is /v1/edgedraft by default.",
    )


def is_loopback(url: str) -> bool:
    """Whether the host is this machine; then no proxy of the environment can be meant."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _tls(config: EdgeConfig) -> ssl.SSLContext | None:
    if not config.url.startswith("wss://"):
        return None
    try:
        return ssl.create_default_context(cafile=config.tls_ca)
    except (OSError, ssl.SSLError) as error:
        raise CloudUnreachableError(
            f"tls_ca '{config.tls_ca}' cannot be used: {error}.", remedy="It must be a PEM file of certificates."
        ) from None


def _keep_queue_short(link: ClientConnection) -> None:
    """Keep unsent bytes out of the kernel's queue, where a draft could not overtake them."""
    sock = link.transport.get_extra_info("socket")
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if sock is not None and option is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, option, WRITE_BUFFER_BYTES)


async def _shake_hands(link: ClientConnection, vocabulary: Vocabulary | None) -> Dialled:
    sent_s = perf_counter()
    own = vocabulary.fingerprint if vocabulary is not None else None
    await link.send(encode(Hello(version=PROTOCOL_VERSION, client=CLIENT_NAME, fingerprint=own)))
    welcome = await _answer(link)
    rtt_s = perf_counter() - sent_s
    if not isinstance(welcome, Welcome):
        raise ProtocolError(f"the cloud answered Hello with {type(welcome).__name__}.")
    check_version(welcome.version)
    if vocabulary is not None:
        difference = compare(vocabulary.fingerprint, welcome.fingerprint)
        if difference is not None:
            raise await _mismatch(link, vocabulary, welcome, difference)
    return Dialled(link, welcome, rtt_s)


async def _mismatch(
    link: ClientConnection, vocabulary: Vocabulary, welcome: Welcome, difference: Difference
) -> VocabularyMismatchError:
    """Ask for the hashes of single ids until the first differing one is found."""
    first_id = None
    for start, count in difference.probes():
        await link.send(encode(Probe(start=start, count=count)))
        probed = await _answer(link)
        if not isinstance(probed, Probed):
            raise ProtocolError(f"the cloud answered Probe with {type(probed).__name__}.")
        first_id = first_difference(id_hashes(vocabulary.tokenizer, start, count), probed.id_hashes, start)
        if first_id is not None:
            break
    if first_id is None:
        first_id = difference.start + difference.count
    mine, theirs = vocabulary.fingerprint.num_ids, welcome.fingerprint.num_ids
    return VocabularyMismatchError(
        f"the draft's vocabulary is not the target's: id {first_id} is the first that differs "
        f"(draft: {mine} ids; target '{welcome.model}': {theirs} ids).",
        first_id=first_id,
        remedy="Use a draft of the target's own family, with the same tokenizer; there is no override.",
    )


async def _answer(link: ClientConnection) -> FromCloud:
    message = decode_from_cloud(await link.recv())
    if isinstance(message, Error):
        raise error_from_wire(message)
    return message


def misheard(welcome: Welcome, features: FeatureSpec | None) -> EdgedraftError | None:
    """Why a target would not hear what a request is going to send of a recording (`features`; None: it is text)."""
    listening = welcome.features
    if listening is None and features is None:
        return None
    if features is None:
        return UnsupportedError(
            f"the cloud's model '{welcome.model}' listens to speech, and takes no text.",
            field="prompt",
            remedy="Give it a recording: edgedraft caption FILE.",
        )
    if listening is None:
        return UnsupportedError(
            f"features are {features}; the cloud's model '{welcome.model}' takes text only.",
            field="features",
            remedy="Use a cloud that serves a captioner, such as `edgedraft cloud --model captioner:cloud`.",
        )
    heard = (listening.kind, listening.encoder_id, listening.rate_hz, listening.dims)
    if heard == (features.kind, features.encoder_id, features.rate_hz, features.dims):
        return None
    return UnsupportedError(
        f"features are {features}; the target listens to {listening.kind} from '{listening.encoder_id}', "
        f"{listening.dims} values at {listening.rate_hz:g} Hz.",
        field="features",
        remedy="Use a draft and a target that were made for each other, or another feature kind.",
    )
