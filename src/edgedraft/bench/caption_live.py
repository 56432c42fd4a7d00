"""Captions in real time: an edge process, a cloud process, sockets and an emulated link, arms in turn on each clip.

Every arm captions every clip. Pass after pass goes over all clips, and each pass moves the arms on by one clip: so arms
share whatever the machine does meanwhile, and no clip is heard twice in a row (a draft may keep what it has heard).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import multiprocessing
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import perf_counter
from urllib.parse import urlsplit

from edgedraft.backends.listening import listening
from edgedraft.bench.caption_arms import CLOUD_ONLY, EDGE_ONLY, SPARSE, UGSD, strategy_of
from edgedraft.bench.caption_clips import MIN_LIVE_CLIPS
from edgedraft.bench.caption_results import CaptionResults
from edgedraft.bench.cloud_process import CloudProcess, cloud_process
from edgedraft.bench.process_load import GpuLoad, GpuMeter, gpu_meter, process_load
from edgedraft.caption.audio import load
from edgedraft.caption.captioner import AsyncCaptioner
from edgedraft.caption.dataset import Dataset, DatasetItem
from edgedraft.caption.request import DEFAULT_MAX_TOKENS, CaptionRequest
from edgedraft.core.strategy import Strategy
from edgedraft.errors import EdgedraftError, InvalidRequestError, error_class
from edgedraft.sim.network import LinkDirection, LinkProfile
from edgedraft.speech_features import FeatureDtype
from edgedraft.testing.link import running_link
from edgedraft.testing.slow_draft import SlowDraft

LIVE_ARMS = (EDGE_ONLY, CLOUD_ONLY, UGSD, SPARSE)
STOP_TIMEOUT_S = 10.0
GPU_PERIOD_S = 0.2
SETTLE_S = 0.02
"""Between two captions, beside a draft step that may be under way: so that none pays for the end of the one before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePlan:
    """What is to be measured. Raises `InvalidRequestError` for too few clips or arms.

    `draft`, `target`: specs. `arms`: name to strategy. `draft_step_s`: what a drafted token takes at least; 0: as fast
    as the machine.
    """

    draft: str
    target: str
    arms: Mapping[str, Strategy]
    clips: Sequence[DatasetItem]
    link: LinkProfile
    draft_step_s: float = 0.0
    max_tokens: int = DEFAULT_MAX_TOKENS
    dtype: FeatureDtype = FeatureDtype.INT8
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.clips) < MIN_LIVE_CLIPS:
            raise InvalidRequestError(
                f"live is {len(self.clips)}; legal: {MIN_LIVE_CLIPS} or more clips.", field="live"
            )
        if not self.arms:
            raise InvalidRequestError("arms is empty; legal: at least one.", field="arms")

    @property
    def num_captions(self) -> int:
        return len(self.arms) * len(self.clips)

    def order(self) -> Iterator[tuple[str, DatasetItem]]:
        """Every arm with every clip once, as the module says."""
        names = list(self.arms)
        for turn in range(len(names)):
            for number, clip in enumerate(self.clips):
                yield names[(number + turn) % len(names)], clip


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCaption:
    """One caption, measured. `clip`: its `clip_id`.

    `ttft_s`, `ready_s`, `total_s`: from when the recording was handed over; at `ready_s` its features were made and the
    request began. `input_s`, `num_input_tokens`: of the draft, see `SlowDraft`; None where it was not used. `*_cpu_s`:
    processor time of each process over the `wall_s` that the caption took. `*_ram_bytes`: resident memory at its end.
    `gpu`: readings of it meanwhile, the last at the end; empty without one.
    """

    arm: str
    clip: str
    token_ids: tuple[int, ...]
    ttft_s: float
    total_s: float
    ready_s: float
    input_s: float | None
    num_input_tokens: int | None
    wall_s: float
    edge_cpu_s: float
    cloud_cpu_s: float
    edge_ram_bytes: int
    cloud_ram_bytes: int
    gpu: tuple[GpuLoad, ...]

    @property
    def generation_s(self) -> float:
        return self.total_s - self.ready_s


