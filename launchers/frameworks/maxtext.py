"""MaxText: data, FSDP, tensor, context, expert and pipeline axes of one JAX mesh, on TPUs and GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launchers.frameworks import meaning
from launchers.frameworks.base import Framework
from launchers.frameworks.megatron_lm import virtual_stages
from runs.environment import Environment
from runs.plan import ParallelPlan, StateBytes
from runs.workload import Workload


class MaxText(Framework):
    """`dp` is the product of the axes data, fsdp and expert, `dp_shard` of fsdp and expert (both shard the weights).

    Everything is compiled (XLA). Weights, gradients and both moments are fp32; the gathered copy is bf16. The
    pipeline is GPipe-like, circular (`interleaved`) with several groups of layers a stage.
    """

    name = "maxtext"
    version = "2026.08"
    phases = ("training",)
    xpu_types = ("TPU", "GPU")
    state_bytes = StateBytes(parameter=4.0, gradient=4.0, optimizer=8.0, gathered=2.0)

    def plan(self, config: Mapping[str, Any], workload: Workload, environment: Environment) -> ParallelPlan:
        """See `Framework.plan`."""
        config = {"pipeline_schedule": "gpipe", **config}
        dp = meaning.data_parallel(config)
        shard = meaning.shard_degree(config, default=dp)
        sharded = shard > 1
        interleaved = meaning.schedule(config) == "interleaved"
        pp = meaning.degree(config, "pp")
        return meaning.training_plan(
            self.name,
            config,
            workload,
            dp_replicate=dp // shard,
            dp_shard=shard,
            zero_stage=3 if sharded else 0,
            reshard_after_forward=sharded,
            sequence_parallel=bool(config.get("sequence_parallel", False)),
            virtual_stages=virtual_stages(workload.model.num_layers, pp) if interleaved else 1,
            compile=True,
            state_bytes=self.state_bytes,
        )


FRAMEWORK = MaxText()
