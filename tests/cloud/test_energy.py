"""Meters over a false sensor library, false counters and a declared power; time is the test's own."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgedraft.cloud import energy
from edgedraft.cloud.energy import ModelledMeter, NvmlMeter, RaplMeter, choose_meter
from edgedraft.metrics.energy import A800_CLASS, CPU_CLASS, EnergyKind, PowerModel


class FalseNvml:
    """`pynvml` as far as it is used: one GPU whose power the test sets, in watts."""

    def __init__(self, *, instant: bool = False) -> None:
        self.power_w = 100.0
        self.is_open = False
        self.fails = False
        if instant:
            self.NVML_FI_DEV_POWER_INSTANT = 186

    def nvmlInit(self) -> None:
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, device: int) -> str:
        return "False GPU"

    def nvmlDeviceGetPowerUsage(self, device: int) -> int:
        if self.fails:
            raise RuntimeError("GPU is lost")
        return int(self.power_w * 1000)

    def nvmlDeviceGetFieldValues(self, device: int, fields: list[int]) -> list[Any]:
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=int(2 * self.power_w * 1000)))]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    now = SimpleNamespace(s=0.0)
    monkeypatch.setattr(energy, "perf_counter", lambda: now.s)
    monkeypatch.setattr(energy, "SAMPLE_EVERY_S", 3600.0)  # samples only where the test can see them
    return now


@pytest.fixture
def powercap(tmp_path: Path) -> Path:
    for zone, name in (("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "core"), ("intel-rapl:1", "psys")):
        (tmp_path / zone).mkdir()
        (tmp_path / zone / "name").write_text(name + "\n")
        (tmp_path / zone / "energy_uj").write_text("1000000\n")
        (tmp_path / zone / "max_energy_range_uj").write_text("9000000\n")
    return tmp_path


def set_counter(powercap: Path, energy_uj: int) -> None:
    (powercap / "intel-rapl:0" / "energy_uj").write_text(f"{energy_uj}\n")


def test_a_modelled_meter_multiplies_busy_time_by_the_declared_power(clock: SimpleNamespace) -> None:
    meter = ModelledMeter(PowerModel(name="board", idle_w=1.0, active_w=50.0))
    for _ in range(2):
        meter.begin()
        clock.s += 0.5
        meter.end()
        clock.s += 10.0
    reading = meter.reading()
    assert (reading.energy_j, reading.busy_s, reading.kind) == (50.0, 1.0, EnergyKind.MODELLED)
    assert "declared" in reading.source
    meter.close()


def test_nvml_power_is_integrated_while_busy_alone(clock: SimpleNamespace) -> None:
    nvml = FalseNvml()
    meter = NvmlMeter(nvml)
    clock.s = 5.0
    meter.begin()
    nvml.power_w, clock.s = 300.0, 7.0
    meter.end()
    clock.s = 100.0
    reading = meter.reading()
    assert reading.energy_j == pytest.approx(2.0 * 200.0)
    assert reading.busy_s == 2.0
    assert reading.kind is EnergyKind.MEASURED
    assert "False GPU" in reading.source
    meter.close()
    meter.close()
    assert not nvml.is_open


def test_nvml_takes_the_power_of_the_moment_where_there_is_one(clock: SimpleNamespace) -> None:
    meter = NvmlMeter(FalseNvml(instant=True))
    meter.begin()
    clock.s += 1.0
    meter.end()
    meter.close()
    assert meter.reading().energy_j == pytest.approx(200.0)


def test_a_sensor_that_fails_for_a_moment_stops_nothing(clock: SimpleNamespace) -> None:
    nvml = FalseNvml()
    meter = NvmlMeter(nvml)
    nvml.fails = True
    meter.begin()
    clock.s += 1.0
    meter.end()
    meter.close()
    assert meter.reading().energy_j == pytest.approx(100.0)


def test_nvml_samples_in_a_thread_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "SAMPLE_EVERY_S", 0.001)
    meter = NvmlMeter(FalseNvml())
    while len(meter._samples) < 5:
        pass
    meter.close()
    assert not meter._thread.is_alive()


def test_rapl_counts_packages_and_not_their_parts(clock: SimpleNamespace, powercap: Path) -> None:
    meter = RaplMeter(powercap)
    meter.begin()
    clock.s += 2.0
    set_counter(powercap, 4_000_000)
    meter.end()
    reading = meter.reading()
    assert (reading.energy_j, reading.busy_s, reading.kind) == (3.0, 2.0, EnergyKind.MEASURED)
    assert "1 processor package" in reading.source


def test_rapl_survives_the_end_of_its_counter(powercap: Path) -> None:
    meter = RaplMeter(powercap)
    set_counter(powercap, 8_500_000)
    meter.begin()
    set_counter(powercap, 500_000)
    meter.end()
    assert meter.reading().energy_j == pytest.approx(1.0)


def test_rapl_leaves_out_what_it_could_not_read(clock: SimpleNamespace, powercap: Path) -> None:
    meter = RaplMeter(powercap)
    meter.begin()
    clock.s += 1.0
    (powercap / "intel-rapl:0" / "energy_uj").unlink()
    meter.end()
    meter.begin()
    set_counter(powercap, 1)
    meter.end()
    assert (meter.reading().energy_j, meter.reading().busy_s) == (0.0, 0.0)


def test_the_best_meter_there_is(monkeypatch: pytest.MonkeyPatch, powercap: Path, tmp_path: Path) -> None:
    nvml = FalseNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    meter = choose_meter(on_gpu=True)
    assert isinstance(meter, NvmlMeter)
    meter.close()
    assert isinstance(choose_meter(on_gpu=False, powercap_dir=powercap), RaplMeter)


def test_a_gpu_without_a_power_sensor_leaves_its_library_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FalseNvml()
    nvml.fails = True
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    assert choose_meter(on_gpu=True).reading().kind is EnergyKind.MODELLED
    assert not nvml.is_open


def test_without_a_sensor_energy_is_modelled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # importing it fails
    gpu, processor = choose_meter(on_gpu=True), choose_meter(on_gpu=False, powercap_dir=tmp_path)
    assert A800_CLASS.name in gpu.reading().source
    assert CPU_CLASS.name in processor.reading().source
    assert gpu.reading().kind is processor.reading().kind is EnergyKind.MODELLED
