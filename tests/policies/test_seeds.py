"""Seed policies: on every supported workload, environment and framework their config is valid and fits in memory."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from backends import memory
from launchers import frameworks
from policies import seeds
from policies.monty_runner import MontyRunner
from runs import catalogue
from runs.environment import Environment
from runs.errors import BadInputError
from runs.plan import ParallelPlan
from runs.space import ConfigSpace
from runs.workload import Workload
from tests.policies.readable import unexplained

FRAMEWORKS = [name for name in frameworks.names() if name != "command"]


def inputs(what: Workload, where: Environment, space: ConfigSpace) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a policy receives."""
    workload = {**what.policy_input(), "config_space": [knob.as_dict() for knob in space.knobs]}
    return workload, where.policy_input()


def supported(workload: str, framework: str) -> Iterator[tuple[Workload, Environment, ConfigSpace]]:
    """Every bundled environment the framework runs the workload on at all."""
    what, adapter = catalogue.workload(workload), frameworks.get(framework)
    for name in catalogue.environment_names():
        where = catalogue.environment(name)
        if adapter.supports(what, where) is None:
            yield what, where, adapter.default_space(what, where)


def fits(framework: str, config: dict[str, Any], what: Workload, where: Environment) -> bool:
    plan: ParallelPlan = frameworks.get(framework).plan(config, what, where)
    return memory.estimate(what, where, plan).fits


def some_config_fits(framework: str, what: Workload, where: Environment, space: ConfigSpace) -> bool:
    """Whether any config fits; none does where the state of the parameters alone exceeds all devices together."""
    kept = frameworks.get(framework).state_bytes
    state = (what.model.num_params or 0) * (kept.parameter + kept.gradient + kept.optimizer)
    if state > where.total_xpus * where.device_memory_gb * 2**30 * (1 + memory.DEFAULT_MARGIN):
        return False
    valid = space.valid_configs(what.policy_input(), where.policy_input())
    return any(fits(framework, config, what, where) for config in valid)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("workload", catalogue.workload_names())
def test_the_seeds_config_is_valid_and_fits_wherever_anything_does(
    workload: str, framework: str, monty: MontyRunner
) -> None:
    source = seeds.seed_policy(framework)
    for what, where, space in supported(workload, framework):
        given = inputs(what, where, space)
        config = monty.evaluate(source, *given)
        assert space.violations(config, *given) == [], where.name
        if not fits(framework, config, what, where):
            assert not some_config_fits(framework, what, where, space), where.name


@pytest.mark.parametrize("framework", frameworks.names())
def test_a_seed_takes_its_knobs_from_the_space_and_stands_absent_facts(framework: str, monty: MontyRunner) -> None:
    knobs = [
        {"key": "tp", "type": "int", "choices": [2, 4], "description": ""},
        {"key": "surprise", "type": "str", "choices": ["x", "y"], "description": ""},
        {"key": "activation_checkpointing", "type": "str", "choices": ["none"], "description": ""},
    ]
    source = seeds.seed_policy(framework)

    config = monty.evaluate(source, {"config_space": knobs}, {})

    assert set(config) == {"tp", "surprise", "activation_checkpointing"}
    assert ConfigSpace.from_dict({"knobs": knobs}).violations(config, {}, {}) == []
    assert monty.evaluate(source, {}, {}) == {}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_fact_of_a_policys_inputs_may_be_absent(framework: str, monty: MontyRunner) -> None:
    workload = "wl3" if framework in ("vllm", "sglang") else "wl5"
    what, where = catalogue.workload(workload), catalogue.environment("h100-16")
    space = frameworks.get(framework).default_space(what, where)
    given = inputs(what, where, space)
    source = seeds.seed_policy(framework)
    for fact in [*given[0], *given[1]]:
        less = [{key: value for key, value in facts.items() if key != fact} for facts in given]
        if "config_space" in less[0]:
            config = monty.evaluate(source, *less)
            assert set(config) == set(space.keys), fact


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_other_clusters_and_batches_get_a_valid_config_too(framework: str, monty: MontyRunner) -> None:
    adapter, source = frameworks.get(framework), seeds.seed_policy(framework)
    name = "wl2" if framework in ("vllm", "sglang") else "wl4"
    for count, per_node, batch in ((2, 2, 32), (24, 8, 48), (12, 4, 7), (64, 8, 1)):
        what = replace(catalogue.workload(name), batch_size=batch)
        where = replace(catalogue.environment("h100-8"), total_xpus=count, xpus_per_node=per_node)
        space = adapter.default_space(what, where)
        given = inputs(what, where, space)
        assert space.violations(monty.evaluate(source, *given), *given) == [], (count, batch)


def test_the_seed_of_the_moe_study_uses_all_devices(monty: MontyRunner) -> None:
    what, where = catalogue.workload("moe-prefill-kimi-k3"), catalogue.environment("h100-32")
    space = frameworks.named_space("moe-study", what, where)
    given = inputs(what, where, space)

    config = monty.evaluate(seeds.seed_policy("command"), *given)

    assert space.violations(config, *given) == []
    assert frameworks.get("command").plan(config, what, where).world_size == 32


def test_every_framework_has_a_seed_and_others_have_none() -> None:
    assert set(seeds.names()) == set(frameworks.names())
    with pytest.raises(BadInputError, match="no seed policy"):
        seeds.seed_policy("pytorch")
    with pytest.raises(BadInputError):
        seeds.seed_policy("../runner")


@pytest.mark.parametrize("framework", frameworks.names())
def test_a_seed_is_plain_functions_of_which_the_last_is_the_policy(framework: str) -> None:
    tree = ast.parse(seeds.seed_policy(framework))

    assert [node.name for node in tree.body if isinstance(node, ast.FunctionDef)][-1] == "generate_config"
    assert all(isinstance(node, ast.FunctionDef | ast.Expr) for node in tree.body)
    banned = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.Try, ast.With, ast.Raise)
    assert not [node for node in ast.walk(tree) if isinstance(node, banned)]


@pytest.mark.parametrize("framework", frameworks.names())
def test_every_function_of_a_seed_says_what_it_takes_and_gives(framework: str) -> None:
    assert unexplained(seeds.seed_policy(framework)) == []
