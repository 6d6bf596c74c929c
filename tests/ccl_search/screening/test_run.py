"""`run --screen` from the command line, on a target whose truth differs from what the screen believes."""

from __future__ import annotations

import json
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.ccl_search import local_runs
from tests.ccl_search.cli import Cli, start
from tests.ccl_search.test_resume import wait_for

ARGUMENTS = ("run", "--framework", "megatron-lm", "--proposer", "random", "--iterations", "4", "--seed", "5", "--json")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A stand-in for a cluster with slow links, and a calibration that knows half of it."""
    (tmp_path / "truth.yaml").write_text("format: 1\nname: truth\nfactors: {bandwidth: {inter_node: 0.3}}\n")
    (tmp_path / "model.yaml").write_text(
        "format: 1\nname: model\nfactors: {bandwidth: {inter_node: 0.5}}\n"
        "fit: {held_out: {factor_90: {value: 1.3, low: 1.1, high: 1.5}}}\n"
    )
    path = tmp_path / "target.yaml"
    path.write_text("name: stand-in\nkind: dry-run\ndry_run: {calibration: truth.yaml}\ncalibration: model.yaml\n")
    return path


def decisions(home: Path) -> list[Any]:
    with sqlite3.connect(home / "ccl-search.sqlite") as connection:
        return connection.execute(
            "SELECT t.number, s.verdict, s.predicted, s.score, s.threshold, s.calibration, t.score "
            "FROM screenings s JOIN trials t ON t.id = s.trial_id ORDER BY t.number"
        ).fetchall()


@pytest.mark.slow
def test_every_decision_is_stored_and_reported(cli: Cli, target: Path) -> None:
    found = cli(*ARGUMENTS, "--target", str(target), "--screen", "dry-run:2")
    assert found.code == 0, found.err
    screen = found.document["screen"]
    stored = decisions(cli.home)
    assert screen["factor"] == 1.3
    assert screen["considered"] == len(stored)
    assert sum(screen["verdicts"].values()) == len(stored)
    assert {row[5] for row in stored if row[1] != "out_of_memory"} == {"model"}
    for _, verdict, _, score, threshold, _, measured in stored:
        if verdict == "hopeless":
            assert score < threshold
            assert measured is None
        if verdict == "passed":
            assert threshold is None or score >= threshold
    assert screen["launched_and_measured"] == sum(row[6] is not None for row in stored)
    shown = cli("show", "latest")
    assert "screen dry-run (model)" in shown.err
    assert cli("show", "latest", "--json").document["screen"] == screen


@pytest.mark.slow
def test_a_killed_screened_search_goes_on_alike(cli: Cli, target: Path, tmp_path: Path) -> None:
    arguments = (*ARGUMENTS, "--target", str(target), "--screen", "dry-run", "--screen-check", "0.5")
    process = start(cli.home, *arguments)
    wait_for(cli.home, 2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.communicate()
    resumed = cli("resume", "latest", "--json")
    assert resumed.code == 0, resumed.err
    whole = Cli(tmp_path / "whole", cli._capsys, cli._monkeypatch)
    assert whole(*arguments).code == 0

    def launched(home: Path) -> list[Any]:
        return [(row[1], row[2]) for row in decisions(home) if row[6] is not None]

    assert launched(cli.home) == launched(whole.home)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--screen", "dry-run:0"), "no count of candidates"),
        (("--screen", "nowhere.yaml"), "cannot be read"),
        (("--screen-check", "0.5"), "--screen-check without --screen"),
    ],
)
def test_bad_usage_is_one_clear_line(cli: Cli, arguments: tuple[str, ...], word: str) -> None:
    found = cli("run", "--iterations", "0", *arguments)
    assert found.code == 2
    assert word in found.err.splitlines()[0]


def test_programs_on_this_machine_are_screened_by_a_simulation(cli: Cli, tmp_path: Path) -> None:
    words = local_runs.write(tmp_path)
    found = cli(*words, "--no-profiler-cost", "--iterations", "3", "--screen", "dry-run")
    assert found.code == 0, found.err
    assert found.document["fidelity"] == "measured"
    rows = cli("show", "latest", "--json").document["trial_rows"]
    measured = {row["trial"]: row["avg_step_time"] for row in rows if row["avg_step_time"] is not None}
    expected = {row["trial"]: 0.025 * row["config"]["tp"] / row["config"]["micro_batch_size"] for row in rows}
    assert measured == pytest.approx({number: expected[number] for number in measured})
    screen = found.document["screen"]
    assert screen["considered"] == len(rows) >= 3
    assert screen["launched_and_measured"] == len(measured)
    detail = cli("show", "latest", "--trial", "1", "--json").document
    assert detail["screening"]["verdict"] in ("passed", "hopeless", "unknown")
    assert f"screen: {detail['screening']['verdict']}: " in cli("show", "latest", "--trial", "1").err
    predicted = {number: json.loads(text)["avg_step_time"] for number, _, text, *_ in decisions(cli.home)}
    assert all(predicted[number] != pytest.approx(value) for number, value in measured.items())
