"""Writing trials: proposals, attempts, outcomes, metric values, scores and trace files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import delete, func, insert, update
from sqlmodel import Session, col, select

from runs.errors import BadInputError
from runs.metric import MetricValue
from runs.objective import Objective
from runs.plan import ParallelPlan
from runs.space import config_key
from runs.store.checks import check_outcome, check_proposal, check_relative, objective_name
from runs.store.encoding import clean, dump, redact, refuse_secrets
from runs.store.errors import StoreError
from runs.store.part import Part, attempt_row, now, run_row, text_or_now, trial_row
from runs.store.records import NewTrial, Timings, TraceFile, TrialOutcome
from runs.store.run_part import store_policy
from runs.store.tables import AttemptRow, LlmCallRow, MetricRow, ScoreRow, TraceRow, TrialRow
from runs.trial import Execution, FailureClass, TrialState


class TrialPart(Part):
    """The methods of the store that write trials. Every one of them is one transaction."""

    def add_trial(self, run_id: str, trial: NewTrial) -> int:
        """Store a proposal; its number, one more than the run's last (the first is 0).

        Raises:
            StoreError: state and failure class contradict each other, or the config is not JSON data.
        """
        check_proposal(trial)
        with self._database.transaction() as session:
            run_row(session, run_id)
            policy = None
            if trial.policy_source is not None:
                policy = store_policy(session, trial.policy_source, trial.parent_policy)
            row = _new_trial(trial, run_id, _next_number(session, run_id), policy)
            session.add(row)
            session.flush()
            _claim_calls(session, row, trial.llm_calls)
            return row.number

    def prepare_trial(
        self,
        run_id: str,
        number: int,
        *,
        plan: ParallelPlan | None = None,
        card: str = "",
        script: str = "",
        num_xpus: int | None = None,
    ) -> None:
        """Store what will be launched; what is not given stays. `num_xpus` is the plan's world size unless given."""
        with self._database.transaction() as session:
            row = _open_trial(session, run_id, number)
            if plan is not None:
                _set_plan(row, plan)
            row.num_xpus = row.num_xpus if num_xpus is None else num_xpus
            row.card = clean(card) or row.card
            row.script = clean(script) or row.script

    def begin_attempt(self, run_id: str, number: int) -> int:
        """Start an attempt at a trial, which is running from now on; the attempt's number, from 0."""
        with self._database.transaction() as session:
            row = _open_trial(session, run_id, number)
            row.state, row.launched = TrialState.RUNNING.value, row.launched or now()
            statement = select(func.max(AttemptRow.number)).where(AttemptRow.trial_id == row.id)
            last = session.exec(statement).one()
            attempt = 0 if last is None else last + 1
            session.add(AttemptRow(trial_id=_key(row), number=attempt, state=TrialState.RUNNING.value, started=now()))
            return attempt

    def set_handle(self, run_id: str, number: int, attempt: int, handle: dict[str, Any]) -> None:
        """Store the handle of a submitted job, so that another process can find the job again."""
        refuse_secrets(handle, "handle")
        with self._database.transaction() as session:
            attempt_row(session, run_id, number, attempt).handle = dump(handle, "handle")

    def finish_attempt(self, run_id: str, number: int, attempt: int, execution: Execution) -> None:
        """Store how an attempt ended. The trial stays open: it may be attempted again."""
        with self._database.transaction() as session:
            row = attempt_row(session, run_id, number, attempt)
            row.state, row.finished = execution.state.value, now()
            row.failure = None if execution.failure is None else execution.failure.value
            row.evidence = redact(execution.evidence)
            row.seconds, row.xpu_hours = execution.seconds, execution.xpu_hours
            row.provenance = dump(execution.provenance, "provenance")

    def finish_trial(self, run_id: str, number: int, outcome: TrialOutcome) -> None:
        """Store how a trial ended, with its metric values, score and trace files.

        Raises:
            StoreError: the trial has ended already, or state, failure class and score contradict each other.
        """
        check_outcome(outcome)
        with self._database.transaction() as session:
            row = _open_trial(session, run_id, number)
            _set_outcome(row, outcome)
            row.xpu_hours = _hours(session, row) if outcome.xpu_hours is None else outcome.xpu_hours
            _put_metrics(session, row, outcome.metrics)
            _add_traces(session, row, outcome.traces)
            if outcome.score is not None:
                _add_score(session, row, outcome.score, outcome.objective)

    def rescore_trial(
        self,
        run_id: str,
        number: int,
        *,
        objective: Objective,
        score: float | None,
        metrics: Sequence[MetricValue] = (),
    ) -> None:
        """Give a trial a new score; the old ones stay in `scores`. A trial without a trace or metric now succeeds.

        `score` None: the trial stays as it is but has no score under `objective`.

        Raises:
            StoreError: the trial did not run to its end, so there is nothing to score.
        """
        with self._database.transaction() as session:
            row = trial_row(session, run_id, number)
            if row.state != TrialState.SUCCEEDED.value and row.failure not in _MENDABLE:
                raise StoreError(
                    f"trial {number} of run {run_id} is {row.state} ({row.failure}) and has nothing to score",
                    "only trials that ran to their end are scored again",
                )
            _put_metrics(session, row, metrics)
            if score is None:
                row.score, row.objective = None, objective.name
                return
            row.state, row.failure = TrialState.SUCCEEDED.value, None
            _add_score(session, row, score, objective)

    def add_metric_values(self, run_id: str, number: int, values: Iterable[MetricValue]) -> None:
        """Store metric values; one of the same name and version replaces the earlier, other versions stay."""
        with self._database.transaction() as session:
            _put_metrics(session, trial_row(session, run_id, number), values)

    def retract(self, name: str, version: str, reason: str) -> int:
        """Flag every value that a bad version of a metric tool gave, in all runs; how many."""
        with self._database.transaction() as session:
            statement = (
                update(MetricRow)
                .where(col(MetricRow.name) == name, col(MetricRow.version) == version)
                .values(retracted=True, retracted_reason=clean(reason))
            )
            return int(session.connection().execute(statement).rowcount)

    def add_trace_files(self, run_id: str, number: int, files: Iterable[TraceFile]) -> None:
        """Store trace files of a trial.

        Raises:
            BadInputError: a path is not relative to the home folder, or leads out of it.
        """
        with self._database.transaction() as session:
            _add_traces(session, trial_row(session, run_id, number), files)

    def drop_trace_file(self, run_id: str, number: int, path: str, reason: str) -> None:
        """Record that a trace file was deleted, and why. Deletes nothing."""
        with self._database.transaction() as session:
            trial = trial_row(session, run_id, number)
            row = session.exec(select(TraceRow).where(TraceRow.trial_id == trial.id, TraceRow.path == path)).first()
            if row is None:
                raise BadInputError(f"trial {number} of run {run_id} has no trace file {path!r}", "check the path")
            row.kept, row.reason = False, clean(reason)


