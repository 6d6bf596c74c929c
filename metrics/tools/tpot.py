"""Time per output token: mean duration of the pure decode iterations, over iterations first, then ranks, in seconds.

Source: CCL-Bench Table 3. Iterations that mix prefill and decode count for neither TTFT nor TPOT.
"""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import answers, latency
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="tpot",
    version="1.0.0",
    unit="s",
    direction=Direction.MINIMIZE,
    label="TPOT",
    description="mean latency of a decode step",
    formats=("kineto",),
    phases=("inference", "serving"),
)
VARIANTS = latency.VARIANTS


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """TPOT, s, or why the capture has none."""
    return answers.over_lanes(
        SPEC, trace, options, lambda lane: latency.per_token(lane, options, facts.phase), device=False
    )
