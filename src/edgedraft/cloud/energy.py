"""Meters of the target's energy: a GPU's sensor, a processor's counter, or a declared power where there is neither.

The target's thread says `begin` before a piece of work and `end` after it; any thread may ask for `reading`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from edgedraft.backends.base import ListeningTarget, ScoreRequest, TargetBackend
from edgedraft.errors import UnsupportedError
from edgedraft.metrics.energy import (
    A800_CLASS,
    CPU_CLASS,
    EnergyKind,
    EnergyReading,
    PowerModel,
    PowerSample,
    energy_over_j,
)
from edgedraft.speech_features import SpeechFeatures
from edgedraft.types import Float32Array, ModelInfo

logger = logging.getLogger(__name__)

SAMPLE_EVERY_S = 0.01
KEPT_SAMPLES = 12_000
"""Two minutes: longer than any piece of work."""
POWERCAP_DIR = Path("/sys/class/powercap")


class EnergyMeter(Protocol):
    """Adds up the energy between `begin` and `end`. Neither raises, whatever a sensor does."""

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def reading(self) -> EnergyReading:
        """All that was added up so far."""

    def close(self) -> None:
        """Release the sensor; the last reading stays."""


class _Total:
    """What all meters have in common: the clock, the sums and their label."""

    def __init__(self, kind: EnergyKind, source: str) -> None:
        self._kind = kind
        self._source = source
        self._started_s = 0.0
        self._sums = (0.0, 0.0)  # joules and seconds, replaced as one so that `reading` never sees half of a change

    def begin(self) -> None:
        self._started_s = perf_counter()

    def reading(self) -> EnergyReading:
        energy_j, busy_s = self._sums
        return EnergyReading(energy_j=energy_j, busy_s=busy_s, kind=self._kind, source=self._source)

    def close(self) -> None:
        """Nothing to release."""

    def _add(self, energy_j: float, busy_s: float) -> None:
        self._sums = (self._sums[0] + energy_j, self._sums[1] + busy_s)


class ModelledMeter(_Total):
    """A declared power times the measured time."""

    def __init__(self, model: PowerModel) -> None:
        super().__init__(EnergyKind.MODELLED, f"{model.name}, {model.active_w:g} W declared")
        self._model = model

    def end(self) -> None:
        busy_s = perf_counter() - self._started_s
        self._add(self._model.energy_j(busy_s), busy_s)


class NvmlMeter(_Total):
    """One GPU's power, sampled every 10 ms by a thread of its own. Everything that runs on that GPU is in it.

    `nvml`: the module `pynvml`, initialised here and shut down by `close`. Raises what that library raises.
    """

    def __init__(self, nvml: Any, device_index: int = 0) -> None:
        nvml.nvmlInit()
        self._nvml = nvml
        try:
            self._device = nvml.nvmlDeviceGetHandleByIndex(device_index)
            name = nvml.nvmlDeviceGetName(self._device)
            name = name.decode(errors="replace") if isinstance(name, bytes) else name
            first = PowerSample(perf_counter(), self._power_w())
        except BaseException:
            nvml.nvmlShutdown()
            raise
        super().__init__(EnergyKind.MEASURED, f"NVML, {name}")
        self._samples: deque[PowerSample] = deque([first], maxlen=KEPT_SAMPLES)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edgedraft-energy", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        super().begin()
        self._sample()

    def end(self) -> None:
        self._sample()
        ended_s = perf_counter()
        self._add(energy_over_j(self._newest(), [(self._started_s, ended_s)]), ended_s - self._started_s)

    def close(self) -> None:
        if not self._stopping.is_set():
            self._stopping.set()
            self._thread.join()
            self._nvml.nvmlShutdown()

    def _newest(self) -> list[PowerSample]:
        """In order of time: the samples since `begin` and the one before them."""
        newest: list[PowerSample] = []
        with self._lock:
            for sample in reversed(self._samples):
                newest.append(sample)
                if sample.at_s <= self._started_s:
                    break
        return newest[::-1]

    def _run(self) -> None:
        while not self._stopping.wait(SAMPLE_EVERY_S):
            self._sample()

    def _sample(self) -> None:
        """A sensor that fails for a moment leaves a gap, over which power counts as a straight line."""
        try:
            power_w = self._power_w()
        except Exception as error:  # the library's own classes, whatever they are called in its next version
            logger.debug("no power sample: %s", error)
            return
        with self._lock:
            self._samples.append(PowerSample(perf_counter(), power_w))

    def _power_w(self) -> float:
        """The power of the moment where the driver tells it; `nvmlDeviceGetPowerUsage` averages over a second there."""
        field = getattr(self._nvml, "NVML_FI_DEV_POWER_INSTANT", None)
        if field is not None:
            value = self._nvml.nvmlDeviceGetFieldValues(self._device, [field])[0]
            if value.nvmlReturn == 0:
                return float(value.value.uiVal) / 1000.0
        return float(self._nvml.nvmlDeviceGetPowerUsage(self._device)) / 1000.0


@dataclass(frozen=True, slots=True)
class _Counter:
    """A package's energy counter, in microjoules, which starts again at 0 past `range_uj`."""

    path: Path
    range_uj: int

    def read_uj(self) -> int:
        return int(self.path.read_text())


