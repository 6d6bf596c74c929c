"""Straggler delay: mean over collectives matched across ranks of (max - min) / max of their kernel durations.

Source: CCL-Bench Table 3, per collective. A collective ends everywhere at about the same time, so the rank with the
shortest kernel came last. Collectives are matched by process group and sequence number where recorded, else by order
within the group; the detail says which.
"""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import imbalance
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="straggler",
    version="1.0.0",
    unit="ratio",
    direction=Direction.MINIMIZE,
    label="Straggler",
    description="relative spread of the durations of one collective over ranks",
    formats=("kineto",),
)


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Mean relative spread over matched collectives."""
    return imbalance.straggler(SPEC, trace, options)
