"""One connection to the cloud for all requests of an edge: kept up, shared by channel, its bytes counted.

`CloudConnection` dials when a request needs it, dials again when the link is lost while requests wait for it, and tells
each of them (`LinkUp`, `LinkDown`, `MessageReceived`, `Uploaded`). What a session does then is its own decision.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
from collections.abc import Callable
from time import perf_counter

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from edgedraft.config import EdgeConfig
from edgedraft.core.events import EdgeEvent, LinkDown, LinkUp, MessageReceived, SendToCloud, Uploaded
from edgedraft.edge.handshake import Dialled, Vocabulary, dial, misheard
from edgedraft.edge.outbox import Outbox
from edgedraft.errors import CloudUnreachableError, EdgedraftError, LinkLostError, ProtocolError, SaturatedError
from edgedraft.protocol.codec import decode_from_cloud, error_from_wire, wire_size_bytes
from edgedraft.protocol.messages import Error, Probed, Welcome
from edgedraft.speech_features import FeatureSpec

FIRST_PATIENCE_S = 0.5
FIRST_DELAY_S = 0.05
MAX_DELAY_S = 2.0
FLUSH_TIMEOUT_S = 1.0
HOLD_OFF_S = 5.0
"""A cloud that never was there, and said nothing for `connect_timeout_s`, is not waited for again so soon."""


class SessionLink:
    """One request's end of the connection. Lives until `detach`, over any number of reconnections.

    `on_event` hears of the link, `on_failure` of the error that no waiting will heal; both on the event loop, and
    neither may raise. `promised`: the target that the answer is to come from, as it was when the request was planned;
    None until the first link is up. `features`: what of a recording it will be given; None: it is asked for text.
    `bytes_up`, `bytes_down`: WebSocket headers and payloads of its messages.
    """

    def __init__(
        self,
        connection: CloudConnection,
        on_event: Callable[[EdgeEvent], None],
        on_failure: Callable[[EdgedraftError], None],
        promised: Welcome | None,
        features: FeatureSpec | None,
    ) -> None:
        self._connection = connection
        self.on_event = on_event
        self.on_failure = on_failure
        self.promised = promised
        self.features = features
        self.channel: int | None = None
        self.bytes_up = 0
        self.bytes_down = 0

    def send(self, command: SendToCloud) -> None:
        """Queue a message; without a link it is dropped, since `LinkUp` starts the exchange anew."""
        if self.channel is None:
            return
        queued_s = perf_counter()

        def sent() -> None:
            if command.asks:
                self.on_event(Uploaded(perf_counter() - queued_s))

        def dropped(payload_bytes: int) -> None:
            self.bytes_up -= wire_size_bytes(payload_bytes, masked=True)

        payload_bytes = self._connection.outbox.put(self.channel, command.message, sent, dropped)
        # Counted now: the account of an answer may be made before its last messages have left.
        self.bytes_up += wire_size_bytes(payload_bytes, masked=True)

    def detach(self) -> None:
        """The request is over. What it has queued is still sent. Safe to repeat."""
        self._connection.detach(self)


class CloudConnection:
    """See the module. `vocabulary` is compared at each handshake; None skips that (then nothing can be drafted)."""

    def __init__(self, config: EdgeConfig, vocabulary: Vocabulary | None, *, rng: random.Random | None = None) -> None:
        self.config = config
        self.outbox = Outbox()
        self._rtt_s = 0.0
        self._vocabulary = vocabulary
        self._rng = rng or random.Random()  # noqa: S311 (spreads reconnections, guards nothing)
        self._welcome: Welcome | None = None
        self._socket: ClientConnection | None = None
        self._links: list[SessionLink] = []
        self._by_channel: dict[int, SessionLink] = {}
        self._next_channel = 0
        self._keeper: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Welcome]
        self._held_off_until_s = 0.0

    # -- for requests --------------------------------------------------------------------------------------------------

    async def welcome(self) -> Welcome:
        """What the cloud said of itself; connects first where there is no link.

        Raises `CloudUnreachableError` after `connect_timeout_s`, and what `handshake.dial` raises.
        """
        if self._socket is not None and self._welcome is not None:
            return self._welcome
        self._ensure_keeper()
        try:
            async with asyncio.timeout(self.config.connect_timeout_s):
                return await asyncio.shield(self._ready)
        except TimeoutError:
            raise CloudUnreachableError(
                f"the cloud at {self.config.url} did not answer within {self.config.connect_timeout_s:g} s.",
                remedy="Check that it runs and can be reached.",
            ) from None

    @property
    def last_welcome(self) -> Welcome | None:
        """What the cloud said of itself when it was last reached; None before that."""
        return self._welcome

    def attach(
        self,
        on_event: Callable[[EdgeEvent], None],
        on_failure: Callable[[EdgedraftError], None],
        promised: Welcome | None = None,
        features: FeatureSpec | None = None,
    ) -> SessionLink:
        """Take part in the connection. `LinkUp` follows as soon as the link is up, never before this returns.

        A target that does not listen to `features`, or listens where there are none, is a failure before anything of
        the request has left.
        """
        link = SessionLink(self, on_event, on_failure, promised, features)
        self._links.append(link)
        self._ensure_keeper()
        asyncio.get_running_loop().call_soon(self._tell_up, link)
        return link

    def detach(self, link: SessionLink) -> None:
        if link in self._links:
            self._links.remove(link)
        if link.channel is not None:
            self._by_channel.pop(link.channel, None)

    async def close(self) -> None:
        """Send what is queued, then leave. Requests must have ended."""
        if self._socket is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_TIMEOUT_S):
                    await self.outbox.drained()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._refuse(EdgedraftError("the client was closed before it reached the cloud."))

    # -- keeping the link ------------------------------------------------------------------------------------------

    def _ensure_keeper(self) -> None:
        if self._keeper is None or self._keeper.done():
            self._ready = asyncio.get_running_loop().create_future()
            self._keeper = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        """Dial and serve; dial again as long as requests wait for the link."""
        error: EdgedraftError
        try:
            # Nobody may be there at all, which is to be said soon. A cloud that was there may be restarting.
            patience_s = FIRST_PATIENCE_S if self._welcome is None else self.config.connect_timeout_s
            while True:
                self._come_up(dialled := await self._dial(patience_s))
                try:
                    await self._serve(dialled.socket)
                finally:
                    self._go_down()
                if not self._links:
                    return
                patience_s = self.config.reconnect_timeout_s
        except EdgedraftError as failure:
            error = failure
        except Exception as failure:  # whatever ends this task must be told, or every request waits for ever
            error = EdgedraftError(f"the connection to the cloud broke down ({type(failure).__name__}: {failure}).")
        self._refuse(error)
        self._fail_all(error if self._welcome is None else _for_running_requests(error, self.config))

    async def _dial(self, patience_s: float) -> Dialled:
        """Try until it works, with growing pauses and jitter, while errors are such that waiting can heal them."""
        started_s = perf_counter()
        if started_s < self._held_off_until_s:
            raise CloudUnreachableError(
                f"the cloud at {self.config.url} has just not answered.",
                remedy="Check that it runs and can be reached.",
            )
        try:
            return await self._dial_patiently(patience_s, started_s)
        except CloudUnreachableError:
            now_s = perf_counter()
            if self._welcome is None and now_s - started_s >= self.config.connect_timeout_s:
                self._held_off_until_s = now_s + HOLD_OFF_S
            raise

    async def _dial_patiently(self, patience_s: float, started_s: float) -> Dialled:
        delay_s = FIRST_DELAY_S
        while True:
            try:
                return await dial(self.config, self._vocabulary, timeout_s=self.config.connect_timeout_s)
            except SaturatedError as error:
                pause_s = error.retry_after_s
                patience_s = max(patience_s, self.config.connect_timeout_s)
                if perf_counter() + pause_s - started_s > patience_s:
                    raise
            except EdgedraftError as error:
                pause_s = delay_s * self._rng.uniform(0.5, 1.0)
                if not error.retryable or perf_counter() + pause_s - started_s > patience_s:
                    raise
            await asyncio.sleep(pause_s)
            delay_s = min(2 * delay_s, MAX_DELAY_S)

    def _come_up(self, dialled: Dialled) -> None:
        self._welcome, self._socket, self._rtt_s = dialled.welcome, dialled.socket, dialled.rtt_s
        self.outbox = Outbox()
        self._next_channel = 0
        self._ready.set_result(dialled.welcome)
        for link in list(self._links):
            self._tell_up(link)

    def _go_down(self) -> None:
        self._socket = None
        self.outbox.discard()
        self._by_channel.clear()
        self._ready = asyncio.get_running_loop().create_future()
        for link in list(self._links):
            if link.channel is not None:
                link.channel = None
                link.on_event(LinkDown())

    def _tell_up(self, link: SessionLink) -> None:
        """Give the request its channel. Channels are never used twice on a connection: late messages find nobody."""
        if self._socket is None or self._welcome is None or link.channel is not None or link not in self._links:
            return
        link.promised = link.promised or self._welcome
        refusal = _other_target(link.promised, self._welcome) or misheard(self._welcome, link.features)
        if refusal is not None:
            self.detach(link)
            link.on_failure(refusal)
            return
        link.channel = self._next_channel
        self._next_channel += 1
        self._by_channel[link.channel] = link
        link.on_event(LinkUp(link.channel, self._socket.latency or self._rtt_s))

    def _refuse(self, error: EdgedraftError) -> None:
        """Tell whoever waits for the cloud's welcome, which may be nobody."""
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()

    def _fail_all(self, error: EdgedraftError) -> None:
        for link in list(self._links):
            self.detach(link)
            link.on_failure(error)

    # -- traffic ---------------------------------------------------------------------------------------------------

    async def _serve(self, socket: ClientConnection) -> None:
        """Move messages both ways until the link is lost. Raises what makes going on pointless."""
        sender = asyncio.create_task(self._send_queued(socket))
        try:
            async for frame in socket:
                self._dispatch(frame)
        except ConnectionClosed as error:
            codes = {close.code for close in (error.rcvd, error.sent) if close is not None}
            if codes & _PROTOCOL_CLOSE_CODES:
                raise ProtocolError(f"the cloud and this edge broke off: {error}.") from None
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
            await socket.close()

    async def _send_queued(self, socket: ClientConnection) -> None:
        outbox = self.outbox
        with contextlib.suppress(ConnectionClosed):
            while True:
                outgoing = await outbox.take()
                await socket.send(outgoing.payload)
                outgoing.sent()
                if outgoing.heavy:
                    asyncio.ensure_future(await socket.ping()).add_done_callback(
                        functools.partial(_piece_answered, outbox)
                    )

    def _dispatch(self, frame: bytes | str) -> None:
        message = decode_from_cloud(frame)
        if isinstance(message, Welcome | Probed):
            raise ProtocolError(f"the cloud sent {type(message).__name__} after the handshake.")
        if isinstance(message, Error) and message.channel is None:
            raise error_from_wire(message)
        link = self._by_channel.get(-1 if message.channel is None else message.channel)
        if link is not None:
            link.bytes_down += wire_size_bytes(len(frame), masked=False)
            link.on_event(MessageReceived(message))


def _piece_answered(outbox: Outbox, pong: asyncio.Future[float]) -> None:
    if not pong.cancelled() and pong.exception() is None:
        outbox.answered(pong.result())


_PROTOCOL_CLOSE_CODES = {1002, 1003, 1007, 1008, 1009}
"""Broken frames, refused data, policy, too big: a new connection would end in the same way."""


def _other_target(before: Welcome, after: Welcome) -> EdgedraftError | None:
    """A text begun by one model is not finished by another, nor by the same one in another quantisation or engine."""
    if before.fingerprint != after.fingerprint or before.model != after.model:
        change = f"another model ('{after.model}' instead of '{before.model}')"
    elif before.exactness != after.exactness:
        change = f"the same model computed otherwise (now: {after.exactness.depends_on})"
    else:
        return None
    return LinkLostError(f"the cloud came back with {change}, so this answer cannot be finished.", remedy="Ask again.")


def _for_running_requests(error: EdgedraftError, config: EdgeConfig) -> EdgedraftError:
    if isinstance(error, CloudUnreachableError):
        return LinkLostError(
            f"the link was lost and did not come back within {config.reconnect_timeout_s:g} s: {error.message}",
            remedy=error.remedy,
        )
    return error
