"""Send/receive traffic: payload bytes a step of one rank, mean over inner steps, then ranks, in GB (1e9 bytes).

The payload is the full tensor (what is sent or received), before any algorithm's own traffic factor. 0 when the steps
hold no such operation and every communication kernel in them is identified.
"""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import answers, sizes
from metrics.tool import Options
from metrics.traces.timeline import Op, Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="traffic_p2p_gb",
    version="1.0.0",
    unit="GB",
    direction=Direction.MINIMIZE,
    label="Send/receive traffic",
    description="Send/receive payload a step and rank",
    formats=("kineto", "xla"),
)


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Payload a step, GB."""
    return answers.over_lanes(SPEC, trace, options, lambda lane: sizes.traffic(lane, Op.P2P, options))
