"""MaxText: data, FSDP, tensor, context, expert and pipeline axes of one JAX mesh, on TPUs and GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launchers.frameworks import meaning
from launchers.frameworks.base import Framework
from launchers.frameworks.megatron_lm import virtual_stages
from launchers.frameworks.templates import build
from runs.environment import Environment
from runs.errors import BadInputError
from runs.plan import ParallelPlan, StateBytes
from runs.space import ConfigSpace
from runs.workload import ModelArchitecture, Workload


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

    def default_space(self, workload: Workload, environment: Environment) -> ConfigSpace:
        """See `Framework.default_space`. The choices of `pp` divide the layers that the pipeline takes."""
        reason = self.supports(workload, environment)
        if reason is not None:
            raise BadInputError(f"infeasible: {reason}", "choose another framework or environment")
        facts = {**workload.policy_input(), "num_layers": pipelined_layers(workload.model)}
        return build(self.name, facts, environment.policy_input())

    def plan(self, config: Mapping[str, Any], workload: Workload, environment: Environment) -> ParallelPlan:
        """See `Framework.plan`."""
        config = {"pipeline_schedule": "gpipe", **config}
        dp = meaning.data_parallel(config)
        shard = meaning.shard_degree(config, default=dp)
        sharded = shard > 1
        interleaved = meaning.schedule(config) == "interleaved"
        pp, layers = meaning.degree(config, "pp"), pipelined_layers(workload.model)
        if layers % pp:
            raise BadInputError(
                f"maxtext's pipeline cannot split {layers} layers over pp={pp}",
                "choose a pp that divides them; dense layers before the experts are not among them",
            )
        return meaning.training_plan(
            self.name,
            config,
            workload,
            dp_replicate=dp // shard,
            dp_shard=shard,
            zero_stage=3 if sharded else 0,
            reshard_after_forward=sharded,
            sequence_parallel=bool(config.get("sequence_parallel", False)),
            virtual_stages=virtual_stages(layers, pp) if interleaved else 1,
            compile=True,
            state_bytes=self.state_bytes,
        )


def pipelined_layers(model: ModelArchitecture) -> int:
    """Layers that MaxText's pipeline takes: all, but of a model with dense layers before its experts only the others.

    Source: MaxText's configs/types.py, default of `pipeline_parallel_layers` for the decoder block deepseek; its
    layers/decoders.py runs the dense layers outside, with the stage axis acting as data parallelism.
    """
    return model.num_layers - (model.first_dense_layers if model.moe else 0)


FRAMEWORK = MaxText()
