"""What waits for the link: drafts and verdict requests before the pieces of long prompts, and those one by one.

A piece leaves only when few enough before it are unanswered: what has left can no longer be overtaken, and on a slow
link it would hold up pings until the link counts as dead.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from edgedraft.protocol.codec import encode
from edgedraft.protocol.messages import Cancel, Close, Features, FromEdge, Open, OpenIds

_BULK = (Open, OpenIds, Features)
LIGHT_BYTES = 2048
PROMPT_S = 1.0
"""A piece that is answered within this time makes room for one more at once; a later one takes the room away."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One encoded message. `sent` is called once the link has taken it. `heavy`: its arrival is to be waited for."""

    channel: int
    payload: bytes
    heavy: bool
    continues: bool
    sent: Callable[[int], None]


class Outbox:
    """Two queues with one order per channel.

    A message overtakes the bulk of other channels, never what its own channel queued before it. `Cancel` and `Close`
    make the rest of their own channel's prompt pointless, so those pieces are dropped.
    """

    def __init__(self) -> None:
        self._urgent: deque[Outgoing] = deque()
        self._bulk: deque[Outgoing] = deque()
        self._bulk_of: Counter[int] = Counter()
        self._num_under_way = 0
        self._room = 1
        self._filled = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def put(self, channel: int, message: FromEdge, sent: Callable[[int], None]) -> None:
        """Queue a message; `sent` is told the size of its payload in bytes.

        Raises `FrameTooLargeError` where it is above the bound of a frame.
        """
        payload, bulk, continues = encode(message), isinstance(message, _BULK), isinstance(message, OpenIds | Features)
        outgoing = Outgoing(channel, payload, bulk and not _is_light(message, payload), continues, sent)
        if isinstance(message, Cancel | Close):
            self._drop_pieces(channel)
        if bulk or self._bulk_of[channel]:
            self._bulk.append(outgoing)
            self._bulk_of[channel] += 1
        else:
            self._urgent.append(outgoing)
        self._filled.set()
        self._empty.clear()

    @property
    def empty(self) -> bool:
        return not self._urgent and not self._bulk

    async def take(self) -> Outgoing:
        """The next message to send; waits for one."""
        while True:
            if self._urgent:
                return self._urgent.popleft()
            if self._bulk and self._num_under_way < self._room:
                outgoing = self._bulk.popleft()
                self._bulk_of[outgoing.channel] -= 1
                self._num_under_way += outgoing.heavy
                return outgoing
            self._filled.clear()
            if not self._bulk:
                self._empty.set()
            await self._filled.wait()

    def answered(self, after_s: float) -> None:
        """A piece has arrived; its answer took `after_s`. The room doubles with each prompt round trip."""
        self._num_under_way -= 1
        self._room = self._room + 1 if after_s <= PROMPT_S else 1
        self._filled.set()

    async def drained(self) -> None:
        """Wait until everything has been taken and the taker asks for more."""
        await self._empty.wait()

    def _drop_pieces(self, channel: int) -> None:
        if not self._bulk_of[channel]:
            return
        kept = deque(out for out in self._bulk if not (out.channel == channel and out.continues))
        self._bulk_of[channel] -= len(self._bulk) - len(kept)
        self._bulk = kept


def _is_light(message: FromEdge, payload: bytes) -> bool:
    """A short prompt in one piece holds nothing up, and goes without being waited for."""
    whole = isinstance(message, Open) and len(message.token_ids) == message.num_prompt + message.num_committed
    return whole and len(payload) <= LIGHT_BYTES
