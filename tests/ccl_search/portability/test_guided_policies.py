"""What `guided` writes: exactly the chosen config at home, and configs that can run on other clusters."""

from __future__ import annotations

from contextlib import closing
from itertools import islice

import pytest

from ccl_search.portability.cases import Home, cases
from ccl_search.portability.checking import lint
from ccl_search.problem import ProblemSource, resolve
from ccl_search.proposers.guided.writing import policy_text
from policies.factory import create_runner
from policies.runner import PolicyRunner
from tests.ccl_search.portability.recorded import check_inputs
from tests.policies.readable import unexplained
from tests.reference import shared_path

SUBJECTS = [
    ("wl4", "perlmutter-a100-16", "torchtitan"),
    ("wl5", "perlmutter-a100-16", "torchtitan"),
    ("wl4", "perlmutter-a100-16", "megatron-lm"),
    ("wl6", "perlmutter-a100-128", "torchtitan"),
    ("wl4", "tpu-v6e-8", "maxtext"),
    ("wl1", "h100-8", "vllm"),
]


@pytest.mark.parametrize(("workload", "environment", "framework"), SUBJECTS)
@pytest.mark.parametrize("needs_gb", [1.0, 500.0])
def test_at_home_every_config_comes_out_as_it_was_chosen(
    workload: str, environment: str, framework: str, needs_gb: float, monty: PolicyRunner
) -> None:
    """Whatever the memory estimate says: a search proposes configs, and its policies must give them."""
    problem = resolve(ProblemSource(workload=workload, environment=environment, framework=framework))
    inputs = problem.workload_input, problem.environment_input
    configs = list(islice(problem.space.valid_configs(*inputs), 4000))

    for config in configs[:: max(1, len(configs) // 40)]:
        source = policy_text(config, inputs[1], 'a reason with "quotes" and \\ strokes', problem.space, needs_gb)
        assert monty.evaluate(source, *inputs) == config


@pytest.mark.parametrize(("workload", "environment", "framework"), SUBJECTS[1:])
def test_every_function_says_what_it_takes_and_gives_and_full_python_agrees(
    workload: str, environment: str, framework: str
) -> None:
    problem = resolve(ProblemSource(workload=workload, environment=environment, framework=framework))
    inputs = problem.workload_input, problem.environment_input
    config = next(iter(problem.space.valid_configs(*inputs)))
    source = policy_text(config, inputs[1], "why", problem.space, 1.0)

    assert unexplained(source) == []
    assert [line for line in source.splitlines() if line.endswith("  # devices")]
    with closing(create_runner("process", unconfined=True)) as full:
        assert full.evaluate(source, *inputs) == config


@pytest.mark.parametrize(("workload", "environment", "framework"), SUBJECTS[:3])
def test_elsewhere_nearly_all_configs_are_legal(
    workload: str, environment: str, framework: str, monty: PolicyRunner
) -> None:
    problem = resolve(ProblemSource(workload=workload, environment=environment, framework=framework))
    inputs = problem.workload_input, problem.environment_input
    configs = list(islice(problem.space.valid_configs(*inputs), 4000))
    found = cases(Home(problem.workload, problem.environment, problem.framework))

    for config in configs[:: max(1, len(configs) // 4)]:
        source = policy_text(config, inputs[1], "why", problem.space, 10.0)
        counts = lint(source, found, monty, sample=0).counts
        assert counts["raises"] == 0
        assert counts["invalid"] <= 1, counts


def test_a_cluster_twice_as_large_is_used_whole(monty: PolicyRunner) -> None:
    problem = resolve(ProblemSource(workload="wl4", environment="perlmutter-a100-16", framework="torchtitan"))
    larger = resolve(ProblemSource(workload="wl4", environment="perlmutter-a100-32", framework="torchtitan"))
    config = {
        "tp": 4, "cp": 1, "pp": 1, "dp": 4, "dp_shard": 4, "zero_stage": 3, "micro_batch_size": 1,
        "pipeline_schedule": "1f1b", "activation_checkpointing": "full", "compile": False,
    }  # fmt: skip
    source = policy_text(config, problem.environment_input, "why", problem.space, 10.0)

    found = monty.evaluate(source, larger.workload_input, larger.environment_input)

    assert larger.space.violations(found, larger.workload_input, larger.environment_input) == []
    assert found["tp"] * found["cp"] * found["pp"] * found["dp"] == 32
    assert {key: found[key] for key in ("tp", "dp", "micro_batch_size", "compile")} == {
        key: config[key] for key in ("tp", "dp", "micro_batch_size", "compile")
    }  # the batch of 4 splits over no more replicas


@pytest.mark.shared
def test_recorded_inputs_of_other_searches_get_a_config_of_their_own_space(monty: PolicyRunner) -> None:
    """Inputs as published searches gave them to their policies: other knobs, unset facts, other clusters."""
    import json

    golden = json.loads(shared_path("data/policy_golden.json").read_text(encoding="utf-8"))
    problem = resolve(ProblemSource(workload="wl4", environment="perlmutter-a100-16", framework="torchtitan"))
    config = next(iter(problem.space.valid_configs(problem.workload_input, problem.environment_input)))
    source = policy_text(config, problem.environment_input, "why", problem.space, 10.0)

    for name, inputs in golden["inputs"].items():
        told = [{k: v for k, v in inputs[part].items() if v is not None} for part in ("workload", "environment")]
        found = check_inputs(source, told[0], told[1], monty)
        assert found.outcome == "valid", (name, found.reason)
