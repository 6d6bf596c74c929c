"""Megatron-LM: tensor, sequence, pipeline, context and expert parallelism with a distributed optimizer, on GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launchers.frameworks import meaning
from launchers.frameworks.base import Framework
from runs.environment import Environment
from runs.errors import BadInputError
from runs.plan import ParallelPlan, StateBytes
from runs.workload import Workload


class MegatronLM(Framework):
    """`zero_stage` 1 is the distributed optimizer (sharded over all of dp), 0 plain data parallelism.

    Expert groups are carved out of dp * cp; each expert is split by tp like the rest. The interleaved schedule
    gives every rank the fewest equal chunks of layers (more than one). Recomputation `selective` is that of the core
    attention, `full` that of whole layers.
    """

    name = "megatron-lm"
    version = "0.12.0"
    phases = ("training",)
    xpu_types = ("GPU",)
    state_bytes = StateBytes(parameter=2.0, gradient=4.0, optimizer=12.0, gathered=2.0)

    def plan(self, config: Mapping[str, Any], workload: Workload, environment: Environment) -> ParallelPlan:
        """See `Framework.plan`."""
        dp = meaning.data_parallel(config)
        stage = int(config.get("zero_stage", 0))
        interleaved = meaning.schedule(config) == "interleaved"
        layers = workload.model.num_layers
        return meaning.training_plan(
            self.name,
            config,
            workload,
            dp_replicate=1 if stage else dp,
            dp_shard=dp if stage else 1,
            zero_stage=stage,
            reshard_after_forward=False,
            sequence_parallel=bool(config.get("sequence_parallel", False)),
            virtual_stages=virtual_stages(layers, meaning.degree(config, "pp")) if interleaved else 1,
            state_bytes=self.state_bytes,
        )


def virtual_stages(num_layers: int, pp: int) -> int:
    """Chunks of layers per rank under the interleaved schedule: the least divisor above 1 of the layers of a rank.

    Raises:
        BadInputError: the layers do not split evenly into more than one chunk a rank.
    """
    layers, rest = divmod(num_layers, pp)
    if rest or layers < 2:
        raise BadInputError(
            f"the interleaved schedule cannot split {num_layers} layers over pp={pp}",
            "use the 1f1b schedule, or a pp that divides the layers and leaves at least two a rank",
        )
    return next(chunks for chunks in range(2, layers + 1) if layers % chunks == 0)


FRAMEWORK = MegatronLM()