class RaplMeter(_Total):
    """The processor packages' own counters. Everything that runs on the machine is in them; memory is not.

    Raises `OSError` or `ValueError` where a counter cannot be read, which usually takes the superuser's rights.
    """

    def __init__(self, powercap_dir: Path = POWERCAP_DIR) -> None:
        self._counters = [
            _Counter(zone / "energy_uj", int((zone / "max_energy_range_uj").read_text()))
            for zone in sorted(powercap_dir.glob("intel-rapl:*"))
            if (zone / "name").read_text().startswith("package")  # not the parts of a package, nor the whole board
        ]
        if not self._counters:
            raise FileNotFoundError(f"no processor package in {powercap_dir}")
        self._before_uj: list[int] | None = self._read_uj()
        super().__init__(EnergyKind.MEASURED, f"RAPL, {len(self._counters)} processor package(s)")

    def begin(self) -> None:
        super().begin()
        self._before_uj = self._try_read_uj()

    def end(self) -> None:
        """A counter that could not be read leaves this piece of work out, its time too."""
        after_uj = self._try_read_uj()
        if self._before_uj is None or after_uj is None:
            return
        energy_uj = sum(
            after - before if after >= before else after + counter.range_uj - before
            for counter, before, after in zip(self._counters, self._before_uj, after_uj, strict=True)
        )
        self._add(energy_uj / 1e6, perf_counter() - self._started_s)

    def _try_read_uj(self) -> list[int] | None:
        try:
            return self._read_uj()
        except (OSError, ValueError) as error:
            logger.debug("no energy counter: %s", error)
            return None

    def _read_uj(self) -> list[int]:
        return [counter.read_uj() for counter in self._counters]


class MeteredTarget:
    """A target whose prefill and passes are metered, and nothing between them."""

    def __init__(self, target: TargetBackend, meter: EnergyMeter) -> None:
        self._target = target
        self._meter = meter
        self.info: ModelInfo = target.info
        self.max_batch_sessions = target.max_batch_sessions

    def open(self, session_id: bytes, prompt_ids: Sequence[int], committed_ids: Sequence[int]) -> None:
        self._target.open(session_id, prompt_ids, committed_ids)

    def listen(self, session_id: bytes, features: SpeechFeatures) -> None:
        """Raises `UnsupportedError` where the target takes text only."""
        if not isinstance(self._target, ListeningTarget):
            raise UnsupportedError("features were sent; this target takes text only.", field="features")
        self._target.listen(session_id, features)

    def prefill(self, session_id: bytes) -> int:
        self._meter.begin()
        try:
            return self._target.prefill(session_id)
        finally:
            self._meter.end()

    def score(self, requests: Sequence[ScoreRequest]) -> Sequence[Float32Array]:
        self._meter.begin()
        try:
            return self._target.score(requests)
        finally:
            self._meter.end()

    def close(self, session_id: bytes) -> None:
        self._target.close(session_id)

    def shutdown(self) -> None:
        self._target.shutdown()


def choose_meter(*, on_gpu: bool, gpu_index: int = 0, powercap_dir: Path = POWERCAP_DIR) -> EnergyMeter:
    """The best meter for where the target runs: its sensor if it can be read, else a declared power. Never raises."""
    try:
        if on_gpu:
            import pynvml

            return NvmlMeter(pynvml, gpu_index)
        return RaplMeter(powercap_dir)
    except Exception as error:  # a missing library, driver, device or right: all mean that nothing can be measured
        logger.info("energy is modelled: %s", error)
    return ModelledMeter(A800_CLASS if on_gpu else CPU_CLASS)
