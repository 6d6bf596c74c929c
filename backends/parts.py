"""What both graph builders share: the segments of a stage's layers and the parameters it holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from backends.graph import Segment
from backends.layout import ShardDegrees
from backends.model.operations import Batch, LayerBuilder, element_bytes
from backends.model.shapes import (
    LayerKind,
    Sharding,
    embedding_parameters,
    layer_kinds,
    layer_parameters,
)
from backends.stages import split_layers, virtual_stages
from runs.errors import BadInputError
from runs.plan import ParallelPlan
from runs.workload import ModelArchitecture, Workload

FUSED_FRAMEWORKS = ("vllm", "sglang", "maxtext")
"""Frameworks whose element-wise chains are fused by hand or by a compiler, whatever the plan's `compile`."""


def check_plan(workload: Workload, plan: ParallelPlan) -> None:
    """Refuse a plan that cannot realise the workload.

    Raises:
        BadInputError: the global batch differs, or a degree cannot divide what it has to.
    """
    model = workload.model
    if workload.is_training and plan.global_batch != workload.batch_size:
        raise BadInputError(
            f"the plan processes {plan.global_batch} sequences a step, the workload asks for {workload.batch_size}",
            "set num_microbatches so that dp·micro_batch_size·num_microbatches is the global batch",
        )
    if model.num_heads % plan.tp:
        raise BadInputError(f"tp={plan.tp} does not divide {model.num_heads} attention heads", "lower tp")
    if plan.ep > 1 and (not model.moe or model.num_experts % plan.ep):
        raise BadInputError(f"ep={plan.ep} does not divide {model.num_experts} experts", "lower ep, or set it to 1")
    if workload.seq_len % plan.cp:
        raise BadInputError(f"cp={plan.cp} does not divide {workload.seq_len} tokens", "lower cp")


@dataclass(frozen=True)
class Chunk:
    """A run of layers on one stage: `kinds` of its layers, and whether the embedding or the head stand here too."""

    kinds: tuple[LayerKind, ...]
    first: bool
    last: bool


@dataclass(frozen=True)
class ModelParts:
    """The model as `plan` cuts it."""

    model: ModelArchitecture
    plan: ParallelPlan
    precision: str = "bf16"

    @cached_property
    def sharding(self) -> Sharding:
        """How each layer is cut."""
        return Sharding.of(self.plan)

    @cached_property
    def chunks_per_stage(self) -> int:
        """Model chunks on one device."""
        return virtual_stages(self.plan)

    def chunk(self, stage: int, chunk: int) -> Chunk:
        """Chunk `chunk` of `stage`; chunk c of stage s is virtual stage c·pp + s."""
        return self._chunks[chunk * self.plan.pp + stage]

    @cached_property
    def _chunks(self) -> tuple[Chunk, ...]:
        kinds = layer_kinds(self.model)
        count = self.plan.pp * self.chunks_per_stage
        bounds = split_layers(len(kinds), count)
        return tuple(Chunk(kinds[a:b], i == 0, i == count - 1) for i, (a, b) in enumerate(bounds))

    def stage_chunks(self, stage: int) -> tuple[Chunk, ...]:
        """All chunks of a stage."""
        return tuple(self.chunk(stage, c) for c in range(self.chunks_per_stage))

    def builder(self, batch: Batch, dispatch: str = "all_to_all") -> LayerBuilder:
        """A builder of this model's items for passes over `batch`."""
        fused = self.plan.compile or self.plan.framework in FUSED_FRAMEWORKS
        own = self.plan.expert_placement == "own_axis"
        return LayerBuilder(self.model, self.sharding, batch, fused, dispatch, own, self.element)

    @property
    def element(self) -> float:
        """Bytes of an activation."""
        return element_bytes(self.precision)

    def layer(self, kind: LayerKind) -> tuple[float, float]:
        """Parameters of one layer on one device: not expert, expert."""
        found = layer_parameters(self.model, kind, self.sharding)
        return found.dense, found.expert

    def table(self, chunk: Chunk) -> float:
        """Parameters of embedding and head on one device of `chunk`; a tied pair on one stage counts once."""
        one = embedding_parameters(self.model, self.plan.tp)
        both = chunk.first and chunk.last and not self.model.tied_embeddings
        return one * (2 if both else 1 if chunk.first or chunk.last else 0)

    def stage_parameters(self, stage: int) -> tuple[float, float]:
        """Parameters on one device of `stage` before data-parallel sharding: not expert, expert."""
        dense = expert = 0.0
        for chunk in self.stage_chunks(stage):
            dense += self.table(chunk) + (self.model.hidden_size if chunk.last else 0)
            for kind in set(chunk.kinds):
                one = self.layer(kind)
                dense += one[0] * chunk.kinds.count(kind)
                expert += one[1] * chunk.kinds.count(kind)
        return dense, expert

    @cached_property
    def degrees(self) -> ShardDegrees:
        """Sharding of the state over data-parallel ranks."""
        return ShardDegrees.of(self.plan)

    @cached_property
    def expert_replicas(self) -> int:
        """Data-parallel ranks that hold the same experts."""
        plan = self.plan
        pool = plan.dp * plan.cp
        if plan.expert_placement == "own_axis":
            return pool
        if plan.expert_placement == "inside_dp_tp":
            pool *= plan.tp
        return max(1, pool // plan.ep)

    @cached_property
    def expert_shard(self) -> int:
        """Ranks that share one expert's state."""
        if not self.degrees.stage:
            return 1
        return max(1, self.expert_replicas // self.degrees.replicate)


def run_lengths(segments: list[Segment]) -> list[tuple[Segment, int]]:
    """Neighbouring repetitions of a segment, counted."""
    runs: list[tuple[Segment, int]] = []
    for segment in segments:
        if runs and runs[-1][0] is segment:
            runs[-1] = (segment, runs[-1][1] + 1)
        else:
            runs.append((segment, 1))
    return runs
