"""A sweep in the store: a run of kind `sweep`, a trial a config, so that all that reads a record reads it too."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.calibration import Calibration
from ccl_search import constraints, measuring, targets
from ccl_search.assembly import described
from ccl_search.loop import rerun, trial_files
from ccl_search.loop.suggestion import Suggestion
from ccl_search.measuring import Measurement
from ccl_search.proposers.base import Proposal, constant_policy
from ccl_search.settings import SearchSettings
from ccl_search.sweeping.outcome import FIGURES, Outcome
from runs.errors import BadInputError
from runs.objective import Objective
from runs.trial import Fidelity, TrialState

if TYPE_CHECKING:
    from ccl_search.constraints import Limit
    from ccl_search.problem import Problem
    from runs.store import RunRecord, Store

KIND = "sweep"
TABLE = "figures.csv"
"""The simulator's own figures, one row a config, in the run's folder."""
_RATIONALE = "a config of the sweep"


@dataclass
class Record:
    """The rows of one sweep. `objective` gets its baselines at the first config that has all its metrics."""

    store: Store
    run_id: str
    problem: Problem
    objective: Objective
    limits: tuple[Limit, ...] = ()

    @classmethod
    def create(
        cls,
        store: Store,
        problem: Problem,
        settings: SearchSettings,
        options: Mapping[str, Any],
        calibration: Calibration | None = None,
    ) -> Record:
        """A new run. `options` is what a resumed sweep needs, as plain data."""
        limits = constraints.parse(settings.constraints, problem.space).limits
        run_id = store.create_run(_new_run(problem, settings, options, _target_settings(calibration)))
        return cls(store, run_id, problem, problem.objective, limits)

    @classmethod
    def reopen(cls, store: Store, run: RunRecord, problem: Problem) -> Record:
        """An interrupted sweep, running again."""
        store.reopen_run(run.id)
        return cls(store, run.id, problem, run.typed_objective(), constraints.limits_of(run))

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Store what became of some configs, in one transaction, and their figures in the table."""
        found = list(outcomes)
        with self.store.transaction():
            for outcome in found:
                self._add(outcome)
        self._append(found)

    def _add(self, outcome: Outcome) -> None:
        from runs.store import NewTrial

        refused = outcome.plan is None
        number = self.store.add_trial(
            self.run_id,
            NewTrial(
                iteration=outcome.index,
                policy_source=constant_policy(outcome.config),
                config=outcome.config,
                rationale=_RATIONALE,
                state=TrialState.PRUNED if refused else TrialState.QUEUED,
                failure=outcome.failure if refused else None,
                evidence=outcome.evidence if refused else "",
            ),
        )
        if not refused:
            self.store.prepare_trial(self.run_id, number, plan=outcome.plan)
            self.store.finish_trial(self.run_id, number, self._outcome(outcome, number))

    def _outcome(self, outcome: Outcome, number: int) -> Any:
        from runs.store import Timings, TrialOutcome

        found = self._scored(outcome)
        state = TrialState.FAILED if found.failure is not None else TrialState.SUCCEEDED
        return TrialOutcome(
            state=state,
            failure=found.failure,
            evidence=found.evidence,
            metrics=tuple(found.values.values()),
            score=found.score,
            objective=self.objective,
            fidelity=Fidelity.SIMULATED,
            backend=outcome.provenance.get("backend"),
            provenance={**outcome.provenance, "figures": dict(outcome.figures)},
            timings=Timings(launch=outcome.seconds, metrics=outcome.metrics_seconds),
            xpu_hours=0.0,
            traces=self._traces(number),
        )

    def _scored(self, outcome: Outcome) -> Measurement:
        if outcome.failure is not None:
            return Measurement(dict(outcome.values), failure=outcome.failure, evidence=outcome.evidence)
        measured = Measurement(dict(outcome.values))
        names = [term.spec.name for term in self.objective.terms]
        if self.objective.needs_baseline and all(measured.numbers.get(name, 0.0) > 0 for name in names):
            self.objective = self.objective.with_baseline(measured.numbers)
            self.store.set_objective(self.run_id, self.objective)
        found = measuring.score(measured, self.objective)
        broken = constraints.violations(self.limits, found.values)
        return Measurement(found.values, evidence=f"infeasible: {'; '.join(broken)}") if broken else found

    def _traces(self, number: int) -> tuple[Any, ...]:
        from runs.store import TraceFile

        folder = self.store.home / "runs" / self.run_id / "trials" / str(number)
        if not (folder / "trace").is_dir():
            return ()
        prefix = folder.relative_to(self.store.home)
        return tuple(
            TraceFile(str(prefix / found.path), found.size, found.sha256) for found in trial_files.trace_files(folder)
        )

    def _append(self, outcomes: list[Outcome]) -> None:
        path = self.store.run_dir(self.run_id) / TABLE
        names = [*self.problem.space.keys, "state", *FIGURES, "memory_gb", "seconds"]
        new = not path.exists()
        with path.open("a", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, names)
            if new:
                writer.writeheader()
            for outcome in outcomes:
                state = outcome.failure.value if outcome.failure else "succeeded"
                writer.writerow({**outcome.config, "state": state, **outcome.figures, "seconds": outcome.seconds})

    def keep_best(self, settings: SearchSettings, count: int) -> list[Path]:
        """Give the best trials a folder with card, policy, config and a script that repeats them; the folders."""
        run = self.store.run(self.run_id)
        succeeded = [trial for trial in self.store.trials(self.run_id) if trial.score is not None]
        best = sorted(succeeded, key=lambda trial: (-(trial.score or 0.0), trial.number))[:count]
        target = targets.of_run(run.target, run.target_settings)
        script = rerun.script(self.problem, settings, target, self.objective, self.limits)
        folders = []
        for trial in best:
            plan = trial.parallel_plan()
            if plan is None or trial.config is None:
                continue
            folder = self.store.trial_dir(self.run_id, trial.number)
            suggestion = Suggestion(
                trial.number, trial.iteration, trial.config, plan, Proposal(trial.policy_source, _RATIONALE)
            )
            card = trial_files.card_yaml(self.problem, plan)
            trial_files.write_entry(folder, suggestion, card, script, rerun.target_yaml(target))
            trial_files.write_metrics(folder, trial.metrics, trial.score)
            folders.append(folder)
        return folders

    def keep_policy(self) -> None:
        """Give the best trial a folder with its policy alone."""
        best = self.store.best(self.run_id)
        if best is not None:
            folder = self.store.trial_dir(self.run_id, best.number)
            (folder / "policy.py").write_text(best.policy_source, encoding="utf-8")

    def finish(self, interrupted: bool, reason: str) -> None:
        """End the run's row."""
        from runs.store import RunStatus

        self.store.finish_run(self.run_id, RunStatus.INTERRUPTED if interrupted else RunStatus.FINISHED, reason)


