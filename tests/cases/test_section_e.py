"""Section E of the cases: network, sessions, operations. The number in a name is the case's."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgedraft import EdgeClient
from edgedraft.backends import registry
from edgedraft.backends.base import BackendOptions
from edgedraft.bench.target_only import target_only_ids
from edgedraft.cloud.auth import check_bind, hash_token
from edgedraft.config import CloudConfig, EdgeConfig
from edgedraft.errors import InsecureBindError
from edgedraft.protocol.messages import Commit, FromCloud, Opened
from edgedraft.sim.network import LinkProfile
from edgedraft.testing.cloud import running_cloud
from edgedraft.testing.gates import GatedTarget
from edgedraft.testing.link import running_link
from edgedraft.testing.wire import WireClient, draft_message, open_message, wire_client
from edgedraft.types import Assist, Exactness, SamplingParams, TokenKind

from .conftest import PROMPT, TARGET, Alone, WatchedTarget, toy_model

ROOT = Path(__file__).resolve().parents[2]
SLOW_ENOUGH = LinkProfile.symmetric(rtt_s=0.03)
"""A cloud takes a tenth of a second to stop; on loopback alone an answer would be finished before that."""


def until_silence(wire: WireClient) -> Iterator[FromCloud]:
    with contextlib.suppress(TimeoutError):
        while True:
            yield wire.receive(timeout_s=0.5)


@pytest.mark.parametrize("phase", ["prefill", "verify"])
def test_case_50_kill_9_of_an_edge_process_frees_its_session_and_serves_the_next(phase: str) -> None:
    target = GatedTarget(toy_model(TARGET))
    gate = target.prefill_gate if phase == "prefill" else target.score_gate
    gate.shut()
    tokenizer = registry.open_tokenizer(TARGET)
    with running_cloud(target, tokenizer, config=CloudConfig(port=0, session_expiry_s=0.2)) as cloud:
        try:
            command = [sys.executable, "-m", "edgedraft", "generate", "hello", "--draft", TARGET, "--url", cloud.url]
            edge = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            assert gate.entered.wait(20)
            edge.send_signal(signal.SIGKILL)
            edge.wait(10)
            cloud.until(lambda sessions: sessions.stats().num_connected == 0)
        finally:
            gate.open()
        cloud.until(lambda sessions: len(sessions) == 0 and target.num_sessions == 0)
        with EdgeClient(cloud.url, draft=TARGET) as client:
            assert len(client.generate(prompt_ids=PROMPT, max_tokens=5, ignore_eos=True).token_ids) == 5


def test_case_50_a_thousand_dead_edges_leave_no_session() -> None:
    target = WatchedTarget(toy_model("toy:vocab=64"), max_sessions=4)
    config = CloudConfig(port=0, session_expiry_s=0.02, max_sessions=4)
    with running_cloud(target, registry.open_tokenizer("toy:vocab=64"), config=config) as cloud:
        for number in range(1_000):
            with wire_client(cloud.url) as wire:
                wire.send(open_message(number.to_bytes(16, "big"), PROMPT, assist=Assist.ALWAYS))
                if number % 4:
                    wire.receive()
                wire.vanish()
        cloud.until(lambda sessions: len(sessions) == 0 and sessions.stats().num_waiting == 0)
        cloud.until(lambda sessions: target.num_sessions == 0)
        assert not cloud.call(cloud.sessions.stats).saturated


def test_case_51_a_link_cut_right_after_a_rollback_and_a_restart_change_nothing(toy_alone: Alone) -> None:
    spec = TARGET + ",context=8192"
    target = WatchedTarget(toy_model(spec))
    with running_cloud(target, registry.open_tokenizer(spec)) as cloud:
        port = int(cloud.url.rsplit(":", 1)[1].partition("/")[0])
        with (
            running_link("127.0.0.1", port, SLOW_ENOUGH) as link,
            EdgeClient(
                f"ws://127.0.0.1:{link.port}/v1/edgedraft",
                draft=TARGET + ",agree=0.7",
                config=EdgeConfig(silence_s=1.0),
            ) as client,
            client.stream(
                prompt_ids=PROMPT, max_tokens=150, temperature=0.8, seed=6, ignore_eos=True, strategy="vanilla"
            ) as stream,
        ):
            num_cuts = 0
            for number, piece in enumerate(stream):
                if piece.tokens and piece.tokens[-1].kind is TokenKind.RECOVERED and num_cuts < 5:
                    link.cut()
                    num_cuts += 1
                elif number == 12:
                    cloud.restart()
        answer = stream.answer
    assert list(answer.token_ids) == toy_alone(PROMPT, 150, temperature=0.8, seed=6)
    assert answer.exact is Exactness.BITWISE
    assert answer.accounting["num_reconnects"] >= 5
    assert answer.accounting["num_reopens"] >= 1


def test_case_56_the_same_round_sent_twice_is_verified_once_and_answered_alike() -> None:
    target = WatchedTarget(toy_model("toy:vocab=64"))
    written = target_only_ids(target, PROMPT, sampling=SamplingParams(), max_tokens=2)
    target.num_prefilled, target.passes = 0, []
    with running_cloud(target, registry.open_tokenizer("toy:vocab=64")) as cloud, wire_client(cloud.url) as wire:
        opening = open_message(b"A" * 16, PROMPT)
        wire.send(opening)
        wire.send(opening)
        assert isinstance(wire.receive(), Opened)
        for _ in range(3):
            wire.send(draft_message(3, written))
        first, *others = [message for message in until_silence(wire) if isinstance(message, Commit)]
        assert first.token_ids[:2] == written
        assert all((each.position, each.token_ids) == (3 + len(first.token_ids), []) for each in others)
        wire.send(draft_message(3, written))
        again = wire.receive()
        assert isinstance(again, Commit)
        assert (again.position, again.token_ids) == (3 + len(first.token_ids), [])
        assert len(target.passes) == 1
        assert target.num_prefilled == len(PROMPT)


@pytest.mark.model
def test_case_58_an_edge_starts_from_its_cache_and_writes_without_any_network(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.open_tokenizer("demo:draft")  # in the cache from here on

    def no_network(*arguments: object, **options: object) -> None:
        raise AssertionError(f"the network was asked for: {arguments}")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, no_network)
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    with EdgeClient(draft="demo:draft", draft_options=BackendOptions(threads=1, context_length=256)) as client:
        answer = client.generate("Name a colour.", strategy="edge-only", max_tokens=8)
    assert answer.text.strip()
    assert answer.exact is Exactness.LOSSY
    with pytest.raises(AssertionError, match="the network was asked for"):
        socket.create_connection(("127.0.0.1", 1))


@pytest.mark.parametrize(
    "path",
    ["/health", "/", "/docs", "/openapi.json", "/v1/models", "/metrics", "/..%2f..%2fetc/passwd", "/v1/edgedraft"],
)
def test_case_59_no_route_answers_without_the_token(path: str) -> None:
    config = CloudConfig(port=0, token_sha256=(hash_token("right"),))
    target = WatchedTarget(toy_model("toy:vocab=64"))
    with running_cloud(target, registry.open_tokenizer("toy:vocab=64"), config=config) as cloud:
        base = cloud.health_url.removesuffix("/health")
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "right"}):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(urllib.request.Request(base + path, headers=headers), timeout=5)  # noqa: S310
            assert refused.value.code == 401
            refused.value.close()


def test_case_59_a_public_address_needs_token_and_tls() -> None:
    for config in (CloudConfig(host="0.0.0.0"), CloudConfig(host="::", token_sha256=("0" * 64,))):  # noqa: S104
        with pytest.raises(InsecureBindError, match="--insecure"):
            check_bind(config)


def test_case_60_the_quick_start_is_two_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first_block = re.search(r"```bash\n(.*?)```", readme, re.DOTALL)
    assert first_block is not None
    assert [line.partition("#")[0].strip() for line in first_block[1].splitlines()] == ["make demo", "make test"]


@pytest.mark.parametrize("drafts", [False, True])
def test_case_50_an_edge_that_says_nothing_costs_a_bounded_number_of_passes(drafts: bool) -> None:
    """Rule 8: 64 ids ahead of what it confirmed, whether it has drafted before it fell silent or not."""
    lead = CloudConfig().assist_lead_tokens
    target = WatchedTarget(toy_model("toy:vocab=64,seed=3"))
    with running_cloud(target, registry.open_tokenizer("toy:vocab=64")) as cloud, wire_client(cloud.url) as wire:
        wire.send(open_message(b"A" * 16, PROMPT, assist=Assist.ALWAYS, num_new=500))
        if drafts:
            wire.send(draft_message(3, [5]))
        num_ids = sum(len(message.token_ids) for message in until_silence(wire) if isinstance(message, Commit))
        assert lead == 64
        assert lead <= num_ids <= lead + 2
        assert len(target.passes) <= lead + 2
