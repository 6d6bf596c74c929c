"""The user's own program: any space, knobs with their generic meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from launchers.frameworks import meaning
from launchers.frameworks.base import Framework
from runs.environment import Environment
from runs.errors import BadInputError
from runs.plan import ExpertPlacement, ParallelPlan, StateBytes
from runs.space import ConfigSpace
from runs.workload import Workload

_SERVING_STATE = StateBytes(parameter=2.0, gradient=0.0, optimizer=0.0, gathered=0.0)


class Command(Framework):
    """Knobs mean what docs/spaces.md says. Experts have an axis of their own where a config has `ep` and no `dp`.

    (The MoE inference study's tp * ep.) State is that of bf16 mixed precision with fp32 masters in training.
    """

    name: ClassVar[str] = "command"
    phases: ClassVar[tuple[str, ...]] = ("training", "inference", "serving")
    xpu_types: ClassVar[tuple[str, ...]] = ("GPU", "TPU")
    state_bytes: ClassVar[StateBytes] = StateBytes()

    def default_space(self, workload: Workload, environment: Environment) -> ConfigSpace:
        """Raises BadInputError: nobody but the user knows what a program of the user's own takes."""
        raise BadInputError("the framework `command` has no default space", "give the knobs with --space FILE|NAME")

    def plan(self, config: Mapping[str, Any], workload: Workload, environment: Environment) -> ParallelPlan:
        """See `Framework.plan`."""
        own_axis = "ep" in config and not {"dp", "dp_shard", "dp_replicate"} & set(config)
        placement: ExpertPlacement = "own_axis" if own_axis else "inside_dp"
        if not workload.is_training:
            return meaning.serving_plan(
                self.name, config, workload, expert_placement=placement, state_bytes=_SERVING_STATE
            )
        dp = meaning.data_parallel(config)
        stage = meaning.degree(config, "zero_stage", 1) if config.get("zero_stage", 0) else 0
        shard = meaning.shard_degree(config, default=dp if stage else 1)
        return meaning.training_plan(
            self.name,
            config,
            workload,
            dp_replicate=dp // shard,
            dp_shard=shard,
            zero_stage=stage or (3 if shard > 1 else 0),
            reshard_after_forward=(stage or 3) == 3 and shard > 1,
            sequence_parallel=bool(config.get("sequence_parallel", False)),
            expert_placement=placement,
            state_bytes=self.state_bytes,
        )


FRAMEWORK = Command()
