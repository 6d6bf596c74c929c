"""A run as a folder of benchmark entries: one folder for every trial that ran, and an index of all trials."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccl_search import repeats
from ccl_search.exporting.tables import SCHEMA_VERSION
from runs.entry import CARD, EXECUTION, METRICS, SCRIPT, TRACE
from runs.errors import BadInputError
from runs.trial import TrialState

if TYPE_CHECKING:
    from runs.store import RunRecord, Store, TrialRecord

INDEX = "index.json"


def write(store: Store, run: RunRecord, folder: Path) -> None:
    """Write the folder.

    Raises:
        BadInputError: no trial of the run succeeded, so that there is no entry.
    """
    folder.mkdir()
    index = [_entry(store, run, trial, folder) for trial in store.trials(run.id)]
    if not any(found["entry"] for found in index):
        raise BadInputError(f"run {run.id} has no trial that ran", "`ccl-search show` says why trials failed")
    document = {"format": "ccl-search-entries", "schema_version": SCHEMA_VERSION, "run_id": run.id, "trials": index}
    _write(folder / INDEX, json.dumps(document, indent=2, allow_nan=False) + "\n")


def remove(path: Path) -> None:
    """Remove a file or a folder, where there is one."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _entry(store: Store, run: RunRecord, trial: TrialRecord, folder: Path) -> dict[str, Any]:
    about: dict[str, Any] = {
        "trial": trial.number,
        "entry": None,
        "state": trial.state.value,
        "failure": trial.failure.value if trial.failure else None,
        "score": trial.score,
        "config": trial.config,
    }
    if trial.state is not TrialState.SUCCEEDED:
        return about
    name = f"{run.id}-trial-{trial.number:03d}"
    _fill(store, trial, folder / name)
    return {**about, "entry": name}


def _fill(store: Store, trial: TrialRecord, folder: Path) -> None:
    source = store.trial_dir(trial.run_id, trial.number)
    folder.mkdir()
    _write(folder / CARD, trial.card)
    _write(folder / SCRIPT, trial.script)
    _write(folder / "policy.py", trial.policy_source)
    _write(folder / "config.json", json.dumps(trial.config, indent=2) + "\n")
    values = {name: value.as_dict() for name, value in trial.metrics.items()}
    document = {"score": trial.score, "objective": trial.objective, "metrics": values}
    _write(folder / METRICS, json.dumps(document, indent=1, allow_nan=False) + "\n")
    for repeat in range(int(trial.provenance.get("repeats", 1))):
        _copy_execution(repeats.folder(source, repeat), repeats.folder(folder, repeat))


def _copy_execution(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    if (source / TRACE).is_dir():
        shutil.copytree(source / TRACE, target / TRACE)
    if (source / EXECUTION).is_file():
        shutil.copyfile(source / EXECUTION, target / EXECUTION)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
