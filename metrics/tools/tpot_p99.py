"""99th percentile of TPOT: one sample a pure decode iteration, pooled over ranks, linear interpolation, in seconds."""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import latency
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="tpot_p99",
    version="1.0.0",
    unit="s",
    direction=Direction.MINIMIZE,
    label="TPOT P99",
    description="P99 of TPOT",
    formats=("kineto",),
    phases=("inference", "serving"),
)


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """P99 of TPOT, s."""
    return latency.serving_percentile(SPEC, trace, options, facts.phase, 99, "tpot")
