"""What a process takes of the machine: processor time and memory from /proc, the GPU from NVIDIA's library."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgedraft.errors import EdgedraftError

PROC = Path("/proc")
NO_GPU_NOTE = "no GPU: the figures of one are missing"
_STAT_USER, _STAT_SYSTEM = 11, 12
"""Places in /proc/PID/stat, counted behind the name in brackets (proc(5), fields 14 and 15)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLoad:
    """`cpu_s`: processor time of all its threads since it began, in steps of the kernel's clock (10 ms as a rule).

    `ram_bytes`, `peak_ram_bytes`: resident memory now (VmRSS) and at its highest so far (VmHWM), shared pages included.
    """

    cpu_s: float
    ram_bytes: int
    peak_ram_bytes: int


def process_load(pid: int, proc: Path = PROC) -> ProcessLoad:
    """Of process `pid` until now. Raises `EdgedraftError` where there is no such process, or no /proc."""
    try:
        # The name may hold spaces and brackets; the last bracket ends it.
        numbers = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        lines = (proc / str(pid) / "status").read_text().splitlines()
        sizes = dict(line.split(":", 1) for line in lines if line.startswith(("VmRSS:", "VmHWM:")))
        ticks = int(numbers[_STAT_USER]) + int(numbers[_STAT_SYSTEM])
        return ProcessLoad(
            cpu_s=ticks / os.sysconf("SC_CLK_TCK"),
            ram_bytes=_kib(sizes["VmRSS"]),
            peak_ram_bytes=_kib(sizes["VmHWM"]),
        )
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise EdgedraftError(f"the load of process {pid} cannot be read: {type(error).__name__}.") from error


def _kib(text: str) -> int:
    return 1024 * int(text.split()[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLoad:
    """Of the whole card, whoever uses it. `busy_share`: of the driver's last sampling period, in which it computed."""

    busy_share: float
    used_bytes: int


class GpuMeter:
    """The first GPU. `nvml`: the module `pynvml`, initialised. Raises what that library raises."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._device = nvml.nvmlDeviceGetHandleByIndex(0)

    def read(self) -> GpuLoad:
        return GpuLoad(
            busy_share=float(self._nvml.nvmlDeviceGetUtilizationRates(self._device).gpu) / 100,
            used_bytes=int(self._nvml.nvmlDeviceGetMemoryInfo(self._device).used),
        )


@contextlib.contextmanager
def gpu_meter() -> Iterator[GpuMeter | None]:
    """The meter of this machine's GPU while the block lasts; None where there is none, or it tells nothing."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # a missing library, driver or device: all mean that there is nothing to read
        yield None
        return
    try:
        meter = GpuMeter(pynvml)
        meter.read()  # a part of a card (MIG) does not tell its utilisation
    except pynvml.NVMLError:
        meter = None
    try:
        yield meter
    finally:
        pynvml.nvmlShutdown()
