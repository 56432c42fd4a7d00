"""From captions measured live to one row an arm. The formulas are those of `FORMULAS`, which reports print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from edgedraft.bench.bootstrap import LEVEL, NUM_RESAMPLES
from edgedraft.bench.caption_arms import EDGE_ONLY
from edgedraft.bench.caption_live import GPU_PERIOD_S, LiveCaption, LivePlan, clip_id
from edgedraft.bench.caption_results import ClipRecord, LiveArm, LiveRun
from edgedraft.bench.process_load import NO_GPU_NOTE
from edgedraft.caption.intervals import Interval

FORMULAS: Mapping[str, str] = {
    "TTFT": "from handing the recording over, its features still to be made, to the first committed token; mean",
    "total": "from handing the recording over to the last token; mean; the link is connected before",
    "OET": "generation time: total less the making of features; taking in recording and prompt is part of it; mean",
    "OTPS": "committed tokens / OET, each summed over clips first",
    "ITPS": (
        "vectors of features and prompt ids that the draft takes in / the time of its `listen` and first `append`, "
        "each summed over clips first; none for cloud-only, whose cloud tells no such time"
    ),
    "CPU %": (
        "100 x processor time of the process (utime + stime in /proc/PID/stat) / wall time, each summed over the arm's "
        "captions; 100 is one core"
    ),
    "RAM": (
        "resident memory of the process (VmRSS in /proc/PID/status), the highest at the end of a caption; one edge "
        "process serves all arms, so it holds the draft in cloud-only too"
    ),
    "GPU %, peak %, MiB": (
        f"utilisation and used memory of the first card, whoever uses it (NVML), read every {GPU_PERIOD_S:g} s of a "
        "caption and at its end; GPU %: mean of all readings, peak: highest, MiB: highest"
    ),
    "over edge-only": "total of the arm / total of edge-only, each summed over the same clips; paired bootstrap",
    "per token": "OTPS of edge-only / OTPS of the arm: the same without what captions differ in length",
    "total / virtual": "mean total / the simulator's mean total for the same clips, edge and link",
}
"""What each column of the live table is."""


def live_run(plan: LivePlan, captions: Sequence[LiveCaption], simulated: Iterable[ClipRecord] = ()) -> LiveRun:
    """`simulated`: captions of the same arms, with the same link and edge; others among them are ignored."""
    twins = {(clip.arm, clip.clip): clip for clip in simulated}
    rng = np.random.default_rng(plan.seed)
    by_arm = {arm: _in_order(plan, [each for each in captions if each.arm == arm]) for arm in plan.arms}
    edge_only = by_arm.get(EDGE_ONLY)
    arms = [_arm(arm, found, edge_only, twins, rng) for arm, found in by_arm.items()]
    pairs = [(each, twins[key]) for each in captions if (key := (each.arm, each.clip)) in twins]
    rate = plan.link.up.bytes_per_s
    notes = [] if any(each.gpu for each in captions) else [f"{NO_GPU_NOTE[0].upper()}{NO_GPU_NOTE[1:]}."]
    if plan.draft_step_s:
        notes.append("The slow edge is emulated: it waits idly for the rest of each step, so its CPU % is low.")
    return LiveRun(
        rtt_s=plan.link.up.delay_s + plan.link.down.delay_s,
        bytes_per_s=None if rate == float("inf") else rate,
        draft_step_s=plan.draft_step_s or None,
        arms=arms,
        texts_equal=all(list(live.token_ids) == twin.token_ids for live, twin in pairs) if pairs else None,
        notes=notes,
    )


def _in_order(plan: LivePlan, captions: Sequence[LiveCaption]) -> list[LiveCaption]:
    """In the order of the plan's clips, so that two arms can be paired."""
    places = {clip_id(clip): number for number, clip in enumerate(plan.clips)}
    return sorted(captions, key=lambda each: places[each.clip])


def _arm(
    name: str,
    captions: Sequence[LiveCaption],
    edge_only: Sequence[LiveCaption] | None,
    twins: Mapping[tuple[str, str], ClipRecord],
    rng: np.random.Generator,
) -> LiveArm:
    ones = [1.0] * len(captions)
    totals_s = [each.total_s for each in captions]
    wall_s = sum(each.wall_s for each in captions)
    inputs = [(each.num_input_tokens, each.input_s) for each in captions if each.input_s and each.num_input_tokens]
    gpu = [reading for each in captions for reading in each.gpu]
    busy = [reading.busy_share for reading in gpu]
    virtual_s = [twin.total_s for each in captions if (twin := twins.get((name, each.clip)))]
    return LiveArm(
        arm=name,
        num_clips=len(captions),
        ttft_s=_ratio([each.ttft_s for each in captions], ones, rng),
        total_s=_ratio(totals_s, ones, rng),
        oet_s=_ratio([each.generation_s for each in captions], ones, rng),
        otps=_ratio([len(each.token_ids) for each in captions], [each.generation_s for each in captions], rng),
        itps=_ratio([count for count, _ in inputs], [took_s for _, took_s in inputs], rng) if inputs else None,
        edge_cpu=sum(each.edge_cpu_s for each in captions) / wall_s,
        cloud_cpu=sum(each.cloud_cpu_s for each in captions) / wall_s,
        edge_ram_bytes=max(each.edge_ram_bytes for each in captions),
        cloud_ram_bytes=max(each.cloud_ram_bytes for each in captions),
        gpu_share=sum(busy) / len(busy) if busy else None,
        gpu_peak_share=max(busy, default=None),
        gpu_bytes=max((reading.used_bytes for reading in gpu), default=None),
        over_edge_only=_ratio(totals_s, [each.total_s for each in edge_only], rng) if edge_only else None,
        virtual_total_s=sum(virtual_s) / len(virtual_s) if len(virtual_s) == len(captions) else None,
    )


def _ratio(above: Sequence[float], below: Sequence[float], rng: np.random.Generator) -> Interval:
    """Sum of `above` over sum of `below`, with its interval over clips; with ones below it is a mean."""
    draws = rng.integers(0, len(above), size=(NUM_RESAMPLES, len(above)))
    ratios = np.asarray(above)[draws].sum(axis=1) / np.asarray(below)[draws].sum(axis=1)
    low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value=sum(above) / sum(below), low=float(low), high=float(high))
