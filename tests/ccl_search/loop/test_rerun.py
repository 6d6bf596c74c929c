"""The script of an entry repeats the trial: same config, same score, wherever the entry's folder lies."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ccl_search import targets
from ccl_search.constraints import parse
from ccl_search.loop import rerun
from ccl_search.problem import ProblemSource, resolve
from ccl_search.settings import SearchSettings
from tests.ccl_search.cli import ENTRY, ROOT, Cli

EIGHTH = """
def generate_config(workload, environment):
    degree = environment["total_gpus"] // 8
    config = {}
    for knob in workload["config_space"]:
        config[knob["key"]] = knob["choices"][0]
    for key in ("tp", "dp", "dp_shard"):
        config[key] = degree
    config["cp"] = config["pp"] = 1
    config["zero_stage"] = 3
    config["activation_checkpointing"] = "full"
    config["pipeline_schedule"] = "1f1b"
    return config
"""
TARGET = "name: desk\nkind: dry-run\ndry_run:\n  memory_margin: 0.05\n"


def test_the_script_of_a_moved_entry_repeats_the_trial(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "eighth.py").write_text(EIGHTH)
    (tmp_path / "desk.yaml").write_text(TARGET)
    options = ("--policy", str(tmp_path / "eighth.py"), "--target", str(tmp_path / "desk.yaml"))
    ran = cli("run", "--iterations", "0", "--proposer", "random", *options, "--constraint", "tp <= 2", "--json")
    best = ran.document["best"]
    moved = tmp_path / "elsewhere"
    shutil.copytree(Path(best["policy_path"]).parent, moved)

    _run_script(moved)
    there = Cli(moved / "repeat", cli._capsys, cli._monkeypatch)("best", "latest", "--json").document

    card = yaml.safe_load((moved / "card.yaml").read_text())
    assert (best["config"]["tp"], best["config"]["dp"]) == (2, 2)  # an eighth of the 16 that the search has
    assert card["workload"]["hardware"]["xpu_spec"]["total_count"] == 4
    assert there["config"] == best["config"]
    assert there["score"] == best["score"]


def _run_script(folder: Path) -> None:
    (folder / "bin").mkdir()
    command = folder / "bin" / "ccl-search"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{ENTRY}" "$@"\n')
    command.chmod(0o755)
    variables = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    variables.pop("CCL_SEARCH_HOME", None)
    done = subprocess.run(
        ["bash", str(folder / "script.sh")], env=variables, cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_script_without_its_target_file_says_what_is_missing(tmp_path: Path) -> None:
    problem = resolve(ProblemSource())
    (tmp_path / "desk.yaml").write_text(TARGET)
    desk = targets.find(str(tmp_path / "desk.yaml"))
    (tmp_path / "script.sh").write_text(rerun.script(problem, SearchSettings(), desk, problem.objective))

    done = subprocess.run(["bash", str(tmp_path / "script.sh")], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith("target.yaml is missing")
    assert not (tmp_path / "repeat").exists()


def test_every_option_that_decides_a_trial_is_in_the_script() -> None:
    problem = resolve(ProblemSource(objectives=("step_time", "mfu"), weights=(0.25, 0.75)))
    limits = parse(["peak_memory_gb <= 38.5"], problem.space).limits
    settings = SearchSettings(
        seed=7, sandbox="process", unconfined=True, repeats=3, time_limit_s=90.0, retries=0,
        extras={"within_allocation": True},
    )  # fmt: skip
    objective = problem.objective.with_baseline({"avg_step_time": 0.5, "mfu": 0.4})

    text = rerun.script(problem, settings, targets.find("dry-run"), objective, limits)

    last = text.splitlines()[-1]
    for words in (
        "--seed 7", "--sandbox process", "--unconfined", "--repeats 3", "--time-limit 90", "--retries 0",
        "--within-allocation", "--objective avg_step_time --objective mfu", "--weights 0.25,0.75",
        "--baseline avg_step_time=0.5", "--baseline mfu=0.4", "--constraint 'peak_memory_gb <= 38.5'",
        "--target dry-run", "--space repeat/space.yaml", "--card repeat/card.yaml",
    ):  # fmt: skip
        assert words in last, words


@pytest.mark.parametrize("content", ["", "name: desk\n"])
def test_a_target_file_is_copied_where_there_is_one(tmp_path: Path, content: str) -> None:
    (tmp_path / "desk.yaml").write_text(TARGET)
    target = targets.find(str(tmp_path / "desk.yaml") if content else "dry-run")

    text = rerun.target_yaml(target)

    assert (text is not None) is bool(content)
    if text is not None:
        (tmp_path / "copy.yaml").write_text(text)
        assert targets.find(str(tmp_path / "copy.yaml")) == target
