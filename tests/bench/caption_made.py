"""Results of a caption bench that was never run: round figures, so that a report's can be checked by hand."""

from __future__ import annotations

import msgspec

from edgedraft.bench.caption_results import (
    Arm,
    ArmResult,
    CaptionResults,
    ClipRecord,
    Costs,
    Curve,
    ExactCheck,
    LanguageResult,
    LiveArm,
    LiveRun,
    Manifest,
    Setting,
    Sweep,
    SweepPoint,
    TextScores,
    TimeRatio,
    Tuned,
)
from edgedraft.caption.intervals import GapClosed, Interval

LANGUAGES = ("en", "zh")
BLEU_1 = {"edge-only": 70.0, "cloud-only": 80.0, "exact": 80.0, "ugsd": 78.0, "ugsd-sparse": 77.0}
BLEU_1 |= {"ugsd, chance 0": 72.0, "ugsd, chance 1": 74.0}
SHARES = {"edge-only": 0.0, "cloud-only": 0.0, "exact": 1.0, "ugsd": 0.4, "ugsd-sparse": 0.125}
SHARES |= {"ugsd, chance 0": 0.4, "ugsd, chance 1": 0.42}
"""Of English and of all clips; in Chinese it is half of that."""
GATES = {"edge-only": "nothing", "cloud-only": "cloud-only", "exact": "everything", "ugsd": "entropy"}
SETTING = Setting(
    edge="given",
    rtt_s=0.03,
    bytes_per_s_up=1e6,
    bytes_per_s_down=None,
    draft_step_s=0.025,
    listen_s_per_s=0.01,
    target_step_s=0.002,
    target_per_id_s=0.001,
    target_listen_s_per_s=0.005,
)


def around(value: float, spread: float = 1.0) -> Interval:
    return Interval(value=value, low=value - spread, high=value + spread)


def arm(name: str, **fields: object) -> Arm:
    controlled, by_chance, _ = name.partition(", chance")
    if by_chance:
        return Arm(name=name, gate="chance", shares={"en": 0.1, "zh": 0.05}, controls=controlled)
    gate = GATES.get(name, "max-probability")
    return msgspec.convert({"name": name, "gate": gate, "threshold": 0.65 if "ugsd" in name else None, **fields}, Arm)


def _texts(name: str, language: str) -> list[TextScores]:
    scores = {metric: around(BLEU_1[name]) for metric in ("bleu_1", "bleu_4", "meteor", "rouge_l", "bleu_1_precision")}
    share = around((BLEU_1[name] - 70) / 10, 0.1)
    return [
        TextScores(
            tokenisation="words",
            scores=scores,
            definitions={
                "bleu_1_is": "corpus BLEU of single tokens",
                "meteor_is": f"METEOR as in nltk; matches {'synonyms' if language == 'en' else 'words'}",
                "tokenisation": "words",
            },
            gap_closed=None if "only" in name else GapClosed(gap=around(10.0), share=share),
        )
    ]


def _costs(name: str, language: str) -> Costs:
    share = SHARES[name] / (2 if language == "zh" else 1)
    return Costs(
        language=language,
        num_clips=4 if language == "all" else 2,
        seconds=10.0,
        num_tokens=100,
        verified_share=share,
        share_interval=around(share, 0.01),
        ids_per_token=0.6,
        calls_per_clip=4.5,
        corrections_per_clip=2.0,
        silent_share=0.25,
        feature_bytes_per_s=0.0 if name == "edge-only" else 500.0,
        sent_feature_bytes_per_s=500.0,
        bytes_up_per_clip=1_500.0,
        bytes_down_per_clip=90.0,
        drafted_per_token=1.1,
        ttft_s=0.15,
        total_s=1.2,
        total_s_interval=around(1.2, 0.1),
    )


def _point(x: float, share: float, bleu_1: float, total_s: float = 1.0) -> SweepPoint:
    return SweepPoint(
        x=x,
        bleu_1=dict.fromkeys(LANGUAGES, bleu_1),
        gap_closed={"en": 0.5, "zh": None},
        verified_share=share,
        verified_shares={"en": share, "zh": share / 2},
        ids_per_token=0.6,
        calls_per_clip=4.0,
        corrections_per_clip=2.0,
        ttft_s=0.1,
        total_s=total_s,
    )


