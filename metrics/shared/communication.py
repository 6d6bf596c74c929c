"""Communication in steps: its share of kernel time, its exposed time, its overlap with compute."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import metrics.intervals as intervals
from metrics.shared import answers, work
from metrics.shared.work import Attribution, Work
from metrics.tool import Answer, Options, no
from metrics.traces.timeline import NEVER, Lane, Timeline
from runs.metric import MetricSpec, MetricValue

NO_COMMUNICATION = "no communication kernels, the ratio is 0/0"
NO_KERNELS_IN_STEPS = "no kernel runs inside the step spans"


def rule_of(lane: Lane, options: Options, whole_on_tpu: bool) -> Attribution:
    """The attribution of this lane, with the variants `whole` and the TPU's habit of communicating outside its
    steps."""
    if options.variant == "whole" or (lane.family == "xla" and whole_on_tpu and options.rule == "sound"):
        return "whole"
    return work.attribution(lane, options)


def steps_of(lane: Lane, rule: Attribution, options: Options) -> list[Work]:
    """The device work of each step, with the variant `launch_or_window`."""
    if options.variant == "launch_or_window" and rule == "launch":
        return lane.once("launch or window", lambda: _launch_or_window(lane))
    return work.work_of_steps(lane, rule)


def _launch_or_window(lane: Lane) -> list[Work]:
    launch = np.where(lane.kernels.launch != NEVER, lane.kernels.launch, lane.kernels.start)
    return work.by_rows(lane, work.step_rows(lane, launch))


def _mean(values: list[float], lane: Lane, rule: Attribution, empty: str) -> Answer:
    if not values:
        return no(empty)
    missing = int((lane.kernels.launch == NEVER).sum()) if rule == "launch" else 0
    notes: dict[str, Any] = {"rule": rule} | ({"kernels_without_recorded_launch": missing} if missing else {})
    return Answer(sum(values) / len(values), steps=tuple(values), notes=notes)


def fraction(spec: MetricSpec, trace: Timeline, options: Options) -> MetricValue:
    """The metric `communication_fraction`, %."""

    def answer(lane: Lane) -> Answer:
        if not len(lane.kernels):
            return no(answers.no_device_reason(trace))
        rule = rule_of(lane, options, whole_on_tpu=True)
        if options.variant == "sum_of_durations":
            return _mean(_duration_shares(lane, rule), lane, rule, NO_KERNELS_IN_STEPS)
        shares = [
            100 * intervals.length(step.comm) / intervals.length(step.all)
            for step in steps_of(lane, rule, options) if len(step.all[0])
        ]  # fmt: skip
        return _mean(shares, lane, rule, NO_KERNELS_IN_STEPS)

    return answers.over_lanes(spec, trace, options, answer)


def _duration_shares(lane: Lane, rule: Attribution) -> list[float]:
    k, comm = lane.kernels, lane.kernels.comm == 1
    if rule == "window":
        keep = work.inner_steps(lane)
        windows = zip(lane.steps.start[keep].tolist(), lane.steps.end[keep].tolist(), strict=True)
        times = [np.maximum(np.minimum(k.end, end) - np.maximum(k.start, start), 0) for start, end in windows]
    elif rule == "launch":
        step = work.kernel_steps(lane)
        times = [np.where(step == i, k.end - k.start, 0) for i in range(len(work.inner_durations(lane)))]
    else:
        times = [k.end - k.start]
    return [100 * float(t[comm].sum()) / float(t.sum()) for t in times if t.sum() > 0]


def exposed(spec: MetricSpec, trace: Timeline, options: Options) -> MetricValue:
    """The metric `total_communication_time`, s; the capture's exposed communication is in the detail."""

    def answer(lane: Lane) -> Answer:
        if not len(lane.kernels):
            return no(answers.no_device_reason(trace))
        if not len(lane.steps):
            return no(work.NO_STEPS)
        rule = rule_of(lane, options, whole_on_tpu=False)
        steps = steps_of(lane, rule, options)
        return _mean([_exposed(step, options) * lane.tick_s for step in steps], lane, rule, "")

    value = answers.over_lanes(spec, trace, options, answer)
    lanes = trace.device_lanes
    if not lanes:
        return value
    captures = [_exposed(work.work_of_steps(lane, "whole")[0], options) * lane.tick_s for lane in lanes]
    whole = answers.weighted_mean(captures, [lane.weight for lane in lanes])
    detail = (value.detail or {}) | {"whole_capture_exposed": whole}
    return MetricValue(spec.name, spec.version, spec.unit, value.value, value.reason, detail, value.warnings)


def _exposed(step: Work, options: Options) -> int:
    total = intervals.length(step.comm)
    if options.variant == "communication_union_without_subtraction":
        return total
    return total - intervals.length(intervals.intersect(step.comm, step.compute))


def overlap(spec: MetricSpec, trace: Timeline, options: Options) -> MetricValue:
    """The metric `compute_comm_overlap`, %. The variant pools the ticks of all steps and ranks."""
    pooled = [0, 0]

    def answer(lane: Lane) -> Answer:
        if not len(lane.kernels):
            return no(answers.no_device_reason(trace))
        rule = rule_of(lane, options, whole_on_tpu=True)
        pairs = [_hidden(step) for step in steps_of(lane, rule, options) if len(step.comm[0])]
        if options.variant == "pooled_over_steps" and pairs:
            pooled[0] += lane.weight * sum(hidden for hidden, _ in pairs)
            pooled[1] += lane.weight * sum(total for _, total in pairs)
        return _mean([100 * hidden / total for hidden, total in pairs], lane, rule, _no_communication(lane))

    value = answers.over_lanes(spec, trace, options, answer)
    return replace(value, value=100 * pooled[0] / pooled[1]) if pooled[1] else value


def _hidden(step: Work) -> tuple[int, int]:
    return intervals.length(intervals.intersect(step.comm, step.compute)), intervals.length(step.comm)


def _no_communication(lane: Lane) -> str:
    if int((lane.kernels.comm == 1).sum()):
        return "no communication inside the steps, so there is no per-step value"
    return NO_COMMUNICATION
