"""The main job through the command line: what it prints, what it keeps, and what it does with bad input."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from policies.factory import create_runner
from runs import entry
from tests.ccl_search.cli import Cli

SUMMARY_KEYS = {"run_id", "status", "proposer", "target", "backend", "best", "trials", "failed", "cost_usd", "seconds"}


def test_the_main_job_prints_one_object_and_keeps_every_trial(cli: Cli) -> None:
    result = cli("run", "--objective", "step_time", "--iterations", "2", "--json")

    summary = result.document
    assert result.code == 0
    assert set(summary) >= SUMMARY_KEYS
    assert (summary["status"], summary["proposer"], summary["backend"]) == ("finished", "guided", "flow")
    assert summary["trials"] == 3
    assert result.err.splitlines()[0].startswith("proposer guided (ANTHROPIC_API_KEY is not set")

    best = summary["best"]
    assert best["score"] == -best["metrics"]["avg_step_time"]
    shown = cli("show", summary["run_id"], "--json").document
    assert [row["trial"] for row in shown["trial_rows"]] == [0, 1, 2]
    assert max(row["score"] for row in shown["trial_rows"]) == best["score"]


def test_every_trial_is_a_benchmark_entry_whose_policy_gives_its_config(cli: Cli) -> None:
    run = cli("run", "--iterations", "1", "--json").document["run_id"]

    for number in (0, 1):
        trial = cli("show", run, "--trial", str(number), "--json").document
        directory = Path(trial["directory"])
        errors = [finding for finding in entry.check_entry(directory) if finding.severity == "error"]
        assert errors == []
        assert {file["path"] for file in trial["trace_files"]}
        row = _row(cli.home, f"SELECT workload, environment FROM runs WHERE id = '{run}'")
        runner = create_runner("monty")
        try:
            config = runner.evaluate(trial["policy"], json.loads(row[0]), json.loads(row[1]))
        finally:
            runner.close()
        assert config == trial["config"]


def _row(home: Path, sql: str) -> tuple[str, ...]:
    with sqlite3.connect(home / "ccl-search.sqlite") as connection:
        found: tuple[str, ...] = connection.execute(sql).fetchone()
    return found


def test_the_leaderboard_view_answers_plain_sql(cli: Cli) -> None:
    summary = cli("run", "--iterations", "1", "--json").document

    row = _row(
        cli.home,
        "SELECT avg_step_time, num_xpus, backend FROM leaderboard WHERE model_family = 'llama-3.1-8b' AND "
        "phase = 'training' AND fidelity = 'simulated' ORDER BY avg_step_time",
    )

    assert float(row[0]) == pytest.approx(summary["best"]["metrics"]["avg_step_time"])
    assert row[2] == "flow"


def test_the_same_seed_gives_the_same_search(cli: Cli) -> None:
    runs = [cli("run", "--iterations", "3", "--proposer", "random", "--seed", "7", "--json").document for _ in range(2)]

    first, second = (cli("show", run["run_id"], "--json").document["trial_rows"] for run in runs)
    assert [row["config"] for row in first] == [row["config"] for row in second]
    assert [row["score"] for row in first] == [row["score"] for row in second]


@pytest.mark.parametrize("proposer", ["tpe", "grid"])
def test_the_baselines_search_too(proposer: str, cli: Cli) -> None:
    result = cli("run", "--iterations", "2", "--proposer", proposer, "--json")

    assert (result.code, result.document["proposer"]) == (0, proposer)
    assert result.document["stop_reason"] == "2 iterations done"
    assert result.document["trials"] >= 3


def test_a_composite_starts_at_one_and_a_better_trial_scores_more(cli: Cli) -> None:
    arguments = ("--objective", "step_time", "--objective", "num_xpus", "--weights", "0.5,0.5", "--json")
    run = cli("run", "--iterations", "2", *arguments).document

    rows = cli("show", run["run_id"], "--json").document["trial_rows"]
    assert rows[0]["score"] == pytest.approx(1.0)
    for row in rows[1:]:
        expected = 0.5 * rows[0]["avg_step_time"] / row["avg_step_time"] + 0.5 * rows[0]["num_xpus"] / row["num_xpus"]
        assert row["score"] == pytest.approx(expected)


def test_patience_ends_a_search_early(cli: Cli) -> None:
    result = cli("run", "--iterations", "12", "--patience", "2", "--proposer", "grid", "--json").document

    assert result["trials"] < 13
    assert "no improvement in 2 iterations" in result["stop_reason"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--workload", "wl9"), "no bundled workload is called 'wl9'"),
        (("--environment", "perlmutter-a100-18"), "no whole number of nodes"),
        (("--environment", "frontier-9"), "no bundled environment"),
        (("--framework", "deepspeed"), "deepspeed"),
        (("--objective", "speed"), "no metric is called 'speed'"),
        (("--objective", "step_time", "--weights", "0.5,x"), "--weights"),
        (("--objective", "step_time", "--weights", "0.5,0.5"), "2 weights for 1 objectives"),
        (("--objective", "step_time", "--objective", "avg_step_time"), "named twice"),
        (("--baseline", "avg_step_time"), "no NAME=VALUE"),
        (("--proposer", "oracle"), "no proposer is called 'oracle'"),
        (("--target", "moon"), "no target is called 'moon'"),
        (("--sandbox", "none"), "no sandbox 'none'"),
        (("--card", "missing.yaml"), "missing.yaml"),
        (("--policy", "missing.py"), "missing.py"),
        (("--max-cost", "much"), "--max-cost"),
        (("--workload", "wl7"), "infeasible"),
        (("--workload", "wl4", "--environment", "tpu-v6e-8", "--framework", "megatron-lm"), "megatron-lm runs on GPU"),
    ],
)
def test_bad_input_is_one_line_a_hint_and_exit_code_2(arguments: tuple[str, ...], says: str, cli: Cli) -> None:
    result = cli("run", *arguments, "--json")

    lines = result.err.strip().splitlines()
    assert result.code == 2
    assert result.out == ""
    assert says in result.err
    assert lines[-2].startswith("error: ")
    assert lines[-1].startswith("hint:  ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("knobs: []", "no knobs"),
        ("knobs: [{key: tp, type: int, choices: []}]", "tp"),
        ("knobs: [{key: tp, type: int, choices: [1, true]}]", "True is no int"),
        ("knobs: [{key: tp, type: int, choices: [1]}]\nconstraints: [{expression: 'tpp > 1'}]", "tpp"),
        ("knobs: [{key: tp, type: int, choices: [1]}]\nconstraints: ['__import__(\"os\")']", "only"),
        ("knobs: [{key: tp, type: int, choices: [3]}]\nconstraints: ['tp < 2']", "no config"),
        ("{", "no YAML"),
        ("[]", "mapping"),
    ],
)
def test_a_bad_space_is_refused(text: str, says: str, cli: Cli, tmp_path: Path) -> None:
    space = tmp_path / "space.yaml"
    space.write_text(text, encoding="utf-8")

    result = cli("run", "--space", str(space))

    assert result.code == 2
    assert says in result.err


BAD_POLICIES = {
    "loops": "def generate_config(workload, environment):\n    while True:\n        pass\n",
    "allocates": "def generate_config(workload, environment):\n    x = ['a']\n    while True:\n        x = x + x\n",
    "prints": "def generate_config(workload, environment):\n    while True:\n        print('x' * 1000)\n",
    "list": "def generate_config(workload, environment):\n    return [1, 2]\n",
    "nan": "def generate_config(workload, environment):\n    return {'tp': float('nan')}\n",
    "unknown": "def generate_config(workload, environment):\n    return {'warp': 9}\n",
    "true": "def generate_config(workload, environment):\n"
    "    return {k['key']: (True if k['key'] == 'micro_batch_size' else k['choices'][0])"
    " for k in workload['config_space']}\n",
    "reads": "def generate_config(workload, environment):\n    return {'tp': len(open('/etc/passwd').read())}\n",
    "raises": "def generate_config(workload, environment):\n    raise ValueError('no idea')\n",
    "syntax": "def generate_config(workload, environment:\n",
}


@pytest.mark.parametrize("name", BAD_POLICIES)
def test_a_bad_policy_is_a_recorded_trial_and_the_search_goes_on(name: str, cli: Cli, tmp_path: Path) -> None:
    policy = tmp_path / "policy.py"
    policy.write_text(BAD_POLICIES[name], encoding="utf-8")

    result = cli("run", "--policy", str(policy), "--iterations", "1", "--proposer", "random", "--json")

    rows = cli("show", result.document["run_id"], "--json").document["trial_rows"]
    assert result.code == 0
    assert rows[0]["state"] in ("failed", "pruned")
    assert rows[0]["failure"] in ("policy_error", "invalid_config")
    assert rows[0]["evidence"]
    assert rows[1]["state"] == "succeeded"


def test_a_run_without_any_result_says_so_with_exit_code_4(cli: Cli, tmp_path: Path) -> None:
    policy = tmp_path / "policy.py"
    policy.write_text(BAD_POLICIES["raises"], encoding="utf-8")

    result = cli("run", "--policy", str(policy), "--iterations", "0", "--json")

    assert result.code == 4
    assert result.document["best"] is None
    assert "ended without a result" in result.err


@pytest.mark.parametrize("arguments", [("--max-xpu-hours", "-1"), ("--max-minutes", "nan"), ("--time-limit", "0")])
def test_a_budget_that_is_none_is_refused(arguments: tuple[str, str], cli: Cli) -> None:
    result = cli("run", *arguments)

    assert result.code == 2
    assert "no budget" in result.err


def test_a_baseline_of_no_objective_is_refused(cli: Cli) -> None:
    assert "of no objective" in cli("run", "--baseline", "mfu=5").err


def test_evidence_with_brackets_is_shown_as_it_is(cli: Cli, tmp_path: Path) -> None:
    policy = tmp_path / "policy.py"
    text = "bad dims [tp, pp] near [/usr/lib/x]"
    policy.write_text(
        f"def generate_config(workload, environment):\n    raise ValueError({text!r})\n", encoding="utf-8"
    )
    cli("run", "--policy", str(policy), "--iterations", "0")

    assert cli("show", "latest").code == 0
    assert text in cli("show", "latest", "--trial", "0").err


def test_a_composite_with_a_metric_of_zero_says_what_is_missing(cli: Cli) -> None:
    arguments = ("--objective", "step_time", "--objective", "bubble_fraction", "--iterations", "1", "--json")
    result = cli("run", *arguments)

    rows = cli("show", "latest", "--json").document["trial_rows"]
    assert "Traceback" not in result.err
    assert rows[0]["failure"] == "metric_error"
    assert "bubble_fraction has no baseline" in rows[0]["evidence"]


def test_a_card_and_a_bundled_workload_clash(cli: Cli, tmp_path: Path) -> None:
    card = tmp_path / "card.yaml"
    card.write_text("version: 1\n", encoding="utf-8")

    result = cli("run", "--card", str(card), "--workload", "wl4")

    assert result.code == 2
    assert "leave out --workload" in result.err


def test_a_card_that_is_no_yaml_is_refused(cli: Cli, tmp_path: Path) -> None:
    card = tmp_path / "card.yaml"
    card.write_text("{ [", encoding="utf-8")

    result = cli("run", "--card", str(card))

    assert result.code == 2
    assert "card.yaml" in result.err


def test_a_trial_card_runs_again_with_the_same_result(cli: Cli) -> None:
    run = cli("run", "--iterations", "1", "--json").document
    best = Path(run["best"]["policy_path"]).parent

    again = cli(
        "run", "--card", str(best / "card.yaml"), "--policy", str(best / "policy.py"), "--iterations", "0", "--json"
    )

    assert again.code == 0
    assert again.document["best"]["config"] == run["best"]["config"]
    assert again.document["best"]["score"] == pytest.approx(run["best"]["score"])


def test_lists_are_lists_and_shows_are_objects(cli: Cli) -> None:
    run = cli("run", "--iterations", "0", "--json").document

    for verb in ("list", "workloads", "environments", "targets"):
        found = cli(verb, "--json").document
        assert isinstance(found, list)
        assert all("name" in item or "id" in item for item in found)
    for arguments in (("show", "latest"), ("show", run["run_id"][:12]), ("best", "latest")):
        document = cli(*arguments, "--json").document
        assert isinstance(document, dict)
        assert document["run_id"] == run["run_id"]
