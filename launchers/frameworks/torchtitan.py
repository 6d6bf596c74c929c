"""TorchTitan: FSDP2 / HSDP, tensor, pipeline, context and expert parallelism on GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launchers.frameworks import meaning
from launchers.frameworks.base import Framework
from runs.environment import Environment
from runs.plan import ParallelPlan, StateBytes
from runs.workload import Workload


class TorchTitan(Framework):
    """`dp` ranks, of which groups of `dp_shard` share the state (`dp_replicate` = dp / dp_shard, HSDP).

    `zero_stage` 3 reshards after the forward pass, 2 keeps the gathered weights until the backward pass. Tensor
    parallelism always comes with sequence parallelism. Experts are not split by tp (expert tensor parallelism 1):
    an expert group is carved out of dp_shard * cp * tp. Weights, gradients and both moments are fp32; the gathered
    copy is bf16.
    """

    name = "torchtitan"
    version = "0.2.2"
    phases = ("training",)
    xpu_types = ("GPU",)
    state_bytes = StateBytes(parameter=4.0, gradient=4.0, optimizer=8.0, gathered=2.0)

    def plan(self, config: Mapping[str, Any], workload: Workload, environment: Environment) -> ParallelPlan:
        """See `Framework.plan`."""
        dp = meaning.data_parallel(config)
        shard = meaning.shard_degree(config, default=dp)
        sharded = shard * meaning.degree(config, "cp") > 1
        stage = int(config.get("zero_stage", 3)) if sharded else 0
        return meaning.training_plan(
            self.name,
            config,
            workload,
            dp_replicate=dp // shard,
            dp_shard=shard,
            zero_stage=stage,
            reshard_after_forward=stage == 3,
            sequence_parallel=meaning.degree(config, "tp") > 1,
            expert_placement=meaning.borrowed_experts(config),
            state_bytes=self.state_bytes,
        )


FRAMEWORK = TorchTitan()
