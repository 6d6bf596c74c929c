"""Feasibility: what is refused before a launch, with which class and numbers, and the answer where nothing fits."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from backends import memory
from ccl_search import feasibility
from ccl_search.feasibility import InfeasibleError, Refusal
from ccl_search.problem import Problem
from ccl_search.proposers.base import TrialView
from launchers import frameworks
from runs import catalogue, objective
from runs.card import card_from
from runs.errors import BadInputError
from runs.metric import Direction, MetricSpec
from runs.plan import ParallelPlan
from runs.space import ConfigSpace, config_key
from runs.trial import FailureClass, TrialState
from tests.timing import cpu_seconds

TIME = MetricSpec("avg_step_time", "1", "s", Direction.MINIMIZE)
GOOD: dict[str, Any] = {
    "tp": 4, "cp": 1, "pp": 1, "dp": 4, "dp_shard": 4, "zero_stage": 3, "micro_batch_size": 1,
    "pipeline_schedule": "1f1b", "activation_checkpointing": "full", "compile": False,
}  # fmt: skip


@cache
def problem(workload: str = "wl4", environment: str = "perlmutter-a100-16", framework: str = "torchtitan") -> Problem:
    """A problem over the framework's default space."""
    what = catalogue.workload(workload)
    where = catalogue.with_framework(catalogue.environment(environment), framework)
    adapter = frameworks.get(framework)
    made = objective.build([TIME], None)
    return Problem(card_from(what, where), what, where, adapter, adapter.default_space(what, where), made)


def refusal(config: dict[str, Any], seen: dict[str, TrialView] | None = None, of: Problem | None = None) -> Refusal:
    """The refusal of a config, which must be refused."""
    found = feasibility.check(config, of or problem(), seen or {})
    assert isinstance(found, Refusal)
    return found


def test_a_good_config_gives_its_plan() -> None:
    found = feasibility.check(GOOD, problem(), {})

    assert isinstance(found, ParallelPlan)
    assert (found.world_size, found.global_batch, found.dp_shard) == (16, 4, 4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tp": 3}, ("choice_tp", "tp=3", "1, 2, 4, 8")),
        ({"tp": True}, ("choice_tp", "True (bool)")),
        ({"micro_batch": 1}, ("unknown_knob", "micro_batch")),
        ({"pp": 2}, ("devices", "tp=4", "environment.total_gpus=16", "enough_micro_batches")),
        ({"micro_batch_size": 2}, ("global_batch", "workload.batch_size=4", "dp=4")),
        ({"dp": 1, "dp_shard": 1}, ("mixed_precision", "bf16")),
    ],
)
def test_an_invalid_config_is_refused_with_the_rule_and_the_numbers(
    change: dict[str, Any], words: tuple[str, ...]
) -> None:
    found = refusal({**GOOD, **change})

    assert found.failure is FailureClass.INVALID_CONFIG and found.failure.is_refusal
    assert all(word in found.reason for word in words), found.reason


def test_a_missing_knob_is_named() -> None:
    config = {key: value for key, value in GOOD.items() if key != "dp"}

    assert "dp is not set" in refusal(config).reason


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        (TrialView(3, TrialState.SUCCEEDED, GOOD, score=-0.41), ("trial 3", "succeeded", "-0.41")),
        (
            TrialView(5, TrialState.FAILED, GOOD, failure=FailureClass.OOM, evidence="CUDA out of memory\nmore"),
            ("trial 5", "failed", "oom", "CUDA out of memory"),
        ),
    ],
)
def test_a_duplicate_names_the_earlier_trial_and_its_result(trial: TrialView, words: tuple[str, ...]) -> None:
    reordered = dict(reversed(GOOD.items()))

    found = refusal(reordered, {config_key(GOOD): trial})

    assert found.failure is FailureClass.DUPLICATE
    assert all(word in found.reason for word in words)
    assert "more" not in found.reason


def test_other_configs_are_no_duplicates() -> None:
    earlier = TrialView(0, TrialState.SUCCEEDED, GOOD, score=-1.0)

    assert isinstance(
        feasibility.check({**GOOD, "compile": True}, problem(), {config_key(GOOD): earlier}), ParallelPlan
    )


