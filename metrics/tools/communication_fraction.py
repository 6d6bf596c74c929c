"""Share of kernel time in communication: U(communication) / U(all kernels) a step, over inner steps, then ranks, in
percent.

Source: CCL-Bench Table 3. Unions, not sums: two streams at once are not twice the time. Without steps, and on a TPU
under the sound rule (its collectives may run in modules of their own), the whole capture.
"""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import communication
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="communication_fraction",
    version="1.0.0",
    unit="%",
    direction=Direction.MINIMIZE,
    label="Comm fraction",
    description="step kernel time in communication",
)
VARIANTS = {
    "sum_of_durations": "sums of durations in place of unions",
    "launch_or_window": "kernels without a recorded launch go to the step in which they start",
    "whole": "the whole capture as one step",
}


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Step kernel time in communication, %."""
    return communication.fraction(SPEC, trace, options)
