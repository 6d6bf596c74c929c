"""A target that fails every trial: the search stops while it has trials to spend, and goes on once it is mended."""

from __future__ import annotations

import json
from pathlib import Path

from tests.ccl_search import local_runs
from tests.ccl_search.cli import Cli

SPACE = f"{local_runs.SPACE}  - {{key: compile, type: bool, choices: [false, true], description: told to nobody}}\n"


def test_a_broken_target_ends_the_search_before_it_is_spent(cli: Cli, tmp_path: Path) -> None:
    words = local_runs.write(tmp_path, SPACE, step_log=local_runs.STEP_LOG)
    path = tmp_path / "target.yaml"
    target = json.loads(path.read_text()) | {"setup": f"test -e '{tmp_path}/mended' || exit 7"}
    path.write_text(json.dumps(target))
    done = cli(*words, "--iterations", "7", "--retries", "0", "--no-profiler-cost")

    assert done.code == 3
    assert "5 trials in a row failed for reasons that are not their configs' (launch)" in done.err
    assert "ccl-search doctor" in done.err
    shown = cli("show", "latest", "--json").document
    assert [row["failure"] for row in shown["trial_rows"]] == ["launch"] * 5

    (tmp_path / "mended").touch()
    again = cli("resume", "latest")
    assert again.code == 0, again.err
    states = [row["state"] for row in cli("show", "latest", "--json").document["trial_rows"]]
    assert states.count("failed") == 5 and states.count("succeeded") == 3


def test_what_cannot_be_scored_ends_the_search_before_it_is_spent(cli: Cli, tmp_path: Path) -> None:
    """The program leaves traces of training, which have no time to the first token."""
    words = local_runs.write(tmp_path, SPACE, step_log=local_runs.STEP_LOG)
    done = cli(*words, "--objective", "ttft", "--iterations", "7", "--retries", "0", "--no-profiler-cost")

    assert done.code == 3
    assert "(metric_error): ttft: training trace or no serving span" in done.err and "another --objective" in done.err
    shown = cli("show", "latest", "--json").document
    assert [row["failure"] for row in shown["trial_rows"]] == ["metric_error"] * 5
