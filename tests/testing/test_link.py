"""The link emulator, by what arrives and by lower bounds on time; `tests/sim/test_network` has its schedule exactly."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from edgedraft.sim.network import LinkDirection, LinkProfile, Way
from edgedraft.testing.link import LinkEmulator, running_link

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
CLOCK_S = 1e-3
"""How far two clocks of one machine may be apart."""


# -- relay -----------------------------------------------------------------------------------------------------------


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()


@asynccontextmanager
async def upstream(handler: Handler) -> AsyncIterator[int]:
    """A server on loopback whose connections are all closed at the end, and no task may be left then."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        try:
            await handler(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await server.wait_closed()
    await asyncio.sleep(0.01)
    assert asyncio.all_tasks() == {asyncio.current_task()}, "tasks are left"


async def connect(link: LinkEmulator) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(link.host, link.port)


async def ping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes = b"x") -> float:
    start_s = time.perf_counter()
    writer.write(data)
    assert await reader.readexactly(len(data)) == data
    return time.perf_counter() - start_s


def test_bytes_arrive_intact_in_order_and_counted_on_every_connection() -> None:
    taps: dict[Way, int] = {Way.UP: 0, Way.DOWN: 0}

    def tap(way: Way, data: bytes) -> None:
        taps[way] += len(data)

    async def main() -> None:
        profile = LinkProfile.symmetric(rtt_s=0.004, jitter_s=0.003)
        async with upstream(echo) as port, LinkEmulator("127.0.0.1", port, profile, seed=1, tap=tap) as link:

            async def send(seed: int) -> None:
                reader, writer = await connect(link)
                data = random.Random(seed).randbytes(150_000)
                for start in range(0, len(data), 20_000):
                    writer.write(data[start : start + 20_000])
                    await asyncio.sleep(0)
                assert await reader.readexactly(len(data)) == data
                writer.close()

            await asyncio.gather(*(send(seed) for seed in range(4)))
            assert link.bytes_up == link.bytes_down == taps[Way.UP] == taps[Way.DOWN] == 600_000
            assert link.num_connections == 4

    asyncio.run(main())


def test_round_trip_takes_at_least_the_configured_time() -> None:
    async def main() -> None:
        profile = LinkProfile.symmetric(rtt_s=0.02)
        async with upstream(echo) as port, LinkEmulator("127.0.0.1", port, profile) as link:
            pairs = [await connect(link) for _ in range(3)]
            for _ in range(4):
                assert min(await asyncio.gather(*(ping(*pair) for pair in pairs))) >= 0.02 - CLOCK_S
            for _, writer in pairs:
                writer.close()

    asyncio.run(main())


def test_bandwidth_is_shared_by_all_connections() -> None:
    async def main() -> None:
        profile = LinkProfile(up=LinkDirection(bytes_per_s=1_000_000))
        async with upstream(echo) as port, LinkEmulator("127.0.0.1", port, profile) as link:
            pairs = [await connect(link) for _ in range(2)]
            start_s = time.perf_counter()
            await asyncio.gather(*(ping(*pair, b"x" * 50_000) for pair in pairs))
            assert time.perf_counter() - start_s >= 0.1 - CLOCK_S
            for _, writer in pairs:
                writer.close()

    asyncio.run(main())


def test_stall_lets_nothing_through_until_it_ends() -> None:
    async def main() -> None:
        async with upstream(echo) as port, LinkEmulator("127.0.0.1", port) as link:
            reader, writer = await connect(link)
            await ping(reader, writer)
            link.stall(0.1)
            assert await ping(reader, writer) >= 0.1 - CLOCK_S
            writer.close()

    asyncio.run(main())


def test_stall_holds_what_is_already_under_way() -> None:
    arrivals: list[float] = []

    def tap(way: Way, data: bytes) -> None:
        arrivals.append(time.perf_counter())

    async def main() -> None:
        profile = LinkProfile(up=LinkDirection(delay_s=0.3))
        async with upstream(echo) as port, LinkEmulator("127.0.0.1", port, profile, tap=tap) as link:
            reader, writer = await connect(link)
            reply = asyncio.create_task(ping(reader, writer))
            await asyncio.sleep(0.02)
            stalled_s = time.perf_counter()
            link.stall(0.5)
            await reply
            assert min(arrivals) >= stalled_s + 0.5 - CLOCK_S
            writer.close()

    asyncio.run(main())


def test_cut_resets_both_ends_and_the_next_connection_works() -> None:
    ends: list[str] = []

    async def watch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await echo(reader, writer)
        except ConnectionResetError:
            ends.append("reset")

    async def main() -> None:
        async with upstream(watch) as port, LinkEmulator("127.0.0.1", port) as link:
            reader, writer = await connect(link)
            await ping(reader, writer)
            link.cut()
            with pytest.raises(ConnectionResetError):
                await reader.readexactly(1)
            writer.close()
            again = await connect(link)
            await ping(*again)
            again[1].close()
            assert ends == ["reset"]
            assert (link.num_cuts, link.num_connections) == (1, 2)

    asyncio.run(main())


def test_cut_drops_what_is_under_way() -> None:
    async def main() -> None:
        profile = LinkProfile(up=LinkDirection(delay_s=0.4))
        async with upstream(echo) as port, LinkEmulator("127.0.0.1", port, profile) as link:
            _, writer = await connect(link)
            writer.write(b"lost")
            await asyncio.sleep(0.02)
            link.cut()
            await asyncio.sleep(0.45)
            assert link.bytes_up == 0
            writer.close()

    asyncio.run(main())