def test_a_config_that_does_not_fit_is_refused_with_its_memory_parts() -> None:
    config = {**GOOD, "tp": 1, "dp": 2, "dp_shard": 2}
    # 8.03e9 parameters over 2 ranks: 15.0 GiB of fp32 weights, as much of gradients, 29.9 GiB of moments
    found = refusal(config)

    assert found.failure is FailureClass.PREDICTED_OOM
    assert all(word in found.reason for word in ("40.0 GiB", "margin 8%", "optimizer 29.9", "weights 15.0"))


def test_the_verdict_on_memory_is_the_memory_models() -> None:
    of = problem("wl5", "perlmutter-a100-16", "megatron-lm")
    configs = list(of.space.valid_configs(of.workload_input, of.environment_input))[::97]
    assert len(configs) > 20

    for config in configs:
        plan = of.framework.plan(config, of.workload, of.environment)
        fits = memory.estimate(of.workload, of.environment, plan).fits
        found = feasibility.check(config, of, {})
        assert found == plan if fits else (isinstance(found, Refusal) and found.failure is FailureClass.PREDICTED_OOM)


def test_a_space_without_a_rule_about_devices_cannot_exceed_them() -> None:
    space = ConfigSpace.from_dict({"name": "own", "knobs": [{"key": "tp", "choices": [8, 32]}]})
    of = replace(problem(), space=space, framework=frameworks.get("command"))

    found = refusal({"tp": 32}, of=of)

    assert found.failure is FailureClass.INVALID_CONFIG
    assert "tp is 32, the environment has 16" in found.reason


def test_a_config_without_a_meaning_is_refused_not_raised() -> None:
    knobs = [{"key": "dp", "choices": [3]}, {"key": "tp", "choices": [1]}]
    of = replace(problem(), space=ConfigSpace.from_dict({"knobs": knobs}), framework=frameworks.get("command"))

    found = refusal({"dp": 3, "tp": 1}, of=of)

    assert found.failure is FailureClass.INVALID_CONFIG
    assert "global batch of 4" in found.reason


def test_a_constraint_that_cannot_be_computed_is_a_refusal() -> None:
    space = ConfigSpace.from_dict({"knobs": [{"key": "tp", "choices": [1]}], "constraints": ["1 // (tp - 1) > 0"]})
    of = replace(problem(), space=space, framework=frameworks.get("command"))

    assert "cannot evaluate" in refusal({"tp": 1}, of=of).reason


def test_a_check_is_quick() -> None:
    assert cpu_seconds(lambda: feasibility.check(GOOD, problem(), {})) < 0.01


def test_a_sequence_no_config_can_split_is_said_with_the_rule() -> None:
    what, adapter = replace(catalogue.workload("wl4"), seq_len=513), frameworks.get("torchtitan")

    with pytest.raises(BadInputError, match=r"breaks sequence: .*workload\.seq_len=513"):
        feasibility.infeasible_report(what, problem().environment, adapter)


def test_feasible_problems_pass() -> None:
    feasibility.require_feasible(problem())
    assert feasibility.infeasible_report(problem().workload, problem().environment, problem().framework) is None


def test_a_framework_that_does_not_run_there_is_infeasible_with_the_reason() -> None:
    of = replace(problem("wl4", "tpu-v6e-8", "maxtext"), framework=frameworks.get("megatron-lm"))

    with pytest.raises(InfeasibleError) as caught:
        feasibility.require_feasible(of)

    assert caught.value.exit_code == 2
    assert caught.value.message == "infeasible: megatron-lm runs on GPU, not on a TPU"
    assert caught.value.report.smallest_count is None and caught.value.report.total_bytes is None


def test_wl7_on_16_devices_is_infeasible_with_the_parts_and_the_smallest_count() -> None:
    of = problem("wl7", "perlmutter-a100-16", "torchtitan")

    with pytest.raises(InfeasibleError, match="infeasible") as caught:
        feasibility.require_feasible(of)

    report = caught.value.report
    state = sum(report.parts[part] for part in ("weights", "gradients", "optimizer")) * 16
    assert state == pytest.approx(3.8e12, rel=0.02)  # 235.7e9 parameters at 16 bytes
    assert report.total_bytes == pytest.approx(sum(report.parts.values()))
    assert report.total_bytes is not None and report.limit_bytes is not None and report.total_bytes > report.limit_bytes
    assert report.config is not None
    assert of.space.violations(report.config, of.workload_input, of.environment_input) == []
    assert report.smallest_count is not None and str(report.smallest_count) in caught.value.hint
    assert report.as_dict()["smallest_count"] == report.smallest_count


