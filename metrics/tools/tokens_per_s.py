"""Tokens a second of the whole job. Training and plain forward passes: B·S over the mean step time. Serving: output
tokens (one a request in every decode, mixed or prefill iteration) over the time from the first to the last iteration,
times data-parallel replicas.

Source: the usual throughput figure; the CCL-Bench card fixes B (global batch) and S.
"""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import throughput
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="tokens_per_s",
    version="1.0.0",
    unit="tokens/s",
    direction=Direction.MAXIMIZE,
    label="Tokens/s",
    description="tokens a second of the whole job",
    formats=("kineto", "xla"),
)


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Tokens a second, or which fact is missing."""
    return throughput.tokens(SPEC, facts, trace, options)
