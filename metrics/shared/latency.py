"""Serving iterations: the leading prefill, decode iterations, and the order statistics of both.

An iteration is what the engine's span says it did: context (prefill) requests, generation (decode) requests, or both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metrics.shared import work
from metrics.tool import Answer, Options, no
from metrics.traces.timeline import NEVER, Lane, StepKind, Timeline
from runs.metric import MetricSpec, MetricValue

VARIANTS = {"to_gpu_end": "until the last kernel that the iteration launched ends, not until its host span ends"}
NOT_SERVING = "training trace or no serving span"
UNTOLD = "inference trace without serving spans that tell prefill from decode"
NO_DECODE = "no pure decode iteration in the capture (only {kinds})"


def reason_without_kinds(lane: Lane, phase: str | None) -> str:
    """Why a lane whose steps say nothing of prefill and decode has no latency."""
    if lane.family == "nsys":
        return lane.why.get("step", NOT_SERVING)
    return UNTOLD if phase not in (None, "training") and len(lane.steps) else NOT_SERVING


def has_kinds(lane: Lane) -> bool:
    """Whether the steps say what they did."""
    return bool((lane.steps.kind != StepKind.PLAIN).any())


def iteration_ns(lane: Lane, options: Options) -> list[int]:
    """Duration of every iteration: its host span, or with the variant `to_gpu_end` until its last kernel ends."""
    spans = [int(d) for d in lane.steps.end - lane.steps.start]
    if options.variant != "to_gpu_end" or not len(lane.kernels):
        return spans
    ends = _gpu_ends(lane)
    return [max(int(end - start), span) if end != NEVER else span
            for start, end, span in zip(lane.steps.start.tolist(), ends, spans, strict=True)]  # fmt: skip


def _gpu_ends(lane: Lane) -> list[int]:
    starts = lane.steps.start
    at = np.searchsorted(starts, lane.kernels.launch, "right") - 1
    inside = (at >= 0) & (lane.kernels.launch <= lane.steps.end[np.maximum(at, 0)])
    ends = np.full(len(starts), NEVER)
    np.maximum.at(ends, at[inside], lane.kernels.end[inside])
    return [int(end) for end in ends]


def prefill_runs(lane: Lane, options: Options) -> list[float]:
    """Total duration of each unbroken run of pure prefill iterations, s: chunks of one prompt are one time to first
    token."""
    runs: list[float] = []
    previous = StepKind.PLAIN
    for kind, duration in zip(lane.steps.kind.tolist(), iteration_ns(lane, options), strict=True):
        if kind == StepKind.PREFILL:
            if previous != StepKind.PREFILL:
                runs.append(0.0)
            runs[-1] += duration * 1e-9
        previous = StepKind(kind)
    return runs


def decode_times(lane: Lane, options: Options) -> list[float]:
    """Durations of pure decode iterations, s."""
    pairs = zip(lane.steps.kind.tolist(), iteration_ns(lane, options), strict=True)
    return [duration * 1e-9 for kind, duration in pairs if kind == StepKind.DECODE]


def first_token(lane: Lane, options: Options, phase: str | None) -> Answer:
    """Time to first token: the pure-prefill iterations that the capture begins with."""
    if not has_kinds(lane):
        return no(reason_without_kinds(lane, phase))
    first = StepKind(int(lane.steps.kind[0]))
    if first is not StepKind.PREFILL:
        began = f"the capture starts with a {first.name.lower()} iteration"
        return no(f"{began}: no prefill of a request from its beginning is recorded")
    runs = prefill_runs(lane, options)
    return Answer(runs[0], steps=tuple(runs), notes={"span": options.variant or "host span"})


def per_token(lane: Lane, options: Options, phase: str | None) -> Answer:
    """Time per output token: mean duration of pure decode iterations."""
    if not has_kinds(lane):
        return no(reason_without_kinds(lane, phase))
    times = decode_times(lane, options)
    if not times:
        kinds = sorted({StepKind(int(k)).name.lower() for k in lane.steps.kind})
        return no(NO_DECODE.format(kinds=", ".join(kinds)))
    return Answer(sum(times) / len(times), steps=tuple(times), notes={"span": options.variant or "host span"})


def percentile_metric(
    spec: MetricSpec, trace: Timeline, values: Sequence[Sequence[float]], percent: float, reason: str
) -> MetricValue:
    """A percentile (linear interpolation) of samples pooled over lanes."""
    pooled = [v for lane, mine in zip(trace.lanes, values, strict=True) for v in list(mine) * lane.weight]
    if not pooled:
        return MetricValue.none(spec, reason)
    return MetricValue.of(spec, float(np.percentile(pooled, percent)), detail={"samples": len(pooled)})


def serving_percentile(
    spec: MetricSpec, trace: Timeline, options: Options, phase: str | None, percent: float, what: str
) -> MetricValue:
    """A percentile of TTFT (`what` = "ttft": one sample a run of prefill iterations) or TPOT (one sample a decode
    iteration)."""
    sample = prefill_runs if what == "ttft" else decode_times
    values = [sample(lane, options) if has_kinds(lane) else [] for lane in trace.lanes]
    lane = trace.lanes[0] if trace.lanes else None
    if lane is None or not has_kinds(lane):
        reason = reason_without_kinds(lane, phase) if lane is not None else NOT_SERVING
    else:
        reason = "no pure prefill iteration in the capture" if what == "ttft" else NO_DECODE.format(kinds="others")
    return percentile_metric(spec, trace, values, percent, reason)


def step_seconds(lane: Lane) -> list[float]:
    """Durations of the inner steps, s."""
    return [d * 1e-9 for d in work.inner_durations(lane).tolist()]
