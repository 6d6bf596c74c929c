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

import metrics.intervals as intervals
from metrics.shared import answers, work
from metrics.tool import Answer, Options, no
from metrics.traces.timeline import NS, Lane, Timeline
from runs.metric import MetricSpec, MetricValue

LAST = 2**63 - 1


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
    return [
        (begin, begin + end - start) if begin != LAST else (start, end)
        for begin, (start, end) in zip(first, windows, strict=True)
    ]


def _first_work(lane: Lane, count: int) -> list[int]:
    """When the first kernel or copy that each inner step launched starts; `LAST` for a step that launched none."""
    step = np.concatenate([work.kernel_steps(lane), work.step_rows(lane, lane.copies.launch)])
    start = np.concatenate([lane.kernels.start, lane.copies.start])
    first = np.full(count, LAST)
    np.minimum.at(first, step[step >= 0], start[step >= 0])
    return [int(begin) for begin in first]


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
    if lane.tick_s != NS:
        return lane.once("breakdown", lambda: _by_start(lane))
    key = ("breakdown", options.rule)
    return lane.once(key, lambda: [of_window(lane, *window) for window in device_windows(lane, options)])


def _by_start(lane: Lane) -> list[Breakdown]:
    """The parts of each inner step on a TPU chip, whose ops carry a clock of their own: a step's ops are those that
    start inside it, its length is that of the step on the host-aligned clock."""
    ticks = round(NS / lane.tick_s)
    copy_step = work.step_rows(lane, lane.copies.launch)
    out = []
    for number, (own, step) in enumerate(
        zip(work.work_of_steps(lane, "launch"), work.inner_durations(lane), strict=True)
    ):
        duration, chosen = int(step) * ticks, copy_step == number
        copies = intervals.union(lane.copies.start[chosen], lane.copies.end[chosen])
        both = intervals.length(intervals.intersect(own.comm, own.compute))
        kernels = intervals.length(own.comm) + intervals.length(own.compute) - both
        covered = intervals.union(*(np.concatenate(edges) for edges in zip(own.comm, own.compute, strict=True)))
        memory = min(intervals.length(intervals.subtract(copies, covered)), max(0, duration - kernels))
        idle = duration - kernels - memory
        parts = intervals.length(own.compute) - both, intervals.length(own.comm) - both
        out.append(Breakdown(*parts, both, memory, idle))
    return out


def metric(spec: MetricSpec, trace: Timeline, options: Options, part: str) -> MetricValue:
    """Mean time of one part a step, over inner steps and then ranks, s."""

    def answer(lane: Lane) -> Answer:
        if not len(lane.steps):
            return no(lane.why.get("step", work.NO_STEPS))
        times = [getattr(step, part) * lane.tick_s for step in of_lane(lane, options)]
        rule = work.attribution(lane, options)
        window = "ops that start in the step" if lane.tick_s != NS else _WINDOWS[rule]
        return Answer(sum(times) / len(times), steps=tuple(times), notes={"window": window})

    return answers.over_lanes(spec, trace, options, answer)


_WINDOWS = {"launch": "host span moved to the step's first device work", "window": "host span", "whole": "capture"}
