"""Mean wall-clock time of a step: the mean duration of the inner steps, over steps first, then ranks, in seconds.

Source: CCL-Bench Table 3 (`avg_step_time`): one engine iteration, forward and backward in training, a decode step in
serving. Steps are host spans `ProfilerStep#N`, else serving iterations, else executions of the XLA module with most
time.
"""

from __future__ import annotations

import numpy as np

from metrics.facts import CardFacts
from metrics.shared import answers, work
from metrics.tool import Answer, Options, no
from metrics.traces.timeline import Lane, Timeline
from runs.metric import Direction, MetricSpec, MetricValue

SPEC = MetricSpec(
    name="avg_step_time",
    version="1.0.0",
    unit="s",
    direction=Direction.MINIMIZE,
    label="Step time",
    description="mean wall-clock time of a step",
    formats=("kineto", "xla"),
    aliases=("step_time",),
)
VARIANTS = {
    "start_to_start": "the period from one step start to the next, gaps between steps included",
}


def compute(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """Mean duration of the inner steps, s."""

    def answer(lane: Lane) -> Answer:
        if not len(lane.steps):
            return no(lane.why.get("step", work.NO_STEPS))
        times = work.inner_durations(lane)
        if options.variant == "start_to_start" and len(lane.steps) > 1:
            times = (
                np.diff(lane.steps.start)[work.inner_steps(lane)] if len(lane.steps) > 3 else np.diff(lane.steps.start)
            )
        seconds = tuple(t * 1e-9 for t in times.tolist())
        return Answer(sum(seconds) / len(seconds), steps=seconds, notes={"steps": lane.step_kind})

    return answers.over_lanes(SPEC, trace, options, answer, device=False)
