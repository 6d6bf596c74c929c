"""Peak device memory: the largest "Total Allocated" of the allocator's `[memory]` instants, maximum over ranks, in GB
(1e9 bytes).

PyTorch writes them with `profile_memory=True`; the first schemas (2021) have no totals, and then there is no value.
"""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import marks
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="peak_memory_gb",
    version="1.0.0",
    unit="GB",
    direction=Direction.MINIMIZE,
    label="Peak memory",
    description="largest allocation on any device",
    formats=("kineto",),
)


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Largest allocation, GB."""
    return marks.peak_memory(SPEC, trace, options)
