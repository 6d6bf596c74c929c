"""A run as rows with stable columns, and as CSV or JSON text. docs/export.md says what each column means."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ccl_search import constraints, repeats
from ccl_search.pareto.front import MAX_AXES, MIN_AXES
from ccl_search.pareto.of_run import REFERENCE, of_run
from runs.trial import TrialState

if TYPE_CHECKING:
    from runs.objective import Objective
    from runs.store import RunRecord, Store, TrialRecord

SCHEMA_VERSION = 1
COLUMNS: dict[str, str] = {
    "run_id": "str", "trial": "int", "iteration": "int", "state": "str", "failure": "str", "evidence": "str",
    "objective": "str", "score": "float", "score_spread": "float", "feasible": "bool", "violations": "str",
    "on_front": "bool", "repeats": "int", "fidelity": "str", "backend": "str", "num_xpus": "int",
    "policy_sha256": "str", "rationale": "str", "proposed": "str", "launched": "str", "finished": "str",
    "proposer_seconds": "float", "launch_seconds": "float", "metrics_seconds": "float", "overhead_seconds": "float",
    "xpu_hours": "float",
}  # fmt: skip
"""The columns every export has, with their types; `knob_...` and `metric_...` columns follow."""


def columns(run: RunRecord) -> dict[str, str]:
    """All columns of a run in their order, with their types: fixed ones, one a knob, one a metric of the run."""
    knobs = {f"knob_{knob.key}": knob.type for knob in run.config_space().knobs}
    return {**COLUMNS, **knobs, **{f"metric_{spec['name']}": "float" for spec in run.metrics}}


def rows(store: Store, run: RunRecord) -> list[dict[str, Any]]:
    """One row a trial, refused and failed ones too, with exactly the columns of `columns`; None where there is none."""
    front, names, objective, limits = (
        _front(store, run),
        columns(run),
        run.typed_objective(),
        constraints.limits_of(run),
    )
    found = [_row(trial, front, objective, limits) for trial in store.trials(run.id)]
    return [{name: row.get(name) for name in names} for row in found]


def as_csv(store: Store, run: RunRecord) -> str:
    """The rows as CSV (RFC 4180): a header, CRLF line ends, nothing between commas where there is no value."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(columns(run)))
    writer.writeheader()
    for row in rows(store, run):
        writer.writerow({key: _cell(value) for key, value in row.items()})
    return text.getvalue()


def as_json(store: Store, run: RunRecord) -> str:
    """Everything the store knows of the run but traces and LLM texts, as one JSON document."""
    document = {
        "format": "ccl-search-run",
        "schema_version": SCHEMA_VERSION,
        "run": _run(run),
        "trials": [
            {**{name: row[name] for name in COLUMNS}, **_more(store, trial)}
            for row, trial in zip(rows(store, run), store.trials(run.id), strict=True)
        ],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _front(store: Store, run: RunRecord) -> set[int] | None:
    if not MIN_AXES <= len(run.objective["terms"]) <= MAX_AXES:
        return None
    return {point.trial for point in of_run(store, run.id).members}


def _row(
    trial: TrialRecord, front: set[int] | None, objective: Objective, limits: Sequence[constraints.Limit]
) -> dict[str, Any]:
    succeeded = trial.state is TrialState.SUCCEEDED
    broken = constraints.violations(limits, trial.metrics) if succeeded else ()
    config = trial.config or {}
    return {
        "run_id": trial.run_id,
        "trial": trial.number,
        "iteration": trial.iteration,
        "state": trial.state.value,
        "failure": trial.failure.value if trial.failure else None,
        "evidence": trial.evidence or None,
        "objective": trial.objective,
        "score": trial.score,
        "score_spread": repeats.score_spread(trial.metrics, objective),
        "feasible": not broken if succeeded else None,
        "violations": "; ".join(broken) or None,
        "on_front": trial.number in front if front is not None else None,
        "repeats": int(trial.provenance.get("repeats", 1)) if succeeded else None,
        "fidelity": trial.fidelity.value if trial.fidelity else None,
        "backend": trial.backend,
        "num_xpus": trial.num_xpus,
        "policy_sha256": trial.policy_id,
        "rationale": trial.rationale or None,
        "proposed": _moment(trial.proposed),
        "launched": _moment(trial.launched),
        "finished": _moment(trial.finished),
        **{f"{name}_seconds": value for name, value in asdict(trial.timings).items()},
        "xpu_hours": trial.xpu_hours,
        **{f"knob_{key}": value for key, value in config.items()},
        **{f"metric_{name}": value for name, value in trial.values.items()},
    }


def _run(run: RunRecord) -> dict[str, Any]:
    return {
        "id": run.id, "created": _moment(run.created), "finished": _moment(run.finished),
        "status": run.status.value, "stop_reason": run.stop_reason, "kind": run.kind, "parent": run.parent,
        "card": run.card, "workload": run.workload, "environment": run.environment, "framework": run.framework,
        "space": run.space, "objective": run.objective, "metrics": run.metrics, "target": run.target,
        "constraints": list(run.options.get("settings", {}).get("constraints") or ()),
        "reference_point": run.options.get(REFERENCE), "proposer": run.proposer, "model": run.model,
        "sandbox": run.sandbox, "seed": run.seed, "budgets": run.budgets, "tool_versions": run.tool_versions,
        "product_version": run.product_version, "notes": run.notes,
    }  # fmt: skip


def _more(store: Store, trial: TrialRecord) -> dict[str, Any]:
    traces: Sequence[Any] = store.trace_files(trial.run_id, trial.number)
    return {
        "config": trial.config,
        "plan": trial.plan,
        "policy": trial.policy_source or None,
        "card": trial.card or None,
        "script": trial.script or None,
        "provenance": trial.provenance,
        "metrics": {name: value.as_dict() for name, value in trial.metrics.items()},
        "scores": [
            {"objective": found.definition, "score": found.score, "created": _moment(found.created)}
            for found in store.scores(trial.run_id, trial.number)
        ],
        "trace_files": [vars(found) for found in traces],
    }


def _moment(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment is not None else None


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else repr(value) if isinstance(value, float) else value
