"""Share of the time of non-communication kernels spent in kernels with coverage below 0.5, in percent.

Source: CCL-Bench Table 3. Communication kernels have few blocks by design; counted, they would make any job look
memory-bound.
"""

from __future__ import annotations

import numpy as np

from metrics.facts import CardFacts
from metrics.shared import coverage
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="memory_bound_fraction",
    version="1.0.0",
    unit="%",
    direction=Direction.MINIMIZE,
    label="Memory-bound",
    description="kernel time at coverage < 50 %",
    formats=("kineto", "nsys"),
)
VARIANTS = {
    "communication_counted": "communication kernels counted like any other",
}


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Memory-bound share, %."""

    def weigh(blocks: coverage.Reals, seconds: coverage.Reals, comm: coverage.Mask) -> tuple[float, float]:
        own = np.ones_like(comm) if options.variant == "communication_counted" else ~comm
        return float(seconds[own & (blocks < 0.5)].sum()), float(seconds[own].sum())

    return coverage.share(SPEC, trace, options, weigh)
