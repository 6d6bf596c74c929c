"""One config of a sweep: simulated in a worker process, measured from its trace, and what is handed back."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runs.errors import CclSearchError
from runs.metric import MetricValue
from runs.space import Config
from runs.trial import FailureClass

if TYPE_CHECKING:
    from backends.calibration import Calibration
    from backends.timeline import SimulationResult
    from ccl_search.problem import Problem
    from runs.plan import ParallelPlan

QUICK_METRICS = ("avg_step_time", "num_xpus")
"""What a quick sweep knows without a trace."""
FIGURES = ("wall_s", "compute_s", "comm_s", "exposed_s", "bubble_s", "ttft_s", "tpot_s")


@dataclass(frozen=True)
class Task:
    """A config with its place in the sweep; `trace`: the folder that keeps its trace, None for none."""

    index: int
    config: Config
    trace: Path | None = None


@dataclass(frozen=True)
class Batch:
    """Tasks that one process works off together, so that they share timed collectives."""

    problem: Problem
    calibration: Calibration
    quick: bool
    tasks: tuple[Task, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of one config. `figures`: the simulator's own, seconds, and GB of memory; `values`: the metrics."""

    index: int
    config: Config
    plan: ParallelPlan | None = None
    failure: FailureClass | None = None
    evidence: str = ""
    values: Mapping[str, MetricValue] = field(default_factory=dict)
    figures: Mapping[str, float | None] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    metrics_seconds: float = 0.0


def work(batch: Batch) -> list[Outcome]:
    """Every task of a batch, in order."""
    return [_one(batch, task) for task in batch.tasks]


def _one(batch: Batch, task: Task) -> Outcome:
    from backends.dry_run import dry_run
    from ccl_search import feasibility

    started = time.perf_counter()
    problem = batch.problem
    plan = feasibility.check(task.config, problem, {})
    if isinstance(plan, feasibility.Refusal):
        return Outcome(task.index, task.config, failure=plan.failure, evidence=plan.reason)
    try:
        result = dry_run(problem.workload, problem.environment, plan, batch.calibration)
    except CclSearchError as error:
        evidence = f"{error.message} ({error.hint})" if error.hint else error.message
        return Outcome(task.index, task.config, plan, FailureClass.FRAMEWORK_ERROR, evidence)
    simulated = time.perf_counter()
    values, failure, evidence = _values(batch, task, plan, result)
    ended = time.perf_counter()
    return Outcome(
        task.index,
        task.config,
        plan,
        failure,
        evidence,
        values,
        _figures(result),
        {"backend": result.backend, "version": result.version, "calibration": result.calibration},
        simulated - started,
        ended - simulated,
    )


def _figures(result: SimulationResult) -> dict[str, float | None]:
    memory = result.memory.total_bytes / 1e9 if result.memory else None
    return {**{name: getattr(result, name) for name in FIGURES}, "memory_gb": memory}


def _values(
    batch: Batch, task: Task, plan: ParallelPlan, result: SimulationResult
) -> tuple[Mapping[str, MetricValue], FailureClass | None, str]:
    """All metrics from the trace, as in a search; a quick sweep takes the simulator's word."""
    if batch.quick:
        return _quick(plan, result), None, ""
    if task.trace is not None:
        return _measured(batch, plan, result, task.trace)
    with tempfile.TemporaryDirectory(prefix="ccl-sweep-") as folder:
        return _measured(batch, plan, result, Path(folder) / "trace")


def _quick(plan: ParallelPlan, result: SimulationResult) -> dict[str, MetricValue]:
    from metrics import registry

    known = dict(zip(QUICK_METRICS, (result.wall_s, float(plan.world_size)), strict=True))
    specs = [registry.spec(name) for name in QUICK_METRICS]
    version = f"{result.backend}-{result.version}"
    return {spec.name: MetricValue(spec.name, version, spec.unit, known[spec.name]) for spec in specs}


def _measured(
    batch: Batch, plan: ParallelPlan, result: SimulationResult, folder: Path
) -> tuple[Mapping[str, MetricValue], FailureClass | None, str]:
    from backends.trace import write_traces
    from ccl_search import measuring

    write_traces(result, folder, compress=True)
    found = measuring.measure(folder, batch.problem, plan)
    return found.values, found.failure, found.evidence
