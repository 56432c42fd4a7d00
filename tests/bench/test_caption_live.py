"""Captions in real time, through processes, sockets and the link emulator; and what is made of the measurements."""

from __future__ import annotations

import asyncio
import errno
import itertools
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from tests.backends.captioner_pair import write_dataset, write_pair

from edgedraft.bench import caption_live
from edgedraft.bench.caption_live import (
    LiveCaption,
    LivePlan,
    clip_id,
    gpu_readings,
    live_plan,
    measure_live,
)
from edgedraft.bench.caption_live_figures import live_run
from edgedraft.bench.caption_results import ClipRecord
from edgedraft.bench.caption_tables import WIDE_CHARACTERS, live_table
from edgedraft.bench.process_load import GpuLoad, GpuMeter
from edgedraft.caption.dataset import Dataset, DatasetItem, load_dataset
from edgedraft.core.gate import Measure, Threshold
from edgedraft.errors import EdgedraftError, InvalidRequestError, ModelFileError
from edgedraft.schedule.caption_catalogue import cloud_only, edge_only, exact, ugsd_sparse
from edgedraft.sim.network import LinkDirection, LinkProfile

from .caption_made import made_results

RTT_S, STEP_S, MAX_TOKENS = 0.02, 0.004, 12
GPU_LOAD = GpuLoad(busy_share=0.5, used_bytes=7)
ARMS = {"edge-only": edge_only(), "cloud-only": cloud_only(), "exact": exact(), "ugsd-sparse": ugsd_sparse()}


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> LivePlan:
    root = tmp_path_factory.mktemp("live")
    draft, target = write_pair(root)
    return LivePlan(
        draft=draft,
        target=target,
        arms=ARMS,
        clips=load_dataset(write_dataset(root / "data")).items,
        link=LinkProfile.symmetric(rtt_s=RTT_S),
        draft_step_s=STEP_S,
        max_tokens=MAX_TOKENS,
    )


@pytest.fixture(scope="module")
def captions(plan: LivePlan) -> list[LiveCaption]:
    return measure_live(plan)


def _of(captions: list[LiveCaption], arm: str) -> dict[str, LiveCaption]:
    return {each.clip: each for each in captions if each.arm == arm}


# -- measuring -----------------------------------------------------------------------------------------------------


def test_every_arm_captions_every_clip_and_no_clip_twice_in_a_row(plan: LivePlan) -> None:
    order = list(plan.order())
    assert len({(arm, clip_id(clip)) for arm, clip in order}) == len(order) == plan.num_captions
    assert all(one is not following for (_, one), (_, following) in itertools.pairwise(order))
    assert len({arm for arm, _ in order[: len(plan.clips)]}) == len(plan.clips)  # the first pass has all arms


def test_all_are_measured_in_that_order(plan: LivePlan, captions: list[LiveCaption]) -> None:
    assert [(each.arm, each.clip) for each in captions] == [(arm, clip_id(clip)) for arm, clip in plan.order()]
    assert len({each.clip for each in captions}) == 4


def test_exact_is_the_targets_own_text_and_the_edge_writes_another(captions: list[LiveCaption]) -> None:
    alone, judged, edge = (_of(captions, arm) for arm in ("cloud-only", "exact", "edge-only"))
    assert all(judged[clip].token_ids == caption.token_ids for clip, caption in alone.items())
    assert any(edge[clip].token_ids != caption.token_ids for clip, caption in alone.items())


def test_the_slow_edge_and_the_link_are_in_the_times(captions: list[LiveCaption]) -> None:
    for each in captions:
        assert 0 < each.ready_s < each.ttft_s <= each.total_s <= each.wall_s
    for each in _of(captions, "edge-only").values():
        assert each.total_s >= len(each.token_ids) * STEP_S
        assert each.num_input_tokens in (20 + 1, 25 + 1)  # 0.8 or 1 s at 25 Hz, one id
        assert each.input_s is not None
        assert 0 < each.input_s < each.ttft_s
    for each in _of(captions, "cloud-only").values():
        assert each.ttft_s >= RTT_S
        assert each.input_s is None


def test_the_load_is_of_the_edge_and_the_cloud(captions: list[LiveCaption]) -> None:
    assert all(min(each.edge_ram_bytes, each.cloud_ram_bytes) > 10 << 20 for each in captions)
    assert sum(each.cloud_cpu_s for each in captions) > 0
    assert sum(each.edge_cpu_s for each in captions) > 0