def _target_settings(calibration: Calibration | None) -> dict[str, Any]:
    """A target file's content that names the factors in use; empty for the bundled, uncalibrated dry run."""
    if calibration is None or calibration.name == Calibration().name:
        return {}
    return {"name": targets.DRY_RUN, "kind": targets.DRY_RUN, "dry_run": {"calibration": calibration.as_dict()}}


def _new_run(
    problem: Problem, settings: SearchSettings, options: Mapping[str, Any], target_settings: dict[str, Any]
) -> Any:
    from metrics import registry
    from runs.store import NewRun

    specs = tuple(registry.spec(name) for name in registry.BUNDLED)
    return NewRun(
        **described(problem, settings, specs),
        target=targets.DRY_RUN,
        target_settings=target_settings,
        proposer=KIND,
        options={"settings": settings.as_dict(), KIND: dict(options)},
        kind=KIND,
    )


def find(store: Store, reference: str) -> RunRecord:
    """The sweep that `reference` means.

    Raises:
        BadInputError: there is no such run, it is a search, or it is of the MoE study.
    """
    run = store.run(reference)
    if run.kind != KIND or KIND not in run.options:
        raise BadInputError(f"run {run.id} is no sweep", f"`ccl-search resume {run.id}` goes on with a search")
    if "study" in run.options[KIND]:
        raise BadInputError(
            f"run {run.id} is of the MoE study, which is stored when it is whole",
            "`ccl-search sweep moe-study` runs it",
        )
    return run
