"""Link utilization of peer-to-peer transfers: mean NVLink (else PCIe) TX utilization over the samples taken while a
peer-to-peer copy or a send/receive kernel runs, in percent.

Source: CCL-Bench Table 3. Needs Nsight GPU metric samples (`nsys profile --gpu-metrics-devices`); samples of 0 during
a transfer count.
"""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import links
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="bw_peertopeer",
    version="1.0.0",
    unit="%",
    direction=Direction.MAXIMIZE,
    label="P2P BW",
    description="link TX utilization during peer-to-peer transfers",
    formats=("nsys",),
)


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Mean TX utilization during transfers, %."""
    return links.peer_utilization(SPEC, trace, options)
