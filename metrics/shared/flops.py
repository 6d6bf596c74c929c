"""Model FLOP/s over peak FLOP/s: the formulas of the CCL-Bench paper, D.1."""

from __future__ import annotations

import numpy as np

from metrics.facts import CardFacts
from metrics.shared import answers, devices, latency, work
from metrics.tool import Answer, Options, no
from metrics.traces.timeline import Lane, StepKind, Timeline
from runs.metric import MetricSpec, MetricValue

NO_ARCHITECTURE = "the card has no transformer architecture (model_arch), so the FLOP formula cannot be applied"
DECODE_ONLY = "one decode step handles B tokens, not B*S: the FLOP formula does not fit a decode-only capture"
MIXED = "prefill and decode mixed in one iteration: B*S is not the number of tokens"
NO_PEAK = "the card names no device whose peak FLOP/s is known"
_ARCHITECTURE = ("num_params", "num_params_embedding", "num_layers", "num_heads", "head_dim")


def flops_per_token(facts: CardFacts, tokens_in_context: int) -> float:
    """Formula (3): 2(Nact-Nemb) + 4·L·H·Q·S in inference, 6(Nact-Nemb) + 12·L·H·Q·S in training, S tokens in context.

    Raises:
        ValueError: an architecture fact is missing (`missing` names it beforehand).
    """
    active = facts.num_active_params or facts.num_params
    shape = facts.num_layers, facts.head_dim, facts.num_heads
    if active is None or facts.num_params_embedding is None or None in shape:
        raise ValueError("an architecture fact is missing")
    layers, head, heads = (int(x or 0) for x in shape)
    passes = 3 if facts.phase == "training" else 1
    return passes * (2.0 * (active - facts.num_params_embedding) + 4.0 * layers * head * heads * tokens_in_context)


def missing(facts: CardFacts) -> str | None:
    """Why the formula cannot be applied, or None."""
    lacking = facts.lacking(*_ARCHITECTURE)
    if facts.num_active_params is not None:
        lacking = [name for name in lacking if name != "num_params"]
    if lacking:
        return NO_ARCHITECTURE
    if facts.phase is None:
        return "the card does not say whether this is training or inference"
    return NO_PEAK if facts.peak_bf16_flops is None else None


def utilization(spec: MetricSpec, facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """The metric `mfu`, %."""
    if trace.family == "nsys":
        return MetricValue.none(spec, trace.lanes[0].why["step"] if trace.lanes else work.NO_STEPS)
    if trace.family == "xla":
        return answers.over_lanes(spec, trace, options, lambda lane: _xla(lane, facts))
    serving = [lane for lane in trace.lanes if latency.has_kinds(lane)]
    if serving:
        kinds = {int(kind) for lane in serving for kind in lane.steps.kind}
        if int(StepKind.PREFILL) not in kinds:
            return MetricValue.none(spec, MIXED if int(StepKind.MIXED) in kinds else DECODE_ONLY)
    reason = missing(facts)
    if reason is not None:
        return MetricValue.none(spec, reason)
    number, _ = devices.count(facts, trace)
    return answers.over_lanes(spec, trace, options, lambda lane: _kineto(lane, facts, number), device=False)


def _kineto(lane: Lane, facts: CardFacts, number: int) -> Answer:
    if not len(lane.steps):
        return no(work.NO_STEPS)
    if latency.has_kinds(lane):
        return _prefill(lane, facts, number)
    if facts.batch_size is None or facts.seq_len is None:
        return no("the card has no batch_size or no seq_len")
    seconds = float(np.mean(latency.step_seconds(lane)))
    per_step = flops_per_token(facts, facts.seq_len) * facts.batch_size * facts.seq_len
    return Answer(100 * per_step / seconds / (float(facts.peak_bf16_flops or 0) * number))


def _prefill(lane: Lane, facts: CardFacts, number: int) -> Answer:
    """Utilization of the pure prefill iterations: their own tokens over their own time."""
    pure = lane.steps.kind == StepKind.PREFILL
    tokens = lane.steps.prefill_tokens[pure]
    if not pure.any() or (tokens < 0).any():
        return no("the prefill iterations do not say how many tokens they handled")
    length = facts.input_len or facts.seq_len
    if length is None:
        return no("the card has no input_len or seq_len")
    seconds = float((lane.steps.end - lane.steps.start)[pure].sum()) * 1e-9
    replicas = facts.dp or 1
    done = flops_per_token(facts, length) * float(tokens.sum()) * replicas
    return Answer(
        100 * done / seconds / (float(facts.peak_bf16_flops or 0) * number), notes={"of": "prefill iterations"}
    )


def _xla(lane: Lane, facts: CardFacts) -> Answer:
    if not len(lane.steps):
        return no(work.NO_STEPS)
    if facts.peak_bf16_flops is None:
        return no(NO_PEAK)
    keep = work.inner_steps(lane)
    done = lane.steps.flops[keep]
    if not (done > 0).any():
        return no("no op inside the steps carries model_flops")
    seconds = work.inner_durations(lane).sum() * 1e-9
    return Answer(100 * float(done[done > 0].sum()) / float(seconds) / facts.peak_bf16_flops)