def test_random_cuts_happen() -> None:
    async def main() -> None:
        profile = LinkProfile(cut_interval_s=0.005)
        async with upstream(echo) as port, LinkEmulator("127.0.0.1", port, profile, seed=2) as link:
            reader, writer = await connect(link)
            with pytest.raises(ConnectionResetError):
                await reader.readexactly(1)
            writer.close()
            assert link.num_cuts >= 1

    asyncio.run(main())


def test_half_close_passes_and_the_answer_still_comes_back() -> None:
    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.read(-1)
        writer.write(f"{len(data)} bytes".encode())
        await writer.drain()

    async def main() -> None:
        profile = LinkProfile.symmetric(rtt_s=0.01, bytes_per_s=10_000_000)
        async with upstream(count) as port, LinkEmulator("127.0.0.1", port, profile) as link:
            reader, writer = await connect(link)
            writer.write(b"x" * 100_000)
            writer.write_eof()
            assert await reader.read(-1) == b"100000 bytes"
            writer.close()

    asyncio.run(main())


def test_last_bytes_arrive_although_their_sender_is_gone() -> None:
    """The upstream keeps writing to a client that left; what the client had sent must not be lost by that."""
    received = bytearray()
    ended = asyncio.Event()

    async def listen(reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(100):
                received.extend(data)
        ended.set()

    async def chatter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(listen(reader))
            while not ended.is_set():
                writer.write(b"noise")
                await asyncio.sleep(0.02)

    async def main() -> None:
        profile = LinkProfile(up=LinkDirection(delay_s=0.15))
        async with upstream(chatter) as port, LinkEmulator("127.0.0.1", port, profile) as link:
            reader, writer = await connect(link)
            await reader.readexactly(5)
            writer.write(b"goodbye")
            writer.close()
            await asyncio.wait_for(ended.wait(), 10)
            assert received == b"goodbye"

    asyncio.run(main())


def test_reset_is_passed_on_as_a_reset() -> None:
    async def slam(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    async def main() -> None:
        async with upstream(slam) as port, LinkEmulator("127.0.0.1", port) as link:
            reader, writer = await connect(link)
            writer.write(b"x")
            with pytest.raises(ConnectionResetError):
                await reader.readexactly(1)
            writer.close()

    asyncio.run(main())


def test_refusing_upstream_shows_as_a_reset() -> None:
    async def main() -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            async with LinkEmulator("127.0.0.1", free.getsockname()[1]) as link:
                reader, writer = await connect(link)
                with pytest.raises(ConnectionResetError):
                    await reader.readexactly(1)
                writer.close()

    asyncio.run(main())


@pytest.mark.parametrize("delay_s", [0.0, 30.0], ids=["deaf receiver", "long link"])
def test_sender_is_held_back_instead_of_buffering_without_bound(delay_s: float) -> None:
    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(60)

    async def main() -> None:
        profile = LinkProfile(up=LinkDirection(delay_s=delay_s))
        async with upstream(deaf) as port, LinkEmulator("127.0.0.1", port, profile, buffer_bytes=100_000) as link:
            _, writer = await connect(link)
            writer.write(b"x" * 50_000_000)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(writer.drain(), 0.5)
            # The kernel's socket buffers take some megabytes, the relay 0.1.
            assert writer.transport.get_write_buffer_size() > 25_000_000
            writer.transport.abort()

    asyncio.run(main())


def test_leaving_closes_connections_that_are_still_busy() -> None:
    async def main() -> None:
        async with upstream(echo) as port:
            async with LinkEmulator("127.0.0.1", port, LinkProfile.symmetric(rtt_s=20)) as link:
                reader, writer = await connect(link)
                writer.write(b"never seen")
                await asyncio.sleep(0.02)
            with pytest.raises(ConnectionResetError):
                await reader.readexactly(1)
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(link.host, link.port)
            writer.close()

    asyncio.run(main())


# -- blocking --------------------------------------------------------------------------------------------------------


def link_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "link-emulator"]


def test_running_link_serves_blocking_code_and_leaves_no_thread() -> None:
    profile = LinkProfile.symmetric(rtt_s=0.02)
    with socket.create_server(("127.0.0.1", 0)) as server:
        with (
            running_link("127.0.0.1", server.getsockname()[1], profile) as link,
            socket.create_connection((link.host, link.port), timeout=5) as client,
            server.accept()[0] as accepted,
        ):
            start_s = time.perf_counter()
            client.sendall(b"hello")
            assert accepted.recv(100) == b"hello"
            accepted.sendall(b"good day")
            assert client.recv(100) == b"good day"
            assert time.perf_counter() - start_s >= 0.02 - CLOCK_S
            assert (link.bytes_up, link.bytes_down, link.num_connections) == (5, 8, 1)
            link.stall(0.05)
            start_s = time.perf_counter()
            client.sendall(b"!")
            accepted.recv(1)
            assert time.perf_counter() - start_s >= 0.05 - CLOCK_S
            link.cut()
            with pytest.raises(ConnectionResetError):
                client.recv(1)
        assert not link_threads()


def test_running_link_ends_its_thread_when_it_cannot_listen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(OSError, match="in use"), running_link("127.0.0.1", 1, port=taken.getsockname()[1]):
            pass
        assert not link_threads()
