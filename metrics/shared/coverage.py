"""Shares of kernel time by how much of the device a kernel covers (blocks per SM, capped at 1)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from metrics.shared.answers import no_device_reason
from metrics.tool import Options
from metrics.traces.timeline import Lane, Timeline
from runs.metric import MetricSpec, MetricValue

Reals = NDArray[np.float64]
Mask = NDArray[np.bool_]
Weigh = Callable[[Reals, Reals, Mask], tuple[float, float]]


def share(spec: MetricSpec, trace: Timeline, options: Options, weigh: Weigh) -> MetricValue:
    """100·Σ numerators / Σ denominators over lanes; `weigh(coverage, seconds, communicates)` gives both for one lane.

    Kernels without a coverage are left out, and their share of the kernel time is in the detail.
    """
    lanes = trace.device_lanes
    known = [lane for lane in lanes if np.isfinite(lane.kernels.coverage).any()]
    if not known:
        return MetricValue.none(spec, _reason(trace, lanes))
    parts = [tuple(lane.weight * x for x in _lane(lane, weigh)) for lane in known]
    top, bottom = sum(p[0] for p in parts), sum(p[1] for p in parts)
    if bottom <= 0:
        return MetricValue.none(spec, "no kernel time to take a share of")
    detail: dict[str, object] = {"share_without_coverage": _unknown_share(lanes)}
    if options.detail:
        detail["per_rank"] = [{"lane": lane.label, "value": 100 * p[0] / p[1] if p[1] else None}
                              for lane, p in zip(known, parts, strict=True)]  # fmt: skip
    return MetricValue.of(spec, 100 * top / bottom, detail=detail)


def _lane(lane: Lane, weigh: Weigh) -> tuple[float, float]:
    keep = np.isfinite(lane.kernels.coverage)
    seconds: Reals = (lane.kernels.end - lane.kernels.start)[keep] * np.float64(lane.tick_s)
    return weigh(lane.kernels.coverage[keep], seconds, lane.kernels.comm[keep] == 1)


def _unknown_share(lanes: list[Lane]) -> float:
    times = [(lane.kernels.end - lane.kernels.start, np.isnan(lane.kernels.coverage)) for lane in lanes]
    total = sum(int(t.sum()) for t, _ in times)
    return sum(int(t[unknown].sum()) for t, unknown in times) / total if total else 0.0


def _reason(trace: Timeline, lanes: list[Lane]) -> str:
    if not lanes:
        return no_device_reason(trace)
    return next((lane.why["coverage"] for lane in lanes if "coverage" in lane.why), "no kernel says its coverage")
