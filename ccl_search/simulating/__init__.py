"""One config on the built-in simulator, without a search: its step, its memory and its links."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccl_search import scripting
from runs.errors import BadInputError
from runs.space import Config

if TYPE_CHECKING:
    from backends.astra.cost import Cost
    from backends.calibration import Calibration
    from backends.memory import MemoryEstimate
    from backends.timeline import SimulationResult
    from ccl_search.problem import Problem
    from runs.plan import ParallelPlan

BACKENDS = ("flow", "astra-sim", "astra-sim-ns3")


@dataclass(frozen=True)
class ProgramUse:
    """How the user's own simulator is run.

    `time_limit_s` is the longest it may take, None for its default. `announce` hears what a run on ns-3 will cost
    before it starts.
    """

    time_limit_s: float | None = None
    announce: Callable[[Cost], None] | None = None

    def check(self, backend: str) -> None:
        """Return if it goes with `backend`.

        Raises:
            BadInputError: a limit is given to the built-in simulator, or is none.
        """
        if self.time_limit_s is None:
            return
        if backend == BACKENDS[0]:
            raise BadInputError("--time-limit goes with --backend astra-sim or astra-sim-ns3", "leave it out")
        if not 0 < self.time_limit_s < inf:
            raise BadInputError(f"--time-limit is {self.time_limit_s}", "give seconds above zero")

    @property
    def settings(self) -> dict[str, Any]:
        """As settings of a target file."""
        return {} if self.time_limit_s is None else {"time_limit_s": self.time_limit_s}


DEFAULT_USE = ProgramUse()


@dataclass(frozen=True)
class Simulation:
    """One simulated config. `result` is None where the plan does not fit in memory; `memory` is there always.

    `notes` name the knobs that were not given, with the value each took.
    """

    problem: Problem
    config: Config
    plan: ParallelPlan
    memory: MemoryEstimate
    calibration: str
    result: SimulationResult | None
    notes: tuple[str, ...] = ()
    backend: str = BACKENDS[0]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON: times in ns of the slowest rank, memory and links in bytes.

        Where the plan does not fit there are no times, `failure` is `predicted_oom` and `reason` lists the parts.
        """
        head = {
            "workload": self.problem.workload.name,
            "environment": self.problem.environment.name,
            "framework": self.problem.framework.name,
            "config": self.config,
            "num_xpus": self.plan.world_size,
            "notes": list(self.notes),
        }
        if self.result is None:
            return {
                "failure": "predicted_oom",
                "reason": self.memory.describe(),
                "memory": self.memory.as_dict(),
                "backend": self.backend,
                "calibration": self.calibration,
                **head,
            }
        return {**self.result.summary(), **self._latencies(self.result), **head}

    def _latencies(self, result: SimulationResult) -> dict[str, int]:
        named = {"ttft_ns": result.ttft_s, "tpot_ns": result.tpot_s}
        return {name: round(1e9 * seconds) for name, seconds in named.items() if seconds is not None}

    def require_fit(self) -> None:
        """Return if the plan fits.

        Raises:
            BadInputError: it does not; the message has the parts.
        """
        if self.result is None:
            raise BadInputError(
                f"predicted_oom: {self.memory.describe()}",
                "shard or recompute more, lower micro_batch_size, or take more or larger devices",
            )


def simulate(
    problem: Problem, given: Mapping[str, str], calibration: Calibration, backend: str = BACKENDS[0],
    program: ProgramUse = DEFAULT_USE,
) -> Simulation:  # fmt: skip
    """Simulate the config `given` (knob to text; other knobs ask for nothing) of `problem`.

    Raises:
        CostError: ns-3 would take longer than the limit of `program`.
        BadInputError: a knob or value is unknown, the config breaks a rule of the space (the message names it), the
            framework cannot run the workload there, the plan takes more devices than there are, or the backend is
            unknown.
        CclSearchError: the simulation yields no usable step.
    """
    from backends.memory import estimate

    if backend not in BACKENDS:
        raise BadInputError(f"no backend is called {backend!r}", f"choose one of {', '.join(BACKENDS)}")
    program.check(backend)
    config, notes = scripting.complete(problem.space, given)
    scripting.refuse_violations(problem, config)
    plan = planned(problem, config)
    memory = estimate(problem.workload, problem.environment, plan)
    result = _result(problem, plan, calibration, backend, program) if memory.fits else None
    return Simulation(problem, config, plan, memory, calibration.name, result, tuple(notes), backend)


def _result(
    problem: Problem, plan: ParallelPlan, calibration: Calibration, backend: str, program: ProgramUse
) -> SimulationResult:
    from backends.dry_run import dry_run

    if backend == BACKENDS[0]:
        return dry_run(problem.workload, problem.environment, plan, calibration)
    from backends.astra.dry_run import dry_run as astra_dry_run
    from backends.astra.dry_run import read_settings

    settings = read_settings(backend, program.settings)
    return astra_dry_run(problem.workload, problem.environment, plan, settings, calibration, announce=program.announce)


def planned(problem: Problem, config: Config) -> ParallelPlan:
    """What the config means on the framework of `problem`.

    Raises:
        BadInputError: the framework cannot run the workload there, or the plan takes more devices than there are.
    """
    reason = problem.framework.supports(problem.workload, problem.environment)
    if reason is not None:
        raise BadInputError(f"infeasible: {reason}", "choose another framework or environment")
    plan = problem.framework.plan(config, problem.workload, problem.environment)
    total = problem.environment.total_xpus
    if plan.world_size > total:
        raise BadInputError(
            f"devices: the config takes {plan.world_size}, {problem.environment.name} has {total}",
            "lower a parallel degree or take a larger environment",
        )
    return plan


def write_trace(simulation: Simulation, folder: Path) -> tuple[Path, ...]:
    """Write the step as Kineto trace files into `folder`, one for each class of equal ranks; returns the files.

    Raises:
        BadInputError: `folder` is a file or holds traces already (they would be read as ranks of this step), or there
            is no result.
        OSError: the folder cannot be written.
    """
    from backends.trace import write_traces

    simulation.require_fit()
    check_trace_folder(folder)
    assert simulation.result is not None
    return write_traces(simulation.result, folder).files


def check_trace_folder(folder: Path) -> None:
    """Return if trace files may be written into `folder`.

    Raises:
        BadInputError: it is a file, or holds traces already.
    """
    if folder.exists() and not folder.is_dir():
        raise BadInputError(f"--trace {folder} is a file", "name a folder")
    if folder.is_dir() and any(folder.glob("*trace.json*")):
        raise BadInputError(f"--trace {folder} holds traces already", "name another folder or remove them")
