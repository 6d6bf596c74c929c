"""The space of a search on another cluster: a bundled one is made anew, a user's own stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ccl_search.portability.spaces import elsewhere, is_own
from ccl_search.problem import Problem, ProblemSource, resolve
from runs import catalogue
from runs.environment import Environment
from runs.errors import BadInputError
from runs.space import ConfigSpace


@pytest.fixture(scope="module")
def problem() -> Problem:
    return resolve(ProblemSource(workload="wl6", environment="perlmutter-a100-16", framework="torchtitan"))


def there(name: str) -> Environment:
    return catalogue.with_framework(catalogue.environment(name), "torchtitan", "0.2.2")


def taken(problem: Problem, name: str, space: ConfigSpace | None, *bounds: str) -> ConfigSpace:
    return elsewhere(space, bounds, problem.framework, problem.workload, problem.environment, there(name))


def test_a_bundled_space_has_the_choices_of_the_new_cluster(problem: Problem) -> None:
    default = problem.framework.default_space(problem.workload, there("perlmutter-a100-64"))

    assert max(problem.space.knob("dp").choices) == 16
    assert max(default.knob("dp").choices) == 64
    for space in (None, problem.space):
        assert taken(problem, "perlmutter-a100-64", space) == default


def test_bounds_on_knobs_go_along_and_bounds_on_metrics_do_not(problem: Problem) -> None:
    found = taken(problem, "perlmutter-a100-64", problem.space, "tp <= 2", "peak_memory_gb <= 8")

    assert [rule.name for rule in found.constraints if rule.message == "asked for with --constraint"] == ["tp <= 2"]


def test_a_space_of_ones_own_stays_as_it_is(problem: Problem) -> None:
    fewer = replace(problem.space, knobs=problem.space.knobs[:-1])
    for own in (replace(problem.space, name="mine"), replace(fewer, constraints=())):
        assert is_own(own, problem.workload, problem.environment)
        assert taken(problem, "perlmutter-a100-64", own) is own
    assert not is_own(problem.space, problem.workload, problem.environment)


def test_where_the_framework_cannot_run_there_is_no_space(problem: Problem) -> None:
    for space in (None, problem.space, replace(problem.space, name="mine")):
        with pytest.raises(BadInputError, match="runs on GPU"):
            taken(problem, "tpu-v6e-8", space)
