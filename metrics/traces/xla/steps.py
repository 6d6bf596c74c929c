"""What a step is in an XLA profile."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from metrics.traces.kineto.events import nanoseconds
from metrics.traces.timeline import Ints, StepKind, Steps, rows
from metrics.traces.xla.events import Device, Event

NO_STEPS = "the profile has no module executions, no Steps lane and no step markers"


def find_steps(device: Device, host: list[Event], last: int | None = None) -> tuple[str, Steps]:
    """Executions of the module with most time; without modules the `Steps` lane, else step markers on the host.

    A vLLM engine marks its steps as `$core.py:<line> step`, whose line number changes with its version; `StepMarker` is
    written by PyTorch/XLA. Of a profile that says nothing after `last` (ns), steps that end later are left out.
    """
    kind, steps = _found(device, host)
    return kind, steps if last is None else rows(steps, steps.end <= last)


def _found(device: Device, host: list[Event]) -> tuple[str, Steps]:
    modules = device.lanes.get("XLA Modules", [])
    if modules:
        return _module_steps(modules)
    steps = device.lanes.get("Steps", [])
    if steps:
        return "Steps lane", _steps(*_times(steps)[:2])
    marked = [e for e in host if e.name == "StepMarker" or str(e.name).split(" ")[-1] == "step"]
    return ("host step marker", _steps(*_times(marked)[:2])) if marked else ("", Steps())


def _times(events: list[Event]) -> tuple[Ints, Ints, list[int]]:
    """Start and end in ns of the events whose times are sound (none is without length), and their rows."""
    start, bad = nanoseconds([e.ts for e in events])
    duration, worse = nanoseconds([e.dur for e in events])
    keep = [i for i in range(len(events)) if i not in bad and i not in worse and duration[i] > 0]
    return start[keep], start[keep] + duration[keep], keep


def _module_steps(modules: list[Event]) -> tuple[str, Steps]:
    start, end, sound = _times(modules)
    if not sound:
        return "", Steps()
    names = [str(modules[row].name) for row in sound]
    total: dict[str, int] = defaultdict(int)
    for name, duration in zip(names, (end - start).tolist(), strict=True):
        total[name] += duration
    longest = max(total, key=lambda name: total[name])
    mine = [i for i, name in enumerate(names) if name == longest]
    return f"executions of the XLA module {longest.split('(')[0]}", _steps(start[mine], end[mine])


def _steps(start: Any, end: Any) -> Steps:
    order = np.argsort(start, kind="stable")
    nothing = np.full(len(order), -1, np.int64)
    kind = np.full(len(order), int(StepKind.PLAIN), np.int64)
    return Steps(start[order], end[order], kind, nothing, nothing, nothing, nothing.copy())
