"""99th percentile of TTFT: one sample a run of pure prefill iterations, pooled over ranks, linear interpolation, in
seconds."""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import latency
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="ttft_p99",
    version="1.0.0",
    unit="s",
    direction=Direction.MINIMIZE,
    label="TTFT P99",
    description="P99 of TTFT",
    formats=("kineto",),
    phases=("inference", "serving"),
)


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """P99 of TTFT, s."""
    return latency.serving_percentile(SPEC, trace, options, facts.phase, 99, "ttft")
