"""Share of kernel time in kernels of a mixture of experts: expert GEMMs, routing, dispatch, combine, finalize, in
percent.

Source: CCL-Bench Table 3; the names are data in `metrics/data/kernel_names.toml`. Exactly 0 when no kernel belongs to
experts.
"""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import kernels
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="moe_fraction",
    version="1.0.0",
    unit="%",
    direction=Direction.MINIMIZE,
    label="MoE fraction",
    description="kernel time in expert, routing and dispatch kernels",
    formats=("kineto", "nsys"),
)
VARIANTS = {
    "only_names_containing_moe": "only kernels whose name contains the word moe",
}


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """MoE share, %."""
    return kernels.moe(SPEC, trace, options)
