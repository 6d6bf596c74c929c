"""Rows of the tables as records."""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from runs.ledger import LlmAttempt, LlmOutcome, LlmRequest
from runs.metric import MetricValue
from runs.store.encoding import moment, optional_moment
from runs.store.records import (
    AttemptRecord,
    LlmCallRecord,
    MetricRecord,
    PolicyRecord,
    RunRecord,
    RunStatus,
    ScoreRecord,
    Timings,
    TraceFile,
    TrialRecord,
)
from runs.store.tables import (
    AttemptRow,
    LlmAttemptRow,
    LlmCallRow,
    MetricRow,
    PolicyRow,
    RunRow,
    ScoreRow,
    TraceRow,
    TrialRow,
)
from runs.trial import FailureClass, Fidelity, TrialState

_RUN_JSON = (
    "workload", "environment", "space", "objective", "metrics", "target_settings", "budgets", "tool_versions",
    "options",
)  # fmt: skip
_RUN_PLAIN = (
    "id", "kind", "parent", "card", "framework", "target", "proposer", "model", "sandbox", "seed",
    "product_version", "stop_reason", "notes",
)  # fmt: skip
_TRIAL_PLAIN = (
    "run_id", "number", "iteration", "evidence", "config_key", "num_xpus", "card", "script", "policy_id",
    "rationale", "score", "objective", "backend", "xpu_hours",
)  # fmt: skip


def run_record(row: RunRow) -> RunRecord:
    """The run of a row."""
    return RunRecord(
        created=moment(row.created),
        finished=optional_moment(row.finished),
        status=RunStatus(row.status),
        **{name: getattr(row, name) for name in _RUN_PLAIN},
        **{name: json.loads(getattr(row, name)) for name in _RUN_JSON},
    )


def trial_record(row: TrialRow, source: str | None, metrics: dict[str, MetricValue]) -> TrialRecord:
    """The trial of a row, with its policy's source and its current metric values."""
    return TrialRecord(
        state=TrialState(row.state),
        failure=_failure(row.failure),
        config=_optional_json(row.config),
        plan=_optional_json(row.plan),
        policy_source=source or "",
        metrics=metrics,
        fidelity=None if row.fidelity is None else Fidelity(row.fidelity),
        provenance=json.loads(row.provenance),
        proposed=moment(row.proposed),
        launched=optional_moment(row.launched),
        finished=optional_moment(row.finished),
        timings=Timings(row.proposer_seconds, row.launch_seconds, row.metrics_seconds, row.overhead_seconds),
        **{name: getattr(row, name) for name in _TRIAL_PLAIN},
    )


def attempt_record(row: AttemptRow) -> AttemptRecord:
    """The attempt of a row."""
    return AttemptRecord(
        number=row.number,
        state=TrialState(row.state),
        handle=_optional_json(row.handle),
        failure=_failure(row.failure),
        evidence=row.evidence,
        seconds=row.seconds,
        xpu_hours=row.xpu_hours,
        provenance=json.loads(row.provenance),
        started=moment(row.started),
        finished=optional_moment(row.finished),
    )


def metric_value(
    name: str, version: str, unit: str, value: float | None, reason: str | None, detail: str | None, warnings: str
) -> MetricValue:
    """The metric value of a row's columns."""
    said = () if warnings == "[]" else tuple(json.loads(warnings))
    return MetricValue(name, version, unit, value, reason, _optional_json(detail), said)


def metric_record(row: MetricRow) -> MetricRecord:
    """The metric value of a row and whether it still counts."""
    return MetricRecord(
        value=metric_value(row.name, row.version, row.unit, row.value, row.reason, row.detail, row.warnings),
        retracted=row.retracted,
        retracted_reason=row.retracted_reason,
        created=moment(row.created),
    )


def score_record(row: ScoreRow) -> ScoreRecord:
    """The score of a row."""
    return ScoreRecord(
        objective=row.objective,
        definition=json.loads(row.definition),
        score=row.score,
        created=moment(row.created),
    )


def trace_file(row: TraceRow) -> TraceFile:
    """The trace file of a row."""
    return TraceFile(row.path, row.size, row.sha256, row.kept, row.reason, optional_moment(row.dropped))


def policy_record(row: PolicyRow) -> PolicyRecord:
    """The policy of a row."""
    return PolicyRecord(id=row.id, source=row.source, parent=row.parent, created=moment(row.created))


def llm_request(row: LlmCallRow) -> LlmRequest:
    """The request of a row."""
    return LlmRequest(
        row.run_id, row.iteration, row.turn, row.purpose, row.model, json.loads(row.request), row.prompt_hash
    )


def llm_outcome(row: LlmCallRow) -> LlmOutcome | None:
    """How the call of a row ended, None when that was never recorded."""
    if row.finished is None:
        return None
    return LlmOutcome(
        response=_optional_json(row.response),
        stop_reason=row.stop_reason,
        stop_category=row.stop_category,
        input_tokens=row.input_tokens,
        cache_read_tokens=row.cache_read_tokens,
        cache_write_tokens=row.cache_write_tokens,
        output_tokens=row.output_tokens,
        price_id=row.price_id,
        cost_usd=None if row.cost_usd is None else Decimal(row.cost_usd),
        error=row.error,
    )


def llm_call_record(row: LlmCallRow, attempts: Iterable[LlmAttempt], trial: int | None) -> LlmCallRecord:
    """The call of a row with its attempts and the number of the trial it led to."""
    assert row.id is not None
    return LlmCallRecord(
        id=row.id,
        request=llm_request(row),
        request_sha256=row.request_sha256,
        outcome=llm_outcome(row),
        attempts=tuple(attempts),
        trial=trial,
        created=moment(row.created),
        finished=optional_moment(row.finished),
    )


def llm_attempt(row: LlmAttemptRow) -> LlmAttempt:
    """The attempt of a row."""
    return LlmAttempt(row.number, row.seconds, row.http_status, row.request_id, row.error_type, row.error_message)


def _failure(text: str | None) -> FailureClass | None:
    return None if text is None else FailureClass(text)


def _optional_json(text: str | None) -> Any:
    return None if text is None else json.loads(text)
