"""Reading the store: runs, trials and what belongs to them, as records."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import sqlalchemy
from sqlmodel import Session, col, select

from runs.errors import BadInputError
from runs.metric import MetricValue
from runs.store.part import Part, run_row, trial_row
from runs.store.records import (
    AttemptRecord,
    LlmCallRecord,
    MetricRecord,
    PolicyRecord,
    RunRecord,
    RunStatus,
    RunTotals,
    ScoreRecord,
    TraceFile,
    TrialRecord,
)
from runs.store.rows import (
    attempt_record,
    llm_attempt,
    llm_call_record,
    metric_record,
    metric_value,
    policy_record,
    run_record,
    score_record,
    trace_file,
    trial_record,
)
from runs.store.tables import (
    AttemptRow,
    LlmAttemptRow,
    LlmCallRow,
    MetricRow,
    PolicyRow,
    PromptRow,
    RunRow,
    ScoreRow,
    TraceRow,
    TrialRow,
)
from runs.trial import Fidelity, TrialState

_SHOWN = 5


class ReadPart(Part):
    """The methods of the store that read. They hand out records, never rows."""

    def list_runs(
        self, status: RunStatus | None = None, kind: str | None = None, limit: int | None = None
    ) -> list[RunRecord]:
        """Runs, the newest first."""
        statement = select(RunRow).order_by(col(RunRow.created).desc(), col(RunRow.id).desc())
        if status is not None:
            statement = statement.where(RunRow.status == status.value)
        if kind is not None:
            statement = statement.where(RunRow.kind == kind)
        with self._database.reading() as session:
            return [run_record(row) for row in session.exec(statement.limit(limit))]

    def run(self, reference: str) -> RunRecord:
        """The run that `reference` means: an id, the beginning of exactly one id, or `latest`.

        Raises:
            BadInputError: it means no run, or several.
        """
        with self._database.reading() as session:
            row = session.get(RunRow, reference)
            return run_record(_by_reference(session, reference) if row is None else row)

    def trials(self, run_id: str, states: Iterable[TrialState] | None = None) -> list[TrialRecord]:
        """The trials of a run in order, refused and failed ones too, or only those in `states`."""
        statement = select(TrialRow).where(TrialRow.run_id == run_id).order_by(col(TrialRow.number))
        if states is not None:
            statement = statement.where(col(TrialRow.state).in_([state.value for state in states]))
        with self._database.reading() as session:
            run_row(session, run_id)
            return _with_details(session, list(session.exec(statement)))

    def trial(self, run_id: str, number: int) -> TrialRecord:
        """One trial."""
        with self._database.reading() as session:
            return _with_details(session, [trial_row(session, run_id, number)])[0]

    def best(self, run_id: str, fidelity: Fidelity | None = None) -> TrialRecord | None:
        """The succeeded trial with the highest score, the earlier one of equals; None when there is none.

        Measured and simulated trials are never ranked together: without `fidelity`, simulated ones count only in a
        run that has no measured one.
        """
        statement = (
            select(TrialRow)
            .where(TrialRow.run_id == run_id, TrialRow.state == TrialState.SUCCEEDED.value)
            .where(col(TrialRow.score).is_not(None))
            .order_by(col(TrialRow.score).desc(), col(TrialRow.number))
        )
        kinds = [Fidelity.MEASURED, Fidelity.SIMULATED] if fidelity is None else [fidelity]
        with self._database.reading() as session:
            run_row(session, run_id)
            for kind in kinds:
                row = session.exec(statement.where(TrialRow.fidelity == kind.value)).first()
                if row is not None:
                    return _with_details(session, [row])[0]
        return None

    def attempts(self, run_id: str, number: int) -> list[AttemptRecord]:
        """The attempts at a trial in order."""
        with self._database.reading() as session:
            key = trial_row(session, run_id, number).id
            statement = select(AttemptRow).where(AttemptRow.trial_id == key).order_by(col(AttemptRow.number))
            return [attempt_record(row) for row in session.exec(statement)]

    def scores(self, run_id: str, number: int) -> list[ScoreRecord]:
        """Every score a trial was given, the current one last."""
        with self._database.reading() as session:
            key = trial_row(session, run_id, number).id
            statement = select(ScoreRow).where(ScoreRow.trial_id == key).order_by(col(ScoreRow.id))
            return [score_record(row) for row in session.exec(statement)]

    def metric_values(self, run_id: str, number: int) -> list[MetricRecord]:
        """Every metric value of a trial: all versions, retracted ones too, in the order they were stored."""
        with self._database.reading() as session:
            key = trial_row(session, run_id, number).id
            statement = select(MetricRow).where(MetricRow.trial_id == key).order_by(col(MetricRow.id))
            return [metric_record(row) for row in session.exec(statement)]

    def retracted_values(self, run_id: str) -> dict[int, list[MetricRecord]]:
        """The retracted metric values of a run's trials, by trial, in the order they were stored."""
        with self._database.reading() as session:
            statement = (
                select(TrialRow.number, MetricRow)
                .join(TrialRow, col(TrialRow.id) == col(MetricRow.trial_id))
                .where(TrialRow.run_id == run_id, col(MetricRow.retracted).is_(True))
                .order_by(col(MetricRow.id))
            )
            found: dict[int, list[MetricRecord]] = defaultdict(list)
            for number, row in session.exec(statement):
                found[number].append(metric_record(row))
            return dict(found)

    def trace_files(self, run_id: str, number: int) -> list[TraceFile]:
        """The trace files of a trial, by path."""
        with self._database.reading() as session:
            key = trial_row(session, run_id, number).id
            statement = select(TraceRow).where(TraceRow.trial_id == key).order_by(col(TraceRow.path))
            return [trace_file(row) for row in session.exec(statement)]

    def policy(self, reference: str) -> PolicyRecord:
        """The policy whose SHA-256 is, or alone begins with, `reference`.

        Raises:
            BadInputError: it means no policy, or several.
        """
        statement = select(PolicyRow).where(col(PolicyRow.id).startswith(reference, autoescape=True))
        with self._database.reading() as session:
            found = list(session.exec(statement.limit(2)))
        if len(found) != 1:
            raise BadInputError(
                f"{'several policies begin' if found else 'no policy begins'} with {reference!r}",
                "give more of the policy's SHA-256",
            )
        return policy_record(found[0])

    def prompt(self, name: str) -> str:
        """The text of the prompt template whose SHA-256 is `name`."""
        with self._database.reading() as session:
            row = session.get(PromptRow, name)
        if row is None:
            raise BadInputError(f"there is no prompt {name!r}", "give the prompt_hash of a call")
        return row.text

    def llm_calls(self, run_id: str, iteration: int | None = None) -> list[LlmCallRecord]:
        """The LLM calls of a run (of one iteration) with their attempts, in the order they were begun."""
        statement = select(LlmCallRow).where(LlmCallRow.run_id == run_id).order_by(col(LlmCallRow.id))
        if iteration is not None:
            statement = statement.where(LlmCallRow.iteration == iteration)
        with self._database.reading() as session:
            run_row(session, run_id)
            return _with_attempts(session, run_id, list(session.exec(statement)))

    def totals(self, run_id: str) -> RunTotals:
        """What a run holds and cost so far."""
        with self._database.reading() as session:
            run_row(session, run_id)
            trials = session.connection().execute(_TRIAL_SUMS.where(col(TrialRow.run_id) == run_id)).all()
            calls = session.connection().execute(_CALL_SUMS.where(col(LlmCallRow.run_id) == run_id)).all()
        costs = [Decimal(call.cost_usd) for call in calls if call.cost_usd is not None]
        hours = math.fsum(trial.xpu_hours for trial in trials if trial.xpu_hours is not None)
        unknown_hours = sum(None not in (t.launched, t.finished) and t.xpu_hours is None for t in trials)
        cost, unknown_costs = sum(costs, Decimal(0)), len(calls) - len(costs)
        return RunTotals(
            trials=dict(Counter(TrialState(trial.state) for trial in trials)),
            llm_calls=len(calls),
            llm_cost_usd=None if unknown_costs else cost,
            known_llm_cost_usd=cost,
            unknown_cost_calls=unknown_costs,
            input_tokens=sum(call.input_tokens or 0 for call in calls),
            cache_read_tokens=sum(call.cache_read_tokens or 0 for call in calls),
            cache_write_tokens=sum(call.cache_write_tokens or 0 for call in calls),
            output_tokens=sum(call.output_tokens or 0 for call in calls),
            xpu_hours=None if unknown_hours else hours,
            known_xpu_hours=hours,
            unknown_hours_trials=unknown_hours,
        )


