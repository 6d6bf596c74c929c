"""Runs put into a store by hand: trials with metric values somebody wrote down, no search and no simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ccl_search import constraints, measuring
from ccl_search.problem import Problem, ProblemSource, resolve
from ccl_search.settings import SearchSettings
from metrics import registry
from runs.card import to_yaml
from runs.metric import MetricSpec, MetricValue
from runs.space import Config
from runs.store import NewRun, NewTrial, Store, TrialOutcome
from runs.trial import FailureClass, Fidelity, TrialState

GOOD: Config = {
    "tp": 4, "cp": 1, "pp": 1, "dp": 4, "dp_shard": 4, "zero_stage": 3, "micro_batch_size": 1,
    "pipeline_schedule": "1f1b", "activation_checkpointing": "full", "compile": False,
}  # fmt: skip
POLICY = "def generate_config(workload, environment):\n    return {}\n"


@dataclass(frozen=True)
class Recorded:
    """A trial as it is to stand in the store. A value of several numbers is what its repeats measured."""

    metrics: Mapping[str, float | Sequence[float]] = field(default_factory=dict)
    config: Config = field(default_factory=lambda: dict(GOOD))
    failure: FailureClass | None = None
    fidelity: Fidelity = Fidelity.MEASURED
    backend: str | None = None
    version: str | None = None


def record(
    store: Store,
    trials: Sequence[Recorded | Mapping[str, float | Sequence[float]]],
    objectives: tuple[str, ...] = ("step_time", "num_xpus"),
    bounds: tuple[str, ...] = (),
    workload: Mapping[str, Any] | None = None,
    repeats: int = 1,
) -> str:
    """A run whose trials have these metric values, scored as the search would; its id."""
    problem = resolve(ProblemSource(objectives=objectives))
    parsed = constraints.parse(bounds, problem.space)
    problem = replace(problem, space=parsed.applied_to(problem.space))
    settings = SearchSettings(constraints=bounds, repeats=repeats)
    run_id = store.create_run(_new_run(problem, settings, workload or {}))
    objective = problem.objective
    for number, given in enumerate(trials):
        trial = given if isinstance(given, Recorded) else Recorded(given)
        values = {name: _value(name, value, trial.version) for name, value in trial.metrics.items()}
        measured = measuring.Measurement(values)
        if objective.needs_baseline and all(term.spec.name in measured.numbers for term in objective.terms):
            objective = objective.with_baseline(measured.numbers)
            store.set_objective(run_id, objective)
        broken = constraints.violations(parsed.limits, values)
        score = None if broken or trial.failure else measuring.score(measured, objective).score
        _put(store, run_id, number, trial, tuple(values.values()), score, objective)
    return run_id


def axis(name: str) -> MetricSpec:
    """The spec of a bundled metric."""
    return registry.spec(name)


def _new_run(problem: Problem, settings: SearchSettings, workload: Mapping[str, Any]) -> NewRun:
    return NewRun(
        card=to_yaml(problem.card),
        workload={**problem.workload_input, **workload},
        environment=problem.environment_input,
        framework=problem.framework.name,
        space=problem.space,
        objective=problem.objective,
        metrics=tuple(registry.spec(name) for name in registry.BUNDLED),
        target="dry-run",
        proposer="random",
        options={"settings": settings.as_dict(), "seed_policy": POLICY},
    )


def _value(name: str, value: float | Sequence[float], version: str | None) -> MetricValue:
    spec = registry.spec(name)
    singles = list(value) if isinstance(value, Sequence) else [value]
    detail = {"repeats": singles} if len(singles) > 1 else None
    return MetricValue(spec.name, version or spec.version, spec.unit, sum(singles) / len(singles), None, detail)


def _put(
    store: Store,
    run_id: str,
    iteration: int,
    trial: Recorded,
    metrics: tuple[MetricValue, ...],
    score: float | None,
    objective: Any,
) -> None:
    pruned = trial.failure is not None and trial.failure.is_refusal
    new = NewTrial(iteration=iteration, policy_source=POLICY, config=trial.config)
    if pruned:
        store.add_trial(run_id, replace(new, state=TrialState.PRUNED, failure=trial.failure, evidence="refused"))
        return
    xpus = next((int(m.value) for m in metrics if m.name == "num_xpus" and m.value is not None), 16)
    number = store.add_trial(run_id, replace(new, num_xpus=xpus))
    outcome = TrialOutcome(
        state=TrialState.FAILED if trial.failure else TrialState.SUCCEEDED,
        failure=trial.failure,
        evidence="it broke" if trial.failure else "",
        metrics=metrics,
        score=score,
        objective=objective,
        fidelity=trial.fidelity,
        backend=trial.backend,
    )
    store.finish_trial(run_id, number, outcome)