def live_plan(results: CaptionResults, dataset: Dataset, num_clips: int) -> LivePlan:
    """The run's own models, arms, edge and link, over its first clips, in its languages by turns.

    Raises `InvalidRequestError` for too few clips.
    """
    manifest, setting = results.manifest, results.setting
    found = {result.arm.name: result.arm for result in results.arms}
    arms = {
        name: strategy_of(found[name], clip_number=0, language=dataset.languages[0], text_of=_no_text)
        for name in LIVE_ARMS
        if name in found
    }
    up, down = (rate or math.inf for rate in (setting.bytes_per_s_up, setting.bytes_per_s_down))
    delay_s = setting.rtt_s / 2
    by_turns = itertools.chain.from_iterable(itertools.zip_longest(*map(dataset.of, dataset.languages)))
    return LivePlan(
        draft=manifest.draft,
        target=manifest.target,
        arms=arms,
        clips=[item for item in by_turns if item is not None][:num_clips],
        link=LinkProfile(
            up=LinkDirection(delay_s=delay_s, bytes_per_s=up), down=LinkDirection(delay_s=delay_s, bytes_per_s=down)
        ),
        draft_step_s=setting.draft_step_s if setting.edge == "given" else 0.0,
        max_tokens=manifest.max_tokens,
        dtype=FeatureDtype(manifest.feature_dtype),
        seed=manifest.seed,
    )


def _no_text(ids: Sequence[int]) -> str:
    raise EdgedraftError("an arm with forced rules does not run live.")


def clip_id(item: DatasetItem) -> str:
    """A recording with captions in two languages is two clips."""
    return f"{item.language}/{item.name}"


OnCaption = Callable[[int, int, LiveCaption], None]


def measure_live(plan: LivePlan, on_caption: OnCaption = lambda done, total, caption: None) -> list[LiveCaption]:
    """All captions of the plan, told one by one. Starts and ends its own processes.

    Raises what captioner and cloud raise, and `EdgedraftError` where a process cannot be started or ends by itself.
    """
    captions: list[LiveCaption] = []
    with contextlib.closing(_captions(plan)) as found:
        for caption in found:
            captions.append(caption)
            on_caption(len(captions), plan.num_captions, caption)
    return captions


def _captions(plan: LivePlan) -> Generator[LiveCaption]:
    try:
        with cloud_process(plan.target) as cloud:
            address = urlsplit(cloud.url)
            upstream = (address.hostname or "", address.port or 0)
            with running_link(*upstream, plan.link, seed=plan.seed) as link:
                yield from _edge_process(plan, address._replace(netloc=f"{link.host}:{link.port}").geturl(), cloud)
    except OSError as error:
        raise EdgedraftError(f"edge, link and cloud cannot be started: {error.strerror or error}.") from error


# -- the edge process --------------------------------------------------------------------------------------------------


def _edge_process(plan: LivePlan, url: str, cloud: CloudProcess) -> Iterator[LiveCaption]:
    """What the edge measures, as it comes. The process ends with the iteration."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_edge_main, args=(plan, url, cloud.pid, there), daemon=True)
    child.start()
    there.close()
    try:
        while (news := _next_of(here)) is not None:
            if not isinstance(news, LiveCaption):
                code, message, remedy = news
                raise error_class(code)(message, remedy=remedy)
            yield news
    finally:
        here.close()
        child.terminate()
        child.join(STOP_TIMEOUT_S)
        if child.is_alive():
            child.kill()
            child.join()


_News = LiveCaption | tuple[str, str, str] | None


def _next_of(pipe: Connection) -> _News:
    try:
        news: _News = pipe.recv()
    except EOFError:
        raise EdgedraftError("the edge process ended before its captions did.") from None
    return news


def _edge_main(plan: LivePlan, url: str, cloud_pid: int, pipe: Connection) -> None:
    """The edge process: send every caption, or the error as its code, message and remedy; None at the end."""
    _follow_parent()
    try:
        asyncio.run(_measure_all(plan, url, cloud_pid, pipe))
        pipe.send(None)
    except EdgedraftError as error:
        pipe.send((error.code, error.message, error.remedy))
    except Exception as error:  # a fault of ours must reach the parent as well
        pipe.send((EdgedraftError.code, f"the edge process failed: {type(error).__name__}: {error}.", ""))


def _follow_parent() -> None:
    """Ctrl-C reaches every process of the terminal; the parent alone acts on it. Where that is killed, we end too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # there is nobody left to tell


