"""Overlap of compute and communication: |U(communication) ∩ U(compute)| / U(communication) a step, over the steps
that communicate, then ranks, in percent.

Source: CCL-Bench D.3, formula (7). Null without communication: 0/0 is no overlap of 0 %.
"""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import communication
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="compute_comm_overlap",
    version="1.0.0",
    unit="%",
    direction=Direction.MAXIMIZE,
    label="Overlap",
    description="communication time hidden by compute",
)
VARIANTS = {
    "pooled_over_steps": "sum of overlaps over sum of communication, over steps and ranks",
    "launch_or_window": "kernels without a recorded launch go to the step in which they start",
    "whole": "the whole capture as one step",
}


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Communication time hidden by compute, %."""
    return communication.overlap(SPEC, trace, options)
