"""Memory of one device: what a plan keeps on the fullest pipeline stage, part by part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from backends.layout import ShardDegrees, defers_reduction
from backends.model.activations import layer_activation_bytes, routed_share
from backends.model.shapes import attention_shape, mlp_shape
from backends.parts import ModelParts
from backends.stages import in_flight
from runs.environment import Environment
from runs.plan import ParallelPlan
from runs.workload import Workload

GB, GIB = 1e9, 2.0**30
DEFAULT_MARGIN = 0.08
"""How far, relative to the limit, an estimate may lie above it before the plan is called out of memory.

It is the error that recorded successes show: the fullest of them is estimated at 1.07 of its device's memory
(docs/simulators.md). A plan refused by this rule needs clearly more than there is.
"""
CONTEXT_BYTES = 0.5 * GB
COMMUNICATOR_BYTES = 0.1 * GB
GRAPH_BYTES = 0.5 * GB
DEFAULT_BATCHED_TOKENS = 8192
LOGIT_BYTES = 8.0
"""Per logit: bf16 value, fp32 copy for the loss, bf16 gradient."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes on one device of the fullest stage. `fits` allows `margin` above `limit_bytes` (the nominal memory)."""

    parts: Mapping[str, float]
    total_bytes: float
    limit_bytes: float
    margin: float
    fits: bool
    stage: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; parts in bytes."""
        return {
            "parts": dict(self.parts), "total_bytes": self.total_bytes, "limit_bytes": self.limit_bytes,
            "margin": self.margin, "fits": self.fits, "stage": self.stage,
        }  # fmt: skip

    def describe(self) -> str:
        """One line: the total, the limit and the parts in GiB, as a device is named ("40 GB"), largest first."""
        parts = sorted(self.parts.items(), key=lambda part: -part[1])
        listed = ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts if size >= 0.05 * GIB)
        return (
            f"{self.total_bytes / GIB:.1f} GiB needed on stage {self.stage}, {self.limit_bytes / GIB:.1f} GiB there "
            f"(margin {self.margin:.0%}): {listed}"
        )


def estimate(
    workload: Workload, environment: Environment, plan: ParallelPlan, margin: float = DEFAULT_MARGIN
) -> MemoryEstimate:
    """Estimate the memory of one device under `plan`; the fullest pipeline stage counts.

    Raises:
        BadInputError: the schedule or the degrees are impossible.
    """
    parts_of_model = ModelParts(workload.model, plan, workload.precision)
    stages = range(plan.pp) if plan.pp <= 3 else (0, 1, plan.pp - 2, plan.pp - 1)
    write = _training_parts if workload.is_training else _inference_parts
    worst, stage = max(
        ((write(workload, plan, parts_of_model, s), s) for s in stages), key=lambda p: sum(p[0].values())
    )
    worst["framework"] = _framework_bytes(plan)
    total = sum(worst.values())
    limit = environment.device_memory_gb * GIB
    return MemoryEstimate(worst, total, limit, margin, total <= limit * (1 + margin), stage)


def _framework_bytes(plan: ParallelPlan) -> float:
    axes = sum(degree > 1 for degree in (plan.tp, plan.pp, plan.cp, plan.dp, plan.ep))
    return CONTEXT_BYTES + COMMUNICATOR_BYTES * axes + (GRAPH_BYTES if plan.cuda_graph else 0.0)


def _state(plan: ParallelPlan, parts: ModelParts, stage: int) -> dict[str, float]:
    """Weights, gradients and optimizer states by ZeRO stage (Rajbhandari et al. 2020)."""
    degrees: ShardDegrees = parts.degrees
    dense, expert = parts.stage_parameters(stage)
    whole = dense + expert
    shard = dense / degrees.shard + expert / parts.expert_shard
    sizes = plan.state_bytes
    return {
        "weights": sizes.parameter * (shard if degrees.stage >= 2 else whole),
        "gradients": sizes.gradient * (shard if degrees.stage >= 2 else whole),
        "optimizer": 0.0 if plan.offload else sizes.optimizer * (shard if degrees.stage >= 1 else whole),
    }


def _gathered(plan: ParallelPlan, parts: ModelParts, stage: int) -> float:
    """Gathered copies of sharded weights: two units at a time with prefetch, or the stage when nothing is resharded.

    In a pipeline the stage's weights stay gathered from its first backward pass on, and its gradients whole.
    """
    if parts.degrees.stage < 2 or parts.degrees.shard == 1:
        return 0.0
    dense, expert = parts.stage_parameters(stage)
    if defers_reduction(plan):
        return (plan.state_bytes.gathered + plan.state_bytes.gradient) * (dense + expert)
    if not plan.reshard_after_forward:
        return plan.state_bytes.gathered * (dense + expert)
    units = [sum(parts.layer(kind)) for chunk in parts.stage_chunks(stage) for kind in set(chunk.kinds)]
    units += [parts.table(chunk) / max(1, chunk.first + chunk.last) for chunk in parts.stage_chunks(stage)]
    ahead = 2 if plan.overlap_communication else 1
    return max(units) * (ahead * plan.state_bytes.gathered + plan.state_bytes.gradient)


def _training_parts(workload: Workload, plan: ParallelPlan, parts: ModelParts, stage: int) -> dict[str, float]:
    tokens = plan.micro_batch_size * workload.seq_len / plan.cp
    live = in_flight(plan.pipeline_schedule, stage, plan.pp, plan.num_microbatches, parts.chunks_per_stage)
    return {
        **_state(plan, parts, stage),
        "gathered": _gathered(plan, parts, stage),
        "activations": _activations(plan, parts, stage, tokens, live),
        "workspace": _workspace(plan, parts, tokens),
        "logits": _logits(workload, plan, parts, stage, tokens, live),
        "moe_buffers": _moe_buffers(parts, tokens),
    }


def _activations(plan: ParallelPlan, parts: ModelParts, stage: int, tokens: float, live: int) -> float:
    """Kept activations of the passes in flight; chunks of an interleaved stage hold their layers only."""
    per_pass = 0.0
    for chunk in parts.stage_chunks(stage):
        for kind in set(chunk.kinds):
            own = plan.expert_placement == "own_axis"
            kept = layer_activation_bytes(parts.model, kind, parts.sharding, plan.recompute, own)
            per_pass += tokens * kept * chunk.kinds.count(kind)
    return per_pass / parts.chunks_per_stage * live * parts.element / 2


def _workspace(plan: ParallelPlan, parts: ModelParts, tokens: float) -> float:
    """Gradients in flight through the widest layer, and that layer's own activations where they are recomputed."""
    kinds = {kind for stage in range(plan.pp) for c in parts.stage_chunks(stage) for kind in c.kinds}
    widest = max(layer_activation_bytes(parts.model, kind, parts.sharding, "none") for kind in kinds)
    kept = max(layer_activation_bytes(parts.model, kind, parts.sharding, plan.recompute) for kind in kinds)
    return tokens * (0.5 * widest + (widest - kept)) * parts.element / 2


