"""Sums of kernel durations by name and by class."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from math import fsum
from typing import Any

import numpy as np

from metrics.shared.answers import no_device_reason
from metrics.tool import Options
from metrics.traces.timeline import IN_FLIGHT, MOE, Lane, Timeline
from runs.metric import MetricSpec, MetricValue


def sums_by_name(lane: Lane) -> dict[str, int]:
    """Total duration of each kernel name, in ticks."""
    own = (lane.kernels.flags & IN_FLIGHT) == 0
    ticks = (lane.kernels.end - lane.kernels.start)[own]
    totals = np.bincount(lane.kernels.name[own], weights=ticks, minlength=len(lane.names))  # exact below 2**53 ticks
    return {lane.names[i]: int(totals[i]) for i in np.flatnonzero(totals).tolist()}


def _totals(trace: Timeline, rename: Callable[[Lane, str], str | None]) -> dict[str, float]:
    totals: dict[str, float] = defaultdict(float)
    for lane in trace.device_lanes:
        for name, ticks in sums_by_name(lane).items():
            shown = rename(lane, name)
            if shown is not None:
                totals[shown] += ticks * lane.tick_s * lane.weight
    return totals


def _short(lane: Lane, name: str) -> str:
    shorts: dict[str, str] = lane.facts.get("short_names", {})
    return shorts.get(name, name)


def _name(variant: str | None) -> Callable[[Lane, str], str | None]:
    if variant == "grouped_by_short_name":
        return _short
    if variant == "share_without_copies":
        return lambda _, name: None if name in ("copy-start", "copy-done") else name
    return lambda _, name: name


def dominant(spec: MetricSpec, trace: Timeline, options: Options) -> MetricValue:
    """The metric `dominant_kernel_concentration`, %."""
    totals = _totals(trace, _name(options.variant))
    whole = fsum(totals.values())
    if whole <= 0:
        return MetricValue.none(spec, no_device_reason(trace))
    top = max(totals, key=lambda name: totals[name])
    detail: dict[str, Any] = {"name": top, "kernels": len(totals)}
    if options.detail:
        ranked = sorted(totals.items(), key=lambda item: -item[1])[:10]
        detail["top"] = [{"name": name, "seconds": seconds, "share": 100 * seconds / whole} for name, seconds in ranked]
    return MetricValue.of(spec, 100 * totals[top] / whole, detail=detail)


def moe(spec: MetricSpec, trace: Timeline, options: Options) -> MetricValue:
    """The metric `moe_fraction`, %."""
    top = whole = 0.0
    found: set[str] = set()
    for lane in trace.device_lanes:
        if "moe" in lane.why:
            return MetricValue.none(spec, lane.why["moe"])
        seconds = (lane.kernels.end - lane.kernels.start) * lane.tick_s * lane.weight
        mine = (lane.kernels.flags & MOE) > 0
        if options.variant == "only_names_containing_moe":
            mine &= np.isin(lane.kernels.name, [i for i, n in enumerate(lane.names) if "moe" in n.lower()])
        top, whole = top + float(seconds[mine].sum()), whole + float(seconds.sum())
        found |= {lane.names[i] for i in np.unique(lane.kernels.name[mine]).tolist()}
    if whole <= 0:
        return MetricValue.none(spec, no_device_reason(trace))
    return MetricValue.of(spec, 100 * top / whole, detail={"kernels": sorted(found)})
