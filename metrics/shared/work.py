"""Steps of a lane and the device work that belongs to each, by the rule asked for.

Rules: `launch` gives a kernel, whole, to the step whose host span contains its launching call; `window` clips kernels
to the host span (the paper); `whole` takes the capture as one. The GPU of an asynchronous job runs behind its host,
so a window holds the work of another step; launch attribution does not (measured on an 8-GPU ROCm trace: 13.0 %
overlap by window, 24.9 % by launch).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

import metrics.intervals as intervals
from metrics.intervals import Spans
from metrics.tool import Options
from metrics.traces.timeline import NS, Ints, Lane

Attribution = Literal["launch", "window", "whole"]
NO_STEPS = "no step spans: a per-step time cannot be given"


def inner_steps(lane: Lane) -> slice:
    """All steps but the first and the last when there are more than two, else all: the profiler disturbs the edges."""
    return slice(1, -1) if len(lane.steps) > 2 else slice(None)


def inner_durations(lane: Lane) -> Ints:
    """Durations of the inner steps, ns."""
    keep = inner_steps(lane)
    return lane.steps.end[keep] - lane.steps.start[keep]


def attribution(lane: Lane, options: Options) -> Attribution:
    """The rule for this lane: `whole` without steps, `window` for the paper's rule or where no launch is recorded."""
    if not len(lane.steps):
        return "whole"
    if lane.tick_s != NS:  # a device clock of its own: an op belongs to the step in which it starts
        return "launch"
    return "launch" if options.rule == "sound" and lane.launches else "window"


def kernel_spans(lane: Lane) -> Spans:
    """Merged time of all kernels."""
    return lane.once("kernels", lambda: intervals.union(lane.kernels.start, lane.kernels.end))


def comm_spans(lane: Lane) -> Spans:
    """Merged time of communication kernels."""
    return lane.once("comm", lambda: _chosen(lane, lane.kernels.comm == 1))


def compute_spans(lane: Lane) -> Spans:
    """Merged time of kernels that do not communicate."""
    return lane.once("compute", lambda: _chosen(lane, lane.kernels.comm == 0))


def copy_spans(lane: Lane) -> Spans:
    """Merged time of memory copies and memsets."""
    return lane.once("copies", lambda: intervals.union(lane.copies.start, lane.copies.end))


def _chosen(lane: Lane, mask: Ints) -> Spans:
    return intervals.union(lane.kernels.start[mask], lane.kernels.end[mask])


@dataclass(frozen=True)
class Work:
    """Device work of one step, merged, in the lane's ticks. `all` is the time of any kernel (on a TPU of any op, copy
    ops too)."""

    comm: Spans
    compute: Spans
    all: Spans


def step_rows(lane: Lane, launch: Ints) -> Ints:
    """The inner step (0, 1, …) whose host span contains each launch time; -1 for none."""
    keep = inner_steps(lane)
    starts, ends = lane.steps.start[keep], lane.steps.end[keep]
    if not len(starts):
        return np.full(len(launch), -1, np.int64)
    at = np.searchsorted(starts, launch, "right") - 1
    inside = (at >= 0) & (launch <= ends[np.maximum(at, 0)])
    return np.where(inside, at, -1)


def kernel_steps(lane: Lane) -> Ints:
    """The inner step that launched each kernel; -1 for none."""
    return lane.once("kernel steps", lambda: step_rows(lane, lane.kernels.launch))


def work_of_steps(lane: Lane, rule: Attribution) -> list[Work]:
    """Device work of each inner step (one entry for the whole capture under `whole`)."""
    return lane.once(("work", rule), lambda: _work(lane, rule))


def _work(lane: Lane, rule: Attribution) -> list[Work]:
    if rule == "whole":
        return [Work(comm_spans(lane), compute_spans(lane), kernel_spans(lane))]
    if rule == "launch":
        return _by_launch(lane)
    keep = inner_steps(lane)
    windows = zip(lane.steps.start[keep].tolist(), lane.steps.end[keep].tolist(), strict=True)
    sets = comm_spans(lane), compute_spans(lane), kernel_spans(lane)
    return [Work(*(intervals.clip(spans, *window) for spans in sets)) for window in windows]


def _by_launch(lane: Lane) -> list[Work]:
    return by_rows(lane, kernel_steps(lane))


def by_rows(lane: Lane, step: Ints) -> list[Work]:
    """Device work of each inner step, given the inner step of every kernel (-1: none)."""
    count = len(inner_durations(lane))
    order = np.argsort(step, kind="stable")
    edges = np.searchsorted(step[order], np.arange(count + 1))
    out = []
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        mine = order[first:last]
        start, end, kind = lane.kernels.start[mine], lane.kernels.end[mine], lane.kernels.comm[mine]
        comm, compute = kind == 1, kind == 0
        sets = (start[comm], end[comm]), (start[compute], end[compute]), (start, end)
        out.append(Work(*(intervals.union(*edges) for edges in sets)))
    return out
