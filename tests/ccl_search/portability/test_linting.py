"""Linting policies: what each gives over many clusters, and how far its configs are from the best known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ccl_search.portability.cases import Case, Home, cases
from ccl_search.portability.checking import lint
from launchers import frameworks
from policies.runner import PolicyRunner
from policies.seeds import seed_policy
from runs import catalogue
from tests.ccl_search.cli import Cli
from tests.ccl_search.portability.recorded import check_inputs
from tests.ccl_search.publishing import made
from tests.reference import shared_path

CONSTANT = """def generate_config(workload, environment):
    return {"tp": 4, "cp": 1, "pp": 1, "dp": 4, "dp_shard": 4, "zero_stage": 3, "micro_batch_size": 1,
            "pipeline_schedule": "1f1b", "activation_checkpointing": "full", "compile": False}
"""
CARELESS = CONSTANT.replace("    return", "    memory = environment['gpu_memory_gb']\n    return")
FIRST_CHOICES = """def generate_config(workload, environment):
    return {knob["key"]: knob["choices"][0] for knob in workload["config_space"]}
"""


@pytest.fixture(scope="module")
def found() -> tuple[Case, ...]:
    framework = frameworks.get("torchtitan")
    where = catalogue.with_framework(catalogue.environment("perlmutter-a100-16"), framework.name, framework.version)
    return cases(Home(catalogue.workload("wl4"), where, framework))


def test_the_cases_are_all_bundled_clusters_and_the_perturbations(found: tuple[Case, ...]) -> None:
    names = [case.name for case in found]
    kinds = {case.kind for case in found}

    gpus = [name for name in catalogue.environment_names() if not name.startswith("tpu")]
    assert names[: len(gpus)] == gpus
    assert kinds == {"bundled", "size", "odd nodes", "memory", "unset fact"}
    sizes = {case.environment.total_xpus for case in found if case.kind in ("size", "odd nodes")}
    assert sizes == {8, 32, 12, 20, 28}
    memories = {case.environment.device_memory_gb for case in found if case.kind == "memory"}
    assert memories == {16, 24, 48, 80, 141, 192}
    assert len(names) == len(set(names))


def test_a_constant_policy_is_called_one(found: tuple[Case, ...], monty: PolicyRunner) -> None:
    report = lint(CONSTANT, found, monty, sample=0)

    by_name = {result.case: result for result in report.results}
    assert report.constant
    assert by_name["perlmutter-a100-16"].outcome == "valid"
    assert by_name["h100-8"].outcome == "invalid"
    assert "exceeds the devices" in by_name["h100-8"].reason
    assert report.counts["valid"] + report.counts["invalid"] + report.counts["impossible"] == len(report.results)


def test_a_policy_that_needs_a_fact_raises_without_it(found: tuple[Case, ...], monty: PolicyRunner) -> None:
    report = lint(CARELESS, found, monty, sample=0)

    raising = [result for result in report.results if result.outcome == "raises"]
    assert [result.case for result in raising] == ["gpu_memory_gb unset"]
    assert "KeyError" in raising[0].reason


def test_the_seed_policy_follows_the_cluster(found: tuple[Case, ...], monty: PolicyRunner) -> None:
    report = lint(seed_policy("torchtitan"), found, monty, sample=0)

    assert not report.constant
    assert report.counts["raises"] == 0
    assert report.share > 0.9


def test_losses_are_against_the_best_of_what_was_predicted(found: tuple[Case, ...], monty: PolicyRunner) -> None:
    few = [case for case in found if case.name in ("half (8 devices)", "3 nodes (12 devices)")]
    seed = lint(seed_policy("torchtitan"), few, monty, sample=2)
    best = next(result.best_known for result in seed.results if result.case == "half (8 devices)")
    assert best is not None
    source = f"def generate_config(workload, environment):\n    return {best!r}\n"
    again = lint(source, few[:1], monty, sample=1)

    assert set(seed.sampled) == {case.name for case in few}
    assert all(loss >= 0 for loss in seed.losses.values())
    assert list(again.losses.values()) == [0.0]
    assert again.results[0].step_s == seed.results[0].best_known_s


def test_lint_speaks_for_files_and_runs(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "policy.py"
    path.write_text(CONSTANT, encoding="utf-8")

    document = cli("policies", "lint", str(path), "--sample", "1", "--json").document

    assert document["constant"] is True
    assert len(document["sampled"]) == 1
    assert document["counts"]["valid"] == sum(case["outcome"] == "valid" for case in document["cases"])
    for arguments, says in (
        (("missing.py",), "cannot read the policy"),
        (("latest", "--workload", "wl4"), "leave those options out"),
        ((str(path), "--framework", "vllm"), "vllm runs inference"),
    ):
        result = cli("policies", "lint", *arguments)
        assert result.code == 2
        assert says in result.err


SPACE = """
name: mine
world_size: tp * dp
knobs:
  - {key: tp, type: int, choices: [1, 2, 4]}
  - {key: dp, type: int, choices: [1, 2, 4]}
  - {key: micro_batch_size, type: int, choices: [1]}
