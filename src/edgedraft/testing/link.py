"""A bad network on one machine: a TCP relay that delays, throttles, stalls and cuts what passes through it.

    async with LinkEmulator("127.0.0.1", cloud_port, LinkProfile.symmetric(rtt_s=0.1), seed=7) as link:
        client = await connect(f"ws://{link.host}:{link.port}/v1/edgedraft")

`running_link` is the same for blocking code. When each burst is delivered is computed in `sim.network`; the relay
only obeys.
"""
# ruff: noqa: S311 - a bad network needs no cryptographic randomness

from __future__ import annotations

import asyncio
import collections
import contextlib
import math
import random
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from types import TracebackType
from typing import Self, TypeVar

from edgedraft.sim.network import LinkProfile, Way, schedules

CHUNK_BYTES = 65_536
DEFAULT_BUFFER_BYTES = 1 << 20
_TIMER_STEP_S = 0.002
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

_T = TypeVar("_T")


Tap = Callable[[Way, bytes], None]


# -- the relay -------------------------------------------------------------------------------------------------------


class _Pipe:
    """Bursts under way on one connection in one direction: in order, at most `limit_bytes` or one burst."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
        self._bursts: collections.deque[tuple[float, bytes | None]] = collections.deque()
        self._changed = asyncio.Condition()

    async def wait_for_room(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._held_bytes < self._limit_bytes)

    async def put(self, due_s: float, data: bytes | None) -> None:
        async with self._changed:
            self._bursts.append((due_s, data))
            self._held_bytes += len(data or b"")
            self._changed.notify_all()

    async def get(self) -> tuple[float, bytes | None]:
        async with self._changed:
            await self._changed.wait_for(lambda: bool(self._bursts))
            return self._bursts.popleft()

    async def delivered(self, size_bytes: int) -> None:
        async with self._changed:
            self._held_bytes -= size_bytes
            self._changed.notify_all()


class LinkEmulator:
    """The relay, on the running event loop. Enter it to listen on `host:port`; leave it to close everything.

    `buffer_bytes`: how much may be under way for each connection and direction before its sender is held back, so
    throughput is at most `buffer_bytes / delay_s`. `tap` sees what is delivered. `bytes_up`, `bytes_down` count it.
    The TCP handshake itself is not delayed. An upstream that refuses shows as a reset.
    """

    def __init__(
        self,
        upstream_host: str,
        upstream_port: int,
        profile: LinkProfile | None = None,
        *,
        seed: int = 0,
        host: str = "127.0.0.1",
        port: int = 0,
        buffer_bytes: int = DEFAULT_BUFFER_BYTES,
        tap: Tap | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.num_connections = 0
        self.num_cuts = 0
        self._upstream = (upstream_host, upstream_port)
        self._profile = profile or LinkProfile()
        self._schedules, self._stalls = schedules(self._profile, seed)
        self._cut_rng = random.Random(f"{seed} cuts")
        self._buffer_bytes = buffer_bytes
        self._tap = tap
        self._num_bytes = dict.fromkeys(Way, 0)
        self._connections: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._cutter: asyncio.Task[None] | None = None
        self._closed = False
        self._origin_s = 0.0

    @property
    def bytes_up(self) -> int:
        return self._num_bytes[Way.UP]

    @property
    def bytes_down(self) -> int:
        return self._num_bytes[Way.DOWN]

    def cut(self) -> None:
        """Reset every connection; what was under way is lost. New connections are taken."""
        self.num_cuts += 1
        self._reset_all()

    def stall(self, duration_s: float) -> None:
        """Let nothing flow for `duration_s` from now on; what is under way arrives afterwards."""
        self._stalls.add(self._now_s(), duration_s)

    async def __aenter__(self) -> Self:
        self._origin_s = asyncio.get_running_loop().time()
        self._server = await asyncio.start_server(self._accept, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        if self._profile.cut_interval_s < math.inf:
            self._cutter = asyncio.create_task(self._cut_at_random())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        self._server.close()
        tasks = list(self._connections)
        self._reset_all()
        if self._cutter is not None:
            self._cutter.cancel()
            tasks.append(self._cutter)
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time() - self._origin_s

    async def _cut_at_random(self) -> None:
        while True:
            await asyncio.sleep(self._cut_rng.expovariate(1 / self._profile.cut_interval_s))
            self.cut()

    def _reset_all(self) -> None:
        for task, writers in list(self._connections.items()):
            for writer in writers:
                _reset(writer)
            task.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:
            _reset(writer)
            return
        self.num_connections += 1
        writers = [writer]
        task = asyncio.get_running_loop().create_task(self._serve(reader, writers))
        self._connections[task] = writers
        task.add_done_callback(self._connections.pop)

    async def _serve(self, reader: asyncio.StreamReader, writers: list[asyncio.StreamWriter]) -> None:
        (writer,) = writers
        try:
            up_reader, up_writer = await asyncio.open_connection(*self._upstream)
            writers.append(up_writer)
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._carry(Way.UP, reader, up_writer))
                ways.create_task(self._carry(Way.DOWN, up_reader, writer))
        except OSError:
            _reset(writer)
        finally:
            for each in writers:
                each.close()
            for each in writers:
                with contextlib.suppress(OSError):
                    await each.wait_closed()

    async def _carry(self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction of one connection, to its end. A receiver that is gone is told of by its own direction."""
        pipe = _Pipe(self._buffer_bytes)
        filling = asyncio.create_task(self._fill(way, reader, pipe))
        try:
            with contextlib.suppress(OSError):
                await self._deliver(way, pipe, writer)
        finally:
            filling.cancel()
            await asyncio.gather(filling, return_exceptions=True)

    async def _fill(self, way: Way, reader: asyncio.StreamReader, pipe: _Pipe) -> None:
        data: bytes | None = b"-"
        while data:
            await pipe.wait_for_room()
            try:
                data = await reader.read(CHUNK_BYTES)
            except OSError:
                data = None
            await pipe.put(self._schedules[way].delivery_s(self._now_s(), len(data or b"")), data)

    async def _deliver(self, way: Way, pipe: _Pipe, writer: asyncio.StreamWriter) -> None:
        while True:
            due_s, data = await pipe.get()
            await self._wait_until(due_s)
            if data is None:
                _reset(writer)
                return
            if not data:
                writer.write_eof()
                return
            self._num_bytes[way] += len(data)
            if self._tap is not None:
                self._tap(way, data)
            writer.write(data)
            await writer.drain()
            await pipe.delivered(len(data))

    async def _wait_until(self, due_s: float) -> None:
        """Until `due_s` and the end of any stall begun meanwhile."""
        while (left_s := due_s - self._now_s()) > 0:
            # Event loops are up to 2 ms late with timers: sleep short of the end, then poll.
            await asyncio.sleep(max(0.0, left_s - _TIMER_STEP_S))
            due_s = self._stalls.release_s(due_s)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with a TCP reset and without sending what is buffered."""
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()


# -- for blocking code -----------------------------------------------------------------------------------------------


class RunningLink:
    """A `LinkEmulator` on its own thread; every method may be called from any thread."""

    def __init__(self, emulator: LinkEmulator, loop: asyncio.AbstractEventLoop) -> None:
        self._emulator = emulator
        self._loop = loop
        self.host = emulator.host
        self.port = emulator.port

    @property
    def bytes_up(self) -> int:
        return self._emulator.bytes_up

    @property
    def bytes_down(self) -> int:
        return self._emulator.bytes_down

    @property
    def num_connections(self) -> int:
        return self._emulator.num_connections

    def cut(self) -> None:
        self._call(self._emulator.cut)

    def stall(self, duration_s: float) -> None:
        self._call(lambda: self._emulator.stall(duration_s))

    def _call(self, action: Callable[[], None]) -> None:
        async def act() -> None:
            action()

        asyncio.run_coroutine_threadsafe(act(), self._loop).result()


@contextlib.contextmanager
def running_link(
    upstream_host: str,
    upstream_port: int,
    profile: LinkProfile | None = None,
    *,
    seed: int = 0,
    host: str = "127.0.0.1",
    port: int = 0,
    buffer_bytes: int = DEFAULT_BUFFER_BYTES,
    tap: Tap | None = None,
) -> Iterator[RunningLink]:
    """`LinkEmulator` on a thread of its own, for blocking code. `tap` is called on that thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="link-emulator", daemon=True)
    emulator = LinkEmulator(
        upstream_host,
        upstream_port,
        profile,
        seed=seed,
        host=host,
        port=port,
        buffer_bytes=buffer_bytes,
        tap=tap,
    )

    def wait(step: Awaitable[_T]) -> _T:
        async def run() -> _T:
            return await step

        return asyncio.run_coroutine_threadsafe(run(), loop).result()

    thread.start()
    try:
        wait(emulator.__aenter__())
        try:
            yield RunningLink(emulator, loop)
        finally:
            wait(emulator.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
