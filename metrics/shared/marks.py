"""Memory samples and pipeline bubbles."""

from __future__ import annotations

from typing import Any

import numpy as np

import metrics.intervals as intervals
from metrics.facts import CardFacts
from metrics.shared import answers, breakdown, work
from metrics.tool import Answer, Options, no
from metrics.traces.timeline import Lane, Op, Timeline
from runs.metric import MetricSpec, MetricValue

NO_MEMORY = "the trace has no [memory] events with totals (profile_memory was off, or a schema of 2021)"
NO_PIPELINE = "no pipeline to wait for: the trace has no bubble spans and no send or receive"


def peak_memory(spec: MetricSpec, trace: Timeline, options: Options) -> MetricValue:
    """The metric `peak_memory_gb`."""
    peaks = {
        lane.label: int(lane.marks.memory_allocated.max()) / 1e9 for lane in trace.lanes if len(lane.marks.memory_time)
    }
    if not peaks:
        return MetricValue.none(spec, NO_MEMORY)
    worst = max(peaks, key=lambda label: peaks[label])
    detail: dict[str, Any] = {"on": worst}
    if options.detail:
        detail["per_rank"] = [{"lane": label, "value": value} for label, value in peaks.items()]
    return MetricValue.of(spec, peaks[worst], detail=detail)


def bubble(spec: MetricSpec, facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """The metric `bubble_fraction`, %."""
    annotated = any(len(lane.marks.bubble_start) for lane in trace.lanes)
    if not annotated and facts.pp == 1 and any(len(lane.steps) for lane in trace.device_lanes):
        return MetricValue.of(spec, 0.0, detail={"from": "the plan has no pipeline"})
    waits = any(bool((lane.collectives.op == Op.P2P).any()) for lane in trace.device_lanes)
    if not annotated and not waits:
        return MetricValue.none(spec, NO_PIPELINE if trace.device_lanes else answers.no_device_reason(trace))

    def answer(lane: Lane) -> Answer:
        if not len(lane.steps):
            return no(work.NO_STEPS)
        spans = _annotated if annotated else _gaps
        windows = _host_windows(lane) if annotated else breakdown.device_windows(lane, options)
        shares = [100 * intervals.length(spans(lane, *w)) / (w[1] - w[0]) for w in windows if w[1] > w[0]]
        source = "bubble spans" if annotated else "gaps with a pending send or receive"
        return Answer(sum(shares) / len(shares), steps=tuple(shares), notes={"from": source})

    return answers.over_lanes(spec, trace, options, answer)


def _host_windows(lane: Lane) -> list[tuple[int, int]]:
    keep = work.inner_steps(lane)
    return list(zip(lane.steps.start[keep].tolist(), lane.steps.end[keep].tolist(), strict=True))


def _annotated(lane: Lane, start: int, end: int) -> intervals.Spans:
    return intervals.clip(intervals.union(lane.marks.bubble_start, lane.marks.bubble_end), start, end)


def _gaps(lane: Lane, start: int, end: int) -> intervals.Spans:
    """Gaps between other device work in which a send or receive kernel runs (it waits for the neighbour)."""
    peer = np.isin(np.arange(len(lane.kernels)), lane.collectives.kernel[lane.collectives.op == Op.P2P])
    k, c = lane.kernels, lane.copies
    waiting = intervals.clip(intervals.union(k.start[peer], k.end[peer]), start, end)
    busy = intervals.union(np.concatenate([k.start[~peer], c.start]), np.concatenate([k.end[~peer], c.end]))
    window = np.array([start], np.int64), np.array([end], np.int64)
    gaps = intervals.subtract(window, intervals.clip(busy, start, end))
    touched = np.searchsorted(waiting[0], gaps[1], "left") > np.searchsorted(waiting[1], gaps[0], "right")
    return gaps[0][touched], gaps[1][touched]
