"""Everything a running search writes, and the history it works from: the one place that knows the store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ccl_search import constraints, repeats, retention
from ccl_search.constraints import Limit
from ccl_search.loop import trial_files
from ccl_search.loop.history import History
from ccl_search.loop.stoppers import Outcome, Progress
from ccl_search.loop.suggestion import Suggestion
from ccl_search.measuring import Measurement
from ccl_search.portability.spec import told
from ccl_search.proposers.base import Proposal, TrialView
from launchers.base import Handle
from policies.program import Policy
from runs.objective import Objective
from runs.plan import ParallelPlan
from runs.screening import Screening
from runs.space import config_key
from runs.trial import Execution, FailureClass, Fidelity, TrialState

if TYPE_CHECKING:
    from ccl_search.pareto.guidance import Guidance
    from runs.store import NewTrial, Store, TraceFile, TrialRecord


class InFlight(NamedTuple):
    """A trial without a result: the executions that ended, and the number and handle of the attempt that did not.

    `handle` None: there is no such attempt, or it was never submitted.
    """

    suggestion: Suggestion
    attempt: int
    handle: Handle | None
    done: list[Execution]


@dataclass
class Recorder:
    """One run's record. The history is in memory, the store is the truth: `Recorder.load` rebuilds one from the other.

    `fidelity` is that of the run's target. What was measured cannot be had again for nothing, so that handles and
    results wait for the disk; a simulation can.
    """

    store: Store
    run_id: str
    objective: Objective
    fidelity: Fidelity = Fidelity.MEASURED
    _past: History = field(default_factory=History)
    _began: dict[int, float] = field(default_factory=dict)
    _open: dict[int, tuple[int, Proposal, dict[str, Any]]] = field(default_factory=dict)
    limits: tuple[Limit, ...] = ()
    pareto: bool = False
    screenings: dict[int, Screening] = field(default_factory=dict)

    @classmethod
    def load(cls, store: Store, run_id: str, fidelity: Fidelity = Fidelity.MEASURED) -> Recorder:
        """The recorder of a run that is already in the store."""
        run = store.run(run_id)
        pareto = bool(run.options.get("settings", {}).get("pareto"))
        limits = constraints.limits_of(run)
        recorder = cls(store, run.id, run.typed_objective(), fidelity, limits=limits, pareto=pareto)
        recorder.screenings = store.screenings(run.id)
        for trial in store.trials(run.id):
            if trial.state.is_finished:
                recorder._past.add(trial.iteration, view_of(trial, recorder.limits, recorder.objective))
        return recorder

    @property
    def history(self) -> tuple[TrialView, ...]:
        """Every finished trial in order."""
        return self._past.views

    @property
    def newest_policy(self) -> str:
        """The source of the newest finished trial that has one, else empty."""
        return self._past.newest_policy

    @property
    def seen(self) -> dict[str, TrialView]:
        """Config key to the trial that tried it or is in flight, for configs that are not to be launched again."""
        flying = {config_key(view.config): view for view in self.running if view.config is not None}
        return {**self._past.tried, **flying}

    @property
    def running(self) -> tuple[TrialView, ...]:
        """The trials in flight."""
        return tuple(
            TrialView(number, TrialState.RUNNING, config, policy_source=proposal.source, rationale=proposal.rationale)
            for number, (_, proposal, config) in self._open.items()
        )

    @property
    def next_iteration(self) -> int:
        """The first iteration that is neither over nor has a trial in flight."""
        return self._past.first_open({iteration for iteration, _, _ in self._open.values()})

    def progress(self, seconds: float, outcomes: bool = True, spending: bool = True) -> Progress:
        """What the stoppers look at: the last trial of every iteration that is over, and what was spent.

        Outcomes and spending are left out where no stopper looks at them: they cost more the longer a search is.
        """
        found = Progress(seconds=seconds, begun=max(0, self.next_iteration - 1))
        if outcomes:
            last = list(self._past.over)
            scores = self._steady_scores(last)
            found.outcomes = [Outcome(view.state, s, view.failure) for view, s in zip(last, scores, strict=True)]
        if spending:
            spent = self.store.totals(self.run_id)
            found.known_cost_usd, found.xpu_hours = spent.known_llm_cost_usd, spent.known_xpu_hours
        return found

    def trial_dir(self, number: int) -> Path:
        """The trial's own folder."""
        return self.store.trial_dir(self.run_id, number)

    def refuse(
        self,
        iteration: int,
        proposal: Proposal,
        config: dict[str, Any] | None,
        failure: FailureClass,
        evidence: str,
        seconds: float,
        screening: Screening | None = None,
    ) -> TrialView:
        """Record a proposal that will not be launched, and what a screen said of it."""
        state = TrialState.PRUNED if failure.is_refusal else TrialState.FAILED
        new = self._new_trial(iteration, proposal, config, state, failure, evidence, seconds)
        number = self._add(replace(new, screening=screening))
        view = self._view(number, state, config, proposal, failure=failure, evidence=evidence)
        self._past.add(iteration, view)
        return view

    def accept(
        self,
        iteration: int,
        proposal: Proposal,
        config: dict[str, Any],
        plan: ParallelPlan,
        seconds: float,
        screening: Screening | None = None,
    ) -> int:
        """Record a proposal that will be launched, and what a screen said of it; its trial number."""
        self._began[iteration] = time.perf_counter()
        new = self._new_trial(iteration, proposal, config, TrialState.QUEUED, None, "", seconds)
        number = self._add(replace(new, plan=plan, num_xpus=plan.world_size, screening=screening))
        self._open[number] = (iteration, proposal, config)
        return number

    def _add(self, new: NewTrial) -> int:
        number = self.store.add_trial(self.run_id, new)
        if new.screening is not None:
            self.screenings[number] = new.screening
        return number

    def prepare(self, number: int, card: str, script: str) -> None:
        """Record what exactly will be launched by somebody else."""
        self.store.prepare_trial(self.run_id, number, card=card, script=script)

    def attempt_log(self, number: int, card: str, script: str) -> _AttemptLog:
        """Where the executor writes the trial's attempts, the first with what exactly is launched."""
        return _AttemptLog(self.store, self.run_id, number, card, script, self._is_durable)

    @property
    def _is_durable(self) -> bool:
        return self.fidelity is not Fidelity.SIMULATED

    def settle_baseline(self, measurement: Measurement) -> None:
        """Fix the missing baselines of a composite objective at the first trial that has all its metrics above 0."""
        names = [term.spec.name for term in self.objective.terms]
        if not self.objective.needs_baseline or any(measurement.numbers.get(name, 0.0) <= 0 for name in names):
            return
        self.objective = self.objective.with_baseline(measurement.numbers)
        self.store.set_objective(self.run_id, self.objective)

    def _traces(self, directory: Path) -> tuple[TraceFile, ...]:
        """The trace files of a trial: those that are there, and those of ranks that are not sampled."""
        from runs.store import TraceFile

        prefix = directory.relative_to(self.store.home)
        there, gone = trial_files.trace_files(directory), retention.sampled_out(directory)
        return (
            *(TraceFile(str(prefix / found.path), found.size, found.sha256) for found in there),
            *(TraceFile(str(prefix / f.path), f.size, f.sha256, kept=False, reason=retention.SAMPLED) for f in gone),
        )

    def complete(self, number: int, execution: Execution, measurement: Measurement, metric_seconds: float) -> TrialView:
        """Record how a launched trial ended: state, metric values, score, trace files, in one transaction."""
        from runs.store import Timings, TrialOutcome

        iteration, proposal, config = self._open.pop(number)
        measurement, broken = self._within_limits(measurement)
        directory = self.trial_dir(number)
        state = TrialState.FAILED if _lost_its_result(execution, measurement) else execution.state
        traces = self._traces(directory)
        trial_files.write_metrics(directory, measurement.values, measurement.score)
        elapsed = time.perf_counter() - self._began.pop(iteration, time.perf_counter())
        launched = execution.seconds
        outcome = TrialOutcome(
            state=state,
            failure=measurement.failure,
            evidence=measurement.evidence,
            metrics=tuple(measurement.values.values()),
            score=measurement.score,
            objective=self.objective,
            fidelity=execution.fidelity,
            backend=execution.provenance.get("backend"),
            provenance=execution.provenance,
            timings=Timings(
                launch=launched, metrics=metric_seconds, overhead=elapsed - metric_seconds - (launched or 0)
            ),
            traces=traces,
        )
        self.store.finish_trial(self.run_id, number, outcome, durable=self._is_durable)
        view = replace(
            self._view(number, state, config, proposal, failure=measurement.failure, evidence=measurement.evidence),
            metrics=measurement.numbers,
            score=measurement.score,
            violations=broken,
            score_spread=repeats.score_spread(measurement.values, self.objective),
            portability=told(measurement.values),
        )
        self._past.add(iteration, view)
        return view

    def in_flight(self) -> list[InFlight]:
        """Trials that were accepted but have no result."""
        found: list[InFlight] = []
        for trial in self.store.trials(self.run_id, states=(TrialState.QUEUED, TrialState.RUNNING)):
            plan = trial.parallel_plan()
            if plan is None or trial.config is None:
                continue
            proposal = Proposal(trial.policy_source, trial.rationale)
            self._open[trial.number] = (trial.iteration, proposal, trial.config)
            suggestion = Suggestion(trial.number, trial.iteration, trial.config, plan, proposal)
            attempts = self.store.attempts(self.run_id, trial.number)
            done = repeats.done(attempts, self.trial_dir(trial.number), self.fidelity)
            last = attempts[-1] if attempts and attempts[-1].finished is None else None
            found.append(InFlight(suggestion, last.number if last else 0, last.handle if last else None, done))
        return found

    def guidance(self) -> Guidance:
        """The front so far, for the proposer of a Pareto search."""
        from ccl_search.pareto.views import guidance_of

        return guidance_of(self.history, self.objective)

    def _steady_scores(self, views: Sequence[TrialView]) -> list[float | None]:
        """What counts as improvement: a better score beyond the spread, or in a Pareto search a larger front."""
        from ccl_search.pareto.views import growth

        if self.pareto:
            return growth(views, self.objective)
        return repeats.steady_scores([(view.score, view.score_spread) for view in views])

    def _within_limits(self, measurement: Measurement) -> tuple[Measurement, tuple[str, ...]]:
        """A measurement without its score where it breaks the user's limits, and the limits it breaks."""
        if measurement.failure is not None:
            return measurement, ()
        broken = constraints.violations(self.limits, measurement.values)
        if broken:
            measurement = Measurement(measurement.values, evidence=f"infeasible: {'; '.join(broken)}")
        return measurement, broken

    def finish(self, status: str, reason: str) -> None:
        """Close the run's row; a finished run with a front keeps the reference point of its hypervolume."""
        from ccl_search.pareto.of_run import REFERENCE, reference_to_store
        from runs.store import RunStatus

        if status == RunStatus.FINISHED.value:
            reference = reference_to_store(self.store, self.store.run(self.run_id), self.objective)
            if reference is not None:
                self.store.set_option(self.run_id, REFERENCE, reference)
        self.store.finish_run(self.run_id, RunStatus(status), reason)

    def _new_trial(
        self,
        iteration: int,
        proposal: Proposal,
        config: dict[str, Any] | None,
        state: TrialState,
        failure: FailureClass | None,
        evidence: str,
        seconds: float,
    ) -> Any:
        from runs.store import NewTrial

        parent_id = Policy(self.newest_policy).sha256 if self.newest_policy else None
        return NewTrial(
            iteration=iteration,
            policy_source=proposal.source or None,
            parent_policy=parent_id,
            config=config,
            rationale=proposal.rationale,
            llm_calls=proposal.llm_calls,
            state=state,
            failure=failure,
            evidence=evidence,
            proposer_seconds=seconds,
        )

    def _view(
        self,
        number: int,
        state: TrialState,
        config: dict[str, Any] | None,
        proposal: Proposal,
        failure: FailureClass | None,
        evidence: str,
    ) -> TrialView:
        return TrialView(
            number=number,
            state=state,
            config=config,
            failure=failure,
            evidence=evidence,
            policy_source=proposal.source,
            rationale=proposal.rationale,
        )


