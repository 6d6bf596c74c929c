"""The search itself: `Search` can be driven by ask and tell, or run to its end on a launcher."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from ccl_search import measuring, repeats, retention
from ccl_search.loop import rerun, trial_files
from ccl_search.loop.execution import AttemptLog, Executor
from ccl_search.loop.fleet import Fleet
from ccl_search.loop.interrupt import MOST_SIGNALS, Interrupt
from ccl_search.loop.observer import Observer
from ccl_search.loop.proposing import Proposing
from ccl_search.loop.recorder import InFlight, Recorder
from ccl_search.loop.stoppers import Progress, first_reason
from ccl_search.loop.suggestion import Suggestion
from ccl_search.portability.metric import PortabilityTool
from ccl_search.problem import Problem
from ccl_search.proposers.base import Proposer, ProposerExhaustedError, TrialView
from ccl_search.screening.screen import Screen
from ccl_search.settings import SearchSettings
from ccl_search.targets import Target
from launchers.base import Job
from policies.runner import PolicyRunner
from runs.errors import CclSearchError, TargetUnavailableError
from runs.metric import MetricValue
from runs.objective import Objective
from runs.trial import Execution, FailureClass, Fidelity, TrialState

FINISHED = "finished"
INTERRUPTED = "interrupted"
BROKEN_AFTER = 5
"""Trials in a row that the machines failed, after which a search on a real target stops and can be resumed."""
UNSCORED = (FailureClass.METRIC_ERROR, FailureClass.TRACE_MISSING)
_MEND_TRACES = "check the framework's `version` in the target file and its traces, or ask for another --objective"
_MEND_THERE = "mend it there (`ccl-search doctor` helps to look), then `ccl-search resume`"


@dataclass
class Search:
    """A search over one problem. Make one with `create` or `reopen` (`ccl_search.assembly`).

    Ask and tell::

        while (suggestion := search.ask()) is not None:
            search.tell(suggestion, {"avg_step_time": run_it(suggestion.config)})

    or `run(executor)`, which does both with a launcher. Everything is recorded as it happens, so that a search
    whose process died goes on where it was.
    """

    problem: Problem
    settings: SearchSettings
    target: Target
    recorder: Recorder
    proposer: Proposer
    runner: PolicyRunner
    seed_policy: str
    observer: Observer = field(default_factory=Observer)
    interrupt: Interrupt = field(default_factory=Interrupt)
    screen: Screen | None = None
    portability: PortabilityTool | None = None
    stop_reason: str = ""
    _pending: Suggestion | None = None
    _left: list[Suggestion] | None = None
    _script: tuple[Objective, str] | None = None
    _broken: int = 0
    _started: float = field(default_factory=time.monotonic)

    @property
    def run_id(self) -> str:
        """The run's id in the store."""
        return self.recorder.run_id

    @property
    def best(self) -> TrialView | None:
        """The succeeded trial with the highest score so far."""
        return self._proposing.context(0).best

    @property
    def parallel(self) -> int:
        """How many trials may be in flight at once."""
        return self.settings.parallel or self.target.parallel

    @property
    def progress(self) -> Progress:
        """What the stoppers look at."""
        return self.recorder.progress(time.monotonic() - self._started)

    def ask(self) -> Suggestion | None:
        """The next config to launch; the same one again until it is told. None when the search is over.

        First come those that were asked for and never told before the search was reopened. Iterations whose every
        proposal was refused are passed over. `stop_reason` says why the search ended. The trial's folder
        (`recorder.trial_dir`) has the policy, the card and a script already.
        """
        if self._left is None:
            self._left = [found.suggestion for found in self.recorder.in_flight()]
        if self._pending is None:
            self._pending = self._left.pop(0) if self._left else self._next()
            if self._pending is not None:
                self._hand_out(self._pending)
        return self._pending

    def _hand_out(self, suggestion: Suggestion) -> None:
        """Write down what somebody else is going to run."""
        card, script = self._texts(suggestion)
        self._write_entry(suggestion, card, script)
        self.recorder.prepare(suggestion.number, card, script)

    def _next(self) -> Suggestion | None:
        while True:
            iteration = self.recorder.next_iteration
            if iteration > 0 and (reason := self._reason_to_stop()):
                self.stop_reason = reason
                return None
            try:
                found = self._proposing.next(iteration) if iteration else self._proposing.seed(self.seed_policy)
            except ProposerExhaustedError as error:
                self.stop_reason = str(error)
                return None
            if found is not None:
                return found

    def tell(
        self,
        suggestion: Suggestion,
        metrics: Mapping[str, float] | None = None,
        failure: FailureClass | None = None,
        evidence: str = "",
    ) -> TrialView:
        """Record what the caller measured for a suggestion: metric values by name, or a failure with its evidence.

        Raises:
            ValueError: neither metrics nor a failure, or a metric nobody knows.
        """
        if (metrics is None) == (failure is None):
            raise ValueError("tell either metrics or a failure")
        if failure is not None:
            execution = Execution(TrialState.FAILED, failure=failure, evidence=evidence)
            return self._record(suggestion, execution, measuring.Measurement(failure=failure, evidence=evidence))
        values = {name: _told(name, value) for name, value in (metrics or {}).items()}
        return self._record(suggestion, Execution(TrialState.SUCCEEDED), measuring.Measurement(values))

    def run(self, executor: Executor) -> str:
        """Drive the search to its end on a launcher; the run's final status.

        Raises:
            CclSearchError: the search cannot go on (the target, the LLM, the disk); the run is left resumable.
        """
        try:
            self._retention.sweep()
            self._take_up(executor)
            self._fly(executor)
        except BaseException as error:
            self._leave(f"{type(error).__name__}: {error}")
            raise
        return self.finish()

    def _fly(self, executor: Executor) -> None:
        """Keep as many trials in flight as the settings allow, until there is nothing left to propose."""
        fleet = Fleet(self.parallel, lambda suggestion: self._execute(suggestion, executor))
        try:
            while True:
                while self._may_launch(fleet) and (suggestion := self._next()) is not None:
                    self.observer.trial_launched(suggestion.number, suggestion.config)
                    fleet.launch(suggestion)
                if fleet.is_empty:
                    return
                self._settle(*fleet.land())
        except BaseException:
            self._bring_home(fleet)
            raise
        finally:
            fleet.close(wait=self.interrupt.count <= MOST_SIGNALS)

    def _may_launch(self, fleet: Fleet) -> bool:
        """Whether there is room; a composite without its baselines waits for the trial that gives them."""
        return fleet.has_room and (fleet.is_empty or not self.recorder.objective.needs_baseline)

    def _bring_home(self, fleet: Fleet) -> None:
        """Keep the results of the trials still in flight when the search has to end."""
        while not self.interrupt.cancel_requested and not fleet.is_empty:
            try:
                self._settle(*fleet.land())
            except CclSearchError as error:
                self.observer.notice(f"a trial in flight was lost: {error}")

    def _execute(self, suggestion: Suggestion, executor: Executor) -> Sequence[Execution]:
        job, log = self._job(suggestion)
        return repeats.execute(job, executor, log, self.settings.repeats)

    def _job(self, suggestion: Suggestion) -> tuple[Job, AttemptLog]:
        """The job of a trial and the log of its attempts, with all that is known before a launch written down."""
        card, script = self._texts(suggestion)
        directory = self._write_entry(suggestion, card, script)
        job = trial_files.job_for(self.problem, self.settings, self.run_id, directory, suggestion, script)
        return job, self.recorder.attempt_log(suggestion.number, card, script)

    def _texts(self, suggestion: Suggestion) -> tuple[str, str]:
        """The trial's card and script."""
        objective = self.recorder.objective
        if self._script is None or self._script[0] != objective:
            limits = self.recorder.limits
            self._script = (objective, rerun.script(self.problem, self.settings, self.target, objective, limits))
        return trial_files.card_yaml(self.problem, suggestion.plan), self._script[1]

    def _write_entry(self, suggestion: Suggestion, card: str, script: str) -> Path:
        directory = self.recorder.trial_dir(suggestion.number)
        trial_files.write_entry(directory, suggestion, card, script, self._target_file)
        return directory

    @cached_property
    def _target_file(self) -> str | None:
        return rerun.target_yaml(self.target)

    @cached_property
    def _lacking(self) -> list[str]:
        return trial_files.environment_findings(self.problem)

    def _leave(self, reason: str) -> None:
        self.recorder.finish(INTERRUPTED, reason)
        self.observer.run_finished(INTERRUPTED, reason)
        self.close()

    def finish(self) -> str:
        """Close the run: `finished`, or `interrupted` (and resumable) after a stop was asked for."""
        status = INTERRUPTED if self.interrupt.stop_requested else FINISHED
        self.recorder.finish(status, self.stop_reason)
        self.observer.run_finished(status, self.stop_reason)
        self.close()
        return status

    def check_policy(self, source: str) -> str | None:
        """What is wrong with a policy as such, as text for its author; None when it yields a config."""
        return self._proposing.check_policy(source)

    def close(self) -> None:
        """End worker processes and connections; the record stays open for reading."""
        self.runner.close()
        self.proposer.close()

    @property
    def _proposing(self) -> Proposing:
        return Proposing(
            self.problem,
            self.settings,
            self.proposer,
            self.runner,
            self.recorder,
            self.observer,
            self.screen,
            self.portability,
        )

    def _reason_to_stop(self) -> str | None:
        if self.interrupt.stop_requested:
            return "stopped by the user"
        settings = self.settings
        spending = settings.max_cost_usd is not None or settings.max_xpu_hours is not None
        seconds = time.monotonic() - self._started
        seen = self.recorder.progress(seconds, outcomes=settings.patience is not None, spending=spending)
        return first_reason(settings.stoppers(), seen)

    def _take_up(self, executor: Executor) -> None:
        """Bring the trials to their end that were in flight when the run's last process ended."""
        for left in self.recorder.in_flight():
            if self.interrupt.stop_requested:
                return
            job, log = self._job(left.suggestion)
            done = [*left.done, *self._awaited(left, job, log, executor)]
            if not done:
                self.observer.notice(f"trial {left.suggestion.number} was in flight and is repeated")
            self._settle(left.suggestion, repeats.execute(job, executor, log, self.settings.repeats, done))

    def _awaited(self, left: InFlight, job: Job, log: AttemptLog, executor: Executor) -> list[Execution]:
        """What became of the attempt that an earlier process submitted, unless it is lost or the machines failed it."""
        if left.handle is None:
            return []
        again = replace(repeats.job_of(job, len(left.done)), attempt=left.attempt)
        watched = repeats.marked(log, len(left.done)) if self.settings.repeats > 1 else log
        execution = executor.reattach(again, left.handle, watched)
        lost = execution is None or (execution.failure is not None and execution.failure.is_transient)
        return [] if execution is None or lost else [execution]

    def _settle(self, suggestion: Suggestion, executions: Sequence[Execution]) -> TrialView:
        execution = repeats.combined(executions)
        if execution.state is not TrialState.SUCCEEDED:
            failed = measuring.Measurement(failure=execution.failure, evidence=execution.evidence)
            view = self._record(suggestion, execution, failed)
            self._weigh(view)
            return view
        if self.target.fidelity is Fidelity.MEASURED:
            retention.tidy(self.recorder.trial_dir(suggestion.number), self.settings.trace_ranks)
        started = time.perf_counter()
        measurement = repeats.measure(executions, self.problem, suggestion.plan)
        execution = self._with_findings(suggestion.number, execution)
        view = self._record(suggestion, execution, measurement, time.perf_counter() - started)
        self._weigh(view)
        return view

    def _weigh(self, view: TrialView) -> None:
        """Count the trials in a row that the machines failed with all their repeats, or, as long as nothing has
        succeeded, that left no trace or no value to score.

        Raises:
            TargetUnavailableError: they are too many: going on would spend the search on what fails every trial.
        """
        kind = view.failure
        unscored = kind in UNSCORED and self.best is None
        counts = kind is not None and (kind.is_transient or unscored) and self.target.fidelity is Fidelity.MEASURED
        self._broken = self._broken + 1 if counts else 0
        if kind is not None and self._broken == BROKEN_AFTER:
            raise TargetUnavailableError(
                f"{BROKEN_AFTER} trials in a row failed for reasons that are not their configs' ({kind.value}): "
                f"{view.evidence[:200]}",
                _MEND_TRACES if unscored else _MEND_THERE,
            )

    def _with_findings(self, number: int, execution: Execution) -> Execution:
        """The execution with what keeps its folder from being a benchmark entry, which the user is told as well."""
        directory = self.recorder.trial_dir(number)
        trial_files.write_execution(directory, execution)
        findings = [*trial_files.step_findings(directory, self.problem), *self._lacking]
        for text in findings:
            self.observer.notice(f"trial {number} is no complete benchmark entry: {text}")
        return replace(execution, provenance={**execution.provenance, "entry_findings": findings})

    def _record(
        self,
        suggestion: Suggestion,
        execution: Execution,
        measurement: measuring.Measurement,
        metric_seconds: float = 0.0,
    ) -> TrialView:
        started = time.perf_counter()
        measurement = self._with_portability(suggestion, measurement)
        metric_seconds += time.perf_counter() - started
        self.recorder.settle_baseline(measurement)
        scored = measuring.score(measurement, self.recorder.objective)
        view = self.recorder.complete(suggestion.number, execution, scored, metric_seconds)
        self._pending = None
        self.observer.trial_finished(view)
        self._retention.settle()
        return view

    @cached_property
    def _retention(self) -> retention.Retention:
        """What is done with traces once they are scored."""
        return retention.Retention(self.recorder.store, self.run_id, self.settings.keep_traces)

    def _with_portability(self, suggestion: Suggestion, measurement: measuring.Measurement) -> measuring.Measurement:
        """The measurement with the metric of the policy itself, where the search wants it."""
        if self.portability is None or measurement.failure is not None:
            return measurement
        found = self.portability.value(suggestion.proposal.source)
        return replace(measurement, values={**measurement.values, found.name: found})


def _told(name: str, value: float) -> MetricValue:
    from ccl_search.portability.spec import spec as found_spec

    spec = found_spec(name)
    return MetricValue(spec.name, "told", spec.unit, float(value))
