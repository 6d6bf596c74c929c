"""From answers per lane to one metric value: steps first, then ranks, weighted by the ranks a lane stands for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from metrics.tool import Answer, Options
from metrics.traces.timeline import Lane, Timeline
from runs.metric import MetricSpec, MetricValue

Combine = Callable[[Sequence[float], Sequence[int]], float]


def weighted_mean(values: Sequence[float], weights: Sequence[int]) -> float:
    """Σ wᵢ·vᵢ / Σ wᵢ."""
    return sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)


def over_lanes(
    spec: MetricSpec,
    trace: Timeline,
    options: Options,
    answer: Callable[[Lane], Answer],
    combine: Combine = weighted_mean,
    device: bool = True,
) -> MetricValue:
    """Ask every lane (only those with device work where `device`), and combine the values there are.

    Lanes without a value are counted in the detail; when none has one, the reason most lanes gave is the reason.
    """
    lanes = trace.device_lanes if device else trace.lanes
    if not lanes:
        return MetricValue.none(spec, no_device_reason(trace))
    answers = [(lane, answer(lane)) for lane in lanes]
    good = [(lane, found, found.value) for lane, found in answers if found.value is not None]
    if not good:
        return MetricValue.none(spec, Counter(found.reason for _, found in answers).most_common(1)[0][0])
    value = combine([v for _, _, v in good], [lane.weight for lane, _, _ in good])
    return MetricValue.of(spec, value, detail=_detail(answers, options))


def no_device_reason(trace: Timeline) -> str:
    """Why a trace without device work has no value."""
    return next((lane.why["kernels"] for lane in trace.lanes if "kernels" in lane.why), "no device events in the trace")


def _detail(answers: list[tuple[Lane, Answer]], options: Options) -> dict[str, Any]:
    detail: dict[str, Any] = {}
    for _, found in answers:
        detail |= found.notes
    without = [lane.label for lane, found in answers if found.value is None]
    if without:
        detail["without_value"] = without
    if options.detail:
        detail["per_rank"] = [
            {"lane": lane.label, "device": lane.device, "source": lane.source, "value": found.value}
            | ({"reason": found.reason} if found.value is None else {})
            | ({"steps": list(found.steps)} if found.steps else {})
            for lane, found in answers
        ]
    return detail
