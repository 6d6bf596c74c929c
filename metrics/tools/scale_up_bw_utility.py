"""Utility of scale-up bandwidth: how much faster a step would be with twice the intra-node bandwidth, in percent.

Source: CCL-Bench Table 3, by simulated replay of the trace. It needs a what-if replay, which is not part of the trace
itself.
"""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="scale_up_bw_utility",
    version="1.0.0",
    unit="%",
    direction=Direction.MAXIMIZE,
    label="Scale-up BW utility",
    description="step-time gain from twice the intra-node bandwidth",
    formats=("kineto",),
)


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Always a reason: the value is the outcome of a what-if replay."""
    del facts, trace, options
    return MetricValue.none(SPEC, "unsupported: needs what-if")
