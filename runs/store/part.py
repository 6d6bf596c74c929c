"""What every part of the store shares: the database, the home folder, the clock, and finding rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import CursorResult, Executable, bindparam
from sqlmodel import Session, select

from runs.errors import BadInputError
from runs.store.encoding import stamp
from runs.store.engine import Database
from runs.store.tables import AttemptRow, RunRow, TrialRow


class Part:
    """A part of the store: methods over one database."""

    def __init__(self, database: Database, home: Path) -> None:
        self.home = home
        self._database = database

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is committed together, or, when anything raises, not at all."""
        with self._database.transaction():
            yield


def execute(session: Session, statement: Executable, values: Any = None) -> CursorResult[Any]:
    """Run a statement past the session's objects, in order with what was done to them; `values` are one row or several.

    Making and flushing an object a row costs several times what the row itself does.
    """
    session.flush()
    result = session.connection().execute(statement, values)
    session.expire_all()
    return result


def now() -> str:
    """This moment as the store writes it."""
    return stamp(datetime.now(UTC))


def text_or_now(moment: datetime | None) -> str:
    """The moment as the store writes it; now where there is none."""
    return now() if moment is None else stamp(moment)


def run_row(session: Session, run_id: str) -> RunRow:
    """The row of a run.

    Raises:
        BadInputError: there is no such run.
    """
    row = session.get(RunRow, run_id)
    if row is None:
        raise BadInputError(f"there is no run {run_id!r}", "see the runs with `ccl-search list`")
    return row


def require_run(session: Session, run_id: str) -> None:
    """Check that there is such a run; raises as `run_row` does."""
    if execute(session, _RUN_ID, {"run": run_id}).first() is None:
        run_row(session, run_id)


_RUN_ID = select(RunRow.id).where(RunRow.id == bindparam("run"))


def trial_row(session: Session, run_id: str, number: int) -> TrialRow:
    """The row of a trial.

    Raises:
        BadInputError: there is no such run or trial.
    """
    row = session.exec(select(TrialRow).where(TrialRow.run_id == run_id, TrialRow.number == number)).first()
    if row is None:
        run_row(session, run_id)
        raise BadInputError(f"run {run_id} has no trial {number}", f"see its trials with `ccl-search show {run_id}`")
    return row


def attempt_row(session: Session, run_id: str, number: int, attempt: int) -> AttemptRow:
    """The row of an attempt.

    Raises:
        BadInputError: there is no such run, trial or attempt.
    """
    trial = trial_row(session, run_id, number)
    row = session.exec(select(AttemptRow).where(AttemptRow.trial_id == trial.id, AttemptRow.number == attempt)).first()
    if row is None:
        raise BadInputError(f"trial {number} of run {run_id} has no attempt {attempt}", "begin the attempt first")
    return row
