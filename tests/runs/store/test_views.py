"""The views, asked as a user asks: plain SQL from the `sqlite3` shell; and the page that describes them."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from runs.errors import BadInputError
from runs.ledger import LlmOutcome, LlmRequest
from runs.metric import MetricValue
from runs.store import NewTrial, Store, TraceFile, TrialOutcome
from runs.store.home import DATABASE_NAME
from runs.trial import FailureClass, Fidelity, TrialState
from tests.runs.store import make

PAGE = (Path(__file__).parents[3] / "docs" / "store.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
QUESTION = (
    "SELECT * FROM leaderboard WHERE model_family='llama-3.1-8b' AND phase='training' AND fidelity='measured' "
    "ORDER BY avg_step_time"
)


def ask(home: Path, sql: str) -> list[dict[str, Any]]:
    """The rows by the sqlite3 shell where there is one, else by the module."""
    file = home / DATABASE_NAME
    if shutil.which("sqlite3"):
        shell = subprocess.run(["sqlite3", "-json", str(file), sql], capture_output=True, text=True, check=False)
        assert (shell.returncode, shell.stderr) == (0, "")
        found = json.loads(shell.stdout or "[]")
        assert isinstance(found, list)
        return found
    connection = sqlite3.connect(file)
    connection.row_factory = sqlite3.Row
    try:
        return [dict(row) for row in connection.execute(sql)]
    finally:
        connection.close()


@pytest.fixture
def filled(store: Store, home: Path) -> Iterator[Path]:
    """Two runs of different models, with measured, simulated, failed and pruned trials."""
    run_id = store.create_run(make.new_run())
    for seconds, fidelity in ((3.0, Fidelity.MEASURED), (1.0, Fidelity.SIMULATED), (2.0, Fidelity.MEASURED)):
        make.add_success(store, run_id, seconds, fidelity=fidelity, backend="flow" if seconds == 1.0 else None)
    failed = store.add_trial(run_id, NewTrial(iteration=3))
    store.finish_trial(
        run_id,
        failed,
        TrialOutcome(
            state=TrialState.FAILED, failure=FailureClass.METRIC_ERROR, metrics=(MetricValue.of(make.STEP, 0.1),)
        ),
    )
    store.add_trial(run_id, NewTrial(iteration=4, state=TrialState.PRUNED, failure=FailureClass.DUPLICATE))
    call = store.ledger.begin(LlmRequest(run_id, 1, 0, "propose", "m", {}, ""))
    store.ledger.finish(call, LlmOutcome({}))
    earlier = datetime(2026, 1, 1, tzinfo=UTC)
    other = store.create_run(make.new_run(workload={**make.WORKLOAD, "model_family": "qwen3-4b"}, created=earlier))
    make.add_success(store, other, 0.5, fidelity=Fidelity.MEASURED, backend=None)
    store.add_trace_files(other, 0, [TraceFile("runs/t/rank0.json.gz", 5, "0" * 64)])
    store.drop_trace_file(other, 0, "runs/t/rank0.json.gz", "store prune --keep none")
    yield home


def test_the_question_of_the_design_is_answered_by_the_shell(filled: Path, store: Store) -> None:
    rows = ask(filled, QUESTION)
    assert [row["avg_step_time"] for row in rows] == [2.0, 3.0]
    assert rows[0] == {
        "run_id": store.list_runs()[0].id,
        "trial": 2,
        "model_family": "llama-3.1-8b",
        "phase": "training",
        "framework_name": "torchtitan",
        "framework_version": "0.2",
        "batch_size": 8,
        "seq_len": 1024,
        "precision": "bf16",
        "xpu_model": "nvidia_a100",
        "total_count": 8,
        "num_xpus": 8,
        "tp": 2,
        "pp": 1,
        "dp": 4,
        "ep": 1,
        "cp": 1,
        "micro_batch_size": 2,
        "score": -2.0,
        "objective": "avg_step_time",
        "fidelity": "measured",
        "backend": None,
        "avg_step_time": 2.0,
        "mfu": None,
    }


def test_workload_cards_hold_card_columns_and_metrics(filled: Path) -> None:
    rows = ask(
        filled,
        "SELECT framework_name, avg_step_time FROM workload_cards "
        "WHERE model_family = 'llama-3.1-8b' AND phase = 'training' AND framework_name = 'torchtitan' "
        "ORDER BY avg_step_time",
    )
    assert [row["avg_step_time"] for row in rows] == [1.0, 2.0, 3.0]


def test_only_succeeded_trials_are_in_the_leaderboard(filled: Path) -> None:
    assert ask(filled, "SELECT count(*) AS n FROM leaderboard") == [{"n": 4}]
    assert ask(filled, "SELECT count(*) AS n FROM trials") == [{"n": 6}]


def test_a_metric_without_a_value_is_null_and_its_reason_a_row(store: Store, home: Path) -> None:
    run_id = store.create_run(make.new_run())
    make.add_success(store, run_id, 1.0, metrics=(MetricValue.none(make.STEP, "no step marks"),), score=None)
    assert ask(home, "SELECT avg_step_time, score FROM leaderboard") == [{"avg_step_time": None, "score": None}]
    assert ask(home, "SELECT reason FROM current_metric_values") == [{"reason": "no step marks"}]


def test_views_change_with_the_metric_columns_and_only_then(home: Path) -> None:
    def columns() -> list[str]:
        return [row["name"] for row in ask(home, "SELECT name FROM pragma_table_info('leaderboard')")][22:]

    Store.open(home, write=True).close()
    assert columns() == []
    Store.open(home, write=True, metric_columns=["avg_step_time", "mfu"]).close()
    assert columns() == ["avg_step_time", "mfu"]
    version = ask(home, "PRAGMA schema_version")
    Store.open(home, write=True).close()
    Store.open(home, write=True, metric_columns=("avg_step_time", "mfu")).close()
    Store.open(home, metric_columns=["other"]).close()  # a reader changes nothing
    assert ask(home, "PRAGMA schema_version") == version
    Store.open(home, write=True, metric_columns=["mfu"]).close()
    assert columns() == ["mfu"]


@pytest.mark.parametrize("name", ["a b", 'x"; DROP TABLE runs; --', "", "Upper", "1st"])
def test_a_metric_name_that_is_no_column_is_refused(home: Path, name: str) -> None:
    with pytest.raises(BadInputError, match="cannot be a column"):
        Store.open(home, write=True, metric_columns=[name])


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_every_example_of_the_page_answers(filled: Path, number: int) -> None:
    assert ask(filled, EXAMPLES[number])


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) >= 5


def test_the_page_names_every_table_and_column(store: Store) -> None:
    tables = [row["name"] for row in store.query("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        if table.startswith("sqlite_"):
            continue
        section = re.search(rf"\*\*{table}\*\*:(.*?)(\n\n|\Z)", PAGE, re.DOTALL)
        assert section is not None, table
        columns = [row["name"] for row in store.query("SELECT name FROM pragma_table_info(?)", [table])]
        named = re.findall(r"`([a-z_0-9]+)`", section.group(1))
        assert [column for column in columns if column not in named] == [], table


def test_the_page_names_every_column_of_the_views(store: Store) -> None:
    for view in ("leaderboard", "workload_cards"):
        columns = [row["name"] for row in store.query("SELECT name FROM pragma_table_info(?)", [view])]
        assert [
            column for column in columns if f"`{column}`" not in PAGE and column not in ("avg_step_time", "mfu")
        ] == []