# Columns alone: the texts of trials and requests are long, and totals are asked for in every iteration.
_TRIAL_SUMS = sqlalchemy.select(
    col(TrialRow.state), col(TrialRow.launched), col(TrialRow.finished), col(TrialRow.xpu_hours)
)
_CALL_SUMS = sqlalchemy.select(
    col(LlmCallRow.cost_usd),
    col(LlmCallRow.input_tokens),
    col(LlmCallRow.cache_read_tokens),
    col(LlmCallRow.cache_write_tokens),
    col(LlmCallRow.output_tokens),
)


def _by_reference(session: Session, reference: str) -> RunRow:
    statement = select(RunRow).order_by(col(RunRow.created).desc(), col(RunRow.id).desc())
    if reference != "latest":
        statement = statement.where(col(RunRow.id).startswith(reference, autoescape=True))
    found = list(session.exec(statement.limit(1 if reference == "latest" else _SHOWN + 1)))
    if not found:
        what = "the store holds no run" if reference == "latest" else f"there is no run {reference!r}"
        raise BadInputError(what, "see the runs with `ccl-search list`")
    if len(found) > 1:
        names = ", ".join(row.id for row in found[:_SHOWN])
        raise BadInputError(f"{reference!r} is the beginning of several runs: {names}", "give more of the id")
    return found[0]


