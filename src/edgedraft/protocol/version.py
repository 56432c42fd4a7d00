"""Which protocol version a peer speaks. A version is one exact set of messages: there is nothing to negotiate."""

from __future__ import annotations

from edgedraft.errors import VersionError
from edgedraft.protocol.messages import PROTOCOL_VERSION


def check_version(version: int) -> None:
    """Raises `VersionError`, with both versions and what to do, for a peer of another version."""
    if version != PROTOCOL_VERSION:
        raise version_error(version)


def version_error(version: int) -> VersionError:
    older = "this side is" if version > PROTOCOL_VERSION else "the other side is"
    return VersionError(
        f"version is {version}, but this side speaks protocol version {PROTOCOL_VERSION}.",
        remedy=f"Install the same edgedraft on edge and cloud; {older} the older one.",
    )
