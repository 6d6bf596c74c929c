"""Writing trials: proposals, attempts, outcomes, metric values, scores and trace files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import delete, update
from sqlmodel import Session, col, select

from runs.errors import BadInputError
from runs.metric import MetricValue
from runs.objective import Objective
from runs.plan import ParallelPlan
from runs.space import config_key
from runs.store.checks import check_outcome, check_proposal, check_relative, objective_name
from runs.store.encoding import clean, dump, redact, refuse_secrets
from runs.store.errors import StoreError
from runs.store.part import Part, attempt_row, execute, now, require_run, run_row, text_or_now, trial_row
from runs.store.records import NewTrial, Timings, TraceFile, TrialOutcome
from runs.store.run_part import store_policy
from runs.store.screening_part import add_screening
from runs.store.statements import (
    ATTEMPT,
    HOURS,
    LAUNCHED,
    NEW_ATTEMPT,
    NEW_SCORE,
    NEW_TRACE,
    NEW_TRIAL,
    NEW_VALUE,
    NEXT_ATTEMPT,
    NEXT_NUMBER,
    STATE,
    TRIAL,
    VERSIONS,
)
from runs.store.tables import LlmCallRow, MetricRow, TraceRow, TrialRow
from runs.trial import Execution, FailureClass, TrialState


class TrialPart(Part):
    """The methods of the store that write trials. Every one of them is one transaction.

    What a process that is killed may lose is the same for all: nothing. A power failure may undo the last proposals
    and beginnings; a handle and a result are on the disk when their method returns, unless it is told `durable=False`.
    """

    def add_trial(self, run_id: str, trial: NewTrial) -> int:
        """Store a proposal; its number, one more than the run's last (the first is 0).

        Raises:
            StoreError: state and failure class contradict each other, or the config is not JSON data.
        """
        check_proposal(trial)
        with self._database.transaction(durable=False) as session:
            require_run(session, run_id)
            policy = None
            if trial.policy_source is not None:
                policy = store_policy(session, trial.policy_source, trial.parent_policy)
            number = int(execute(session, NEXT_NUMBER, {"run": run_id}).scalar_one())
            key = _new_key(execute(session, NEW_TRIAL, _new_trial(trial, run_id, number, policy)))
            _claim_calls(session, run_id, key, trial.llm_calls)
            if trial.screening is not None:
                add_screening(session, key, trial.screening)
            return number

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
        with self._database.transaction(durable=False) as session:
            row = _open_trial(session, run_id, number)
            if plan is not None:
                for name, value in _plan_columns(plan, row.num_xpus).items():
                    setattr(row, name, value)
            row.num_xpus = row.num_xpus if num_xpus is None else num_xpus
            row.card = clean(card) or row.card
            row.script = clean(script) or row.script

    def begin_attempt(self, run_id: str, number: int, *, card: str = "", script: str = "") -> int:
        """Start an attempt at a trial, which is running from now on; the attempt's number, from 0.

        `card` and `script` are what is launched; what is not given stays.
        """
        texts = {"card": clean(card), "script": clean(script)}
        with self._database.transaction(durable=False) as session:
            key = _open_key(session, run_id, number)
            moment = now()
            given = {name: text for name, text in texts.items() if text}
            running = {"state": TrialState.RUNNING.value, **given}
            execute(session, LAUNCHED, {"key": key, "moment": moment, **running})
            attempt = int(execute(session, NEXT_ATTEMPT, {"key": key}).scalar_one())
            execute(session, NEW_ATTEMPT, _new_attempt(key, attempt, moment))
            return attempt

    def set_handle(
        self, run_id: str, number: int, attempt: int, handle: dict[str, Any], *, durable: bool = True
    ) -> None:
        """Store the handle of a submitted job, so that another process can find the job again."""
        refuse_secrets(handle, "handle")
        self._change_attempt(run_id, number, attempt, {"handle": dump(handle, "handle")}, durable=durable)

    def finish_attempt(self, run_id: str, number: int, attempt: int, execution: Execution) -> None:
        """Store how an attempt ended. The trial stays open: it may be attempted again."""
        ended = {
            "state": execution.state.value,
            "finished": now(),
            "failure": None if execution.failure is None else execution.failure.value,
            "evidence": redact(execution.evidence),
            "seconds": execution.seconds,
            "xpu_hours": execution.xpu_hours,
            "provenance": dump(execution.provenance, "provenance"),
        }
        self._change_attempt(run_id, number, attempt, ended, durable=False)

    def _change_attempt(self, run_id: str, number: int, attempt: int, values: dict[str, Any], *, durable: bool) -> None:
        with self._database.transaction(durable=durable) as session:
            place = {"of_run": run_id, "of_trial": number, "of_attempt": attempt}
            if execute(session, ATTEMPT, {**place, **values}).rowcount == 0:
                attempt_row(session, run_id, number, attempt)

    def finish_trial(self, run_id: str, number: int, outcome: TrialOutcome, *, durable: bool = True) -> None:
        """Store how a trial ended, with its metric values, score and trace files.

        Raises:
            StoreError: the trial has ended already, or state, failure class and score contradict each other.
        """
        check_outcome(outcome)
        with self._database.transaction(durable=durable) as session:
            key = _open_key(session, run_id, number)
            values = _outcome_columns(outcome)
            values["xpu_hours"] = _hours(session, key) if outcome.xpu_hours is None else outcome.xpu_hours
            _put_metrics(session, key, outcome.metrics)
            _add_traces(session, key, outcome.traces)
            if outcome.score is not None:
                values.update(_add_score(session, run_id, key, outcome.score, outcome.objective))
            execute(session, TRIAL, {"key": key, **values})

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
            key = _key(row)
            _put_metrics(session, key, metrics)
            values: dict[str, Any] = {"score": None, "objective": objective.name}
            if score is not None:
                values = _add_score(session, run_id, key, score, objective)
                values |= {"state": TrialState.SUCCEEDED.value, "failure": None}
            execute(session, TRIAL, {"key": key, **values})

    def add_metric_values(self, run_id: str, number: int, values: Iterable[MetricValue]) -> None:
        """Store metric values; one of the same name and version replaces the earlier, other versions stay."""
        with self._database.transaction() as session:
            _put_metrics(session, _key(trial_row(session, run_id, number)), values)

    def retract(self, name: str, version: str, reason: str) -> int:
        """Flag every value that a bad version of a metric tool gave, in all runs; how many were not flagged yet."""
        with self._database.transaction() as session:
            statement = (
                update(MetricRow)
                .where(
                    col(MetricRow.name) == name,
                    col(MetricRow.version) == version,
                    col(MetricRow.retracted).is_(False),
                )
                .values(retracted=True, retracted_reason=clean(reason))
            )
            return int(session.connection().execute(statement).rowcount)

    def add_trace_files(self, run_id: str, number: int, files: Iterable[TraceFile]) -> None:
        """Store trace files of a trial.

        Raises:
            BadInputError: a path is not relative to the home folder, or leads out of it.
        """
        with self._database.transaction() as session:
            _add_traces(session, _key(trial_row(session, run_id, number)), files)

    def drop_trace_file(self, run_id: str, number: int, path: str, reason: str) -> None:
        """Record that a trace file was deleted, why, and that it was now. Deletes nothing."""
        with self._database.transaction() as session:
            trial = trial_row(session, run_id, number)
            row = session.exec(select(TraceRow).where(TraceRow.trial_id == trial.id, TraceRow.path == path)).first()
            if row is None:
                raise BadInputError(f"trial {number} of run {run_id} has no trace file {path!r}", "check the path")
            row.kept, row.reason, row.dropped = False, clean(reason), now()


_MENDABLE = frozenset({FailureClass.TRACE_MISSING.value, FailureClass.METRIC_ERROR.value})


def _key(row: TrialRow) -> int:
    assert row.id is not None
    return row.id


def _new_key(result: Any) -> int:
    return int(result.inserted_primary_key[0])


def _new_trial(trial: NewTrial, run_id: str, number: int, policy: str | None) -> dict[str, Any]:
    proposed = text_or_now(trial.proposed)
    plan = {"num_xpus": trial.num_xpus} if trial.plan is None else _plan_columns(trial.plan, trial.num_xpus)
    return {
        "run_id": run_id,
        "number": number,
        "iteration": trial.iteration,
        "state": trial.state.value,
        "failure": None if trial.failure is None else trial.failure.value,
        "evidence": redact(trial.evidence),
        "config": None if trial.config is None else dump(trial.config, "config"),
        "config_key": None if trial.config is None else config_key(trial.config),
        "card": "",
        "script": "",
        "policy_id": policy,
        "rationale": clean(trial.rationale),
        "provenance": "{}",
        "proposed": proposed,
        "finished": proposed if trial.state.is_finished else None,
        "proposer_seconds": trial.proposer_seconds,
        **plan,
    }


def _plan_columns(plan: ParallelPlan, num_xpus: int | None) -> dict[str, Any]:
    degrees = {name: getattr(plan, name) for name in ("tp", "pp", "dp", "ep", "cp", "micro_batch_size")}
    return {
        **degrees,
        "plan": dump(plan.as_dict(), "plan"),
        "num_xpus": plan.world_size if num_xpus is None else num_xpus,
    }


def _new_attempt(trial: int, number: int, started: str) -> dict[str, Any]:
    return {
        "trial_id": trial,
        "number": number,
        "state": TrialState.RUNNING.value,
        "evidence": "",
        "provenance": "{}",
        "started": started,
    }


def _claim_calls(session: Session, run_id: str, trial: int, calls: Sequence[int]) -> None:
    for call in calls:
        mine = update(LlmCallRow).where(col(LlmCallRow.id) == call, col(LlmCallRow.run_id) == run_id)
        if execute(session, mine.values(trial_id=trial)).rowcount == 0:
            raise BadInputError(f"run {run_id} has no LLM call {call}", "give ids the ledger handed out")


def _open_key(session: Session, run_id: str, number: int) -> int:
    found: Any = execute(session, STATE, {"run": run_id, "trial": number}).first()
    if found is None:
        return _key(trial_row(session, run_id, number))
    _refuse_ended(run_id, number, found[1])
    return int(found[0])


def _open_trial(session: Session, run_id: str, number: int) -> TrialRow:
    row = trial_row(session, run_id, number)
    _refuse_ended(run_id, number, row.state)
    return row


def _refuse_ended(run_id: str, number: int, state: str) -> None:
    if TrialState(state).is_finished:
        raise StoreError(
            f"trial {number} of run {run_id} has ended ({state})", "a finished trial changes only by rescoring"
        )


def _outcome_columns(outcome: TrialOutcome) -> dict[str, Any]:
    return {
        "state": outcome.state.value,
        "finished": text_or_now(outcome.finished),
        "failure": None if outcome.failure is None else outcome.failure.value,
        "evidence": redact(outcome.evidence),
        "fidelity": None if outcome.fidelity is None else outcome.fidelity.value,
        "backend": outcome.backend,
        "provenance": dump(outcome.provenance, "provenance"),
        **_timing_columns(outcome.timings),
    }


def _timing_columns(timings: Timings) -> dict[str, Any]:
    proposer = {} if timings.proposer is None else {"proposer_seconds": timings.proposer}
    return {
        **proposer,
        "launch_seconds": timings.launch,
        "metrics_seconds": timings.metrics,
        "overhead_seconds": timings.overhead,
    }


def _hours(session: Session, trial: int) -> float | None:
    hours = execute(session, HOURS, {"key": trial}).scalars().all()
    known = [value for value in hours if value is not None]
    return math.fsum(known) if hours and len(known) == len(hours) else None


def _put_metrics(session: Session, trial: int, values: Iterable[MetricValue]) -> None:
    new = {(value.name, value.version): value for value in values}
    if not new:
        return
    stored: Sequence[Any] = execute(session, VERSIONS, {"key": trial}).all()
    replaced = [key for key, name, version in stored if (name, version) in new]
    if replaced:
        execute(session, delete(MetricRow).where(col(MetricRow.id).in_(replaced)))
    moment = now()
    execute(session, NEW_VALUE, [_metric_row(trial, value, moment) for value in new.values()])


def _metric_row(trial: int, value: MetricValue, created: str) -> dict[str, Any]:
    return {
        "trial_id": trial,
        "name": value.name,
        "version": value.version,
        "unit": value.unit,
        "value": value.value,
        "reason": None if value.reason is None else redact(value.reason),
        "detail": None if value.detail is None else dump(value.detail, f"detail of {value.name}"),
        "warnings": dump(list(value.warnings), f"warnings of {value.name}") if value.warnings else "[]",
        "retracted": False,
        "retracted_reason": "",
        "created": created,
    }


def _add_score(session: Session, run_id: str, trial: int, score: float, objective: Objective | None) -> dict[str, Any]:
    """Store the score; what the trial's own row has to say of it."""
    if not math.isfinite(score):
        raise StoreError(f"a score must be finite, got {score!r}", "a trial without a score has failed")
    if objective is None:
        definition = run_row(session, run_id).objective
        name = objective_name(definition)
    else:
        definition, name = dump(objective.as_dict(), "objective"), objective.name
    row = {"trial_id": trial, "objective": name, "definition": definition, "score": score, "created": now()}
    execute(session, NEW_SCORE, row)
    return {"score": score, "objective": name}


def _add_traces(session: Session, trial: int, files: Iterable[TraceFile]) -> None:
    rows = [_trace_row(trial, file) for file in files]
    if rows:
        execute(session, NEW_TRACE, rows)


def _trace_row(trial: int, file: TraceFile) -> dict[str, Any]:
    check_relative(file.path)
    return {
        "trial_id": trial,
        "path": file.path,
        "size": file.size,
        "sha256": file.sha256,
        "kept": file.kept,
        "reason": clean(file.reason),
        "dropped": None if file.kept else text_or_now(file.dropped),
    }
