"""What the machinery costs beside the models: core, sampling, protocol, sockets and server, on one machine.

Toy models, whose own time is small and measured apart; edge and cloud in two processes over real sockets.
"""

from __future__ import annotations

import http.client
import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter, sleep
from urllib.parse import urlsplit

import msgspec

from edgedraft.backends.base import BackendOptions, ScoreRequest
from edgedraft.backends.registry import open_draft, open_target
from edgedraft.bench.cloud_process import CloudProcess, cloud_process
from edgedraft.bench.control_cost import STEERED, control_s_per_drafted_token, plan_s, suggestion_s
from edgedraft.bench.core_cost import (
    DRAFT_LENGTH_TOKENS,
    NUM_SAMPLED_ROWS,
    SAMPLINGS,
    core_s_per_drafted_token,
    random_rows,
    sampling_s_per_row,
)
from edgedraft.edge.answer import Answer
from edgedraft.edge.blocking import EdgeClient
from edgedraft.errors import CloudUnreachableError
from edgedraft.schedule.catalogue import DEFAULT_DRAFT_S

DEFAULT_ROUNDS = 200
LARGE_VOCAB_IDS = 152_000
SMALL_SPEC = "toy:vocab=1000,context=100000"
# A draft that is the target itself: every round has all its eight tokens accepted, the most a round can carry.
LARGE_SPEC = f"toy:vocab={LARGE_VOCAB_IDS},context=1000000"
LONG_PROMPT_TOKENS = 30_000
PREFILL_PROMPT_TOKENS = 400_000
HEALTH_EVERY_S = 0.01
BYTES_ROUNDS = 25
"""Bytes don't vary as times do, and rows of that many ids take their time."""

ROUND_LIMIT_MS, CORE_LIMIT_US, SAMPLING_LIMIT_MS = 2.0, 50.0, 1.0
UP_LIMIT_BYTES, DOWN_LIMIT_BYTES = 64.0, 96.0
PROMPT_JOURNEYS_LIMIT = 1.1
HEALTH_LIMIT_MS = 50.0
PLAN_LIMIT_MS, SUGGESTION_LIMIT_MS, CONTROL_LIMIT_PERCENT = 1.0, 4.0, 1.5

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure. `limit`: what it may be at most; None where it is shown for information."""

    name: str
    value: float
    unit: str
    limit: float | None = None

    @property
    def ok(self) -> bool:
        return self.limit is None or self.value <= self.limit


def measure(num_rounds: int = DEFAULT_ROUNDS, *, on_step: Say = lambda step: None) -> Iterator[Figure]:
    """All figures, each as soon as it is there. Starts and ends its own cloud processes."""
    on_step("the core")
    yield from core_figures(num_tokens=max(1_000, num_rounds * DRAFT_LENGTH_TOKENS))
    on_step(f"sampling at {LARGE_VOCAB_IDS} ids")
    yield from sampling_figures()
    on_step("planning, tuning and steering")
    yield from control_figures()
    on_step(f"{num_rounds} rounds over loopback")
    yield from round_figures(num_rounds)
    on_step("bytes")
    yield from byte_figures()
    on_step("/health during a prefill")
    yield from health_figures()


def control_figures() -> Iterator[Figure]:
    """What runs beside a request on the edge: against a draft model that takes 36 ms a token."""
    yield Figure("planning 20 draft tokens, median", plan_s() * 1e3, "ms", PLAN_LIMIT_MS)
    yield Figure("the tuner's last suggestion, median", suggestion_s() * 1e3, "ms", SUGGESTION_LIMIT_MS)
    for name in STEERED:
        share = 100 * control_s_per_drafted_token(name) / DEFAULT_DRAFT_S
        yield Figure(f"steering '{name}', of the processor at 36 ms a draft token", share, "%", CONTROL_LIMIT_PERCENT)


def core_figures(*, num_tokens: int) -> Iterator[Figure]:
    for name, sampling in SAMPLINGS[:2]:
        cost_s = core_s_per_drafted_token(sampling, num_tokens=num_tokens)
        yield Figure(f"core per drafted token, 1,000 ids, {name}", cost_s * 1e6, "us", CORE_LIMIT_US)


def sampling_figures() -> Iterator[Figure]:
    rows = random_rows(NUM_SAMPLED_ROWS, LARGE_VOCAB_IDS)
    for name, sampling in SAMPLINGS:
        cost_s = sampling_s_per_row(sampling, rows)
        yield Figure(f"sampling a row of {LARGE_VOCAB_IDS:,} ids, {name}", cost_s * 1e3, "ms", SAMPLING_LIMIT_MS)


# -- time per round ------------------------------------------------------------------------------------------------


def round_figures(num_rounds: int) -> Iterator[Figure]:
    """Time of a round less the models' own, which is measured in this process and without anything around it."""
    with cloud_process(SMALL_SPEC) as cloud, _client(cloud, SMALL_SPEC) as client:
        _ask(client, [1, 2, 3], num_rounds=5)
        answer = _ask(client, [1, 2, 3], num_rounds=num_rounds)
    model_s = models_s_per_round(SMALL_SPEC)
    full = [each for each in answer.record.rounds if each.num_drafted == DRAFT_LENGTH_TOKENS]
    beyond_ms = sorted(max(0.0, each.round_s - model_s) * 1e3 for each in full[1:])
    yield Figure("round beyond the models' own time, median", statistics.median(beyond_ms), "ms", ROUND_LIMIT_MS)
    yield Figure("round beyond the models' own time, p90", statistics.quantiles(beyond_ms, n=10)[-1], "ms")
    yield Figure("the models' own time per round", model_s * 1e3, "ms")


