"""Link utilization from Nsight's GPU metric samples."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import metrics.intervals as intervals
from metrics.tool import Options
from metrics.traces.timeline import CopyKind, Lane, Timeline
from runs.metric import MetricSpec, MetricValue

_NVLINK = re.compile(r"nvlink.*(?:tx|transmit)|(?:tx|transmit).*nvlink", re.IGNORECASE)
_PCIE = re.compile(r"pcie.*(?:tx|transmit|write)|(?:tx|transmit).*pcie", re.IGNORECASE)
_SEND_RECEIVE = re.compile(r"SendRecv|nvshmem", re.IGNORECASE)
NEEDS_SAMPLES = "needs Nsight GPU metric samples"


def transfers(lane: Lane) -> intervals.Spans:
    """Time in which a peer-to-peer copy or a send/receive kernel runs."""
    peer = lane.copies.kind == CopyKind.P2P
    kernels = np.isin(lane.kernels.name, [i for i, n in enumerate(lane.names) if _SEND_RECEIVE.search(n)])
    return intervals.union(
        np.concatenate([lane.copies.start[peer], lane.kernels.start[kernels]]),
        np.concatenate([lane.copies.end[peer], lane.kernels.end[kernels]]),
    )


def peer_utilization(spec: MetricSpec, trace: Timeline, options: Options) -> MetricValue:
    """The metric `bw_peertopeer`, %."""
    if trace.family != "nsys":
        return MetricValue.none(spec, NEEDS_SAMPLES)
    sampled = [lane for lane in trace.lanes if len(lane.samples.time)]
    if not sampled:
        return MetricValue.none(
            spec, next((lane.why["samples"] for lane in trace.lanes if "samples" in lane.why), NEEDS_SAMPLES)
        )
    for link in (_NVLINK, _PCIE):
        values = [(lane.label, _inside(lane, link)) for lane in sampled]
        pooled = np.concatenate([samples for _, samples in values])
        if len(pooled):
            return MetricValue.of(spec, float(pooled.mean()), detail=_detail(values, link, options))
    return MetricValue.none(spec, "no NVLink or PCIe TX sample falls into a peer-to-peer transfer")


def _detail(values: list[tuple[str, Any]], link: re.Pattern[str], options: Options) -> dict[str, Any]:
    detail: dict[str, Any] = {
        "link": "NVLink" if link is _NVLINK else "PCIe",
        "samples": sum(len(samples) for _, samples in values),
    }
    if options.detail:
        detail["per_rank"] = [{"lane": k, "value": float(v.mean()) if len(v) else None} for k, v in values]
    return detail


def _inside(lane: Lane, link: re.Pattern[str]) -> Any:
    """Samples of the link's TX counters taken inside a transfer."""
    wanted = [i for i, name in enumerate(lane.names) if link.search(name)]
    mine = np.isin(lane.samples.metric, wanted)
    starts, ends = transfers(lane)
    if not len(starts) or not mine.any():
        return np.empty(0)
    time = lane.samples.time[mine]
    at = np.searchsorted(starts, time, "right") - 1
    return lane.samples.value[mine][(at >= 0) & (time < ends[np.maximum(at, 0)])]
