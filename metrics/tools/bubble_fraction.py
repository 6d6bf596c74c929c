"""Pipeline bubble: share of a step in which a device waits for its pipeline neighbours, over inner steps, then ranks,
in percent.

From spans named `bubble` where the trace has them (simulated traces), else the gaps between other device work in
which a send or receive is pending. Exactly 0 when the plan says there is no pipeline.
"""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import marks
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="bubble_fraction",
    version="1.0.0",
    unit="%",
    direction=Direction.MINIMIZE,
    label="Bubble",
    description="share of a step spent waiting for pipeline neighbours",
    formats=("kineto",),
)


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Bubble share of the step, %."""
    return marks.bubble(SPEC, facts, trace, options)
