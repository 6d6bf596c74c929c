"""Exports: stable columns as documented, every format read back by the tool it is for, nothing half-written."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccl_search import exporting
from ccl_search.exporting import tables
from runs.errors import BadInputError
from runs.store import Store
from runs.trial import FailureClass, Fidelity
from tests.ccl_search.cli import Cli
from tests.ccl_search.recorded import GOOD, Recorded, record

DOCS = Path(__file__).resolve().parents[2] / "docs" / "export.md"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "home", write=True) as found:
        yield found


@pytest.fixture
def run(store: Store) -> str:
    return record(
        store,
        [
            {"avg_step_time": 1.5, "num_xpus": 16.0, "peak_memory_gb": 30.0},
            Recorded(failure=FailureClass.INVALID_CONFIG, config={**GOOD, "tp": 3}),
            Recorded(failure=FailureClass.OOM),
            {"avg_step_time": 1.0, "num_xpus": 8.0, "peak_memory_gb": 39.0},
            Recorded({"avg_step_time": (2.0, 2.5), "num_xpus": 4.0, "peak_memory_gb": 20.0}),
        ],
        bounds=("peak_memory_gb <= 38",),
    )


def test_the_documented_columns_are_the_columns() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE)

    assert dict(rows) == tables.COLUMNS
    assert [name for name, _ in rows] == list(tables.COLUMNS)
    assert f"(now {tables.SCHEMA_VERSION})" in DOCS.read_text(encoding="utf-8")


def test_csv_has_a_row_for_every_trial(store: Store, run: str) -> None:
    rows = list(csv.DictReader(io.StringIO(exporting.text_of(store, run, "csv"))))

    assert [row["trial"] for row in rows] == ["0", "1", "2", "3", "4"]
    assert [row["state"] for row in rows] == ["succeeded", "pruned", "failed", "succeeded", "succeeded"]
    assert [row["feasible"] for row in rows] == ["true", "", "", "false", "true"]
    assert [row["on_front"] for row in rows] == ["true", "false", "false", "false", "true"]
    assert [row["score"] == "" for row in rows] == [False, True, True, True, False]
    assert float(rows[0]["score"]) == 1.0
    assert float(rows[4]["metric_avg_step_time"]) == 2.25
    assert float(rows[4]["score_spread"]) == pytest.approx(0.5 * (1.5 / 2.0 - 1.5 / 2.5))
    assert (rows[1]["knob_tp"], rows[0]["knob_compile"], rows[0]["metric_mfu"]) == ("3", "false", "")
    assert "peak_memory_gb is 39 GB" in rows[3]["violations"]


def test_columns_do_not_depend_on_what_happened(store: Store, run: str) -> None:
    empty = record(store, [Recorded(failure=FailureClass.OOM)])
    headers = [exporting.text_of(store, found, "csv").splitlines()[0].split(",") for found in (run, empty)]

    assert headers[0] == headers[1]
    assert headers[0][: len(tables.COLUMNS)] == list(tables.COLUMNS)
    assert {"knob_tp", "metric_avg_step_time"} <= set(headers[0])


def test_json_holds_everything(store: Store, run: str) -> None:
    found = json.loads(exporting.text_of(store, run, "json"))

    assert (found["format"], found["schema_version"], found["run"]["id"]) == ("ccl-search-run", 1, run)
    assert found["run"]["constraints"] == ["peak_memory_gb <= 38"]
    assert found["run"]["objective"]["terms"][0]["baseline"] == 1.5
    trial = found["trials"][4]
    assert trial["config"] == GOOD
    assert trial["metrics"]["avg_step_time"]["detail"] == {"repeats": [2.0, 2.5]}
    assert trial["policy"].startswith("def generate_config")
    assert [score["score"] for score in trial["scores"]] == [trial["score"]]


def test_optuna_loads_the_study(store: Store, run: str, tmp_path: Path) -> None:
    import optuna

    exporting.write(store, run, "optuna", tmp_path / "study.db")
    study = optuna.load_study(study_name=run, storage=f"sqlite:///{tmp_path / 'study.db'}")

    states = [trial.state.name for trial in study.trials]
    assert states == ["COMPLETE", "PRUNED", "FAIL", "COMPLETE", "COMPLETE"]
    assert study.metric_names == ["avg_step_time", "num_xpus"]
    assert study.trials[4].values == [2.25, 4.0]
    assert study.trials[0].params == GOOD
    assert "tp" not in study.trials[1].params
    assert study.trials[1].user_attrs["config"]["tp"] == 3
    assert study.trials[3].constraints == {"peak_memory_gb <= 38": pytest.approx(1.0)}
    assert sorted(trial.number for trial in study.best_trials) == [0, 4]


def test_parquet_without_pyarrow_says_what_to_install(
    store: Store, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(BadInputError, match="needs pyarrow") as caught:
        exporting.write(store, run, "parquet", tmp_path / "run.parquet")

    assert "ccl-search[parquet]" in caught.value.hint
    assert list(tmp_path.glob("*parquet*")) == []


def test_parquet_has_the_documented_types(store: Store, run: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow.parquet import read_table

    exporting.write(store, run, "parquet", tmp_path / "run.parquet")
    table = read_table(tmp_path / "run.parquet")

    names = {"str": "string", "int": "int64", "float": "double", "bool": "bool"}
    assert {f.name: str(f.type) for f in table.schema}["score"] == "double"
    assert [str(f.type) for f in table.schema][: len(tables.COLUMNS)] == [names[k] for k in tables.COLUMNS.values()]
    assert table.column("knob_tp").to_pylist() == [4, 3, 4, 4, 4]


@pytest.mark.parametrize("kind", exporting.FORMATS)
def test_what_exists_is_not_overwritten(kind: str, store: Store, run: str, tmp_path: Path) -> None:
    target = tmp_path / "there"
    target.write_text("mine", encoding="utf-8")

    with pytest.raises(BadInputError, match="exists already"):
        exporting.write(store, run, kind, target)

    assert target.read_text(encoding="utf-8") == "mine"


def test_a_run_without_any_result_has_no_entries(store: Store, tmp_path: Path) -> None:
    empty = record(store, [Recorded(failure=FailureClass.OOM)])

    with pytest.raises(BadInputError, match="no trial that ran"):
        exporting.write(store, empty, "entries", tmp_path / "entries")

    assert {path.name for path in tmp_path.iterdir()} == {"home"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--format", "xml"), "no format 'xml'"), (("--format", "optuna"), "needs --output")],
)
def test_the_command_line_refuses_what_it_cannot_do(arguments: tuple[str, ...], words: str, cli: Cli) -> None:
    result = cli("export", "latest", *arguments)

    assert (result.code, words in result.err) == (2, True)


def test_the_command_line_writes_to_stdout_or_a_file(cli: Cli, tmp_path: Path) -> None:
    with Store.open(cli.home, write=True) as found:
        record(found, [Recorded({"avg_step_time": 1.0}, fidelity=Fidelity.SIMULATED)], objectives=("step_time",))

    out = cli("export", "latest").out
    done = cli("export", "latest", "--output", str(tmp_path / "new" / "run.csv"))

    assert done.code == 0
    assert (tmp_path / "new" / "run.csv").read_bytes().decode() == out
    assert list((tmp_path / "new").iterdir()) == [tmp_path / "new" / "run.csv"]
