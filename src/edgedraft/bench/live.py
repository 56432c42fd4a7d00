"""A cell in real time: an edge here, a cloud process, sockets, the link emulator; models that are replayed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from urllib.parse import urlsplit
from urllib.request import urlopen

from edgedraft.backends.trace import RecordedText
from edgedraft.bench.baselines import Entry, Numbers
from edgedraft.bench.cloud_process import cloud_process
from edgedraft.bench.measured import CellRun, TextRun
from edgedraft.bench.scenario import Regime, Scenario
from edgedraft.bench.simulated import POWER, network_of, strategy_of
from edgedraft.edge.blocking import EdgeClient
from edgedraft.edge.request import RequestOptions
from edgedraft.errors import EdgedraftError, UnsupportedError
from edgedraft.metrics.energy import EnergyKind
from edgedraft.testing.link import running_link

HEALTH_TIMEOUT_S = 10.0


def check_live(scenario: Scenario, trace: str) -> None:
    """Raises `UnsupportedError` naming the field where the cell cannot run in real time over these recorded texts."""
    if "," in trace:
        raise UnsupportedError(
            f"traces is {trace}, and a replayed model's file may have no comma in its name.",
            field="traces",
            remedy="Rename it, or run without --live.",
        )
    refused = [
        (
            "regime",
            scenario.regime,
            scenario.regime == Regime.PAPER,
            "no product sends distributions that it needs not",
        ),
        ("edges", scenario.edges, scenario.edges > 1, "live runs have one edge"),
        (
            "edge.jitter",
            scenario.edge.jitter,
            scenario.edge.jitter > 0,
            "replayed drafts take the same time every step",
        ),
    ]
    for field, value, is_refused, reason in refused:
        if is_refused:
            raise UnsupportedError(
                f"cell {scenario.name} cannot run live: {field} is {value}, and {reason}.",
                field=field,
                remedy="Leave it out with --only, or run without --live.",
            )


def run_live(
    scenario: Scenario, entry: Entry, numbers: Numbers, trace: str, texts: Sequence[RecordedText], *, seed: int = 0
) -> CellRun:
    """Every text of the cell, one after another. Raises what the cloud and the client raise, and `EdgedraftError`
    where an answer is not the recorded one.
    """
    cloud_profile = scenario.cloud
    times = f"step_ms={cloud_profile.step_ms:g},per_draft_ms={cloud_profile.per_draft_ms:g}"
    target = f"replay:{trace},{times},per_session_ms={cloud_profile.per_session_ms:g}"
    draft = f"replay:{trace},draft_ms={scenario.edge.draft_s * 1e3:g}"
    chosen: RequestOptions = {"strategy": strategy_of(scenario, entry, numbers), "max_tokens": scenario.max_tokens}
    if entry.objective is not None:
        chosen |= {"strategy": entry.strategy, "objective": entry.objective}  # by name, and so steered
    with cloud_process(target) as cloud:
        address = urlsplit(cloud.url)
        port = address.port or 0
        with running_link(address.hostname or "", port, network_of(scenario.link, seed), seed=seed) as link:
            url = address._replace(netloc=f"{link.host}:{link.port}").geturl()
            with EdgeClient(url, draft=draft, tokenizer=draft) as client:
                client.connect()
                runs = []
                for text in texts:
                    answer = client.generate(text.id, **chosen)
                    _check(text, answer.text)
                    runs.append(TextRun(text_id=text.id, record=answer.record))
        # The replayed target computes nothing: its declared power over the time that it was busy.
        energy_j = POWER.energy_j(_busy_s(cloud.health_url))
    return CellRun(texts=runs, energy_j=energy_j, energy_kind=EnergyKind.MODELLED)


def _busy_s(health_url: str) -> float:
    with urlopen(health_url, timeout=HEALTH_TIMEOUT_S) as page:  # noqa: S310 (our own process, over http)
        return float(json.load(page)["energy"]["busy_s"])


def _check(text: RecordedText, answer: str) -> None:
    """A replayed answer is the recorded ids in words."""
    found = [int(word) for word in answer.split()]
    if not found or found != list(text.target_ids[: len(found)]):
        raise EdgedraftError(f"text {text.id}: the live answer is not the recorded one.")
