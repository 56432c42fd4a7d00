"""What a packet capture on the interface itself shows of a captioning run; needs the right to open a packet socket."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgedraft.backends.base import BackendOptions
from edgedraft.backends.registry import open_target, open_tokenizer
from edgedraft.caption.audio import load
from edgedraft.caption.blocking import Captioner
from edgedraft.caption.capture import captured_frames
from edgedraft.caption.privacy import ledger
from edgedraft.caption.request import CaptionRequest
from edgedraft.schedule.caption_catalogue import exact, ugsd_sparse
from edgedraft.sim.network import Way
from edgedraft.testing.cloud import running_cloud

CLIPS = Path(__file__).resolve().parents[2] / "src" / "edgedraft" / "caption" / "clips"
ALL_PROTOCOLS = 0x0003
OUTGOING = 4


def may_capture() -> bool:
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(ALL_PROTOCOLS)).close()
    except (AttributeError, OSError):
        return False
    return True


pytestmark = pytest.mark.skipif(not may_capture(), reason="no right to open a packet socket (CAP_NET_RAW)")


class Capture:
    """TCP payloads to and from one loopback port, put in order by sequence number."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._segments: dict[Way, dict[tuple[int, int], bytes]] = {Way.UP: {}, Way.DOWN: {}}
        self.num_packets = 0

    def take(self, packet: bytes) -> None:
        ip = packet[14:]
        if packet[12:14] != b"\x08\x00" or ip[9] != 6:
            return
        tcp = ip[(ip[0] & 15) * 4 : struct.unpack("!H", ip[2:4])[0]]
        source, destination, sequence = struct.unpack("!HHI", tcp[:8])
        payload = tcp[(tcp[12] >> 4) * 4 :]
        if self._port not in (source, destination):
            return
        self.num_packets += 1
        if payload:
            way = Way.UP if destination == self._port else Way.DOWN
            client = source if way is Way.UP else destination
            self._segments[way].setdefault((client, sequence), payload)

    def chunks(self) -> list[tuple[Way, bytes]]:
        return [(way, data) for way, segments in self._segments.items() for _, data in sorted(segments.items())]


@contextlib.contextmanager
def capturing(port: int) -> Iterator[Capture]:
    capture = Capture(port)
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(ALL_PROTOCOLS))
    tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    tap.bind(("lo", 0))
    tap.settimeout(0.2)
    done = threading.Event()

    def read() -> None:
        while True:
            try:
                packet, address = tap.recvfrom(1 << 17)
            except TimeoutError:
                if done.is_set():
                    return
                continue
            if address[2] != OUTGOING:  # on loopback each packet is seen going and coming
                capture.take(packet)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield capture
    finally:
        done.set()
        reader.join()
        tap.close()


def test_only_declared_messages_pass_and_none_of_the_waveform() -> None:
    recording = load(CLIPS / "en.wav")
    target = open_target("captioner:cloud", BackendOptions())
    with running_cloud(target, open_tokenizer("captioner:cloud")) as cloud:
        port = int(cloud.url.split(":")[2].split("/")[0])
        with capturing(port) as quiet, Captioner(cloud.url) as captioner:
            captioner.caption(recording, CaptionRequest(language="en", strategy=ugsd_sparse(threshold=1e-9)))
        assert quiet.num_packets == 0, "nothing was doubted, and nothing passed"
        with capturing(port) as capture, Captioner(cloud.url) as captioner:
            caption = captioner.caption(recording, CaptionRequest(language="en", strategy=exact()))
    target.shutdown()
    account = ledger(
        captured_frames(capture.chunks()),
        recording,
        own_samples={16_000: recording.waveform},
        file=(CLIPS / "en.wav").read_bytes(),
    )
    assert account.holds_only_declared
    assert account.search is not None
    assert account.search.is_clean
    assert account.search.searched_bytes > caption.account.feature_bytes > 0
    kinds = {entry.kind for entry in account.entries if entry.way == Way.UP}
    assert kinds - {"control"} == {"http", "Hello", "Open", "Features", "Draft", "Close"}
    (features,) = account.features
    assert features.num_bytes == caption.account.feature_bytes
    planted = [*capture.chunks(), (Way.UP, recording.waveform[4000:4400].tobytes())]
    found = ledger(captured_frames(planted), recording, own_samples={16_000: recording.waveform})
    assert found.search is not None
    assert not found.search.is_clean, "the search finds 25 ms that were planted"