def _logits(workload: Workload, plan: ParallelPlan, parts: ModelParts, stage: int, tokens: float, live: int) -> float:
    if not any(chunk.last for chunk in parts.stage_chunks(stage)):
        return 0.0
    kept = live if plan.pipeline_schedule == "gpipe" else 1
    columns = workload.model.vocab_size / plan.tp
    return tokens * columns * (LOGIT_BYTES + 6.0 * (kept - 1))


def _moe_buffers(parts: ModelParts, tokens: float) -> float:
    """Send and receive buffers of dispatch and combine, for tokens in bf16."""
    if not parts.model.moe or parts.plan.ep == 1:
        return 0.0
    share = routed_share(parts.model, parts.sharding, parts.plan.expert_placement == "own_axis")
    return 2 * 2.0 * tokens * share * mlp_shape(parts.model, "moe").expert_width


def kv_cache_bytes(workload: Workload, plan: ParallelPlan, parts: ModelParts, stage: int) -> float:
    """Key/value cache of the sequences one device serves at a time, at their full length (2 bytes an element)."""
    shape = attention_shape(workload.model)
    width = shape.cache_width / min(plan.tp, shape.cache_heads)
    layers = sum(len(chunk.kinds) for chunk in parts.stage_chunks(stage))
    return 2.0 * width * layers * concurrent_sequences(workload, plan) * workload.seq_len / plan.cp


def concurrent_sequences(workload: Workload, plan: ParallelPlan) -> int:
    """Sequences one replica decodes at a time: its share of the batch, capped by `max_num_seqs`."""
    local = -(-workload.batch_size // plan.dp)
    return min(local, plan.max_num_seqs or local)


def waves(workload: Workload, plan: ParallelPlan) -> int:
    """Times a replica serves that many sequences until its share of the batch is done; 1 for training."""
    if workload.is_training:
        return 1
    return ceil(ceil(workload.batch_size / plan.dp) / concurrent_sequences(workload, plan))


def prefill_tokens(workload: Workload, plan: ParallelPlan) -> int:
    """Most tokens one prefill iteration of one replica processes (8192 where the plan says nothing)."""
    wanted = concurrent_sequences(workload, plan) * (workload.input_len or workload.seq_len)
    return min(wanted, plan.max_num_batched_tokens or DEFAULT_BATCHED_TOKENS)


def _inference_parts(workload: Workload, plan: ParallelPlan, parts: ModelParts, stage: int) -> dict[str, float]:
    dense, expert = parts.stage_parameters(stage)
    weights = plan.state_bytes.parameter * (dense + expert)
    tokens = prefill_tokens(workload, plan) / plan.cp
    widest = max(
        layer_activation_bytes(parts.model, kind, parts.sharding, "none")
        for chunk in parts.stage_chunks(stage)
        for kind in chunk.kinds
    )
    layer = max(sum(parts.layer(kind)) for chunk in parts.stage_chunks(stage) for kind in chunk.kinds)
    return {
        "weights": 2 * plan.state_bytes.parameter * layer if plan.offload else weights,
        "kv_cache": kv_cache_bytes(workload, plan, parts, stage),
        "activations": tokens * widest,
        "logits": LOGIT_BYTES * concurrent_sequences(workload, plan) * workload.model.vocab_size / plan.tp,
        "moe_buffers": _moe_buffers(parts, tokens),
    }
