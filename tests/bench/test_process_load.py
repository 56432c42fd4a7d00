"""The load of a process: processor time, memory, GPU."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import process_time
from types import SimpleNamespace

import pytest

from edgedraft.bench.process_load import GpuLoad, gpu_meter, process_load
from edgedraft.errors import EdgedraftError

STATUS = "Name:\tx\nVmHWM:\t   2048 kB\nVmRSS:\t   1024 kB\n"
# Behind the name: state, five ids, flags, four fault counts, then user and system time.
STAT = "7 (odd) name (x)) S 1 2 3 4 5 6 7 8 9 10 250 150 0 0 20 0 1 0\n"


def _proc(root: Path, stat: str = STAT, status: str = STATUS) -> Path:
    (root / "7").mkdir()
    (root / "7" / "stat").write_text(stat)
    (root / "7" / "status").write_text(status)
    return root


def test_both_times_are_added_and_a_name_with_brackets_does_no_harm(tmp_path: Path) -> None:
    load = process_load(7, _proc(tmp_path))
    assert load.cpu_s == pytest.approx(400 / os.sysconf("SC_CLK_TCK"))
    assert (load.ram_bytes, load.peak_ram_bytes) == (1 << 20, 2 << 20)


def test_it_agrees_with_this_process() -> None:
    before, started_s = process_load(os.getpid()), process_time()
    while process_time() - started_s < 0.2:
        pass
    spent_s = process_load(os.getpid()).cpu_s - before.cpu_s
    assert 0.15 <= spent_s <= 0.5
    assert before.peak_ram_bytes >= before.ram_bytes > 10 << 20


@pytest.mark.parametrize("stat", ["", "7 (x) S 1", STAT.replace("250", "many")])
def test_what_cannot_be_read_is_an_error_of_ours(tmp_path: Path, stat: str) -> None:
    with pytest.raises(EdgedraftError, match="process 7"):
        process_load(7, _proc(tmp_path, stat))
    with pytest.raises(EdgedraftError, match="process 8"):
        process_load(8, tmp_path)


def _nvml(*, has_device: bool, calls: list[str]) -> SimpleNamespace:
    class NVMLError(Exception):
        pass

    def handle(index: int) -> str:
        if not has_device:
            raise NVMLError("no device")
        return f"card {index}"

    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: calls.append("init"),
        nvmlShutdown=lambda: calls.append("shutdown"),
        nvmlDeviceGetHandleByIndex=handle,
        nvmlDeviceGetUtilizationRates=lambda device: SimpleNamespace(gpu=37),
        nvmlDeviceGetMemoryInfo=lambda device: SimpleNamespace(used=5_000),
    )


@pytest.mark.parametrize("has_device", [True, False])
def test_a_gpu_is_read_and_let_go(has_device: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setitem(sys.modules, "pynvml", _nvml(has_device=has_device, calls=calls))
    with gpu_meter() as meter:
        assert (meter is not None) is has_device
        if meter is not None:
            assert meter.read() == GpuLoad(busy_share=0.37, used_bytes=5_000)
        assert calls == ["init"]
    assert calls == ["init", "shutdown"]


def test_a_card_that_does_not_tell_its_use_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = _nvml(has_device=True, calls=[])

    def refuse(device: str) -> None:
        raise nvml.NVMLError("not supported")

    nvml.nvmlDeviceGetUtilizationRates = refuse
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with gpu_meter() as meter:
        assert meter is None


def test_without_the_library_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with gpu_meter() as meter:
        assert meter is None
