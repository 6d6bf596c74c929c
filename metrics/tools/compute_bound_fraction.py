"""Share of the time of non-communication kernels spent in kernels with coverage above 0.7 that run longer than 10 µs,
in percent.

Source: CCL-Bench Table 3. Communication kernels have few blocks by design and are left out.
"""

from __future__ import annotations

import numpy as np

from metrics.facts import CardFacts
from metrics.shared import coverage
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="compute_bound_fraction",
    version="1.0.0",
    unit="%",
    direction=Direction.MAXIMIZE,
    label="Compute-bound",
    description="kernel time at coverage > 70 % and > 10 µs",
    formats=("kineto", "nsys"),
)


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Compute-bound share, %."""

    def weigh(blocks: coverage.Reals, seconds: coverage.Reals, comm: coverage.Mask) -> tuple[float, float]:
        own = ~comm
        bound = own & (blocks > 0.7) & (np.rint(seconds * 1e9) > 10_000)
        return float(seconds[bound].sum()), float(seconds[own].sum())

    return coverage.share(SPEC, trace, options, weigh)
