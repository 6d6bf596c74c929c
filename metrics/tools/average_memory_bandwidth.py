"""Sustained copy bandwidth: Σ bytes / Σ duration of the memory copies that have a byte count, memsets left out, in
GB/s (1e9 bytes).

Source: CCL-Bench Table 3. Directions differ by orders of magnitude; the detail gives each. On a TPU a copy lasts from
copy-start to the END of copy-done, which blocks until the transfer is over.
"""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import copies
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="average_memory_bandwidth",
    version="1.0.0",
    unit="GB/s",
    direction=Direction.MAXIMIZE,
    label="Avg mem BW",
    description="bytes over time of memory copies",
)
VARIANTS = {
    "over_union_of_copies": "bytes over the union of copy time, so that parallel copies add up",
}


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Bytes over time of copies, GB/s."""
    return copies.bandwidth(SPEC, trace, options)
