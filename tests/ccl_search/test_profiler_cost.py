"""The profiler's own cost: measured once for a target, a framework and its version, and kept with the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.ccl_search import local_runs
from tests.ccl_search.cli import Cli

OVERHEAD = 0.25
"""What the program of these tests loses under its profiler."""


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    return [*local_runs.write(tmp_path, step_log=local_runs.STEP_LOG), "--iterations", "2"]


def runs_of_the_program(home: Path) -> list[str]:
    """What every start of the program was: profiled or plain."""
    return [line for path in home.rglob("started") for line in path.read_text().splitlines()]


def test_a_search_ends_with_one_run_without_the_profiler(cli: Cli, words: list[str]) -> None:
    done = cli(*words)

    cost: dict[str, Any] = done.document["profiler_cost"]
    best = done.document["best"]
    assert cost["overhead"] == pytest.approx(OVERHEAD)
    assert cost["without_s"] == pytest.approx(0.025 * best["config"]["tp"] / best["config"]["micro_batch_size"])
    assert (cost["with_s"], cost["steps"]) == (pytest.approx(cost["without_s"] * 1.25), 5)
    assert (cost["trial"], cost["config"], cost["target"]) == (best["trial"], best["config"], "here")
    assert cost["xpu_hours"] > 0
    assert runs_of_the_program(cli.home).count("plain") == 1
    assert "measuring what the profiler costs" in done.err
    assert cli("show", "latest").err.count("profiler: a step takes") == 1
    assert cli("show", "latest", "--json").document["profiler_cost"] == cost


def test_what_a_store_knows_is_not_measured_again(cli: Cli, words: list[str]) -> None:
    first = cli(*words).document
    before = runs_of_the_program(cli.home).count("plain")
    second = cli(*words).document

    assert second["run_id"] != first["run_id"]
    assert second["profiler_cost"] == first["profiler_cost"]
    assert runs_of_the_program(cli.home).count("plain") == before


def test_another_version_is_measured_anew(cli: Cli, tmp_path: Path, words: list[str]) -> None:
    first = cli(*words).document["profiler_cost"]
    local_runs.write(tmp_path, step_log=local_runs.STEP_LOG, version="2.0")
    second = cli(*words).document["profiler_cost"]

    assert first["framework"] != second["framework"]
    assert second["run"] != first["run"]


def test_it_can_be_left_out(cli: Cli, words: list[str]) -> None:
    done = cli(*words, "--no-profiler-cost")

    assert done.document["profiler_cost"] is None
    assert "plain" not in runs_of_the_program(cli.home)


def test_a_program_that_does_not_log_its_steps_costs_no_run(cli: Cli, tmp_path: Path) -> None:
    done = cli(*local_runs.write(tmp_path), "--iterations", "1")

    assert (done.code, done.document["profiler_cost"]) == (0, None)
    assert "plain" not in runs_of_the_program(cli.home)
    assert "the profiler's cost is not known: command does not log how long a step takes" in done.err


def test_a_spent_budget_leaves_it_out(cli: Cli, words: list[str]) -> None:
    done = cli(*words, "--max-xpu-hours", "1e-9")

    assert (done.code, done.document["profiler_cost"]) == (0, None)
    assert "--max-xpu-hours leaves no room" in done.err
    assert "plain" not in runs_of_the_program(cli.home)


def test_a_failing_run_without_it_fails_nothing(cli: Cli, tmp_path: Path, words: list[str]) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        program.read_text().replace("if not profiled:\n    sys.exit(0)", "if not profiled:\n    sys.exit(9)")
    )
    done = cli(*words)

    assert (done.code, done.document["profiler_cost"]) == (0, None)
    assert "the run without a profiler failed (framework_error)" in done.err


def test_a_simulation_has_no_profiler(cli: Cli) -> None:
    done = cli("run", "--iterations", "0", "--json")

    assert (done.code, done.document["profiler_cost"]) == (0, None)
    assert "profiler" not in done.err
