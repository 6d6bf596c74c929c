"""Time a step in which the device does nothing, mean over inner steps, then ranks, in seconds.

One of the five parts of the step (see `metrics.shared.breakdown` for the windows); the five add up to `avg_step_time`
of the ranks that have device work. The decomposition is ours; its parts are the interval sets of CCL-Bench D.2 and
D.3.
"""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import breakdown
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="step_idle_time",
    version="1.0.0",
    unit="s",
    direction=Direction.MINIMIZE,
    label="Idle",
    description="time a step in which the device does nothing",
    formats=("kineto", "xla"),
)


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Mean time a step, s."""
    return breakdown.metric(SPEC, trace, options, "idle")
