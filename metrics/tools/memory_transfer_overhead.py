"""Exposed transfer time: U(copies and memsets) not covered by U(non-communication kernels), over the span from the
first to the last kernel or transfer, in percent. Numerators and denominators are summed over ranks.

Source: CCL-Bench D.2, formula (6), with the transfer records of its Appendix A (a compute kernel whose name says copy
is not DMA).
"""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import copies
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="memory_transfer_overhead",
    version="1.0.0",
    unit="%",
    direction=Direction.MINIMIZE,
    label="Mem transfer OH",
    description="time in transfers no kernel hides",
)
VARIANTS = {
    "memcpy_only": "memsets left out",
}


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Exposed transfer time over the capture, %."""
    return copies.overhead(SPEC, trace, options)
