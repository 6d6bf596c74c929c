"""Model FLOPs utilization: model FLOP/s over the dense BF16 peak of all devices, in percent.

Source: CCL-Bench D.1, formulas (2)-(4): per token 6(Nact-Nemb) + 12·L·H·Q·S in training, 2(Nact-Nemb) + 4·L·H·Q·S in
inference (attention not causal, recomputation not counted), times B·S tokens, over the mean step time. On a TPU:
`model_flops` of the ops inside each inner step over its duration and the peak of one chip, mean over chips.
"""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.shared import flops
from metrics.tool import Options
from metrics.traces.timeline import Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="mfu",
    version="1.0.0",
    unit="%",
    direction=Direction.MAXIMIZE,
    label="MFU",
    description="model FLOP/s over peak FLOP/s of all devices",
    formats=("kineto", "xla"),
)


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Model FLOP/s over peak, %, or which fact is missing."""
    return flops.utilization(SPEC, facts, trace, options)
