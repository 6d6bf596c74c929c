"""`tokens_per_s` over `num_xpus`: the figure by which jobs of different size compare."""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import throughput
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="tokens_per_s_per_xpu",
    version="1.0.0",
    unit="tokens/s",
    direction=Direction.MAXIMIZE,
    label="Tokens/s/XPU",
    description="tokens a second and device",
    formats=("kineto", "xla"),
)


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Tokens a second and device, or which fact is missing."""
    return throughput.tokens_per_device(SPEC, facts, trace, options)
