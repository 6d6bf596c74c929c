"""The views `current_metric_values`, `leaderboard` and `workload_cards`: what a user asks in plain SQL."""

from __future__ import annotations

import re
from collections.abc import Sequence

from runs.errors import BadInputError

VIEW_NAMES = ("workload_cards", "leaderboard", "current_metric_values")
CARD_COLUMNS = (
    "model_family", "phase", "framework_name", "framework_version", "batch_size", "seq_len", "precision",
    "xpu_model", "total_count",
)  # fmt: skip
TRIAL_COLUMNS = ("num_xpus", "tp", "pp", "dp", "ep", "cp", "micro_batch_size")
RESULT_COLUMNS = ("score", "objective", "fidelity", "backend")
_OWN = frozenset({"run_id", "trial", *CARD_COLUMNS, *TRIAL_COLUMNS, *RESULT_COLUMNS})
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")

_FEASIBLE = "NOT (t.score IS NULL AND COALESCE(t.evidence, '') LIKE 'infeasible: %')"
"""Whether a trial keeps to the constraints of its search: one that does not has no score, and says so."""

_CURRENT = """CREATE VIEW current_metric_values AS
SELECT m.* FROM metric_values m
WHERE m.id = (
    SELECT MAX(n.id) FROM metric_values n
    WHERE n.trial_id = m.trial_id AND n.name = m.name AND NOT n.retracted
)"""


def view_statements(metric_columns: Sequence[str]) -> list[str]:
    """The statements that make the views, each metric of `metric_columns` being a column.

    A metric called like a column the views already have (`num_xpus`) gets no second one.

    Raises:
        BadInputError: a metric's name cannot be a column.
    """
    for name in metric_columns:
        if not _NAME.fullmatch(name):
            raise BadInputError(f"metric {name!r} cannot be a column", "name it with a-z, 0-9 and _, at most 63")
    metrics = [name for name in dict.fromkeys(metric_columns) if name not in _OWN]
    return [_CURRENT, _leaderboard(metrics), _workload_cards(metrics)]


def _leaderboard(metrics: Sequence[str]) -> str:
    columns = ["r.id AS run_id", "t.number AS trial", *_card_columns()]
    columns += [f"t.{name}" for name in (*TRIAL_COLUMNS, *RESULT_COLUMNS)]
    columns += [f'p."{name}"' for name in metrics]
    return (
        f"CREATE VIEW leaderboard AS\nSELECT {', '.join(columns)}\n"
        f"FROM trials t JOIN runs r ON r.id = t.run_id{_pivot(metrics)}\nWHERE t.state = 'succeeded' AND {_FEASIBLE}"
    )


def _workload_cards(metrics: Sequence[str]) -> str:
    columns = ["run_id", "trial", *CARD_COLUMNS, *TRIAL_COLUMNS, "fidelity", "backend"]
    columns += [f'"{name}"' for name in metrics]
    return f"CREATE VIEW workload_cards AS\nSELECT {', '.join(columns)}\nFROM leaderboard"


def _card_columns() -> list[str]:
    return ["r.framework AS framework_name" if name == "framework_name" else f"r.{name}" for name in CARD_COLUMNS]


def _pivot(metrics: Sequence[str]) -> str:
    if not metrics:
        return ""
    cases = ", ".join(f"MAX(CASE WHEN name = '{name}' THEN value END) AS \"{name}\"" for name in metrics)
    grouped = f"SELECT trial_id, {cases} FROM current_metric_values GROUP BY trial_id"  # noqa: S608 - checked names
    return f"\nLEFT JOIN ({grouped}) p ON p.trial_id = t.id"
