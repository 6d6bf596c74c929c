"""One config as a folder of ASTRA-sim inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ccl_search import scripting
from ccl_search.simulating import planned
from runs.errors import BadInputError

if TYPE_CHECKING:
    from backends.calibration import Calibration
    from backends.exchange.export import Export
    from ccl_search.problem import Problem


def export(
    problem: Problem, given: Mapping[str, str], calibration: Calibration, folder: Path, kernels: bool = False
) -> Export:
    """Write the step of the config `given` of `problem` into `folder`, as the binaries of ASTRA-sim read it.

    Durations of computations are those of the built-in simulator under `calibration`. `kernels` writes each kernel as a
    node of its own instead of one node between two communications.

    Raises:
        BadInputError: the config is refused (as `simulate` does) or does not fit in memory, the plan has one rank, or
            `folder` holds something already.
        OSError: it cannot be written.
    """
    from backends.compute import System
    from backends.dry_run import dry_run, network_for
    from backends.exchange import export as writer
    from backends.memory import estimate

    config, _ = scripting.complete(problem.space, given)
    scripting.refuse_violations(problem, config)
    plan = planned(problem, config)
    memory = estimate(problem.workload, problem.environment, plan)
    if not memory.fits:
        raise BadInputError(f"predicted_oom: {memory.describe()}", "shard or recompute more, or take more devices")
    result = dry_run(problem.workload, problem.environment, plan, calibration, detail="kernel")
    system = System.of(problem.environment, plan, problem.workload.precision, calibration)
    network = network_for(problem.environment, calibration, plan)
    parameters = getattr(network, "parameters", None)
    return writer.export(result, system, network.topology, folder, parameters=parameters, kernels=kernels)
