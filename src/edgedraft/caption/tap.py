"""A captioning run with a tap in its link, so that every byte that passed can be accounted for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

from edgedraft.caption.capture import CapturedFrame, captured_frames
from edgedraft.config import EdgeConfig
from edgedraft.errors import UnsupportedError
from edgedraft.sim.network import Way
from edgedraft.testing.link import running_link


class Tap:
    """What has passed since the last `take`, on the way to `url`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._chunks: list[tuple[Way, bytes]] = []

    def hear(self, way: Way, data: bytes) -> None:
        self._chunks.append((way, bytes(data)))

    def take(self) -> list[CapturedFrame]:
        """The frames of one connection, from its first byte on."""
        chunks, self._chunks = self._chunks, []
        return captured_frames(chunks)


@contextmanager
def tapped(url: str) -> Iterator[Tap]:
    """A relay in front of the cloud at `url`; connect to the tap's `url` instead, one connection at a time.

    Raises `UnsupportedError` for wss://, into which nobody can look, and `InvalidRequestError` for what is no address.
    """
    address = urlsplit(EdgeConfig(url=url).url)
    if address.scheme != "ws":
        raise UnsupportedError(
            f"url is '{url}'; what passes under TLS cannot be read.",
            field="url",
            remedy="Use a cloud at ws://, such as the one that is started here without --url.",
        )
    tap = Tap(url)
    with running_link(address.hostname or "127.0.0.1", address.port or 80, tap=tap.hear) as link:
        tap.url = urlunsplit(("ws", f"{link.host}:{link.port}", address.path, "", ""))
        yield tap
