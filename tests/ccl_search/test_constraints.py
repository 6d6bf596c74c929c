"""Constraints: what is one, what it means, and what it does to space, trials and Optuna."""

from __future__ import annotations

from functools import cache

import pytest

from ccl_search import constraints, feasibility
from ccl_search.constraints import Limit, parse
from ccl_search.problem import Problem, ProblemSource, resolve
from runs.errors import BadInputError
from runs.metric import MetricValue
from runs.trial import FailureClass
from tests.ccl_search.recorded import GOOD, axis

MEMORY = axis("peak_memory_gb")


@cache
def problem() -> Problem:
    return resolve(ProblemSource())


def limit(text: str) -> Limit:
    (found,) = parse([text], problem().space).limits
    return found


@pytest.mark.parametrize(
    ("text", "name", "operator", "bound"),
    [
        ("peak_memory_gb <= 38", "peak_memory_gb", "<=", 38.0),
        ("38 >= peak_memory_gb", "peak_memory_gb", "<=", 38.0),
        ("step_time < 1.5", "avg_step_time", "<", 1.5),
        (" mfu > -1 ", "mfu", ">", -1.0),
    ],
)
def test_a_metric_makes_a_limit(text: str, name: str, operator: str, bound: float) -> None:
    found = limit(text)

    assert (found.spec.name, found.operator, found.bound) == (name, operator, bound)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("peak_memory_gb", "no single comparison"),
        ("2 <= tp <= 4", "no single comparison"),
        ("tp <= 4 and pp <= 2", "no single comparison"),
        ("tp in [1, 2]", "no single comparison"),
        ("tp <= pp", "does not compare with a value"),
        ("tp * pp <= 4", "names no knob and no metric"),
        ("1 <= 2", "names no knob and no metric"),
        ("peak_memory_gb <= 'a'", "compares a metric with 'a'"),
        ("peak_memory_gb <= True", "compares a metric with True"),
        ("pipeline_schedule <= 1", "is a str"),
        ("pipeline_schedule < '1f1b'", "is a str"),
        ("compile == 1", "is a bool"),
        ("tp == '1'", "is a int"),
        ("__import__('os')", "may be called"),
        ("peak_memory_gb <=", "no expression"),
    ],
)
def test_what_is_no_constraint_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        parse([text], problem().space)


def test_an_unknown_name_gets_the_list_of_known_ones() -> None:
    with pytest.raises(BadInputError, match="'peak_memory', which is neither a knob nor a metric") as caught:
        parse(["peak_memory <= 38"], problem().space)

    assert "tp" in caught.value.hint
    assert "peak_memory_gb" in caught.value.hint


def test_a_knob_constraint_is_a_rule_of_the_space_refused_before_launch() -> None:
    found = parse(["tp <= 2", "pipeline_schedule == '1f1b'"], problem().space)
    space = found.applied_to(problem().space)
    bound = Problem(**{**vars(problem()), "space": space})

    verdict = feasibility.check(GOOD, bound, {})

    assert isinstance(verdict, feasibility.Refusal)
    assert verdict.failure is FailureClass.INVALID_CONFIG
    assert "tp <= 2" in verdict.reason
    assert "tp=4" in verdict.reason
    assert found.limits == ()


def test_devices_are_known_before_launch_too() -> None:
    space = parse(["num_xpus <= 8"], problem().space).applied_to(problem().space)
    inputs = problem().workload_input, problem().environment_input

    broken = space.violations(GOOD, *inputs)

    assert [violation.rule for violation in broken] == ["num_xpus <= 8"]
    assert all(space.world_size(config, *inputs) <= 8 for config in space.valid_configs(*inputs))


def test_without_constraints_the_space_is_the_same() -> None:
    assert parse([], problem().space).applied_to(problem().space) is problem().space


@pytest.mark.parametrize(
    ("operator", "value", "holds"),
    [("<=", 38.0, True), ("<", 38.0, False), (">=", 38.0, True), (">", 38.0, False), ("==", 38.0, True),
     ("!=", 38.0, False), ("<=", 38.1, False), (">=", 37.9, False), ("!=", 37.0, True), ("==", 37.0, False)],
)  # fmt: skip
def test_limits_mean_what_they_say_and_excess_agrees(operator: str, value: float, holds: bool) -> None:
    found = Limit(MEMORY, operator, 38.0)

    assert found.allows(value) is holds
    assert (found.excess(value) <= 0) is holds


def test_the_excess_is_in_the_metrics_unit() -> None:
    assert Limit(MEMORY, "<=", 38.0).excess(40.5) == pytest.approx(2.5)
    assert Limit(MEMORY, ">=", 38.0).excess(40.5) == pytest.approx(-2.5)


def test_a_violation_names_rule_value_and_unit() -> None:
    assert limit("peak_memory_gb <= 38").violation({"peak_memory_gb": 39.25}) == (
        "`peak_memory_gb <= 38` does not hold: peak_memory_gb is 39.25 GB"
    )


def test_a_metric_without_a_value_proves_nothing() -> None:
    found = constraints.violations([limit("peak_memory_gb <= 38")], {"peak_memory_gb": MetricValue.none(MEMORY, "no")})

    assert len(found) == 1
    assert "cannot be checked" in found[0]


def test_in_another_space_what_names_none_of_its_knobs_is_left_out() -> None:
    other = resolve(ProblemSource(framework="megatron-lm")).space
    texts = ("tp <= 4", "dp_shard >= 2", "pipeline_schedule == '1f1b'", "peak_memory_gb <= 38", "num_xpus <= 8")

    assert constraints.kept_in(texts, problem().space) == texts
    assert constraints.kept_in(texts, other) == tuple(text for text in texts if not text.startswith("dp_shard"))
    assert constraints.kept_in(("pipeline_schedule <= 4",), other) == ()
    assert [rule.name for rule in constraints.rules_for(texts, other).rules] == [
        "tp <= 4",
        "pipeline_schedule == '1f1b'",
        "num_xpus <= 8",
    ]
    assert constraints.rules_for(texts, other).limits == ()


def test_a_rule_that_a_space_has_is_not_added_again() -> None:
    bounds = parse(("tp <= 4", "num_xpus <= 8"), problem().space)
    once = bounds.applied_to(problem().space)

    assert len(once.constraints) == len(problem().space.constraints) + 2
    assert bounds.applied_to(once) == once


def test_portability_can_be_bounded() -> None:
    (found,) = parse(("portability >= 0.9",), problem().space).limits

    assert (found.allows(0.9), found.allows(0.89), found.margin_sign) == (True, False, -1)