def _sweeps() -> list[Sweep]:
    entropy = Curve(label="entropy, blocks", arm=arm("ugsd"), points=[_point(0.5, 0.6, 79), _point(1.0, 0.3, 75)])
    chance = Curve(
        label="chance", arm=arm("chance", gate="chance"), points=[_point(0.3, 0.3, 72), _point(0.6, 0.6, 75)]
    )
    times = [
        Curve(
            label=f"ugsd, ahead {ahead}",
            arm=arm("ugsd", draft_ahead=ahead),
            points=[_point(rtt_s, 0.4, 78, 1.0 + rtt_s * (1 if ahead else 4)) for rtt_s in (0.0, 0.1, 0.3)],
        )
        for ahead in (True, False)
    ]
    few = [Curve(label="ugsd", arm=arm("ugsd"), points=[_point(x, 0.4, 78 - x) for x in (0, 3, 5)])]
    named = [("threshold", [entropy, chance]), ("rtt", times), ("bandwidth", times), ("rank", few), ("length", few)]
    return [
        Sweep(name=name, x_label=f"{name} of it", num_clips=4, setting=SETTING, curves=curves) for name, curves in named
    ]


def ratio(name: str, language: str, value: float, setting: Setting = SETTING) -> TimeRatio:
    num_clips = 4 if language == "all" else 2
    return TimeRatio(arm=name, language=language, num_clips=num_clips, setting=setting, ratio=around(value, 0.02))


def _live() -> LiveRun:
    arms = [
        LiveArm(
            arm=name,
            num_clips=4,
            ttft_s=around(0.2, 0.01),
            total_s=around(1.25, 0.05),
            oet_s=around(1.2, 0.05),
            otps=around(40.0 if name == "cloud-only" else 30.0),
            itps=None if name == "cloud-only" else around(900.0),
            edge_cpu=0.08,
            cloud_cpu=0.02,
            edge_ram_bytes=60 << 20,
            cloud_ram_bytes=80 << 20,
            over_edge_only=around(1.02, 0.01),
            virtual_total_s=1.0,
        )
        for name in ("edge-only", "cloud-only")
    ]
    return LiveRun(rtt_s=0.03, bytes_per_s=1e6, draft_step_s=0.025, arms=arms, texts_equal=True, notes=["No GPU."])


def made_results(*, differing: tuple[str, ...] = (), live: bool = True) -> CaptionResults:
    arms = [
        ArmResult(
            arm=arm(name),
            languages=[
                LanguageResult(
                    language=each, num_clips=2, texts=_texts(name, each), attribute_accuracy=around(0.8, 0.1)
                )
                for each in LANGUAGES
            ],
            costs=[_costs(name, each) for each in ("all", *LANGUAGES)],
        )
        for name in BLEU_1
    ]
    tuned = Tuned(
        arm="ugsd-sparse",
        measure="max-probability",
        goal=0.75,
        threshold=0.65,
        dev_share=0.12,
        dev_gap_closed={"en": 0.8, "zh": 0.76},
        num_tried=12,
    )
    manifest = Manifest(
        dataset="data",
        dev="dev",
        num_clips=dict.fromkeys(LANGUAGES, 2),
        num_dev_clips=dict.fromkeys(LANGUAGES, 3),
        seconds=10.0,
        draft="captioner:edge",
        target="captioner:cloud",
        draft_sends="pooled at 12.5 Hz",
        feature_dtype="int8",
        max_tokens=128,
        seed=0,
        versions={"numpy": "2"},
        started_at="2026-11-30T00:00:00Z",
        command="edgedraft bench caption data --out <here>",
    )
    return CaptionResults(
        manifest=manifest,
        setting=SETTING,
        tuned=[tuned],
        arms=arms,
        exact=ExactCheck(num_clips=4, differing=list(differing)),
        ratios=[
            ratio(name, language, value)
            for name, value in (("ugsd", 1.03), ("cloud-only", 1.05), ("exact", 1.04))
            for language in ("all", *LANGUAGES)
        ],
        sweeps=_sweeps(),
        live=[_live()] if live else [],
        notes=["A note of the run."],
    )


def made_clips() -> list[ClipRecord]:
    counts = dict.fromkeys(
        ("num_drafted", "num_gated", "num_judged", "num_local", "num_calls", "num_corrections", "tokens_up"), 3
    )
    return [
        ClipRecord(
            arm=name,
            clip=f"{language}/{number}.wav",
            language=language,
            seconds=2.5,
            text="A <calm> voice.",
            token_ids=[1, 2, 3, 4],
            kinds=["own"] * 4 if name == "cloud-only" else ["local", "accepted", "recovered", "local"],
            entropies=[0.1, 0.9, 1.5, None],
            **counts,
            feature_bytes=1_250,
            bytes_up=1_500,
            bytes_down=90,
            ttft_s=0.15,
            total_s=1.2,
        )
        for name in ("cloud-only", "ugsd", "ugsd-sparse")
        for language in LANGUAGES
        for number in range(2)
    ]