@pytest.mark.parametrize(
    ("framework", "base"), [("torchtitan", "h100"), ("megatron-lm", "h100"), ("maxtext", "tpu-v6e")]
)
def test_the_smallest_count_fits_and_half_of_it_does_not(framework: str, base: str) -> None:
    what, adapter = catalogue.workload("wl7"), frameworks.get(framework)
    where = catalogue.environment(f"{base}-8")

    count = feasibility.smallest_count(what, where, adapter)

    assert count is not None
    assert feasibility.infeasible_report(what, replace(where, total_xpus=count), adapter) is None
    smaller = replace(where, total_xpus=count // 2)
    _, found = feasibility.closest(what, smaller, adapter, adapter.default_space(what, smaller))
    assert not found.fits


def test_where_no_number_of_devices_helps_there_is_no_count() -> None:
    what, adapter = catalogue.workload("moe-prefill-v4-pro"), frameworks.get("vllm")

    report = feasibility.infeasible_report(what, catalogue.environment("tpu-v6e-8"), adapter)

    assert report is not None and report.smallest_count is None
    assert report.hint == "use larger devices"


@pytest.mark.parametrize(
    ("workload", "environment", "framework"),
    [
        ("wl4", "perlmutter-a100-16", "torchtitan"),
        ("wl5", "perlmutter-a100-16", "megatron-lm"),
        ("wl5", "tpu-v6e-16", "maxtext"),
        ("wl3", "perlmutter-a100-16", "vllm"),
    ],
)
def test_nothing_needs_less_memory_than_the_leanest_configs(workload: str, environment: str, framework: str) -> None:
    of = problem(workload, environment, framework)

    def least(space: ConfigSpace) -> float:
        configs = space.valid_configs(of.workload_input, of.environment_input)
        plans = (of.framework.plan(config, of.workload, of.environment) for config in configs)
        return min(memory.estimate(of.workload, of.environment, plan).total_bytes for plan in plans)

    lean = feasibility.leanest(of.space)

    assert lean.size < of.space.size / 5
    assert least(lean) == least(of.space)


def test_feasible_configs_are_the_valid_ones_that_fit() -> None:
    of = problem()
    found = list(feasibility.feasible_configs(of.workload, of.environment, of.framework, of.space))

    assert len(found) >= 300
    assert all(isinstance(feasibility.check(config, of, {}), ParallelPlan) for config in found)
    valid = list(of.space.valid_configs(of.workload_input, of.environment_input))
    assert len(found) == sum(isinstance(feasibility.check(config, of, {}), ParallelPlan) for config in valid)


def test_a_space_without_a_valid_config_says_so() -> None:
    space = ConfigSpace.from_dict({"name": "none", "knobs": [{"key": "tp", "choices": [1]}], "constraints": ["tp > 1"]})

    with pytest.raises(BadInputError, match=r"no config of space 'none'.* breaks tp > 1"):
        feasibility.require_feasible(replace(problem(), space=space, framework=frameworks.get("command")))


def test_a_space_of_the_users_own_is_searched_whole_and_has_no_count() -> None:
    knobs = [{"key": "tp", "choices": [1, 2]}, {"key": "activation_checkpointing", "choices": ["full", "none"]}]
    rule = ["activation_checkpointing == 'none'"]
    space = ConfigSpace.from_dict({"name": "own", "knobs": knobs, "constraints": rule})
    of = replace(problem("wl7", "perlmutter-a100-16", "torchtitan"), space=space, framework=frameworks.get("command"))

    with pytest.raises(InfeasibleError) as caught:
        feasibility.require_feasible(of)

    assert caught.value.report.config == {"tp": 2, "activation_checkpointing": "none"}
    assert caught.value.report.smallest_count is None