_MENDABLE = frozenset({FailureClass.TRACE_MISSING.value, FailureClass.METRIC_ERROR.value})


def _key(row: TrialRow) -> int:
    assert row.id is not None
    return row.id


def _next_number(session: Session, run_id: str) -> int:
    last = session.exec(select(func.max(TrialRow.number)).where(TrialRow.run_id == run_id)).one()
    return 0 if last is None else int(last) + 1


def _new_trial(trial: NewTrial, run_id: str, number: int, policy: str | None) -> TrialRow:
    proposed = text_or_now(trial.proposed)
    row = TrialRow(
        run_id=run_id,
        number=number,
        iteration=trial.iteration,
        state=trial.state.value,
        failure=None if trial.failure is None else trial.failure.value,
        evidence=redact(trial.evidence),
        config=None if trial.config is None else dump(trial.config, "config"),
        config_key=None if trial.config is None else config_key(trial.config),
        num_xpus=trial.num_xpus,
        policy_id=policy,
        rationale=clean(trial.rationale),
        proposed=proposed,
        finished=proposed if trial.state.is_finished else None,
        proposer_seconds=trial.proposer_seconds,
    )
    if trial.plan is not None:
        _set_plan(row, trial.plan)
    return row


def _set_plan(row: TrialRow, plan: ParallelPlan) -> None:
    row.plan = dump(plan.as_dict(), "plan")
    row.tp, row.pp, row.dp, row.ep, row.cp = plan.tp, plan.pp, plan.dp, plan.ep, plan.cp
    row.micro_batch_size = plan.micro_batch_size
    row.num_xpus = plan.world_size if row.num_xpus is None else row.num_xpus


