"""The account of an answer, against what a link saw and what its rounds add up to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from edgedraft import Answer, EdgeClient
from edgedraft.cli.app import main
from edgedraft.metrics.derive import ROUND_PARTS, check_round
from edgedraft.sim.network import LinkProfile, Way
from edgedraft.testing.cloud import RunningCloud
from edgedraft.testing.link import RunningLink, running_link

from .conftest import PROMPT, TARGET

JSON_KEYS = ["text", "token_ids", "finish_reason", "usage", "strategy", "exact", "accounting"]
ACCOUNTING_KEYS = {
    *("ttft_s", "total_s", "tpt_s", "num_rounds", "num_drafted", "num_accepted", "num_committed", "num_target_passes"),
    *("tokens_up", "bytes_up", "bytes_down", "num_discarded", "num_reconnects"),
}


@dataclass
class TappedEdge:
    """An edge behind a link, and what the link let through since the last look."""

    client: EdgeClient
    link: RunningLink
    seen: dict[Way, bytearray] = field(default_factory=lambda: {way: bytearray() for way in Way})

    def ask(self, cloud: RunningCloud, **options: Any) -> tuple[Answer, int, int]:
        """The answer, and the bytes of its request up and down, its `Close` included."""
        before = self.link.bytes_up, self.link.bytes_down
        answer = self.client.generate(prompt_ids=PROMPT, ignore_eos=True, **options)
        cloud.until(lambda sessions: len(sessions) == 0)
        return answer, self.link.bytes_up - before[0], self.link.bytes_down - before[1]


@pytest.fixture(scope="module")
def tapped(toy_cloud: RunningCloud) -> Iterator[TappedEdge]:
    port = int(toy_cloud.url.rsplit(":", 1)[1].partition("/")[0])
    with (
        running_link("127.0.0.1", port, LinkProfile.symmetric(rtt_s=0.004)) as link,
        EdgeClient(f"ws://127.0.0.1:{link.port}/v1/edgedraft", draft=TARGET + ",agree=0.8") as client,
    ):
        edge = TappedEdge(client, link)
        edge.ask(toy_cloud, max_tokens=1)  # the handshake is nobody's
        yield edge


@pytest.mark.parametrize(
    "options",
    [
        {"draft_length": 8},
        {"draft_length": 1},
        {"strategy": "cloud-only"},
        {"draft_length": 5, "temperature": 0.9, "seed": 3},
    ],
)
def test_bytes_of_the_account_are_those_that_the_link_saw(
    tapped: TappedEdge, toy_cloud: RunningCloud, options: dict[str, Any]
) -> None:
    answer, up, down = tapped.ask(toy_cloud, max_tokens=48, **options)
    assert answer.accounting["bytes_down"] == down
    assert answer.accounting["bytes_up"] == up
    assert answer.accounting["bytes_up_per_token"] == answer.accounting["bytes_up"] / 48


def test_a_round_of_eight_stays_within_its_budget_on_a_link(tapped: TappedEdge, toy_cloud: RunningCloud) -> None:
    """64 bytes up and 96 down, as the link saw them; what travels once is taken off by a shorter answer."""
    short, short_up, short_down = tapped.ask(toy_cloud, max_tokens=40, draft_length=8)
    long, long_up, long_down = tapped.ask(toy_cloud, max_tokens=140, draft_length=8)
    num_rounds = long.accounting["num_rounds"] - short.accounting["num_rounds"]
    assert num_rounds >= 11
    assert (long_up - short_up) / num_rounds <= 64
    assert (long_down - short_down) / num_rounds <= 96


@pytest.mark.parametrize(
    "options", [{"draft_length": 5}, {"draft_length": 8, "temperature": 0.7, "seed": 1}, {"strategy": "cloud-only"}]
)
def test_the_parts_of_a_round_add_up_over_a_slow_link(
    tapped: TappedEdge, toy_cloud: RunningCloud, options: dict[str, Any]
) -> None:
    answer, _, _ = tapped.ask(toy_cloud, max_tokens=30, **options)
    rounds, figures = answer.record.rounds, answer.accounting
    for record in rounds:
        check_round(record)
    assert sum(record.num_committed for record in rounds) == 30 == figures["num_committed"]
    assert sum(record.num_accepted for record in rounds) == figures["num_accepted"]
    in_rounds_s = sum(record.round_s for record in rounds)
    assert in_rounds_s == pytest.approx(sum(figures[part] for part in ROUND_PARTS))
    assert rounds[0].started_s + in_rounds_s <= figures["total_s"]
    assert 0 < figures["ttft_s"] <= figures["total_s"]
    assert figures["tpt_s"] == pytest.approx(figures["total_s"] / 30)
    assert figures["num_drafted"] == figures["num_judged"] + figures["num_discarded"]
    if "strategy" not in options:
        # On a busy machine a message may be on its way before its handing over has returned.
        assert figures["network_s"] + figures["upload_s"] >= 0.004 * len(rounds)


def test_generate_with_json_prints_the_promised_object(
    toy_cloud: RunningCloud, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["generate", "hello", "--json", "--max-tokens", "7", "--draft", TARGET, "--url", toy_cloud.url]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    answer = json.loads(printed.out)
    assert printed.err == ""
    assert list(answer)[:7] == JSON_KEYS
    assert set(answer["accounting"]) >= ACCOUNTING_KEYS
    assert answer["usage"]["completion_tokens"] == len(answer["token_ids"]) == answer["accounting"]["num_committed"]
    assert answer["exact"] == "bitwise"
