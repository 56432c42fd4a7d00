"""What a caption bench leaves: `results.json`, and `clips.jsonl` with every caption of every arm.

An *arm* is a strategy with its numbers. Shares are 0 to 1, scores 0 to 100, times virtual unless they are `Live*`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edgedraft.bench.run_folder import write_lines, write_whole, writing
from edgedraft.caption.intervals import GapClosed, Interval
from edgedraft.errors import InvalidRequestError

RESULTS_FILE, CLIPS_FILE = "results.json", "clips.jsonl"
FORMAT_VERSION = 3
EVERYTHING = "all"
"""Stands where a language does, for figures over all clips."""


class Arm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A strategy with its numbers. Names are unique in a run.

    `gate`: a measure ("entropy", "max-probability", ...), "everything", "nothing", "chance", or "cloud-only", where the
    target writes alone. `threshold`: where the gate has one; `shares` (by language), `gate_seed`: of gate "chance".
    `tuned`: the threshold was chosen on the dev set. `controls`: of gate "chance", the arm whose shares it has.
    """

    name: str
    gate: str
    threshold: float | None = None
    shares: dict[str, float] = {}
    gate_seed: int | None = None
    unit: str = "block"
    rank: int = 1
    least_tokens: int = 3
    base_tokens: int = 5
    most_tokens: int = 7
    forced: list[str] = []
    bonus: bool = False
    draft_ahead: bool = True
    tuned: bool = False
    controls: str = ""


