"""The study in the store: one run a model, so that `show`, `export` and `pareto` read it as any other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ccl_search.problem import Problem, ProblemSource, resolve
from ccl_search.settings import SearchSettings
from ccl_search.sweeping.moe.experiment import Experiment
from ccl_search.sweeping.moe.matrix import Cell
from ccl_search.sweeping.outcome import Outcome
from ccl_search.sweeping.recording import Record
from runs.metric import MetricValue

if TYPE_CHECKING:
    from runs.store import Store

NAME = "moe-study"
BACKEND = "flow/moe-study"
"""The built-in network with the study's own definitions of layers and GPU times; not the dry run of its environment."""
_ENVIRONMENT = "h100-32"
_SPACE = "moe-study-mappings"


def keep(store: Store, found: Experiment) -> dict[str, str]:
    """Store every configuration; the run of each model.

    The environment named in a run is where the same space can be searched, not what the study describes: its notes
    and its backend say so.
    """
    return {model.key: _keep(store, found, model.key, model.workload) for model in found.study.models}


def _keep(store: Store, found: Experiment, key: str, workload: str) -> str:
    source = ProblemSource(workload=workload, environment=_ENVIRONMENT, framework="command", space=_SPACE)
    problem = resolve(source)
    record = Record.create(store, problem, SearchSettings(), {"study": NAME, "mapping": found.mapping})
    cells = found.results.model(key).cells
    record.add(_outcome(index, cell, found, problem) for index, cell in enumerate(cells))
    store.set_notes(
        record.run_id,
        f"{found.study.data['title']}: layers, message sizes and GPU times of runs/catalogue/data/moe_study.yaml, "
        f"not the dry run of {_ENVIRONMENT}",
    )
    record.keep_policy()
    record.finish(False, f"all {len(cells)} configurations")
    return record.run_id


def config_of(cell: Cell, found: Experiment) -> dict[str, Any]:
    """The point of the space `moe-study-mappings` that a cell is."""
    tensor, expert = found.study.pair(cell.algorithm)
    return {
        "tp": cell.tp,
        "ep": cell.ep,
        "topology": cell.topology,
        "tp_algorithm": tensor,
        "ep_algorithm": expert,
        "network_mode": cell.mode,
        "rank_mapping": found.mapping,
    }


def _outcome(index: int, cell: Cell, found: Experiment, problem: Problem) -> Outcome:
    config = config_of(cell, found)
    plan = problem.framework.plan(config, problem.workload, problem.environment)
    figures = {"wall_s": cell.time_s, "compute_s": cell.gpu_s, "comm_s": cell.comm_s, "exposed_s": cell.comm_s}
    return Outcome(
        index, config, plan, values=_values(cell, float(plan.world_size)), figures=figures,
        provenance={"backend": BACKEND, "definitions": NAME},
    )  # fmt: skip


def _values(cell: Cell, ranks: float) -> Mapping[str, MetricValue]:
    """The study's quantities that are metrics: time of the prefill, of its computation and of its communication."""
    from metrics import registry

    known = {
        "avg_step_time": cell.time_s,
        "step_compute_time": cell.gpu_s,
        "step_exposed_comm_time": cell.comm_s,
        "num_xpus": ranks,
    }
    specs = {name: registry.spec(name) for name in known}
    return {name: MetricValue(name, NAME, specs[name].unit, value) for name, value in known.items()}
