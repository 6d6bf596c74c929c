"""Exposed communication a step: U(communication) minus its overlap with U(compute), over inner steps, then ranks, in
seconds.

Source: CCL-Bench Table 3 ("with compute-overlapped intervals subtracted"). Without steps there is no per-step time:
null, the capture's exposed time is in the detail.
"""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import communication
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="total_communication_time",
    version="1.0.0",
    unit="s",
    direction=Direction.MINIMIZE,
    label="Comm time",
    description="communication time a step that compute does not hide",
)
VARIANTS = {
    "communication_union_without_subtraction": "U(communication), overlap not subtracted",
    "launch_or_window": "kernels without a recorded launch go to the step in which they start",
}


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Communication time a step that compute does not hide, s."""
    return communication.exposed(SPEC, trace, options)
