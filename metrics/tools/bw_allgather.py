"""Median effective bandwidth of AllGather: (N-1)/N · output bytes / duration, over all of the capture, in GB/s (1e9
bytes).

Source: CCL-Bench Table 3; the factor is the bus bandwidth of nccl-tests for N ranks. Needs message and group sizes in
the trace.
"""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import sizes
from metrics.tool import Options
from metrics.traces.timeline import Op, Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="bw_allgather",
    version="1.0.0",
    unit="GB/s",
    direction=Direction.MAXIMIZE,
    label="AllGather BW",
    description="median of (N-1)/N · output bytes over duration",
    formats=("kineto", "xla"),
)


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Median effective bandwidth, GB/s."""
    return sizes.bandwidth_metric(SPEC, trace, options, Op.ALLGATHER)
