"""How long a computation takes on a device: a roofline with stated efficiencies (`data/efficiency.yaml`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from math import ceil
from typing import Any

from backends.calibration import UNCALIBRATED, Calibration
from backends.ops import Compute, Transfer
from runs.environment import Device, Environment
from runs.plan import ParallelPlan


@cache
def parameters() -> dict[str, Any]:
    """The efficiency data file."""
    import yaml

    text = resources.files("backends").joinpath("data", "efficiency.yaml").read_text(encoding="utf-8")
    data: dict[str, Any] = yaml.safe_load(text)
    return data


@dataclass(frozen=True)
class Kernel:
    """A timed kernel: its seconds, those of its slot (longer when the host launches slowly), and its thread blocks."""

    seconds: float
    slot: float
    blocks: int


@dataclass(frozen=True)
class System:
    """A device with its software: precision, launch mode, calibration.

    `launch_s` is the host's time per kernel; a kernel's slot never is shorter than that of its launches.
    """

    device: Device
    precision: str = "bf16"
    launch_s: float = 0.0
    collective_launch_s: float = 0.0
    calibration: Calibration = UNCALIBRATED
    multiprocessors: int = 108
    _memo: dict[Compute, Kernel] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        environment: Environment,
        plan: ParallelPlan,
        precision: str = "bf16",
        calibration: Calibration = UNCALIBRATED,
    ) -> System:
        """The system that `plan` runs on in `environment`: a graph launches fastest, eager code slowest; a TPU runs
        whole programs and is never launch-bound."""
        data = parameters()
        launch, collective = launch_mode(environment, plan)
        sms = data["multiprocessors"].get(environment.device.name, data["default_multiprocessors"])
        factor = 1e-6 * calibration.launch
        return cls(environment.device, precision, launch * factor, collective * factor, calibration, sms)

    def kernel(self, op: Compute) -> Kernel:
        """Time one computation; memoised."""
        found = self._memo.get(op)
        if found is None:
            found = self._memo[op] = self._time(op)
        return found

    def transfer(self, op: Transfer) -> float:
        """Seconds of a copy between device and host."""
        return op.nbytes / (1e9 * float(parameters()["host"]["pcie_gb_s"]))

    def _time(self, op: Compute) -> Kernel:
        if op.kind == "host":
            seconds = op.seconds + op.nbytes / (1e9 * parameters()["host"]["memory_gb_s"])
            return Kernel(0.0, seconds, 0)
        data = parameters()["classes"][op.kind]
        share, blocks = self._occupancy(op)
        speed = self.calibration.compute.get(op.kind, 1.0)
        math = op.flops / (self.device.peak_flops(self.precision) * data["flops"] * share)
        memory = op.nbytes / (1e9 * self.device.memory_bandwidth_gb_s * data["bandwidth"])
        overhead = 1e-6 * parameters()["kernel_overhead_us"] * (op.launches if self.launch_s > 0 else 1)
        seconds = max(math, memory) / speed + overhead
        return Kernel(seconds, max(seconds, op.launches * self.launch_s), blocks)

    def _occupancy(self, op: Compute) -> tuple[float, int]:
        """Share of the class's ceiling that this shape reaches, and thread blocks."""
        if op.kind in ("gemm", "grouped_gemm"):
            m, n, k = op.shape
            share, blocks = _best_tile(max(m, 1.0), max(n, 1.0), op.batch, self.multiprocessors)
            return share * k / (k + parameters()["inner_ramp"]), blocks
        if op.kind in ("attention", "attention_backward"):
            blocks = max(1, ceil(op.shape[0] / 128))
            return _wave_share(blocks, self.multiprocessors), blocks
        return 1.0, max(1, min(ceil(op.nbytes / 8192), 65535))


def launch_mode(environment: Environment, plan: ParallelPlan) -> tuple[float, float]:
    """Host microseconds per kernel and per collective."""
    data = parameters()["launch"]
    if environment.device.xpu_type == "TPU":
        return 0.0, 0.0
    if plan.cuda_graph:
        return data["graph_us"], data["graph_us"]
    return (data["compiled_us"] if plan.compile else data["eager_us"]), data["collective_us"]


def _wave_share(blocks: float, multiprocessors: int) -> float:
    """Share of multiprocessors at work, averaged over the waves that `blocks` need."""
    return blocks / (ceil(blocks / multiprocessors) * multiprocessors)


@cache
def _best_tile(m: float, n: float, batch: int, multiprocessors: int) -> tuple[float, int]:
    best = (0.0, 1)
    for rows, columns, ceiling in parameters()["tiles"]:
        blocks = ceil(m / rows) * ceil(n / columns) * batch
        filled = min(1.0, m / (ceil(m / rows) * rows)) * min(1.0, n / (ceil(n / columns) * columns))
        best = max(best, (ceiling * filled * _wave_share(blocks, multiprocessors), blocks))
    return best
