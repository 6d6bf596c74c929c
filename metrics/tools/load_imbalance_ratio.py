"""Load imbalance: max / min over (rank, device) of U(non-communication kernels) over the whole capture; 1.0 is balance.

Source: CCL-Bench Table 3. Communication kernels spin while they wait, so the rank that waits would look busiest: left
out.
"""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import imbalance
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="load_imbalance_ratio",
    version="1.0.0",
    unit="ratio",
    direction=Direction.MINIMIZE,
    label="Load imbalance",
    description="max over min compute time of ranks",
)
VARIANTS = {
    "all_kernels_counted": "communication kernels counted as work",
}


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Max over min compute time."""
    return imbalance.ratio(SPEC, trace, options)
