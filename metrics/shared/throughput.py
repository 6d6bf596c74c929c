"""Tokens a second of the whole job."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from metrics.facts import CardFacts
from metrics.shared import answers, devices, latency, work
from metrics.tool import Answer, Options, no
from metrics.traces.timeline import Lane, Timeline
from runs.metric import MetricSpec, MetricValue


def tokens(spec: MetricSpec, facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """The metric `tokens_per_s`."""

    def answer(lane: Lane) -> Answer:
        if not len(lane.steps):
            return no(lane.why.get("step", work.NO_STEPS))
        return _serving(lane, facts) if latency.has_kinds(lane) else _plain(lane, facts)

    return answers.over_lanes(spec, trace, options, answer, device=False)


def _plain(lane: Lane, facts: CardFacts) -> Answer:
    lacking = facts.lacking("batch_size", "seq_len")
    if lacking:
        return no(f"the card has no {' and no '.join(lacking)}")
    seconds = float(np.mean(latency.step_seconds(lane)))
    return Answer(float(facts.batch_size or 0) * float(facts.seq_len or 0) / seconds, notes={"tokens": "processed"})


def _serving(lane: Lane, facts: CardFacts) -> Answer:
    """Output tokens: a decode request yields one an iteration, a prefill request its first."""
    steps = lane.steps
    produced = np.maximum(steps.decode_requests, 0) + np.maximum(steps.prefill_requests, 0)
    seconds = float(steps.end.max() - steps.start.min()) * 1e-9
    if (np.maximum(steps.decode_requests, steps.prefill_requests) < 0).any() or seconds <= 0:
        return no("the serving spans do not say how many requests they handled")
    replicas = facts.dp or 1
    return Answer(float(produced.sum()) * replicas / seconds, notes={"tokens": "output", "replicas": replicas})


def tokens_per_device(spec: MetricSpec, facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """The metric `tokens_per_s_per_xpu`."""
    total = tokens(spec, facts, trace, options)
    number, source = devices.count(facts, trace)
    if total.value is None:
        return total
    if number < 1:
        return MetricValue.none(spec, "neither the card nor the trace says how many devices were used")
    return replace(
        total, value=total.value / number, detail=(total.detail or {}) | {"xpus": number, "xpus_from": source}
    )
