"""Message sizes of collectives: what counts as the payload of each kind, and effective (bus) bandwidth from it.

Factors as nccl-tests defines bus bandwidth: 2(N-1)/N for all-reduce, (N-1)/N for all-gather, reduce-scatter and
all-to-all. The payload is the full tensor: input of all-reduce, reduce-scatter and all-to-all, OUTPUT of all-gather.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from metrics.shared import work
from metrics.tool import Answer, Options, no
from metrics.traces.timeline import Ints, Lane, Op, Timeline
from runs.metric import MetricSpec, MetricValue

_FACTORS = {Op.ALLREDUCE: 2.0, Op.ALLGATHER: 1.0, Op.REDUCESCATTER: 1.0, Op.ALLTOALL: 1.0}
NONE_OF_KIND = "no collective of this kind with message sizes in the trace"
NO_SIZES = "collectives of this kind run, but no record carries both their message size and their group size"


def payload(lane: Lane, op: Op) -> Ints:
    """Payload bytes of every communication kernel as if it were `op`; -1 where not recorded."""
    found = lane.collectives
    if op is Op.ALLGATHER:
        known = (found.in_bytes >= 0) & (found.group_size > 0)
        return np.where(found.out_bytes >= 0, found.out_bytes, np.where(known, found.in_bytes * found.group_size, -1))
    return np.where(found.in_bytes >= 0, found.in_bytes, found.out_bytes if op is Op.P2P else -1)


def bandwidths(lane: Lane, op: Op) -> NDArray[np.float64]:
    """Effective bandwidth of each collective of this kind with sizes, GB/s (1e9 bytes)."""
    found, size = lane.collectives, payload(lane, op)
    time = (lane.kernels.end - lane.kernels.start)[found.kernel]
    use = (found.op == op) & (size > 0) & (found.group_size > 1) & (time > 0)
    n = found.group_size[use].astype(np.float64)
    result: NDArray[np.float64] = _FACTORS[op] * (n - 1) / n * size[use] / (time[use] * lane.tick_s) / 1e9
    return result


def bandwidth_metric(spec: MetricSpec, trace: Timeline, options: Options, op: Op) -> MetricValue:
    """Median over all collectives of this kind in the capture, of all lanes; a lane that stands for r ranks counts r
    times."""
    lanes = trace.device_lanes
    per_lane = [bandwidths(lane, op) for lane in lanes]
    values = np.concatenate(
        [np.repeat(v, lane.weight) for v, lane in zip(per_lane, lanes, strict=True)] or [np.empty(0)]
    )
    if not len(values):
        return MetricValue.none(spec, _why_none(trace, op))
    detail: dict[str, Any] = {"collectives": len(values), "min": float(values.min()), "max": float(values.max())}
    if options.detail:
        detail["per_rank"] = [
            {"lane": lane.label, "value": float(np.median(v)) if len(v) else None, "collectives": len(v)}
            for v, lane in zip(per_lane, lanes, strict=True)
        ]
    return MetricValue.of(spec, float(np.median(values)), detail=detail)


def _why_none(trace: Timeline, op: Op) -> str:
    for lane in trace.lanes:
        if "sizes" in lane.why or "kernels" in lane.why:
            return lane.why.get("sizes") or lane.why["kernels"]
    if not any(int(lane.kernels.comm.sum()) for lane in trace.device_lanes):
        return "no communication kernels"
    seen = any(bool((lane.collectives.op == op).any()) for lane in trace.device_lanes)
    return NO_SIZES if seen else NONE_OF_KIND


def traffic(lane: Lane, op: Op, options: Options) -> Answer:
    """Payload bytes of one kind a step on this lane, mean over inner steps, GB."""
    found = lane.collectives
    mine = found.op == op
    if "sizes" in lane.why:
        return no(lane.why["sizes"])
    if not len(lane.steps):
        return no(work.NO_STEPS)
    rows = _steps_of_collectives(lane, options)
    counted = rows >= 0
    if (found.op[counted] == Op.UNKNOWN).any():
        return no("some communication kernels of the steps have no record of which operation they run")
    size = payload(lane, op)[mine & counted]
    if (size < 0).any():
        return no(NO_SIZES)
    steps = len(work.inner_durations(lane))
    totals = np.bincount(rows[mine & counted], weights=size, minlength=steps) / 1e9
    return Answer(float(totals.mean()), steps=tuple(totals.tolist()))


def _steps_of_collectives(lane: Lane, options: Options) -> Ints:
    if work.attribution(lane, options) == "launch":
        return work.kernel_steps(lane)[lane.collectives.kernel]
    return work.step_rows(lane, lane.kernels.start[lane.collectives.kernel])