class TextScores(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Scores by one tokenisation: metric (`bleu_1`, `bleu_1_precision`, `bleu_4`, `meteor`, `rouge_l`) to interval.

    `definitions`: what must be known to compare them. `gap_closed`: of BLEU-1, between edge-only and cloud-only.
    """

    tokenisation: str
    scores: dict[str, Interval]
    definitions: dict[str, str]
    gap_closed: GapClosed | None = None


class LanguageResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`texts`: the tokenisation to quote comes first. Accuracies (0 to 1) are None where the truth is not known."""

    language: str
    num_clips: int
    texts: list[TextScores]
    attribute_accuracy: Interval | None = None
    affect_accuracy: Interval | None = None


class Costs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What captions of `language` (or "all") took.

    `verified_share`: tokens that a verdict was asked for / tokens drafted, corrected blocks whole (sum over clips).
    `ids_per_token`: caption ids sent / tokens committed. `calls_per_clip`: verdicts. `corrections_per_clip`: those that
    changed something. `silent_share`: clips of which nothing left. `feature_bytes_per_s`: over all seconds of audio;
    `sent_feature_bytes_per_s`: over those of clips that sent any. `drafted_per_token`: 1 where nothing is drafted in
    vain. `ttft_s`, `total_s`: means over clips. `total_s_interval` is of `total_s`, `share_interval` of the share.
    """

    language: str
    num_clips: int
    seconds: float
    num_tokens: int
    verified_share: float
    share_interval: Interval
    ids_per_token: float
    calls_per_clip: float
    corrections_per_clip: float
    silent_share: float
    feature_bytes_per_s: float
    sent_feature_bytes_per_s: float
    bytes_up_per_clip: float
    bytes_down_per_clip: float
    drafted_per_token: float
    ttft_s: float
    total_s: float
    total_s_interval: Interval


class ArmResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`costs`: over all clips first, then by language."""

    arm: Arm
    languages: list[LanguageResult]
    costs: list[Costs]


class ClipRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One caption of one arm. `kinds` and `entropies` (nats, of the draft) are per token; None: the draft saw none."""

    arm: str
    clip: str
    language: str
    seconds: float
    text: str
    token_ids: list[int]
    kinds: list[str]
    entropies: list[float | None]
    num_drafted: int
    num_gated: int
    num_judged: int
    num_local: int
    num_calls: int
    num_corrections: int
    tokens_up: int
    feature_bytes: int
    bytes_up: int
    bytes_down: int
    ttft_s: float
    total_s: float


class Setting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What virtual times were reckoned with. Bandwidths None: unlimited. `edge`: "measured" or "given".

    `draft_step_s`: a draft token. `listen_s_per_s`: making the features and hearing them on the edge, before the first
    token, for each second of audio. `target_step_s`, `target_per_id_s`: a pass, and what each draft id adds;
    `target_listen_s_per_s`: hearing the features.
    """

    edge: str
    rtt_s: float
    bytes_per_s_up: float | None
    bytes_per_s_down: float | None
    draft_step_s: float
    listen_s_per_s: float
    target_step_s: float
    target_per_id_s: float
    target_listen_s_per_s: float


class SweepPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`x`: the quantity that is swept. By language: `bleu_1`, `gap_closed` (None: the gap is too small), and
    `verified_shares`; `verified_share` and all else is over all clips.
    """

    x: float
    bleu_1: dict[str, float]
    gap_closed: dict[str, float | None]
    verified_share: float
    verified_shares: dict[str, float]
    ids_per_token: float
    calls_per_clip: float
    corrections_per_clip: float
    ttft_s: float
    total_s: float


class Curve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Points of one arm in the order of `x`. `arm`: as it is apart from what is swept.

    `failures`: points that a link is too thin for, in words.
    """

    label: str
    arm: Arm
    points: list[SweepPoint]
    failures: list[str] = []


class Sweep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`name`: "threshold" (x: threshold, or the share asked of chance), "rank", "length" (tokens; 0: dynamic), "rtt"
    (s) or "bandwidth" (bytes/s). `setting`: apart from what is swept; a run may hold several sweeps of one name.
    `num_clips`: that each point is over.
    """

    name: str
    x_label: str
    num_clips: int
    setting: Setting
    curves: list[Curve]


class Tuned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The threshold chosen on the dev set: the smallest verified share that closes `goal` of the gap in all languages.

    `threshold` None: none was chosen, `reason` says why. `dev_gap_closed`: by language. `num_tried`: thresholds.
    """

    arm: str
    measure: str
    goal: float
    threshold: float | None
    dev_share: float | None
    dev_gap_closed: dict[str, float]
    num_tried: int
    reason: str = ""


class ExactCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether "exact" (all judged, rank 1) says what the target says alone, token for token. `differing`: clips."""

    num_clips: int
    differing: list[str]

    @property
    def holds(self) -> bool:
        return not self.differing


class TimeRatio(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Total time of `arm` over that of edge-only, sums over the same clips: those of `language`, or "all"."""

    arm: str
    language: str
    num_clips: int
    setting: Setting
    ratio: Interval


class LiveArm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One arm through a real edge and a real cloud process; intervals over clips. None: not measured, `notes` say why.

    `ttft_s`: start to first committed token. `itps`: input tokens / input-processing time. `oet_s`: generation time.
    `otps`: output tokens / generation time. `*_cpu`: cores' worth, 1 is one core. `*_ram_bytes`: peak resident.
    `gpu_share`: mean; `gpu_peak_share`: the highest reading. `over_edge_only`: paired ratio of total times.
    `virtual_total_s`: the simulator's mean for the same clips.
    """

    arm: str
    num_clips: int
    ttft_s: Interval
    total_s: Interval
    oet_s: Interval
    otps: Interval
    itps: Interval | None = None
    edge_cpu: float | None = None
    cloud_cpu: float | None = None
    edge_ram_bytes: int | None = None
    cloud_ram_bytes: int | None = None
    gpu_share: float | None = None
    gpu_peak_share: float | None = None
    gpu_bytes: int | None = None
    over_edge_only: Interval | None = None
    virtual_total_s: float | None = None


class LiveRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`draft_step_s` None: as fast as the machine. `texts_equal`: whether all captions are those of the simulation."""

    rtt_s: float
    bytes_per_s: float | None
    draft_step_s: float | None
    arms: list[LiveArm]
    texts_equal: bool | None = None
    notes: list[str] = []


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run depends on. `num_clips`, `num_dev_clips`: by language. `seconds`: of audio in all.

    `draft_sends`: features in words, with `feature_dtype`. `versions`: packages. `command`: as typed; empty: from code.
    `started_at`, `took_s`, `command`: of the last part, where a run that was cut was resumed.
    """

    format: int = FORMAT_VERSION
    dataset: str
    dev: str | None
    num_clips: dict[str, int]
    num_dev_clips: dict[str, int]
    seconds: float
    draft: str
    target: str
    draft_sends: str
    feature_dtype: str
    max_tokens: int
    seed: int
    versions: dict[str, str]
    started_at: str
    took_s: float = 0.0
    command: str = ""


class CaptionResults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of a run but its single captions. `clips` are written apart, one a line."""

    manifest: Manifest
    setting: Setting
    tuned: list[Tuned]
    arms: list[ArmResult]
    exact: ExactCheck
    ratios: list[TimeRatio]
    sweeps: list[Sweep]
    live: list[LiveRun] = []
    notes: list[str] = []

    def arm(self, name: str) -> ArmResult:
        """Raises `InvalidRequestError` for one that was not run."""
        for result in self.arms:
            if result.arm.name == name:
                return result
        names = ", ".join(result.arm.name for result in self.arms)
        raise InvalidRequestError(f"arm is '{name}'; legal: {names}.", field="arm")


# -- files -----------------------------------------------------------------------------------------------------------

Value = TypeVar("Value")
_RUN_AGAIN = "Run the bench again, with another --out."


class _Stamp(msgspec.Struct):
    format: int


class CaptionRun(msgspec.Struct):
    """Of results of any format, what says which."""

    manifest: _Stamp


def write_results(directory: Path, results: CaptionResults, clips: Iterable[ClipRecord] | None = None) -> None:
    """Write `results.json`, and `clips.jsonl` where `clips` are given. Each file appears whole or not at all.

    Raises `InvalidRequestError` where the directory cannot be written.
    """
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        if clips is not None:
            write_lines(directory / CLIPS_FILE, clips)
        write_whole(
            directory / RESULTS_FILE, msgspec.json.format(msgspec.json.encode(results), indent=1).decode() + "\n"
        )


def read_results(directory: Path) -> CaptionResults:
    """Raises `InvalidRequestError` where there are none, or of another format."""
    data, place = _read(directory / RESULTS_FILE), str(directory / RESULTS_FILE)
    found = decoded(data, CaptionRun, place).manifest.format
    if found != FORMAT_VERSION:
        raise InvalidRequestError(
            f"{directory} holds results of format {found}; legal: {FORMAT_VERSION}.",
            field="directory",
            remedy=_RUN_AGAIN,
        )
    return decoded(data, CaptionResults, place)


def read_clips(directory: Path) -> Iterator[ClipRecord]:
    """Every caption of every arm. Raises `InvalidRequestError` naming the line that is none."""
    path = directory / CLIPS_FILE
    for number, line in enumerate(_read(path).splitlines(), 1):
        yield decoded(line, ClipRecord, f"{path}, line {number}")


def to_dict(value: msgspec.Struct | Sequence[msgspec.Struct]) -> Any:
    """Plain values, ready for JSON."""
    return msgspec.to_builtins(value)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequestError(
            f"{path} cannot be read: {error.strerror}.",
            field="directory",
            remedy="Make it: edgedraft bench caption DATASET --out DIR; with --resume where a run was cut.",
        ) from error


def decoded(data: bytes | msgspec.Raw, kind: type[Value], place: str) -> Value:
    """A value from its JSON. Raises `InvalidRequestError`, which names the `place`."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestError(
            f"{place} is no {kind.__name__} of this version: {error}.",
            field="directory",
            remedy=_RUN_AGAIN,
        ) from error
