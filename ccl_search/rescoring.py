"""Scoring a run again under another objective, from its stored traces or values; nothing is executed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ccl_search import constraints, measuring, repeats, retention
from ccl_search.measuring import Measurement
from ccl_search.portability.spec import NAME as PORTABILITY
from ccl_search.portability.spec import spec as found_spec
from runs.errors import BadInputError
from runs.metric import MetricValue
from runs.objective import Objective
from runs.trial import FailureClass, TrialState

if TYPE_CHECKING:
    from ccl_search.portability.metric import PortabilityTool
    from runs.plan import ParallelPlan
    from runs.store import RunRecord, Store, TrialRecord
    from runs.workload import Workload

_MENDABLE = (FailureClass.TRACE_MISSING, FailureClass.METRIC_ERROR)


@dataclass(frozen=True)
class Rescored:
    """One trial's new score beside its old one. `reason` says why there is none; `recomputed` metrics were read anew.

    `kept` are metrics whose stored value, of another tool version, stayed because there is no trace to read.
    """

    trial: int
    previous_objective: str | None
    previous_score: float | None
    score: float | None
    reason: str = ""
    recomputed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    values: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Reading:
    """A trial with the metric values it now has, and those of them that are new."""

    trial: TrialRecord
    values: dict[str, MetricValue]
    new: tuple[MetricValue, ...]
    kept: tuple[str, ...]


def rescore(
    store: Store, reference: str, objective: Objective | None, metrics: Sequence[str] = (), from_traces: bool = False
) -> list[Rescored]:
    """Compute the metrics of `objective` and `metrics` for every trial that ran to its end, and score it again.

    A stored value counts where it is of the installed version of its tool; otherwise, and with `from_traces` always,
    the trace is read. Without `objective` scores stay and only metric values are added. Baselines that a composite
    lacks are those the run already has for a metric, else the values of the first trial that has all. The objective
    becomes the run's own; every earlier score of a trial stays in the store. All is stored in one transaction.

    Raises:
        BadInputError: there is no such run or metric, or nothing in the run can be scored.
    """
    run = store.run(reference)
    wanted = _names(objective, metrics, constraints.limits_of(run))
    reader = _Reader.of(store, run, wanted, from_traces)
    with closing(reader):
        readings = [reader.read(trial) for trial in store.trials(run.id) if _ran(trial)]
    if not readings:
        raise BadInputError(f"run {run.id} has no trial that ran to its end", "`ccl-search show` says why")
    if objective is None:
        with store.transaction():
            for found in readings:
                store.add_metric_values(run.id, found.trial.number, found.new)
        return [_unscored(found, wanted) for found in readings]
    fixed = _with_baselines(objective, run, readings)
    results = [_result(found, fixed, constraints.limits_of(run)) for found in readings]
    if all(result.score is None for result in results):
        raise BadInputError(f"no trial of run {run.id} can be scored: {results[0].reason}", "use another objective")
    _write(store, run, fixed, readings, results)
    return results


def document(store: Store, run_id: str, results: Sequence[Rescored], previous: RunRecord) -> dict[str, Any]:
    """What `rescore --json` prints."""
    run, best = store.run(run_id), store.best(run_id)
    return {
        "run_id": run.id,
        "objective": run.objective,
        "previous_objective": previous.objective,
        "best": best.number if best else None,
        "trials": [vars(result) for result in results],
    }


@dataclass(frozen=True)
class _Reader:
    """Finds the values of the wanted metrics of a run's trials."""

    store: Store
    run: RunRecord
    wanted: tuple[str, ...]
    from_traces: bool
    workload: Workload
    environment: Any
    policies: PortabilityTool | None

    @classmethod
    def of(cls, store: Store, run: RunRecord, wanted: tuple[str, ...], from_traces: bool) -> _Reader:
        from runs.card import parse_card

        card = parse_card(run.card, run.id).card
        workload, environment = card.workload(), card.environment()
        policies = _portability(run, workload, environment) if PORTABILITY in wanted else None
        return cls(store, run, wanted, from_traces, workload, environment, policies)

    def close(self) -> None:
        """End the sandbox, where one was needed."""
        if self.policies is not None:
            self.policies.runner.close()

    def read(self, trial: TrialRecord) -> _Reading:
        stale = [
            name
            for name in self.wanted
            if self.from_traces or name not in trial.metrics or trial.metrics[name].version != found_spec(name).version
        ]
        computed = self._computed(trial, [name for name in stale if name != PORTABILITY])
        if PORTABILITY in stale and self.policies is not None:
            computed[PORTABILITY] = self.policies.value(trial.policy_source)
        kept = [name for name in stale if _has_value(trial, name) and computed[name].value is None]
        if kept and self._has_trace(trial):
            kept = []  # read anew, and there is none any more
        new = {name: value for name, value in computed.items() if name not in kept}
        return _Reading(trial, {**trial.metrics, **new}, tuple(new.values()), tuple(kept))

    def _computed(self, trial: TrialRecord, names: Sequence[str]) -> dict[str, MetricValue]:
        gone = retention.why_gone(self.store.trace_files(self.run.id, trial.number))
        return self._compute(trial, names) if gone is None else _nothing(names, gone)

    def _compute(self, trial: TrialRecord, names: Sequence[str]) -> dict[str, MetricValue]:
        if not names:
            return {}
        plan = trial.parallel_plan()
        found = [Measurement(self._values(folder, plan, names)) for folder in self._traces(trial)]
        return repeats.mean(found).values

    def _values(self, folder: Path, plan: ParallelPlan | None, names: Sequence[str]) -> dict[str, MetricValue]:
        from metrics.api import compute

        try:
            return compute(folder, workload=self.workload, environment=self.environment, plan=plan, metrics=names)
        except BadInputError as error:
            return _nothing(names, f"no trace: {error.message}")

    def _traces(self, trial: TrialRecord) -> list[Path]:
        directory = self.store.trial_dir(self.run.id, trial.number)
        count = int(trial.provenance.get("repeats", 1))
        return [repeats.folder(directory, repeat) / "trace" for repeat in range(count)]

    def _has_trace(self, trial: TrialRecord) -> bool:
        return all(any(path.is_file() for path in folder.rglob("*")) for folder in self._traces(trial))


