"""One call from workload, environment and plan to a simulated step."""

from __future__ import annotations

from functools import lru_cache

from backends.calibration import UNCALIBRATED, Calibration
from backends.compute import System
from backends.flow.simulate import simulate
from backends.flow.timing import Network
from backends.graph import ExecutionGraph
from backends.memory import estimate
from backends.timeline import Detail, SimulationResult
from backends.training import training_graph
from runs.environment import Environment
from runs.errors import BadInputError
from runs.plan import ParallelPlan
from runs.workload import Workload


def execution_graph(workload: Workload, plan: ParallelPlan) -> ExecutionGraph:
    """The graph of one training step, or of the iterations that serve one batch."""
    if workload.is_training:
        return training_graph(workload, plan)
    from backends.inference import inference_graph

    return inference_graph(workload, plan)


def network_for(environment: Environment, calibration: Calibration = UNCALIBRATED) -> Network:
    """The network model of `environment`, its links scaled by `calibration`; one model per environment is kept."""
    return _network(_Key(calibration.apply(environment)))


class _Key:
    """An environment as a dictionary key (its `extras` are a dict, which has no hash of its own)."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self._text = repr(environment)

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other._text == self._text


@lru_cache(maxsize=32)
def _network(key: _Key) -> Network:
    from backends.network import NetworkModel, from_environment

    return NetworkModel(from_environment(key.environment))


def dry_run(
    workload: Workload, environment: Environment, plan: ParallelPlan, calibration: Calibration = UNCALIBRATED,
    detail: Detail | None = None,
) -> SimulationResult:  # fmt: skip
    """Simulate one step of `workload` under `plan` in `environment`, memory estimate included.

    Raises:
        BadInputError: the plan needs more devices than there are, or cannot realise the workload.
        CclSearchError: the simulation yields no usable step.
    """
    if plan.world_size > environment.total_xpus:
        raise BadInputError(
            f"the plan takes {plan.world_size} devices, {environment.name} has {environment.total_xpus}",
            "lower a parallel degree or take a larger environment",
        )
    graph = execution_graph(workload, plan)
    system = System.of(environment, plan, workload.precision, calibration)
    return simulate(graph, system, network_for(environment, calibration), estimate(workload, environment, plan), detail)