def models_s_per_round(spec: str, *, num_repeats: int = 50) -> float:
    """Seconds that both models alone take for a round of eight draft tokens; the median of `num_repeats`."""
    draft, target = open_draft(spec, BackendOptions()), open_target(spec, BackendOptions())
    prompt_ids, session_id = [1, 2, 3], b"overhead bench.."
    token_ids = list(range(1, DRAFT_LENGTH_TOKENS + 1))
    target.open(session_id, prompt_ids, ())
    while target.prefill(session_id):
        pass
    draft.append(prompt_ids)
    times_s = []
    for _ in range(num_repeats):
        started_s = perf_counter()
        for token_id in token_ids:
            draft.draft()
            draft.append([token_id])
        target.score([ScoreRequest(session_id, len(prompt_ids), [1], token_ids)])
        times_s.append(perf_counter() - started_s)
        draft.rollback(len(prompt_ids))
    draft.close()
    target.shutdown()
    return statistics.median(times_s)


# -- bytes ---------------------------------------------------------------------------------------------------------


def byte_figures(num_rounds: int = BYTES_ROUNDS) -> Iterator[Figure]:
    """Differences between a short and a long answer, so that what travels once per request is in neither."""
    with cloud_process(LARGE_SPEC) as cloud, _client(cloud, LARGE_SPEC) as client:
        prompt_ids = _spread_ids(32)
        short, long = (_ask(client, prompt_ids, num_rounds=number) for number in (num_rounds, 2 * num_rounds))
        more_rounds = long.record.counters.num_rounds - short.record.counters.num_rounds
        up = (long.record.bytes_up - short.record.bytes_up) / more_rounds
        down = (long.record.bytes_down - short.record.bytes_down) / more_rounds
        yield Figure(f"bytes up per round of eight, {LARGE_VOCAB_IDS:,} ids", up, "bytes", UP_LIMIT_BYTES)
        yield Figure(f"bytes down per round of eight, {LARGE_VOCAB_IDS:,} ids", down, "bytes", DOWN_LIMIT_BYTES)
        yield from _prompt_figures(client, short, num_rounds)


def _prompt_figures(client: EdgeClient, without: Answer, num_rounds: int) -> Iterator[Figure]:
    """How often a long prompt travels: bytes up beyond those of a short one, over the size of its ids."""
    prompt_ids = _spread_ids(LONG_PROMPT_TOKENS)
    answer = _ask(client, prompt_ids, num_rounds=num_rounds)
    encoder = msgspec.msgpack.Encoder()
    size_bytes = sum(len(encoder.encode(token_id)) for token_id in prompt_ids)
    beyond_bytes = answer.record.bytes_up - without.record.bytes_up
    yield Figure(
        f"journeys of a {LONG_PROMPT_TOKENS:,}-token prompt over {answer.record.counters.num_rounds} rounds",
        beyond_bytes / size_bytes,
        "times",
        PROMPT_JOURNEYS_LIMIT,
    )
    yield Figure(f"bytes up of that prompt ({size_bytes:,} bytes of ids)", beyond_bytes, "bytes")


def _spread_ids(count: int) -> list[int]:
    """Ids over the whole vocabulary, most of which take five bytes each."""
    return [(index * 7_919) % (LARGE_VOCAB_IDS - 100) for index in range(1, count + 1)]


# -- the event loop ------------------------------------------------------------------------------------------------


def health_figures() -> Iterator[Figure]:
    """Latency of `/health` while one session's prompt is prefilled, in as many passes as it has tokens."""
    spec = f"toy:vocab=1000,context={2 * PREFILL_PROMPT_TOKENS}"
    options = ("--prefill-chunk", "1", "--context-length", str(2 * PREFILL_PROMPT_TOKENS))
    with cloud_process(spec, options) as cloud, _client(cloud, None, tokenizer=spec) as client:
        prompt_ids = [1 + index % 900 for index in range(PREFILL_PROMPT_TOKENS)]
        asking = threading.Thread(target=lambda: client.generate(prompt_ids=prompt_ids, max_tokens=1))
        asking.start()
        latencies_ms = []
        while asking.is_alive():
            latencies_ms.append(_health_s(cloud.health_url) * 1e3)
            sleep(HEALTH_EVERY_S)
        asking.join()
    name = f"/health during a prefill of {PREFILL_PROMPT_TOKENS:,} passes"
    yield Figure(f"{name}, median of {len(latencies_ms)}", statistics.median(latencies_ms), "ms", HEALTH_LIMIT_MS)
    yield Figure(f"{name}, worst", max(latencies_ms), "ms")


def _health_s(url: str) -> float:
    """Seconds from the request to the whole answer."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
    started_s = perf_counter()
    try:
        connection.request("GET", address.path)
        answer = connection.getresponse()
        answer.read()
    except OSError as error:
        raise CloudUnreachableError(f"{url} did not answer: {error}.") from None
    finally:
        connection.close()
    return perf_counter() - started_s


# -- asking --------------------------------------------------------------------------------------------------------


def _client(cloud: CloudProcess, draft: str | None, *, tokenizer: str | None = None) -> EdgeClient:
    return EdgeClient(cloud.url, draft=draft, tokenizer=tokenizer)


def _ask(client: EdgeClient, prompt_ids: Sequence[int], *, num_rounds: int) -> Answer:
    """An answer of `num_rounds` rounds in which every draft token is accepted."""
    return client.generate(
        prompt_ids=prompt_ids,
        strategy="vanilla",
        draft_length=DRAFT_LENGTH_TOKENS,
        max_tokens=num_rounds * (DRAFT_LENGTH_TOKENS + 1),
        ignore_eos=True,
    )
