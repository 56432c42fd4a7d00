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
from edgedraft.protocol.messages import Cancel, Close, Draft, Features, FromEdge, Open, OpenIds

_BULK = (Open, OpenIds, Features)
LIGHT_BYTES = 2048
PROMPT_S = 1.0
"""A piece that is answered within this time makes room for one more at once; a later one takes the room away."""


@dataclass(frozen=True, slots=True, eq=False)
class Outgoing:
    """One encoded message. `sent` is called once the link has taken it, or `dropped` once it is certain not to leave.

    `heavy`: its arrival is to be waited for. `continues`: a further piece. `draft`: the message, where it is one.
    """

    channel: int
    payload: bytes
    heavy: bool
    continues: bool
    draft: Draft | None
    sent: Callable[[], None]
    dropped: Callable[[int], None]


class Outbox:
    """Two queues with one order per channel.

    A message overtakes the bulk of other channels, never what its own channel queued before it. `Cancel` and `Close`
    make the rest of their own channel's prompt pointless, a draft of a new epoch those of older ones: they are dropped.
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

    def put(self, channel: int, message: FromEdge, sent: Callable[[], None], dropped: Callable[[int], None]) -> int:
        """Queue a message; the size of its payload in bytes, which `dropped` is told again if it never leaves.

        Raises `FrameTooLargeError` where it is above the bound of a frame.
        """
        draft = message if isinstance(message, Draft) else None
        payload, bulk, continues = encode(message), isinstance(message, _BULK), isinstance(message, OpenIds | Features)
        outgoing = Outgoing(channel, payload, bulk and not _is_light(message, payload), continues, draft, sent, dropped)
        if isinstance(message, Cancel | Close):
            self._drop_pieces(channel)
        elif isinstance(message, Draft):
            self._drop_stale(message)
        if bulk or self._bulk_of[channel]:
            self._bulk.append(outgoing)
            self._bulk_of[channel] += 1
        else:
            self._urgent.append(outgoing)
        self._filled.set()
        self._empty.clear()
        return len(payload)

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

    def _drop_stale(self, newer: Draft) -> None:
        """Drafts of an epoch that is over, if the link has not taken them: the cloud would throw them away."""
        stale = [out for out in self._urgent if out.draft is not None and _replaces(newer, out.draft)]
        if stale:
            self._urgent = deque(out for out in self._urgent if out not in stale)
            for outgoing in stale:
                outgoing.dropped(len(outgoing.payload))

    def discard(self) -> None:
        """The link is gone: nothing of this leaves."""
        for outgoing in (*self._urgent, *self._bulk):
            outgoing.dropped(len(outgoing.payload))
        self._urgent.clear()
        self._bulk.clear()

    async def drained(self) -> None:
        """Wait until everything has been taken and the taker asks for more."""
        await self._empty.wait()

    def _drop_pieces(self, channel: int) -> None:
        if not self._bulk_of[channel]:
            return
        pointless = [out for out in self._bulk if out.channel == channel and out.continues]
        self._bulk_of[channel] -= len(pointless)
        self._bulk = deque(out for out in self._bulk if out not in pointless)
        for outgoing in pointless:
            outgoing.dropped(len(outgoing.payload))


def _replaces(newer: Draft, older: Draft) -> bool:
    return newer.channel == older.channel and (newer.incarnation, newer.epoch) > (older.incarnation, older.epoch)


def _is_light(message: FromEdge, payload: bytes) -> bool:
    """What is short and in one piece holds nothing up, and goes without being waited for."""
    if isinstance(message, Features):
        return len(payload) <= LIGHT_BYTES
    whole = isinstance(message, Open) and len(message.token_ids) == message.num_prompt + message.num_committed
    return whole and len(payload) <= LIGHT_BYTES