def _claim_calls(session: Session, row: TrialRow, calls: Sequence[int]) -> None:
    for call in calls:
        found = session.get(LlmCallRow, call)
        if found is None or found.run_id != row.run_id:
            raise BadInputError(f"run {row.run_id} has no LLM call {call}", "give ids the ledger handed out")
        found.trial_id = row.id


def _open_trial(session: Session, run_id: str, number: int) -> TrialRow:
    row = trial_row(session, run_id, number)
    if TrialState(row.state).is_finished:
        raise StoreError(
            f"trial {number} of run {run_id} has ended ({row.state})", "a finished trial changes only by rescoring"
        )
    return row


def _set_outcome(row: TrialRow, outcome: TrialOutcome) -> None:
    row.state, row.finished = outcome.state.value, text_or_now(outcome.finished)
    row.failure = None if outcome.failure is None else outcome.failure.value
    row.evidence = redact(outcome.evidence)
    row.fidelity = None if outcome.fidelity is None else outcome.fidelity.value
    row.backend = outcome.backend
    row.provenance = dump(outcome.provenance, "provenance")
    _set_timings(row, outcome.timings)


def _set_timings(row: TrialRow, timings: Timings) -> None:
    row.proposer_seconds = row.proposer_seconds if timings.proposer is None else timings.proposer
    row.launch_seconds, row.metrics_seconds = timings.launch, timings.metrics
    row.overhead_seconds = timings.overhead


def _hours(session: Session, row: TrialRow) -> float | None:
    hours = session.exec(select(AttemptRow.xpu_hours).where(AttemptRow.trial_id == row.id)).all()
    known = [value for value in hours if value is not None]
    return math.fsum(known) if hours and len(known) == len(hours) else None


def _put_metrics(session: Session, row: TrialRow, values: Iterable[MetricValue]) -> None:
    new = {(value.name, value.version): value for value in values}
    if not new:
        return
    session.flush()
    connection = session.connection()
    stored = session.exec(select(MetricRow.id, MetricRow.name, MetricRow.version).where(MetricRow.trial_id == row.id))
    replaced = [key for key, name, version in stored if (name, version) in new]
    if replaced:
        connection.execute(delete(MetricRow).where(col(MetricRow.id).in_(replaced)))
    connection.execute(insert(MetricRow), [_metric_row(_key(row), value) for value in new.values()])


def _metric_row(trial: int, value: MetricValue) -> dict[str, Any]:
    return {
        "trial_id": trial,
        "name": value.name,
        "version": value.version,
        "unit": value.unit,
        "value": value.value,
        "reason": None if value.reason is None else redact(value.reason),
        "detail": None if value.detail is None else dump(value.detail, f"detail of {value.name}"),
        "warnings": dump(list(value.warnings), f"warnings of {value.name}"),
        "retracted": False,
        "retracted_reason": "",
        "created": now(),
    }


def _add_score(session: Session, row: TrialRow, score: float, objective: Objective | None) -> None:
    if not math.isfinite(score):
        raise StoreError(f"a score must be finite, got {score!r}", "a trial without a score has failed")
    if objective is None:
        definition = run_row(session, row.run_id).objective
        row.objective = objective_name(definition)
    else:
        definition = dump(objective.as_dict(), "objective")
        row.objective = objective.name
    row.score = score
    session.add(
        ScoreRow(trial_id=_key(row), objective=row.objective, definition=definition, score=score, created=now())
    )


def _add_traces(session: Session, row: TrialRow, files: Iterable[TraceFile]) -> None:
    for file in files:
        check_relative(file.path)
        session.add(
            TraceRow(
                trial_id=_key(row),
                path=file.path,
                size=file.size,
                sha256=file.sha256,
                kept=file.kept,
                reason=clean(file.reason),
            )
        )
