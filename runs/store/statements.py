"""Statements of the search's loop, made once, on the tables themselves and not on objects of their rows.

What an update sets are the columns among the values it is executed with; parameters of its conditions have names that
no column has.
"""

from __future__ import annotations

from sqlalchemy import bindparam, func, insert, select, update

from runs.store.tables import AttemptRow, MetricRow, ScoreRow, TraceRow, TrialRow, table_of

_TRIALS, _ATTEMPTS = table_of(TrialRow), table_of(AttemptRow)
_VALUES, _SCORES, _TRACES = table_of(MetricRow), table_of(ScoreRow), table_of(TraceRow)
NEXT_NUMBER = select(func.coalesce(func.max(_TRIALS.c.number) + 1, 0)).where(_TRIALS.c.run_id == bindparam("run"))
NEXT_ATTEMPT = select(func.coalesce(func.max(_ATTEMPTS.c.number) + 1, 0)).where(
    _ATTEMPTS.c.trial_id == bindparam("key")
)
STATE = select(_TRIALS.c.id, _TRIALS.c.state).where(
    _TRIALS.c.run_id == bindparam("run"), _TRIALS.c.number == bindparam("trial")
)
TRIAL = update(_TRIALS).where(_TRIALS.c.id == bindparam("key"))
LAUNCHED = TRIAL.values(launched=func.coalesce(_TRIALS.c.launched, bindparam("moment")))
_OWN_TRIAL = select(_TRIALS.c.id).where(
    _TRIALS.c.run_id == bindparam("of_run"), _TRIALS.c.number == bindparam("of_trial")
)
ATTEMPT = update(_ATTEMPTS).where(
    _ATTEMPTS.c.trial_id == _OWN_TRIAL.scalar_subquery(), _ATTEMPTS.c.number == bindparam("of_attempt")
)
HOURS = select(_ATTEMPTS.c.xpu_hours).where(_ATTEMPTS.c.trial_id == bindparam("key"))
VERSIONS = select(_VALUES.c.id, _VALUES.c.name, _VALUES.c.version).where(_VALUES.c.trial_id == bindparam("key"))
NEW_TRIAL, NEW_ATTEMPT = insert(_TRIALS), insert(_ATTEMPTS)
NEW_VALUE, NEW_SCORE, NEW_TRACE = insert(_VALUES), insert(_SCORES), insert(_TRACES)