constraints:
  - {name: enough, expression: "tp * dp <= environment.total_gpus", message: too many}
"""


def test_a_run_is_linted_in_the_space_it_was_searched_in(cli: Cli, tmp_path: Path) -> None:
    """A space of the user's own stays what it is; with the framework's default every case would lack knobs."""
    (tmp_path / "space.yaml").write_text(SPACE, encoding="utf-8")
    card = str(made.small_card(tmp_path / "card.yaml"))
    ran = cli("run", "--card", card, "--space", str(tmp_path / "space.yaml"), "--iterations", "0", "--json")

    report = cli("policies", "lint", "latest", "--sample", "0", "--json").document

    assert ran.code == 0
    for case in report["cases"]:
        assert set(case["config"]) == {"tp", "dp", "micro_batch_size"}
        assert "missing_knob" not in case["reason"]
    assert report["counts"]["valid"] > 0


def test_the_users_bounds_on_knobs_hold_on_other_clusters_too(cli: Cli, tmp_path: Path) -> None:
    card = str(made.small_card(tmp_path / "card.yaml"))
    (tmp_path / "policy.py").write_text(FIRST_CHOICES, encoding="utf-8")
    bounds = ("--constraint", "tp >= 4", "--constraint", "peak_memory_gb <= 1000")
    cli("run", "--card", card, "--proposer", "random", "--iterations", "2", *bounds)

    report = cli("policies", "lint", "latest", "--json").document

    best = cli("best", "latest", "--json").document["config"]
    assert best["tp"] >= 4
    assert all(case["best_known"]["tp"] >= 4 for case in report["cases"] if case["best_known"])
    assert report["sampled"]


def test_where_nothing_fits_no_policy_is_to_blame(monty: PolicyRunner) -> None:
    """wl7 has 235 billion parameters: 4 TB of state and more, which 3 nodes of 4 A100 (0.5 TB) cannot hold."""
    framework = frameworks.get("torchtitan")
    where = catalogue.with_framework(catalogue.environment("perlmutter-a100-256"), framework.name, framework.version)
    few = [case for case in cases(Home(catalogue.workload("wl7"), where, framework)) if case.name.startswith("3 nodes")]

    for source in (CONSTANT, FIRST_CHOICES, "def generate_config(workload, environment):\n    return 1 / 0\n"):
        report = lint(source, few, monty, sample=1)
        assert report.counts["impossible"] == 1
        assert report.sampled == ()
        assert report.value is None


@pytest.mark.shared
def test_recorded_inputs_of_other_searches_can_be_linted(monty: PolicyRunner) -> None:
    golden: dict[str, Any] = json.loads(shared_path("data/policy_golden.json").read_text(encoding="utf-8"))

    for name, inputs in golden["inputs"].items():
        workload, environment = inputs["workload"], inputs["environment"]
        given = check_inputs(FIRST_CHOICES, workload, environment, monty)
        assert given.outcome == "valid", (name, given.reason)
        told = [{key: value for key, value in facts.items() if value is not None} for facts in (workload, environment)]
        seed = check_inputs(seed_policy("torchtitan"), told[0], told[1], monty)
        assert seed.outcome in ("valid", "invalid"), (name, seed.reason)


@pytest.mark.shared
def test_a_recorded_config_taken_verbatim_is_valid_at_home_and_not_everywhere(monty: PolicyRunner) -> None:
    """Recorded facts: proposals stayed inside their own spaces; taken to other inputs, configs often do not fit."""
    golden: dict[str, Any] = json.loads(shared_path("data/policy_golden.json").read_text(encoding="utf-8"))
    at_home, elsewhere = [], []
    last = {case["run"]: case["expected"] for case in golden["cases"] if case["expected"]}
    for run, config in last.items():
        source = f"def generate_config(workload, environment):\n    return {config!r}\n"
        for name, inputs in golden["inputs"].items():
            result = check_inputs(source, inputs["workload"], inputs["environment"], monty)
            (at_home if name == run else elsewhere).append(result.outcome)

    assert at_home.count("valid") >= len(at_home) - 1
    assert 0 < elsewhere.count("invalid") < len(elsewhere)
