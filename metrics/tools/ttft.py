"""Time to first token: total duration of the pure-prefill iterations the capture begins with, mean over ranks, in
seconds.

Source: CCL-Bench Table 3. An iteration is a host span of the engine that says how many context and generation
requests it handled; chunks of one prefill add up. A capture that begins in the middle of decoding has no time to
first token.
"""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import answers, latency
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="ttft",
    version="1.0.0",
    unit="s",
    direction=Direction.MINIMIZE,
    label="TTFT",
    description="latency of the prefill pass",
    formats=("kineto",),
    phases=("inference", "serving"),
)
VARIANTS = latency.VARIANTS


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """TTFT, s, or why the capture has none."""
    return answers.over_lanes(
        SPEC, trace, options, lambda lane: latency.first_token(lane, options, facts.phase), device=False
    )
