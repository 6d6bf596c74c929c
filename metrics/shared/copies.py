"""Memory copies: bandwidth by direction, and the time no kernel hides."""

from __future__ import annotations

from typing import Any

import numpy as np

import metrics.intervals as intervals
from metrics.shared import work
from metrics.shared.answers import no_device_reason
from metrics.tool import Options
from metrics.traces.timeline import CopyKind, Lane, Timeline
from runs.metric import MetricSpec, MetricValue


def bandwidth(spec: MetricSpec, trace: Timeline, options: Options) -> MetricValue:
    """The metric `average_memory_bandwidth`, GB/s; the detail has each direction and how many copies say no size."""
    lanes = trace.device_lanes
    if not lanes or not any(len(lane.kernels) for lane in lanes):
        return MetricValue.none(spec, no_device_reason(trace))
    sums = [_sums(lane) for lane in lanes]
    nbytes = sum(size for lane in sums for size, _ in lane.values())
    seconds = sum(time for lane in sums for _, time in lane.values())
    if options.variant == "over_union_of_copies":
        seconds = sum(_union(lane) for lane in lanes)
    if seconds <= 0:
        why = next((lane.why["copies"] for lane in lanes if "copies" in lane.why), "")
        return MetricValue.none(spec, why or "no memory copy with a byte count")
    return MetricValue.of(spec, nbytes / seconds / 1e9, detail=_detail(lanes, sums, options))


def _union(lane: Lane) -> float:
    """Seconds in which at least one copy with a size runs."""
    mine = (lane.copies.kind != CopyKind.MEMSET) & (lane.copies.bytes >= 0)
    spans = intervals.union(lane.copies.start[mine], lane.copies.end[mine])
    return intervals.length(spans) * lane.tick_s * lane.weight


def _sums(lane: Lane) -> dict[CopyKind, tuple[float, float]]:
    """Bytes and seconds of each direction on one lane, counted once for each rank it stands for."""
    sums: dict[CopyKind, tuple[float, float]] = {}
    for kind in CopyKind:
        mine = (lane.copies.kind == kind) & (lane.copies.bytes >= 0)
        if kind is CopyKind.MEMSET or not mine.any():
            continue
        time = int((lane.copies.end - lane.copies.start)[mine].sum())
        sums[kind] = (float(lane.copies.bytes[mine].sum()) * lane.weight, time * lane.tick_s * lane.weight)
    return sums


def _detail(lanes: list[Lane], sums: list[dict[CopyKind, tuple[float, float]]], options: Options) -> dict[str, Any]:
    kinds = sorted({kind for lane in sums for kind in lane})
    totals = {k: [sum(lane[k][i] for lane in sums if k in lane) for i in (0, 1)] for k in kinds}
    unsized = sum(int(((c.kind != CopyKind.MEMSET) & (c.bytes < 0)).sum()) for c in (lane.copies for lane in lanes))
    detail: dict[str, Any] = {
        "by_direction": {kind.name: size / time / 1e9 for kind, (size, time) in totals.items() if time > 0},
        "bytes_by_direction": {kind.name: int(size) for kind, (size, _) in totals.items()},
        "copies_without_bytes": unsized,
    }
    if options.detail:
        detail["per_rank"] = [{"lane": lane.label, "value": _rate(own)} for lane, own in zip(lanes, sums, strict=True)]
    return detail


def _rate(own: dict[CopyKind, tuple[float, float]]) -> float | None:
    seconds = sum(time for _, time in own.values())
    return sum(size for size, _ in own.values()) / seconds / 1e9 if seconds > 0 else None


def overhead(spec: MetricSpec, trace: Timeline, options: Options) -> MetricValue:
    """The metric `memory_transfer_overhead`, %."""
    lanes = [lane for lane in trace.device_lanes if len(lane.kernels)]
    if not lanes:
        return MetricValue.none(spec, no_device_reason(trace))
    exposed = [_exposed(lane, options) * lane.tick_s * lane.weight for lane in lanes]
    spans = [_span(lane) * lane.tick_s * lane.weight for lane in lanes]
    if sum(spans) <= 0:
        return MetricValue.none(spec, "the kernels and transfers of the capture take no time")
    detail = None
    if options.detail:
        pairs = zip(lanes, exposed, spans, strict=True)
        detail = {"per_rank": [{"lane": lane.label, "value": 100 * e / s if s else None} for lane, e, s in pairs]}
    return MetricValue.of(spec, 100 * sum(exposed) / sum(spans), detail=detail)


def _exposed(lane: Lane, options: Options) -> int:
    moves = lane.copies
    keep = moves.kind != CopyKind.MEMSET if options.variant == "memcpy_only" else np.ones(len(moves), bool)
    spans = intervals.union(moves.start[keep], moves.end[keep])
    return intervals.length(intervals.subtract(spans, work.compute_spans(lane)))


def _span(lane: Lane) -> int:
    """From the first to the last kernel or transfer."""
    first = min(int(t.start.min()) for t in (lane.kernels, lane.copies) if len(t))
    return max(int(t.end.max()) for t in (lane.kernels, lane.copies) if len(t)) - first
