"""Decisions of screens: one for every proposal that a screen looked at."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import insert
from sqlmodel import Session, col, select

from runs.screening import Screening, Verdict
from runs.store.encoding import dump, redact
from runs.store.part import Part, execute, now, require_run
from runs.store.tables import ScreeningRow, TrialRow

_PLAIN = (
    "score", "threshold", "factor", "reference", "candidates", "backend", "backend_version", "calibration", "seconds",
)  # fmt: skip


class ScreeningPart(Part):
    """The method of the store that reads decisions of screens; they are written with their trials."""

    def screenings(self, run_id: str) -> dict[int, Screening]:
        """What the run's screen decided, by trial number; empty for a run without a screen."""
        statement = (
            select(TrialRow.number, ScreeningRow)
            .join(TrialRow, col(TrialRow.id) == col(ScreeningRow.trial_id))
            .where(TrialRow.run_id == run_id)
            .order_by(col(TrialRow.number))
        )
        with self._database.reading() as session:
            require_run(session, run_id)
            return {number: _screening(row) for number, row in session.exec(statement)}


def add_screening(session: Session, trial: int, found: Screening) -> None:
    """Store the decision on the trial whose row has the id `trial`, inside a transaction."""
    values: dict[str, Any] = {
        "trial_id": trial,
        "verdict": found.verdict.value,
        "reason": redact(found.reason),
        "predicted": dump(found.predicted, "predicted"),
        "expected": dump(found.expected, "expected"),
        "created": now(),
    }
    execute(session, insert(ScreeningRow), {**values, **{name: getattr(found, name) for name in _PLAIN}})


def _screening(row: ScreeningRow) -> Screening:
    plain = {name: getattr(row, name) for name in _PLAIN}
    numbers = {"predicted": json.loads(row.predicted), "expected": json.loads(row.expected)}
    return Screening(verdict=Verdict(row.verdict), reason=row.reason, **numbers, **plain)
