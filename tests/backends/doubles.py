"""What the simulator's tests share: plans, a network whose times are plain arithmetic, a small trace reader."""

from __future__ import annotations

import bisect
import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runs import catalogue
from runs.environment import Environment
from runs.plan import ParallelPlan, StateBytes
from runs.workload import Workload

FSDP_STATE = StateBytes(4.0, 4.0, 8.0, 2.0)
SERVING_STATE = StateBytes(2.0, 0.0, 0.0, 0.0)


def perlmutter(count: int = 16) -> Environment:
    """The bundled A100 cluster."""
    return catalogue.environment(f"perlmutter-a100-{count}")


def training_plan(workload: Workload, **fields: Any) -> ParallelPlan:
    """A plan whose micro-batches add up to the workload's global batch."""
    start = ParallelPlan("test", **fields)
    rest = workload.batch_size // (start.dp * start.micro_batch_size)
    return ParallelPlan("test", **{**fields, "num_microbatches": rest})


@dataclass
class FlatLink:
    """A link of unlimited capacity or of `bandwidth` bytes a second."""

    bandwidth: float


@dataclass
class FlatTopology:
    """One link per device, named by its number."""

    links: list[FlatLink]

    def link_label(self, link: int) -> str:
        """The link's name."""
        return f"link {link}"


@dataclass
class FlatTiming:
    """Seconds and bytes of one collective."""

    seconds: float
    link_bytes: dict[int, float]


@dataclass
class FlatNetwork:
    """Every device has one link of `bandwidth` bytes/s; a collective fills its devices' links for nbytes/bandwidth.

    Concurrent collectives that share a device share its link equally.
    """

    bandwidth: float = 1e9
    devices: int = 64
    asked: list[Any] = field(default_factory=list)

    @property
    def topology(self) -> FlatTopology:
        """Links 0 to devices-1."""
        return FlatTopology([FlatLink(self.bandwidth)] * self.devices)

    def time(self, collective: Any, /) -> FlatTiming:
        """nbytes / bandwidth."""
        self.asked.append(collective)
        members = {rank for group in collective.groups for rank in group}
        return FlatTiming(collective.nbytes / self.bandwidth, dict.fromkeys(sorted(members), collective.nbytes))

    def rates(self, active: Any, /) -> list[float]:
        """One over the number of collectives on the fullest device."""
        sets = [{rank for group in one.groups for rank in group} for one in active]
        return [1.0 / max(sum(rank in other for other in sets) for rank in own) for own in sets]


def union(intervals: list[tuple[int, int]]) -> int:
    """Length covered by intervals, by sweeping over their sorted ends (not the way the product does it)."""
    edges = sorted([(a, 1) for a, _ in intervals] + [(b, -1) for _, b in intervals])
    covered = depth = 0
    last = 0
    for at, change in edges:
        if depth > 0:
            covered += at - last
        depth += change
        last = at
    return covered


@dataclass
class ReadTrace:
    """A trace as the definitions read it: inner steps, kernels by launch; figures in seconds."""

    data: dict[str, Any]
    wall: float
    compute: float
    comm: float
    exposed: float
    steps: list[dict[str, Any]]
    kernels: list[dict[str, Any]]


def read_trace(path: Path) -> ReadTrace:
    """Read one Kineto file with the rules of the metric definitions: a kernel belongs to the step of its launch."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    data = json.loads(raw)
    events = data["traceEvents"]
    spans = [e for e in events if e.get("cat") == "user_annotation" and _is_step(e["name"])]
    spans.sort(key=lambda e: e["ts"])
    starts = [_ns(e["ts"]) for e in spans]
    launches = {e["args"]["correlation"]: _ns(e["ts"]) for e in events if e.get("cat") == "cuda_runtime"}
    kernels = [e for e in events if e.get("cat") == "kernel"]
    compute: dict[int, list[tuple[int, int]]] = {}
    comm: dict[int, list[tuple[int, int]]] = {}
    for kernel in kernels:
        step = bisect.bisect_right(starts, launches[kernel["args"]["correlation"]]) - 1
        kind = comm if "Collective name" in kernel["args"] else compute
        kind.setdefault(step, []).append((_ns(kernel["ts"]), _ns(kernel["ts"]) + _ns(kernel["dur"])))
    inner = range(1, len(spans) - 1) if len(spans) > 2 else range(len(spans))
    total = [0, 0, 0, 0]
    for step in inner:
        c, k = compute.get(step, []), comm.get(step, [])
        total[0] += _ns(spans[step]["dur"])
        total[1] += union(c)
        total[2] += union(k)
        total[3] += union(c + k) - union(c)
    return ReadTrace(data, *(t / len(inner) * 1e-9 for t in total), spans, kernels)


def _is_step(name: str) -> bool:
    return name.startswith(("ProfilerStep#", "execute_context_"))


def _ns(microseconds: float) -> int:
    return round(microseconds * 1000)
