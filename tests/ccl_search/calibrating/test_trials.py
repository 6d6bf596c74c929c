"""Measured trials of a stored run."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from ccl_search.assembly import open_store
from ccl_search.calibrating.measurements import Measurements
from ccl_search.calibrating.trials import read_run
from runs.errors import BadInputError
from tests.ccl_search.cli import Cli


@pytest.fixture
def database(cli: Cli) -> Any:
    """The store of a run of four trials, for changing what it says."""
    assert cli("run", "--proposer", "random", "--iterations", "3", "--json").code == 0
    with sqlite3.connect(next(cli.home.glob("*.sqlite*"))) as connection:
        yield connection


def _read(cli: Cli) -> Measurements:
    with open_store(str(cli.home), write=False) as store:
        return read_run(store, "latest")


def test_measured_trials_become_measurements(cli: Cli, database: Any) -> None:
    database.execute("UPDATE trials SET fidelity = 'measured'")
    database.commit()
    found = _read(cli)
    shown = cli("show", "latest", "--json").document["trial_rows"]
    done = {f"trial {row['trial']}": row for row in shown if row["state"] == "succeeded"}
    assert {row for config in found.configs for row in config.rows} == set(done)
    for config in found.configs:
        row = done[config.rows[0]]
        assert (config.plan.tp, config.plan.pp) == (row["config"]["tp"], row["config"]["pp"])
        assert config.seconds[0] == pytest.approx(-row["score"])  # the objective is the step time, minimised
        assert config.plan.global_batch == config.workload.batch_size
    dropped = {row for rows in found.dropped.values() for row in rows}
    assert dropped == {f"trial {row['trial']}" for row in shown} - set(done)
    assert found.date is not None


def test_one_simulated_trial_spoils_the_run(cli: Cli, database: Any) -> None:
    database.execute("UPDATE trials SET fidelity = 'measured' WHERE number > 0")
    database.commit()
    with pytest.raises(BadInputError, match=r"trial 0 of run .* is simulated"):
        _read(cli)
