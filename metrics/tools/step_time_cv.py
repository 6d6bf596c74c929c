"""Coefficient of variation of the step time: standard deviation (population) over mean of the inner steps of a rank,
mean over ranks."""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import spread
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="step_time_cv",
    version="1.0.0",
    unit="ratio",
    direction=Direction.MINIMIZE,
    label="Step time CV",
    description="relative spread of the step time",
    formats=("kineto", "xla"),
)


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Standard deviation over mean of the inner steps."""
    return spread.variation(SPEC, trace, options)
