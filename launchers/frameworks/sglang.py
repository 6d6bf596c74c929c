"""SGLang: tensor, pipeline, data and expert parallel serving on GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launchers.frameworks import meaning
from launchers.frameworks.base import Framework
from runs.environment import Environment
from runs.plan import ParallelPlan, StateBytes
from runs.workload import Workload


class SGLang(Framework):
    """Expert parallelism takes all of tp; without it (ep 1) tp splits each expert. Replicas are separate servers."""

    name = "sglang"
    version = "0.5.10.post1"
    phases = ("inference", "serving")
    xpu_types = ("GPU",)
    state_bytes = StateBytes(parameter=2.0, gradient=0.0, optimizer=0.0, gathered=0.0)

    def plan(self, config: Mapping[str, Any], workload: Workload, environment: Environment) -> ParallelPlan:
        """See `Framework.plan`."""
        return meaning.serving_plan(
            self.name,
            config,
            workload,
            expert_placement=meaning.borrowed_experts(config),
            state_bytes=self.state_bytes,
        )


FRAMEWORK = SGLang()