@dataclass(frozen=True)
class _AttemptLog:
    store: Store
    run_id: str
    number: int
    card: str
    script: str
    durable: bool

    def begin(self) -> int:
        return self.store.begin_attempt(self.run_id, self.number, card=self.card, script=self.script)

    def submitted(self, attempt: int, handle: Handle) -> None:
        self.store.set_handle(self.run_id, self.number, attempt, handle, durable=self.durable)

    def finished(self, attempt: int, execution: Execution) -> None:
        self.store.finish_attempt(self.run_id, self.number, attempt, execution)


def view_of(trial: TrialRecord, limits: tuple[Limit, ...] = (), objective: Objective | None = None) -> TrialView:
    """What a proposer sees of a stored trial."""
    succeeded = trial.state is TrialState.SUCCEEDED
    return TrialView(
        number=trial.number,
        state=trial.state,
        config=trial.config,
        metrics=trial.values,
        score=trial.score,
        failure=trial.failure,
        evidence=trial.evidence,
        policy_source=trial.policy_source,
        rationale=trial.rationale,
        violations=constraints.violations(limits, trial.metrics) if succeeded else (),
        score_spread=repeats.score_spread(trial.metrics, objective) if objective is not None else None,
        portability=told(trial.metrics),
    )


def _lost_its_result(execution: Execution, measurement: Measurement) -> bool:
    return execution.state is TrialState.SUCCEEDED and measurement.failure is not None
