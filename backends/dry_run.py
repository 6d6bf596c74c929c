"""One call from workload, environment and plan to a simulated step."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from backends.calibration import UNCALIBRATED, Calibration
from backends.compute import System
from backends.flow.simulate import simulate
from backends.flow.timing import Network
from backends.graph import ExecutionGraph
from backends.memory import estimate
from backends.timeline import Detail, SimulationResult
from backends.training import training_graph
from runs import catalogue
from runs.environment import Environment
from runs.errors import BadInputError
from runs.plan import ParallelPlan
from runs.workload import Workload

if TYPE_CHECKING:
    from backends.network import CongestionControl, NetworkParameters


def execution_graph(workload: Workload, plan: ParallelPlan) -> ExecutionGraph:
    """The graph of one training step, or of the iterations that serve one batch."""
    if workload.is_training:
        return training_graph(workload, plan)
    from backends.inference import inference_graph

    return inference_graph(workload, plan)


def network_for(
    environment: Environment, calibration: Calibration = UNCALIBRATED, plan: ParallelPlan | None = None
) -> Network:
    """The network model of `environment`, its links scaled by `calibration`; one model per question is kept.

    A plan may put its ranks on one of the bundled servers of the MoE topology study (`topology` 1 to 6), and choose a
    transport and congestion control (`network_mode`, such as `roce-dcqcn`).

    Raises:
        BadInputError: the environment states no bandwidth, or the topology or mode does not exist.
    """
    return _network(_Key(calibration.apply(environment)), plan and plan.topology, plan and plan.network_mode)


class _Key:
    """An environment as a dictionary key (its `extras` are a dict, which has no hash of its own)."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self._text = repr(environment)

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other._text == self._text


@lru_cache(maxsize=64)
def _network(key: _Key, topology: int | None, mode: str | None) -> Network:
    from backends.network import (
        CongestionControl,
        NetworkModel,
        NetworkParameters,
        bundled_topology,
        from_environment,
    )

    transport, control = _mode(mode)
    if topology is None:
        found = from_environment(key.environment)
        return NetworkModel(found, NetworkParameters(congestion_control=control) if mode else None)
    study = catalogue.data("moe_study")
    single = topology == study["single_server"]
    latency = None if single else {"nic": study["network"]["latency_us"][transport]}
    placed = bundled_topology(f"moe-{topology}", latency_us=latency)
    return NetworkModel(placed, _study_parameters(CongestionControl.NONE if single else control, study["network"]))


def _study_parameters(control: CongestionControl, chosen: dict[str, Any]) -> NetworkParameters:
    """NS-3 as the MoE topology study is taken to run it (the definitions of its data file)."""
    from backends.network import NetworkParameters

    return replace(
        NetworkParameters.ns3(control, chosen["payload_bytes"]),
        chunks=chosen["chunks"],
        active_chunks=chosen["active_chunks"],
        reduce_bandwidth=chosen["reduce_gb_s"] * 1e9,
    )


def _mode(mode: str | None) -> tuple[str, CongestionControl]:
    """Transport and congestion control of a network mode."""
    from backends.network import CongestionControl

    if mode is None:
        return "roce", CongestionControl.NONE
    transport, _, control = mode.partition("-")
    if transport not in ("ib", "roce") or control not in [each.value for each in CongestionControl]:
        raise BadInputError(f"no network mode is called {mode!r}", "ib-none, ib-hpcc, roce-hpcc, roce-dcqcn, …")
    return transport, CongestionControl(control)


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
    return simulate(
        graph, system, network_for(environment, calibration, plan), estimate(workload, environment, plan), detail
    )
