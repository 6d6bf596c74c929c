"""vLLM: tensor, pipeline, data and expert parallel serving on GPUs and TPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launchers.frameworks import meaning
from launchers.frameworks.base import Framework
from runs.environment import Environment
from runs.plan import ParallelPlan, StateBytes
from runs.workload import Workload


class VLLM(Framework):
    """Expert parallelism spans tp * dp; without it (ep 1) the experts are split over the same ranks by width.

    Kernels are compiled by the engine; `cuda_graph` false means eager decode steps.
    """

    name = "vllm"
    version = "0.19.0"
    phases = ("inference", "serving")
    xpu_types = ("GPU", "TPU")
    state_bytes = StateBytes(parameter=2.0, gradient=0.0, optimizer=0.0, gathered=0.0)

    def plan(self, config: Mapping[str, Any], workload: Workload, environment: Environment) -> ParallelPlan:
        """See `Framework.plan`."""
        return meaning.serving_plan(
            self.name,
            config,
            workload,
            compile=bool(config.get("cuda_graph", True)),
            expert_placement=meaning.borrowed_experts(config),
            state_bytes=self.state_bytes,
        )


FRAMEWORK = VLLM()
