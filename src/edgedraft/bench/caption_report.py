"""The report of a caption bench: one self-contained page. It says what was measured and what was modelled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os.path import lexists
from pathlib import Path

from edgedraft.bench import caption_live_figures
from edgedraft.bench.caption_figures import caption_pictures
from edgedraft.bench.caption_results import (
    CLIPS_FILE,
    CaptionResults,
    read_clips,
    read_results,
    to_dict,
)
from edgedraft.bench.caption_steps import STEPS_FILE
from edgedraft.bench.caption_tables import caption_tables
from edgedraft.bench.drawing import Picture
from edgedraft.bench.html_page import html_page
from edgedraft.bench.report import REPORT_FILE
from edgedraft.bench.tables import Table
from edgedraft.caption.caption import PCM_BYTES_PER_S
from edgedraft.caption.intervals import MIN_GAP_POINTS
from edgedraft.caption.scoring import Metric
from edgedraft.errors import InvalidRequestError

MAX_NAMED_CLIPS = 10
SCORES: Mapping[Metric, str] = {
    Metric.BLEU_1: "BLEU-1",
    Metric.BLEU_1_PRECISION: "BLEU-1 precision",
    Metric.BLEU_4: "BLEU-4",
    Metric.METEOR: "METEOR",
    Metric.ROUGE_L: "ROUGE-L",
}
FORMULAS: Mapping[str, str] = {
    "verified %": (
        "tokens that a verdict was asked for / tokens drafted in settled blocks, corrected ones whole; each "
        "summed over clips first"
    ),
    "ids up / token": "caption ids sent to the cloud, those it needs as context included / committed tokens",
    "calls": "verdicts that carried text, per clip",
    "corrections": "verdicts that changed a token, per clip",
    "gap closed %": (
        "100 x (arm - edge-only) / (cloud-only - edge-only) of BLEU-1 over all clips of the language; none below a gap "
        f"of {MIN_GAP_POINTS:g} points, where one point would be a quarter of it or more"
    ),
    "feature B/s": f"bytes of features that left / seconds of speech; the waveform would be {PCM_BYTES_PER_S:,} B/s",
    "bytes up, bytes down": "WebSocket payloads and headers of the request's messages, without TLS and TCP",
    "drafted / token": "tokens drafted / tokens committed",
    "TTFT (virtual)": "from the request to the first committed token, the making of features included",
    "total (virtual)": "from the request to the last token",
    "entropy": "- sum of p ln p over the draft's raw distribution, in nats",
}


def write_caption_report(directory: Path) -> Path:
    """Write `report.html` from what the directory holds, and return its path.

    Raises `InvalidRequestError`, and `UnsupportedError` where matplotlib is not installed.
    """
    results, clips = read_results(directory), list(read_clips(directory))
    path = directory / REPORT_FILE
    text = caption_page(results, caption_tables(results), caption_pictures(results, clips))
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidRequestError(f"{path} cannot be written: {error.strerror}.", field="directory") from error
    return path


def is_caption_run(directory: Path) -> bool:
    """Whether the directory is one of `bench caption`, not of `bench run`; of one that was cut as well."""
    return any(lexists(directory / name) for name in (CLIPS_FILE, STEPS_FILE))  # False for what no file can be called


def caption_page(results: CaptionResults, tables: Sequence[Table], pictures: Sequence[Picture]) -> str:
    """The whole page."""
    facts = {"What was run, measured and modelled": origins(results), "Formulas": formulas(results)}
    manifest = to_dict(results.manifest)
    counts = ", ".join(f"{count} {language}" for language, count in sorted(results.manifest.num_clips.items()))
    return html_page(
        title="edgedraft bench caption",
        summary=f"{counts} clips, {results.manifest.seconds:,.0f} s of speech, {len(results.arms)} arms.",
        facts=facts,
        pictures=pictures,
        tables=tables,
        manifest=manifest,
    )


def origins(results: CaptionResults) -> list[str]:
    """Sentences that a report never goes without."""
    manifest = results.manifest
    models = f"Draft {manifest.draft}, target {manifest.target}"
    sentences = [
        f"{models}; the draft sends {manifest.draft_sends}, {manifest.feature_dtype}.",
        _VIRTUAL,
        _TUNED if manifest.dev else _NOT_TUNED,
        exactness(results),
        *([_LIVE] if results.live else []),
        *([f"Made by: {manifest.command}"] if manifest.command else []),
    ]
    return [*sentences, *results.notes]


_VIRTUAL = (
    "Captions are the models' own, made by the product's session machines. Times in all tables but 'Live' are virtual: "
    "models take what the note says, links deliver by the schedules of the link emulator."
)
_TUNED, _NOT_TUNED = "Thresholds were chosen on the dev set alone.", "There was no dev set: no threshold is tuned."
_LIVE = (
    "Live: an edge process, a cloud process, WebSockets and an emulated link on one machine; the arms in turn on the "
    "same clips."
)


def exactness(results: CaptionResults) -> str:
    """Whether judging everything gave the target's own captions."""
    exact = results.exact
    if exact.holds:
        return f"Exact equals cloud-only, token for token, on all {exact.num_clips} clips."
    names = ", ".join(exact.differing[:MAX_NAMED_CLIPS])
    return f"EXACT DIFFERS FROM CLOUD-ONLY on {len(exact.differing)} of {exact.num_clips} clips: {names}."


def formulas(results: CaptionResults) -> list[str]:
    """What every figure is, in one line each."""
    lines = [f"{name}: {line}." for name, line in _score_definitions(results)]
    lines += [f"{name}: {line}." for name, line in FORMULAS.items()]
    if results.live:
        lines += [f"Live, {name}: {line}." for name, line in caption_live_figures.FORMULAS.items()]
    return lines


def _score_definitions(results: CaptionResults) -> Iterator[tuple[str, str]]:
    """Each score and what it is: once where the languages agree, else once for each language."""
    found = {each.language: each.texts[0].definitions for each in results.arms[0].languages} if results.arms else {}
    for metric, name in SCORES.items():
        lines = {language: each[f"{metric}_is"] for language, each in found.items() if f"{metric}_is" in each}
        if len(set(lines.values())) > 1:
            yield from ((f"{name} ({language})", line) for language, line in lines.items())
        else:
            yield from ((name, line) for line in set(lines.values()))
