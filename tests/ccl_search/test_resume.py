"""Interrupting and resuming: nothing finished is lost, nothing is done twice, and the search goes on the same way."""

from __future__ import annotations

import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

from tests.ccl_search.cli import Cli, finish, start

ARGUMENTS = ("run", "--iterations", "5", "--proposer", "random", "--seed", "3", "--json")


def trials(home: Path) -> list[tuple[Any, ...]]:
    """(number, state) of every trial; empty while there is no store."""
    try:
        with sqlite3.connect(f"file:{home / 'ccl-search.sqlite'}?mode=ro", uri=True) as connection:
            return connection.execute("SELECT number, state FROM trials ORDER BY number").fetchall()
    except sqlite3.OperationalError:
        return []


def wait_for(home: Path, succeeded: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while sum(state == "succeeded" for _, state in trials(home)) < succeeded:
        assert time.monotonic() < deadline, trials(home)
        time.sleep(0.02)


def configs(cli: Cli) -> list[Any]:
    rows = cli("show", "latest", "--json").document["trial_rows"]
    return [(row["config"], row["score"]) for row in rows if row["state"] == "succeeded"]


def test_a_killed_search_goes_on_as_if_it_had_never_stopped(cli: Cli, tmp_path: Path) -> None:
    process = start(cli.home, *ARGUMENTS)
    wait_for(cli.home, 2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.communicate()

    before = cli("best", "latest")
    resumed = cli("resume", "latest", "--json")

    assert (before.code, "best trial" in before.err) == (0, True)
    assert resumed.code == 0
    assert resumed.document["status"] == "finished"
    whole = Cli(tmp_path / "whole", cli._capsys, cli._monkeypatch)
    assert whole(*ARGUMENTS).code == 0
    assert configs(cli) == configs(whole)


def test_ctrl_c_finishes_the_trial_and_leaves_a_run_that_can_go_on(cli: Cli) -> None:
    process = start(cli.home, *ARGUMENTS)
    wait_for(cli.home, 1)
    process.send_signal(signal.SIGINT)
    stopped = finish(process)

    assert "stopping after the running trial" in stopped.err
    assert stopped.document["status"] == "interrupted"
    assert {state for _, state in trials(cli.home)} <= {"succeeded", "pruned"}
    resumed = cli("resume", stopped.document["run_id"], "--json").document
    assert resumed["status"] == "finished"
    assert resumed["trials"] - resumed["pruned"] == 6


def test_a_finished_run_is_not_resumed(cli: Cli) -> None:
    run = cli("run", "--iterations", "0", "--json").document["run_id"]

    result = cli("resume", run)

    assert result.code == 2
    assert "has finished" in result.err


def test_an_unknown_run_is_named(cli: Cli) -> None:
    cli("run", "--iterations", "0", "--json")

    assert cli("resume", "20200101").code == 2
    assert "20200101" in cli("show", "20200101").err


def test_two_searches_do_not_write_into_one_home(cli: Cli) -> None:
    process = start(cli.home, *ARGUMENTS)
    wait_for(cli.home, 1)
    second = cli("run", "--iterations", "0")
    process.send_signal(signal.SIGINT)
    finish(process)

    assert second.code != 0
    assert str(process.pid) in second.err
