"""Ranks against each other: compute time, and the durations of the same collective."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

import metrics.intervals as intervals
from metrics.shared import work
from metrics.shared.answers import no_device_reason
from metrics.tool import Options
from metrics.traces.timeline import Lane, Op, Timeline
from runs.metric import MetricSpec, MetricValue

ONE_LANE = "one rank with one device"
Key = tuple[str, int, int]  # group, number in it, operation (0 where matched by order)


def ratio(spec: MetricSpec, trace: Timeline, options: Options) -> MetricValue:
    """The metric `load_imbalance_ratio`. A single lane that stands for several identical ranks is balanced: 1."""
    lanes = [lane for lane in trace.device_lanes if len(lane.kernels)]
    if not lanes:
        return MetricValue.none(spec, no_device_reason(trace))
    if sum(lane.weight for lane in lanes) < 2:
        return MetricValue.none(spec, ONE_LANE if trace.family == "kineto" else "one device")
    spans = work.kernel_spans if options.variant == "all_kernels_counted" else work.compute_spans
    times = [intervals.length(spans(lane)) * lane.tick_s for lane in lanes]
    if min(times) <= 0:
        idle = next(lane.label for lane, time in zip(lanes, times, strict=True) if time <= 0)
        return MetricValue.none(spec, f"{idle} has no compute kernels, the ratio has no bound")
    detail: dict[str, Any] = {}
    if options.detail:
        detail["per_rank"] = [{"lane": lane.label, "value": t} for lane, t in zip(lanes, times, strict=True)]
    return MetricValue.of(spec, max(times) / min(times), detail=detail)


def straggler(spec: MetricSpec, trace: Timeline, options: Options) -> MetricValue:
    """The metric `straggler`; a single lane that stands for several identical ranks has no spread: 0."""
    if trace.family != "kineto":
        only = "Kineto traces" if trace.family == "nsys" else "GPUs"
        return MetricValue.none(spec, f"Table 3 gives this metric for {only} only")
    lanes = [lane for lane in trace.device_lanes if len(lane.kernels)]
    if not lanes:
        return MetricValue.none(spec, no_device_reason(trace))
    if sum(lane.weight for lane in lanes) < 2:
        return MetricValue.none(spec, "one rank")
    matched, how = match(lanes)
    spreads = [spread for durations in matched if (spread := _spread(durations)) is not None]
    if not spreads:
        return MetricValue.none(spec, "no collective was recorded on more than one rank")
    detail: dict[str, Any] = {"collectives": len(spreads), "matched_by": how}
    if options.detail:
        detail["per_collective"] = spreads
    return MetricValue.of(spec, sum(spreads) / len(spreads), detail=detail)


def _spread(durations: list[tuple[int, int]]) -> float | None:
    """(max - min) / max of (duration, ranks) entries; None when fewer than two ranks ran it."""
    if sum(ranks for _, ranks in durations) < 2:
        return None
    longest = max(d for d, _ in durations)
    return (longest - min(d for d, _ in durations)) / longest if longest > 0 else 0.0


def match(lanes: list[Lane]) -> tuple[list[list[tuple[int, int]]], str]:
    """Durations of the same collective over ranks, and how they were matched.

    By process group and sequence number when every collective carries them, else by order of start within the group;
    collectives without a group belong to one group of all ranks. A collective that some rank of its group did not
    record (a cut file) is left out. Sends and receives are no collectives.
    """
    numbered = all(bool((lane.collectives.seq[_mine(lane)] >= 0).all()) for lane in lanes) and any(
        _mine(lane).any() for lane in lanes
    )
    table: dict[Key, list[tuple[int, int]]] = defaultdict(list)
    members: dict[str, int] = defaultdict(int)
    for lane in lanes:
        keys = _keys(lane, numbered)
        for group in {key[0] for key, _ in keys}:
            members[group] += 1
        for key, duration in keys:
            table[key].append((duration, lane.weight))
    how = "process group and sequence number" if numbered else "order within the process group"
    return [found for key, found in table.items() if len(found) == members[key[0]]], how


def _mine(lane: Lane) -> Any:
    return lane.collectives.op != Op.P2P


def _keys(lane: Lane, numbered: bool) -> list[tuple[Key, int]]:
    found = lane.collectives
    rows = np.flatnonzero(_mine(lane))
    start, end = lane.kernels.start[found.kernel[rows]], lane.kernels.end[found.kernel[rows]]
    rows, start, end = (column[np.argsort(start, kind="stable")] for column in (rows, start, end))
    seen: dict[str, int] = defaultdict(int)
    out: list[tuple[Key, int]] = []
    for row, duration in zip(rows.tolist(), (end - start).tolist(), strict=True):
        group = lane.groups[found.group[row]] if found.group[row] >= 0 else ""
        number = int(found.seq[row]) if numbered else seen[group]
        seen[group] += 1
        out.append(((group, number, int(found.op[row]) if numbered else 0), duration))
    return out
