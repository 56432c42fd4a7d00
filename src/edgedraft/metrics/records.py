"""Raw records, written while a request runs. Derived figures live in `derive`, one function each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """One round as the edge saw it: draft, ask, verdict. Times in seconds; the five parts add up to `round_s`.

    `draft_s`: from the start of the round to the moment the verdict was asked for. `upload_s`: handing the asking
    message to the link. `queue_s` and `verify_s`: the cloud's own figures for waiting and for the target pass.
    `network_s`: the rest, that is both ways through the link and the cloud's handling.
    """

    round_id: int
    started_s: float
    round_s: float
    draft_s: float
    upload_s: float
    queue_s: float
    verify_s: float
    network_s: float
    num_drafted: int
    num_accepted: int
    num_committed: int


@dataclass(slots=True)
class Counters:
    """Raw counts of one request, kept by the edge session. Tokens, not chunks.

    `num_drafted`: ids the draft model proposed. `num_judged`: of those, the ones a verdict was given for.
    `num_accepted`: of those, the ones kept, without the next token. `num_discarded`: drafted but rolled back or
    overtaken without a verdict. `num_reused`: drafted while a verdict was out, and still good after it. `tokens_up`:
    draft ids that travelled, repeats included. `num_target_passes`: commits that carried ids.

    Where the edge owns the text (captions): `num_gated`: tokens of blocks that were settled, corrected ones whole;
    `num_judged` is of these. `num_local`: committed without a verdict. `num_unverified`: of those, the ones that should
    have had one, but the cloud was out of reach.
    """

    num_rounds: int = 0
    num_drafted: int = 0
    num_judged: int = 0
    num_accepted: int = 0
    num_committed: int = 0
    num_discarded: int = 0
    num_reused: int = 0
    num_target_passes: int = 0
    num_rollbacks: int = 0
    num_reopens: int = 0
    num_resumes: int = 0
    num_reconnects: int = 0
    tokens_up: int = 0
    num_gated: int = 0
    num_local: int = 0
    num_unverified: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRecord:
    """The link as the edge measured it: occupancy of a message, its way, and a round trip of a small one, in seconds.

    Where not `startup_known` the start-up could not be told from the delay, which then holds it.
    """

    startup_s: float
    per_token_s: float
    delay_s: float
    rtt_s: float
    startup_known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerRecord:
    """The tuner of thresholds at the end of a request. Pairs are (token, sequence); `best`: None before a trial."""

    phase: str
    num_trials: int
    thresholds: Sequence[float]
    best: Sequence[float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRecord:
    """What an edge measured and decided while a request ran; None where nothing was measured or decided.

    `num_replans`, `num_retunes`: how often uploads were planned, and thresholds tuned, anew. `draft_step_s`: a draft
    token. `verify_step_s`, `verify_per_id_s`: a target pass, and what each draft id in it adds. `choice`: of strategy.
    """

    num_replans: int = 0
    num_retunes: int = 0
    draft_step_s: float | None = None
    verify_step_s: float | None = None
    verify_per_id_s: float | None = None
    link: LinkRecord | None = None
    tuner: TunerRecord | None = None
    choice: Mapping[str, object] | None = None


@dataclass(slots=True)
class RequestRecord:
    """Everything measured about one request. Times are `perf_counter` seconds from the request's start.

    `began_s`: when the session began, with its features made and its turn at the draft come. `draft_steps_s`: what each
    drafted token took, the first with prompt and recording. `first_token_s`: when the first committed token reached the
    caller; None where none did. `called_cloud`: whether a connection was wanted, and so was there or tried. `bytes_up`,
    `bytes_down`: WebSocket payloads and headers of this request's messages, without TLS and TCP.
    """

    total_s: float = 0.0
    began_s: float = 0.0
    draft_steps_s: list[float] = field(default_factory=list)
    first_token_s: float | None = None
    called_cloud: bool = False
    bytes_up: int = 0
    bytes_down: int = 0
    counters: Counters = field(default_factory=Counters)
    rounds: list[RoundRecord] = field(default_factory=list)
    control: ControlRecord = field(default_factory=ControlRecord)
