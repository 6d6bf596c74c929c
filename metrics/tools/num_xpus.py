"""How many devices the job used: from the plan or card, else the trace's world size, else the devices in the trace."""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import devices
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="num_xpus",
    version="1.0.0",
    unit="devices",
    direction=Direction.MINIMIZE,
    label="XPUs",
    description="devices the job used",
)


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Number of devices, and its source in the detail."""
    number, source = devices.count(facts, trace)
    if number < 1:
        return MetricValue.none(SPEC, "neither the card nor the trace says how many devices were used")
    return MetricValue.of(SPEC, number, detail={"from": source})
