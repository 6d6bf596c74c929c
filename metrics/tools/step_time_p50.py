"""50th percentile of the step time: linear interpolation between the inner steps of all ranks, in seconds."""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import spread
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="step_time_p50",
    version="1.0.0",
    unit="s",
    direction=Direction.MINIMIZE,
    label="Step time P50",
    description="P50 of the step time",
    formats=("kineto", "xla"),
)


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """P50 of the inner steps' durations, s."""
    return spread.percentile(SPEC, trace, 50)