def _with_details(session: Session, trials: list[TrialRow]) -> list[TrialRecord]:
    if not trials:
        return []
    metrics = _current_metrics(session, trials)
    policies = {trial.policy_id for trial in trials}
    run_id = trials[0].run_id
    sources: dict[str, str] = {}
    if len(trials) > 1:
        used = select(TrialRow.policy_id).where(TrialRow.run_id == run_id)
        statement = select(PolicyRow.id, PolicyRow.source).where(col(PolicyRow.id).in_(used))
        sources = {name: source for name, source in session.exec(statement) if name in policies}
    elif trials[0].policy_id is not None:
        row = session.get(PolicyRow, trials[0].policy_id)
        sources = {} if row is None else {row.id: row.source}
    return [trial_record(trial, sources.get(trial.policy_id or ""), metrics.get(trial.id or 0, {})) for trial in trials]


def _current_metrics(session: Session, trials: list[TrialRow]) -> dict[int, dict[str, MetricValue]]:
    statement = _METRIC_COLUMNS.where(col(MetricRow.retracted).is_(False)).order_by(col(MetricRow.id))
    if len(trials) == 1:
        statement = statement.where(col(MetricRow.trial_id) == trials[0].id)
    else:
        own = select(TrialRow.id).where(TrialRow.run_id == trials[0].run_id)
        statement = statement.where(col(MetricRow.trial_id).in_(own))
    found: dict[int, dict[str, MetricValue]] = defaultdict(dict)
    for row in session.connection().execute(statement):  # plain tuples: there may be thousands
        columns: tuple[Any, ...] = tuple(row)
        found[columns[0]][columns[1]] = metric_value(*columns[1:])
    return found


_METRIC_COLUMNS = sqlalchemy.select(
    col(MetricRow.trial_id),
    col(MetricRow.name),
    col(MetricRow.version),
    col(MetricRow.unit),
    col(MetricRow.value),
    col(MetricRow.reason),
    col(MetricRow.detail),
    col(MetricRow.warnings),
)


def _with_attempts(session: Session, run_id: str, calls: list[LlmCallRow]) -> list[LlmCallRecord]:
    own = select(LlmCallRow.id).where(LlmCallRow.run_id == run_id)
    statement = select(LlmAttemptRow).where(col(LlmAttemptRow.call_id).in_(own)).order_by(col(LlmAttemptRow.number))
    attempts = defaultdict(list)
    for row in session.exec(statement):
        attempts[row.call_id].append(llm_attempt(row))
    numbers = dict(session.exec(select(TrialRow.id, TrialRow.number).where(TrialRow.run_id == run_id)).all())
    return [llm_call_record(call, attempts[call.id or 0], numbers.get(call.trial_id)) for call in calls]