async def _measure_all(plan: LivePlan, url: str, cloud_pid: int, pipe: Connection) -> None:
    with gpu_meter() as gpu:
        async with MeasuredCaptioner(url, draft=plan.draft, draft_step_s=plan.draft_step_s) as captioner:
            edge = LiveEdge(captioner, plan, cloud_pid, gpu)
            for arm in plan.arms:  # not measured: dials, and loads what is loaded at first use
                await edge.measure(arm, plan.clips[-1])
            for arm, clip in plan.order():
                pipe.send(await edge.measure(arm, clip))


class MeasuredCaptioner(AsyncCaptioner):
    """A captioner on a device that is as slow as is wished, and whose draft can be looked at."""

    draft: SlowDraft

    def __init__(self, url: str, *, draft: str, draft_step_s: float) -> None:
        super().__init__(url, draft=draft)
        self._draft_step_s = draft_step_s

    async def open(self) -> None:
        await super().open()
        _, drafter, _ = self._opened
        self.draft = SlowDraft(listening(drafter.sequence.backend), self._draft_step_s)
        drafter.sequence.backend = self.draft


@contextlib.asynccontextmanager
async def gpu_readings(meter: GpuMeter | None) -> AsyncIterator[list[GpuLoad]]:
    """Readings while the block lasts, one every `GPU_PERIOD_S`, and one at its end; none without a `meter`."""
    readings: list[GpuLoad] = []
    if meter is None:
        yield readings
        return

    async def read_on() -> None:
        while True:
            await asyncio.sleep(GPU_PERIOD_S)
            readings.append(meter.read())

    reading = asyncio.create_task(read_on())
    try:
        yield readings
        readings.append(meter.read())
    finally:
        reading.cancel()


@dataclass(slots=True)
class LiveEdge:
    """Captions one clip after another in this process, and reads the load of both processes around each."""

    captioner: MeasuredCaptioner
    plan: LivePlan
    cloud_pid: int
    gpu: GpuMeter | None

    async def measure(self, arm: str, clip: DatasetItem) -> LiveCaption:
        strategy = self.plan.arms[arm]
        recording = await asyncio.to_thread(load, clip.path)
        request = CaptionRequest(
            language=clip.language, strategy=strategy, max_tokens=self.plan.max_tokens, dtype=self.plan.dtype
        )
        await asyncio.sleep(self.plan.draft_step_s + SETTLE_S)
        edge_before, cloud_before = process_load(os.getpid()), process_load(self.cloud_pid)
        async with gpu_readings(self.gpu) as gpu:
            started_s = perf_counter()
            async with self.captioner.stream(recording, request) as stream:
                ready_s = perf_counter() - started_s
                async for _ in stream:
                    pass
            wall_s = perf_counter() - started_s
        edge, cloud = process_load(os.getpid()), process_load(self.cloud_pid)
        answer, draft = stream.caption.answer, self.captioner.draft
        total_s = answer.record.total_s
        return LiveCaption(
            arm=arm,
            clip=clip_id(clip),
            token_ids=tuple(answer.token_ids),
            ttft_s=total_s if answer.record.first_token_s is None else answer.record.first_token_s,
            total_s=total_s,
            ready_s=ready_s,
            input_s=draft.input_s if strategy.uses_draft else None,
            num_input_tokens=draft.num_input_tokens if strategy.uses_draft else None,
            wall_s=wall_s,
            edge_cpu_s=edge.cpu_s - edge_before.cpu_s,
            cloud_cpu_s=cloud.cpu_s - cloud_before.cpu_s,
            edge_ram_bytes=edge.ram_bytes,
            cloud_ram_bytes=cloud.ram_bytes,
            gpu=tuple(gpu),
        )
