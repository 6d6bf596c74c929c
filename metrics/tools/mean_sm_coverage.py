"""Mean SM coverage: Σ min(1, blocks per SM)·duration / Σ duration over all kernels, in percent.

Source: CCL-Bench Table 3 (which calls it occupancy; it is the share of SMs with at least one block). Kineto records
blocks per SM, for Nsight it is the grid over the SM count of the file. ROCm records neither reliably: null.
"""

from __future__ import annotations

import numpy as np

from metrics.facts import CardFacts
from metrics.shared import coverage
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="mean_sm_coverage",
    version="1.0.0",
    unit="%",
    direction=Direction.MAXIMIZE,
    label="SM coverage",
    description="share of SMs with work, weighted by kernel time",
    formats=("kineto", "nsys"),
)
VARIANTS = {
    "without_communication": "communication kernels left out",
    "not_weighted_by_duration": "every kernel counts the same",
}


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Coverage weighted by duration, %."""

    def weigh(blocks: coverage.Reals, seconds: coverage.Reals, comm: coverage.Mask) -> tuple[float, float]:
        weights = np.ones_like(seconds) if options.variant == "not_weighted_by_duration" else seconds
        if options.variant == "without_communication":
            weights = np.where(comm, 0.0, weights)
        return float((np.minimum(blocks, 1.0) * weights).sum()), float(weights.sum())

    return coverage.share(SPEC, trace, options, weigh)
