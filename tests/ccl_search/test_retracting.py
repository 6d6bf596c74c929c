"""Retracted tool versions: values are flagged, told of, and computed again from the trace."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

import metrics.retraction
from metrics.retraction import Retraction
from tests.ccl_search.cli import Cli

BAD = Retraction("avg_step_time", ("0.9.0",), "counted warm-up steps", "1.0.0")


def older_version(cli: Cli) -> None:
    """As if the search had been scored by version 0.9.0 of the tool, which doubled every value."""
    with closing(sqlite3.connect(cli.home / "ccl-search.sqlite")) as connection, connection:
        connection.execute("UPDATE metric_values SET version = '0.9.0', value = 2 * value WHERE name = 'avg_step_time'")


def test_values_of_a_retracted_version_are_told_of_flagged_and_computed_again(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = cli("run", "--iterations", "1", "--json").document
    right = run["best"]["metrics"]["avg_step_time"]
    older_version(cli)
    assert cli("best", "latest", "--json").document["warnings"] == []
    monkeypatch.setattr(metrics.retraction, "retractions", lambda: (BAD,))

    reader = cli("best", "latest", "--json").document
    detail = cli("show", "latest", "--trial", "0").err
    cli("rescore", "latest", "--objective", "num_xpus", "--json")  # writes, so it flags
    flagged = cli("show", "latest", "--trial", "0", "--json").document
    repaired = cli("rescore", "latest", "--objective", "step_time", "--json").document
    after = cli("best", "latest", "--json").document

    assert len(reader["warnings"]) == 1
    assert "avg_step_time 0.9.0 is retracted (counted warm-up steps): scores of 2 trials" in reader["warnings"][0]
    assert "is retracted: counted warm-up steps" in detail
    assert "avg_step_time" not in flagged["metrics"]
    assert [(old["name"], old["version"]) for old in flagged["retracted"]] == [("avg_step_time", "0.9.0")]
    assert all("avg_step_time" in trial["recomputed"] for trial in repaired["trials"])
    assert after["warnings"] == []
    assert after["metrics"]["avg_step_time"] == pytest.approx(right, rel=1e-12)
    with closing(sqlite3.connect(cli.home / "ccl-search.sqlite")) as connection:
        shown = connection.execute("SELECT MIN(avg_step_time) FROM leaderboard").fetchone()[0]
    assert shown == pytest.approx(right, rel=1e-12)
