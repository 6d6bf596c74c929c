"""XLA profiles become lanes: one for each chip, ops on the device's picosecond clock, steps on the host-aligned one."""

from __future__ import annotations

from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from metrics.traces.kineto.events import nanoseconds
from metrics.traces.timeline import PS, Ints, Lane, StepKind, Steps
from metrics.traces.xla import gpu, ops
from metrics.traces.xla.events import Device, Event, Profile, profile_of, read_profile

NO_STEPS = "the profile has no module executions, no Steps lane and no step markers"
TPU_WHY = {
    "coverage": "not defined on a TPU: there are no streaming multiprocessors",
    "moe": "Table 3 gives this metric for GPUs only",
}  # fmt: skip


def read(path: Path, source: str) -> tuple[list[Lane], list[str]]:
    """The lanes of a trace.json(.gz) and the warnings about it."""
    return lanes(read_profile(path, source), source)


def read_xplane(path: Path, source: str) -> tuple[list[Lane], list[str]]:
    """The lanes of an *.xplane.pb, converted by the `xprof` package.

    Without the package there are no lanes, and the warning says how to get it.
    """
    try:
        convert = import_module("xprof.convert.raw_to_tool_data")
    except ImportError:
        return [], [f"{source}: left out, *.xplane.pb needs the xprof package (pip install 'ccl-search[xplane]')"]
    data, _ = convert.xspace_to_tool_data([str(path)], "trace_viewer", {})
    if not data:
        return [], [f"{source}: left out, xprof could not convert it"]
    text = data.encode() if isinstance(data, str) else bytes(data)
    return lanes(profile_of(text, source, []), source)


def lanes(profile: Profile, source: str) -> tuple[list[Lane], list[str]]:
    """One lane for each device of the profile."""
    out = []
    for number, device in enumerate(profile.devices):
        build = _tpu if "XLA Ops" in device.lanes and "TPU" in device.name else gpu.lane
        lane = build(device, profile)
        lane.source, lane.rank, lane.ranks, lane.device = source, number, (number,), device.name
        lane.facts["events"] = any(device.lanes.values())
        out.append(lane)
    return out, profile.problems


def _tpu(device: Device, profile: Profile) -> Lane:
    lane = Lane("xla", "", -1, device.name, tick_s=PS, launches=True, why=dict(TPU_WHY))
    modules = device.lanes.get("XLA Modules", [])
    lane.step_kind, lane.steps = find_steps(device, profile.host)
    ops.fill(lane, device.lanes["XLA Ops"], modules)
    if not len(lane.steps):
        lane.why["step"] = NO_STEPS
    return lane


def find_steps(device: Device, host: list[Event]) -> tuple[str, Steps]:
    """Executions of the module with most time; without modules the `Steps` lane, else step markers on the host.

    A vLLM engine marks its steps as `$core.py:<line> step`, whose line number changes with its version; `StepMarker` is
    written by PyTorch/XLA.
    """
    modules = device.lanes.get("XLA Modules", [])
    if modules:
        return _module_steps(modules)
    steps = device.lanes.get("Steps", [])
    if steps:
        return "Steps lane", _steps(*_times(steps))
    marked = [e for e in host if e.name == "StepMarker" or str(e.name).split(" ")[-1] == "step"]
    return ("host step marker", _steps(*_times(marked))) if marked else ("", Steps())


def _times(events: list[Event]) -> tuple[Ints, Ints]:
    """Start and end in ns of the events whose times are sound."""
    start, bad = nanoseconds([e.ts for e in events])
    duration, worse = nanoseconds([e.dur for e in events])
    keep = [i for i in range(len(events)) if i not in bad and i not in worse and duration[i] >= 0]
    return start[keep], start[keep] + duration[keep]


def _module_steps(modules: list[Event]) -> tuple[str, Steps]:
    start, end = _times(modules)
    if len(start) < len(modules):
        return "", Steps()
    total: dict[str, int] = defaultdict(int)
    for event, duration in zip(modules, (end - start).tolist(), strict=True):
        total[str(event.name)] += duration
    longest = max(total, key=lambda name: total[name])
    mine = [i for i, event in enumerate(modules) if event.name == longest]
    return f"executions of the XLA module {longest.split('(')[0]}", _steps(start[mine], end[mine])


def _steps(start: Any, end: Any) -> Steps:
    order = np.argsort(start, kind="stable")
    nothing = np.full(len(order), -1, np.int64)
    kind = np.full(len(order), int(StepKind.PLAIN), np.int64)
    return Steps(start[order], end[order], kind, nothing, nothing, nothing, nothing.copy())