def test_an_error_of_the_edge_process_is_raised_here_as_what_it_is(plan: LivePlan, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="there is no file"):
        measure_live(replace(plan, draft=f"captioner:{tmp_path / 'none.npz'}"))


def test_a_machine_that_starts_no_process_says_so(plan: LivePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(EdgedraftError, match="cannot be started: Resource temporarily unavailable"):
        measure_live(plan)


@pytest.mark.parametrize(("num_periods", "least"), [(0, 1), (3.5, 3)])
def test_the_gpu_is_read_all_through_a_caption_and_at_its_end(
    num_periods: float, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caption_live, "GPU_PERIOD_S", 0.02)
    meter = SimpleNamespace(read=lambda: GPU_LOAD)

    async def caption() -> list[GpuLoad]:
        async with gpu_readings(cast(GpuMeter, meter)) as readings:
            await asyncio.sleep(num_periods * 0.02)
        found = list(readings)
        await asyncio.sleep(0.05)  # nothing is read any more
        assert readings == found
        return found

    assert least <= len(asyncio.run(caption())) <= num_periods + 1


def test_a_plan_needs_two_clips_and_an_arm(plan: LivePlan) -> None:
    with pytest.raises(InvalidRequestError, match="live is 1"):
        replace(plan, clips=plan.clips[:1])
    with pytest.raises(InvalidRequestError, match="arms is empty"):
        replace(plan, arms={})


# -- figures ---------------------------------------------------------------------------------------------------------


def _caption(arm: str, clip: str, total_s: float, **fields: object) -> LiveCaption:
    values: dict[str, object] = {
        "arm": arm,
        "clip": clip,
        "token_ids": (5, 6, 7, 8),
        "ttft_s": 0.1,
        "total_s": total_s,
        "ready_s": 0.05,
        "input_s": 0.01,
        "num_input_tokens": 20,
        "wall_s": total_s,
        "edge_cpu_s": total_s / 4,
        "cloud_cpu_s": 0.0,
        "edge_ram_bytes": 100,
        "cloud_ram_bytes": 200,
        "gpu": (),
    }
    return LiveCaption(**{**values, **fields})  # type: ignore[arg-type]


def _twin(arm: str, clip: str, total_s: float, token_ids: list[int]) -> ClipRecord:
    counts = dict.fromkeys(
        ("num_drafted", "num_gated", "num_judged", "num_local", "num_calls", "num_corrections", "tokens_up"), 0
    )
    sizes = dict.fromkeys(("feature_bytes", "bytes_up", "bytes_down"), 0)
    return ClipRecord(
        arm=arm,
        clip=clip,
        language="en",
        seconds=1.0,
        text="",
        token_ids=token_ids,
        kinds=[],
        entropies=[],
        ttft_s=0.1,
        total_s=total_s,
        **counts,
        **sizes,
    )


@pytest.fixture
def made_plan() -> LivePlan:
    clips = [DatasetItem(name=name, path=Path(name), language="en", captions=("x",)) for name in ("a", "b")]
    arms = {"edge-only": edge_only(), "ugsd": exact()}
    link = LinkProfile.symmetric(rtt_s=0.03, bytes_per_s=1_000.0)
    return LivePlan(draft="d", target="t", arms=arms, clips=clips, link=link)


@pytest.fixture
def made() -> list[LiveCaption]:
    """Not in the order of the clips, as they come."""
    return [
        _caption("ugsd", "en/b", 4.05, gpu=(GPU_LOAD,)),
        _caption("edge-only", "en/a", 1.05, input_s=0.03),
        _caption("ugsd", "en/a", 2.05, gpu=(GpuLoad(busy_share=0.2, used_bytes=9), GPU_LOAD), edge_ram_bytes=150),
        _caption("edge-only", "en/b", 2.05),
    ]


def test_figures_follow_their_formulas(made_plan: LivePlan, made: list[LiveCaption]) -> None:
    edge, gated = live_run(made_plan, made).arms
    assert edge.total_s.value == pytest.approx(1.55)
    assert edge.oet_s.value == pytest.approx(1.5)
    assert edge.otps.value == pytest.approx(8 / 3.0)
    assert edge.itps is not None
    assert edge.itps.value == pytest.approx(40 / 0.04)
    assert edge.edge_cpu == pytest.approx(0.25)
    assert (gated.edge_ram_bytes, gated.gpu_peak_share, gated.gpu_bytes) == (150, 0.5, 9)
    assert gated.gpu_share == pytest.approx((0.2 + 0.5 + 0.5) / 3)
    assert (edge.gpu_share, edge.gpu_peak_share, edge.gpu_bytes) == (None, None, None)
    assert gated.over_edge_only is not None
    assert gated.over_edge_only.value == pytest.approx(6.1 / 3.1)


def test_ratios_are_paired_by_clip(made_plan: LivePlan, made: list[LiveCaption]) -> None:
    """Both clips take about twice as long: by clip the ratio hardly varies, though the totals do."""
    gated = live_run(made_plan, made).arms[1]
    assert gated.over_edge_only is not None
    assert gated.over_edge_only.high - gated.over_edge_only.low < 0.05
    assert gated.total_s.high - gated.total_s.low > 1


def test_live_is_compared_with_the_same_captions_in_virtual_time(made_plan: LivePlan, made: list[LiveCaption]) -> None:
    twins = [_twin(arm, clip, 1.0, [5, 6, 7, 8]) for arm in made_plan.arms for clip in ("en/a", "en/b", "en/c")]
    run = live_run(made_plan, made, twins)
    assert run.texts_equal is True
    assert [arm.virtual_total_s for arm in run.arms] == [1.0, 1.0]
    other = [*twins[:-2], _twin("ugsd", "en/b", 1.0, [5, 6, 7, 9])]
    assert live_run(made_plan, made, other).texts_equal is False
    assert live_run(made_plan, made).texts_equal is None
    assert live_run(made_plan, made, twins[:4]).arms[1].virtual_total_s is None  # a clip has no twin


def test_it_says_what_is_missing_and_what_was_emulated(made_plan: LivePlan, made: list[LiveCaption]) -> None:
    run = live_run(replace(made_plan, draft_step_s=0.025), [replace(each, gpu=()) for each in made])
    assert any("No GPU" in note for note in run.notes)
    assert any("emulated" in note for note in run.notes)
    assert (run.rtt_s, run.bytes_per_s, run.draft_step_s) == (0.03, 1_000.0, 0.025)


# -- the plan of a run -------------------------------------------------------------------------------------------------


def test_a_run_is_measured_live_with_its_own_arms_edge_and_link(plan: LivePlan) -> None:
    dataset = Dataset(source=Path("captions.jsonl"), items=tuple(plan.clips))
    made = live_plan(made_results(), dataset, 3)
    assert [clip.language for clip in made.clips] == ["en", "zh", "en"]
    assert list(made.arms) == ["edge-only", "cloud-only", "ugsd", "ugsd-sparse"]  # exact would take long and say little
    gating = made.arms["ugsd-sparse"].gating
    assert gating is not None
    assert gating.gate == Threshold(Measure.MAX_PROBABILITY, 0.65)
    assert (made.draft_step_s, made.max_tokens, made.draft) == (0.025, 128, "captioner:edge")
    assert made.link.up == LinkDirection(delay_s=0.015, bytes_per_s=1e6)
    assert made.link.down == LinkDirection(delay_s=0.015)


def test_a_measured_edge_is_as_fast_as_it_is(plan: LivePlan) -> None:
    results = made_results()
    here = msgspec.structs.replace(results, setting=msgspec.structs.replace(results.setting, edge="measured"))
    dataset = Dataset(source=Path("captions.jsonl"), items=tuple(plan.clips))
    assert live_plan(here, dataset, 2).draft_step_s == 0.0


def test_a_terminal_has_room_for_the_brief_table(made_plan: LivePlan, made: list[LiveCaption]) -> None:
    run = live_run(made_plan, made)
    brief, whole = live_table(run, width=WIDE_CHARACTERS), live_table(run)
    widest = [max(len(str(row[place])) for row in brief.rows) for place in range(len(brief.columns))]
    assert sum(widest) + 3 * len(widest) + 1 <= 120
    assert set(brief.columns) < set(whole.columns)
    assert [row[-1] for row in brief.rows] == [row[whole.columns.index("over edge-only")] for row in whole.rows]