def _nothing(names: Sequence[str], reason: str) -> dict[str, MetricValue]:
    from metrics import registry

    return {name: MetricValue.none(registry.spec(name), reason) for name in names}


def _portability(run: RunRecord, workload: Workload, environment: Any) -> PortabilityTool:
    from ccl_search.portability.cases import Home
    from ccl_search.portability.metric import PortabilityTool
    from launchers import frameworks
    from policies.factory import create_runner

    bounds = tuple(run.options.get("settings", {}).get("constraints") or ())
    runner = create_runner(cast("Any", run.sandbox or "monty"), seed=run.seed or 0)
    home = Home(workload, environment, frameworks.get(run.framework), run.config_space(), bounds)
    return PortabilityTool(home, runner)


def _names(objective: Objective | None, metrics: Sequence[str], limits: Sequence[constraints.Limit]) -> tuple[str, ...]:
    terms = [term.spec.name for term in objective.terms] if objective is not None else []
    asked = [found_spec(name).name for name in metrics]
    found = tuple(dict.fromkeys([*terms, *asked, *(limit.spec.name for limit in limits)]))
    if objective is None and not asked:
        raise BadInputError("neither an objective nor a metric is named", "give --objective or --metric")
    return found


def _ran(trial: TrialRecord) -> bool:
    return trial.state is TrialState.SUCCEEDED or trial.failure in _MENDABLE


def _has_value(trial: TrialRecord, name: str) -> bool:
    return name in trial.metrics and trial.metrics[name].value is not None


def _with_baselines(objective: Objective, run: RunRecord, readings: Sequence[_Reading]) -> Objective:
    known = {term.spec.name: term.baseline for term in run.typed_objective().terms}
    terms = tuple(
        replace(term, baseline=known.get(term.spec.name)) if term.baseline is None else term for term in objective.terms
    )
    made = Objective(terms) if objective.is_composite else objective
    for found in readings:
        numbers = Measurement(found.values).numbers
        if made.needs_baseline and all(term.spec.name in numbers for term in made.terms):
            return made.with_baseline(numbers)
    return made


def _result(found: _Reading, objective: Objective, limits: Sequence[constraints.Limit]) -> Rescored:
    trial = found.trial
    scored = measuring.score(Measurement(found.values), objective)
    broken = constraints.violations(limits, found.values)
    reason = f"infeasible: {'; '.join(broken)}" if broken else scored.evidence
    return Rescored(
        trial=trial.number,
        previous_objective=trial.objective,
        previous_score=trial.score,
        score=None if broken else scored.score,
        reason=reason,
        recomputed=tuple(value.name for value in found.new),
        kept=found.kept,
        values=_numbers(found, [term.spec.name for term in objective.terms]),
    )


def _unscored(found: _Reading, wanted: Sequence[str]) -> Rescored:
    reasons = [f"{value.name}: {value.reason}" for value in found.new if value.value is None]
    trial, recomputed = found.trial, tuple(value.name for value in found.new)
    numbers = _numbers(found, wanted)
    return Rescored(
        trial.number, trial.objective, trial.score, trial.score, "; ".join(reasons), recomputed, found.kept, numbers
    )


def _numbers(found: _Reading, names: Sequence[str]) -> dict[str, float]:
    numbers = Measurement(found.values).numbers
    return {name: numbers[name] for name in names if name in numbers}


def _write(
    store: Store, run: RunRecord, objective: Objective, readings: Sequence[_Reading], results: Sequence[Rescored]
) -> None:
    from ccl_search.pareto.of_run import REFERENCE, reference_to_store

    with store.transaction():
        for found, result in zip(readings, results, strict=True):
            number = found.trial.number
            store.rescore_trial(run.id, number, objective=objective, score=result.score, metrics=found.new)
        store.set_objective(run.id, objective)
    stored = run.options.get(REFERENCE, {})
    unset = replace(run, options={key: value for key, value in run.options.items() if key != REFERENCE})
    made = reference_to_store(store, unset, objective) or {}
    if made:
        store.set_option(run.id, REFERENCE, {**made, **stored})
