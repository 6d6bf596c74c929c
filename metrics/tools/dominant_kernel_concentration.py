"""Share of all kernel time, over all ranks, in the one kernel (full name; HLO category on a TPU) with the largest
sum, in percent.

Source: CCL-Bench Table 3. Template instances are different kernels: Nsight's short name would merge them.
"""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import kernels
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="dominant_kernel_concentration",
    version="1.0.0",
    unit="%",
    direction=Direction.MINIMIZE,
    label="Top kernel",
    description="kernel time in the most time-consuming kernel",
)
VARIANTS = {
    "grouped_by_short_name": "Nsight: all instances of a template as one kernel",
    "share_without_copies": "XLA: copy-start and copy-done left out",
}


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Share of the top kernel, %, its name in the detail."""
    return kernels.dominant(SPEC, trace, options)
