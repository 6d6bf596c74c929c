"""How much step times vary."""

from __future__ import annotations

import numpy as np

from metrics.shared import answers, latency, work
from metrics.tool import Answer, Options, no
from metrics.traces.timeline import Lane, Timeline
from runs.metric import MetricSpec, MetricValue


def percentile(spec: MetricSpec, trace: Timeline, percent: float) -> MetricValue:
    """A percentile of the inner steps of all ranks, s."""
    values = [latency.step_seconds(lane) for lane in trace.lanes]
    reason = next((lane.why["step"] for lane in trace.lanes if "step" in lane.why), work.NO_STEPS)
    return latency.percentile_metric(spec, trace, values, percent, reason)


def variation(spec: MetricSpec, trace: Timeline, options: Options) -> MetricValue:
    """The metric `step_time_cv`."""

    def answer(lane: Lane) -> Answer:
        seconds = latency.step_seconds(lane)
        if len(seconds) < 2:
            return no(lane.why.get("step", "fewer than two inner steps"))
        return Answer(float(np.std(seconds) / np.mean(seconds)))

    return answers.over_lanes(spec, trace, options, answer, device=False)
