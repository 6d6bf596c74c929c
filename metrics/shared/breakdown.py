"""Where the time of a step goes: compute, exposed and overlapped communication, memory transfers, idle. The parts sum
to the step.

The window of a step on the device is as long as its host span. Under the paper's rule it is the host span; under the
sound rule it is that span moved to where the first device work launched by the step starts, so that a GPU running
behind its host is seen with the step's own work. Inside the window every instant belongs to one part: communication
and compute at once is overlapped communication, communication alone is exposed, other kernel time is compute,
transfer time not covered by a kernel is memory, and the rest is idle.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np

from metrics import intervals
from metrics.shared import answers, work
from metrics.tool import Answer, Options, no
from metrics.traces.timeline import Lane, Timeline
from runs.metric import MetricSpec, MetricValue

PARTS = ("compute", "exposed_comm", "overlapped_comm", "memory", "idle")


@dataclass(frozen=True)
class Breakdown:
    """Time of each part in one step, in the lane's ticks."""

    compute: int
    exposed_comm: int
    overlapped_comm: int
    memory: int
    idle: int

    @property
    def total(self) -> int:
        """The step."""
        return sum(astuple(self))


def device_windows(lane: Lane, options: Options) -> list[tuple[int, int]]:
    """The device window (start, end) of each inner step."""
    keep = work.inner_steps(lane)
    windows = list(zip(lane.steps.start[keep].tolist(), lane.steps.end[keep].tolist(), strict=True))
    if work.attribution(lane, options) != "launch":
        return windows
    first = _first_work(lane, len(windows))
    return [(f, f + end - start) if f >= 0 else (start, end) for f, (start, end) in zip(first, windows, strict=True)]


def _first_work(lane: Lane, count: int) -> list[int]:
    """When the first kernel or copy that each inner step launched starts; -1 for a step that launched none."""
    step = np.concatenate([work.kernel_steps(lane), work.step_rows(lane, lane.copies.launch)])
    start = np.concatenate([lane.kernels.start, lane.copies.start])
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, step[step >= 0], start[step >= 0])
    return [int(f) if f < np.iinfo(np.int64).max else -1 for f in first]


def of_window(lane: Lane, start: int, end: int) -> Breakdown:
    """The parts of one device window."""
    comm = intervals.clip(work.comm_spans(lane), start, end)
    compute = intervals.clip(work.compute_spans(lane), start, end)
    copies = intervals.clip(work.copy_spans(lane), start, end)
    both = intervals.length(intervals.intersect(comm, compute))
    communication, computing = intervals.length(comm), intervals.length(compute)
    kernels = intervals.clip(work.kernel_spans(lane), start, end)
    memory = intervals.length(intervals.subtract(copies, kernels))
    busy = communication + computing - both + memory
    return Breakdown(computing - both, communication - both, both, memory, end - start - busy)


def of_lane(lane: Lane, options: Options) -> list[Breakdown]:
    """The parts of each inner step."""
    key = ("breakdown", options.rule)
    return lane.once(key, lambda: [of_window(lane, *window) for window in device_windows(lane, options)])


def metric(spec: MetricSpec, trace: Timeline, options: Options, part: str) -> MetricValue:
    """Mean time of one part a step, over inner steps and then ranks, s."""

    def answer(lane: Lane) -> Answer:
        if not len(lane.steps):
            return no(work.NO_STEPS)
        if lane.family == "xla":
            return xla_part(lane, part)
        times = [getattr(step, part) * lane.tick_s for step in of_lane(lane, options)]
        rule = work.attribution(lane, options)
        return Answer(sum(times) / len(times), steps=tuple(times), notes={"window": _WINDOWS[rule]})

    return answers.over_lanes(spec, trace, options, answer)


_WINDOWS = {"launch": "host span moved to the step's first device work", "window": "host span", "whole": "capture"}


def xla_part(lane: Lane, part: str) -> Answer:
    """A part of the steps of a TPU chip: its ops carry the run clock, so a step's ops are those that start inside
    it."""
    keep = work.inner_steps(lane)
    durations = (lane.steps.end[keep] - lane.steps.start[keep]) * 1000
    step = work.kernel_steps(lane)
    copy_step = work.step_rows(lane, lane.copies.launch)
    times = []
    for number, (own, duration) in enumerate(zip(work.work_of_steps(lane, "launch"), durations.tolist(), strict=True)):
        chosen = copy_step == number
        copies = intervals.union(lane.copies.start[chosen], lane.copies.end[chosen])
        both = intervals.length(intervals.intersect(own.comm, own.compute))
        comm, compute = intervals.length(own.comm), intervals.length(own.compute)
        memory = min(intervals.length(intervals.subtract(copies, own.all)), max(0, duration - comm - compute + both))
        idle = duration - comm - compute + both - memory
        times.append(getattr(Breakdown(compute - both, comm - both, both, memory, idle), part) * lane.tick_s)
    if not len(step) or not times:
        return no(work.NO_STEPS)
    return Answer(sum(times) / len(times), steps=tuple(times), notes={"window": "module execution"})
