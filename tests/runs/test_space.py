"""The config space: typed choices, constraints with their values in the message, enumeration, the YAML form."""

from __future__ import annotations

import ast
import itertools
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from runs import space as space_module
from runs.errors import BadInputError
from runs.expressions import parse
from runs.space import ConfigSpace, Constraint, EndlessSpaceError, Knob, config_key, load

_RULES = (
    "tp * pp * dp <= environment.total_gpus",
    "workload.batch_size % (dp * mbs) == 0",
    "pp == 1 or workload.batch_size // (dp * mbs) >= pp",
    "flag or tp > 1",
    "mode in ('a', 'b') and not (mode == 'b' and tp == 2)",
    "workload.num_layers % pp == 0",
    "min(tp, pp) <= 2",
)
_WORKLOAD = {"batch_size": 8, "num_layers": 6}
_ENVIRONMENT = {"total_gpus": 16}


def knob(key: str, *choices: Any) -> Knob:
    return Knob(key, type(choices[0]).__name__, choices)


@st.composite
def spaces(draw: st.DrawFn) -> ConfigSpace:
    """Spaces over a fixed set of knobs with drawn choices, order and rules."""
    degrees = st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=1, max_size=3, unique=True)
    knobs = [knob(key, *draw(degrees)) for key in ("tp", "pp", "dp", "mbs")]
    knobs += [knob("flag", *draw(st.permutations([True, False]))), knob("mode", "a", "b", "c")]
    rules = draw(st.lists(st.sampled_from(_RULES), unique=True))
    constraints = tuple(Constraint(rule, parse(rule)) for rule in rules)
    return ConfigSpace("drawn", tuple(draw(st.permutations(knobs))), constraints, parse("tp * pp * dp"))


class _Dotted:
    def __init__(self, facts: dict[str, Any]) -> None:
        self.__dict__.update(facts)


def holds(rule: str, config: dict[str, Any]) -> bool:
    """Python's own verdict, with facts as plain attributes."""
    scope = {"workload": _Dotted(_WORKLOAD), "environment": _Dotted(_ENVIRONMENT), **config}
    return bool(eval(compile(ast.parse(rule, mode="eval"), "rule", "eval"), {"min": min}, scope))


@settings(max_examples=40, deadline=None)
@given(spaces())
def test_valid_configs_are_the_grid_points_that_satisfy_every_rule_in_grid_order(space: ConfigSpace) -> None:
    grid = [
        dict(zip(space.keys, values, strict=True)) for values in itertools.product(*(k.choices for k in space.knobs))
    ]
    expected = [c for c in grid if all(holds(rule.name, c) for rule in space.constraints)]

    assert list(space.valid_configs(_WORKLOAD, _ENVIRONMENT)) == expected
    assert space.size == len(grid)
    assert list(space.all_configs()) == grid


@settings(deadline=None)
@given(spaces(), st.data())
def test_violations_name_exactly_the_rules_that_do_not_hold(space: ConfigSpace, data: st.DataObject) -> None:
    config = {k.key: data.draw(st.sampled_from(k.choices)) for k in space.knobs}

    broken = [violation.rule for violation in space.violations(config, _WORKLOAD, _ENVIRONMENT)]

    assert broken == [rule.name for rule in space.constraints if not holds(rule.name, config)]


@settings(max_examples=40, deadline=None)
@given(spaces())
def test_the_yaml_form_reads_back_as_the_same_space(space: ConfigSpace) -> None:
    again = ConfigSpace.from_dict(yaml.safe_load(yaml.safe_dump(space.as_dict())))

    assert again.as_dict() == space.as_dict()
    assert list(again.valid_configs(_WORKLOAD, _ENVIRONMENT)) == list(space.valid_configs(_WORKLOAD, _ENVIRONMENT))


@given(
    st.sampled_from([1, 0, True, False, 1.0, 0.0, "1", "True", None]),
    st.sampled_from([1, 0, True, False, 1.0, 0.0, "1", "True"]),
)
def test_membership_is_of_the_same_type(value: Any, choice: Any) -> None:
    expected = repr(value) == repr(choice)

    assert Knob("k", type(choice).__name__, (choice,)).allows(value) is expected


@pytest.mark.parametrize("value", [[1], {"a": 1}, {1}, object(), float("nan")])
def test_values_that_are_no_scalar_are_refused_without_an_error(value: object) -> None:
    space = ConfigSpace("s", (knob("tp", 1, 2),))

    assert [v.rule for v in space.violations({"tp": value}, {}, {})] == ["choice_tp"]


def test_a_violation_says_the_rule_its_words_and_the_values() -> None:
    space = ConfigSpace(
        "s",
        (knob("dp", 1, 2, 4),),
        (Constraint("global_batch", parse("workload.batch_size % dp == 0"), "dp must divide the batch"),),
    )

    (violation,) = space.violations({"dp": 4}, {"batch_size": 6}, {})

    assert str(violation) == (
        "global_batch: dp must divide the batch (`workload.batch_size % dp == 0` with dp=4, workload.batch_size=6)"
    )


def test_missing_unknown_and_wrong_knobs_are_all_named_before_any_constraint() -> None:
    space = ConfigSpace("s", (knob("tp", 1, 2), knob("pp", 1, 2)), (Constraint("r", parse("tp == pp")),))

    found = {v.rule: v.message for v in space.violations({"tp": True, "dp": 1}, {}, {})}

    assert set(found) == {"missing_knob", "unknown_knob", "choice_tp"}
    assert "pp is not set" in found["missing_knob"]
    assert "'dp'" in found["unknown_knob"] and "tp, pp" in found["unknown_knob"]
    assert "tp=True (bool)" in found["choice_tp"]


def test_a_constraint_over_an_unset_fact_is_not_applied() -> None:
    space = ConfigSpace("s", (knob("pp", 1, 3),), (Constraint("r", parse("workload.num_layers % pp == 0")),))

    assert [c["pp"] for c in space.valid_configs({}, {})] == [1, 3]
    assert [c["pp"] for c in space.valid_configs({"num_layers": 4}, {})] == [1]


def test_a_constraint_without_knobs_decides_over_the_whole_space() -> None:
    space = ConfigSpace("s", (knob("pp", 1, 2),), (Constraint("r", parse("workload.moe")),))

    assert list(space.valid_configs({"moe": False}, {})) == []
    assert len(list(space.valid_configs({"moe": True}, {}))) == 2


def test_pruning_walks_a_grid_far_too_large_to_visit() -> None:
    degrees = tuple(range(1, 41))
    space = ConfigSpace(
        "s",
        tuple(knob(key, *degrees) for key in ("a", "b", "c", "d", "e", "f")),
        tuple(Constraint(rule, parse(rule)) for rule in ("a == 7", "b == a", "c == b", "d == c", "e == d", "f == e")),
    )

    assert space.size == 40**6
    assert list(space.valid_configs({}, {})) == [dict.fromkeys("abcdef", 7)]


def test_world_size_is_its_expression_and_guessed_from_the_degrees_when_not_given() -> None:
    knobs = [{"key": key, "choices": [1, 2]} for key in ("dp", "tp", "micro_batch_size", "pp")]

    guessed = ConfigSpace.from_dict({"knobs": knobs})

    assert guessed.world_size({"dp": 2, "tp": 2, "pp": 2, "micro_batch_size": 2}, {}, {}) == 8
    assert ConfigSpace.from_dict({"knobs": knobs, "world_size": "tp"}).world_size({"tp": 2}, {}, {}) == 2


def test_the_published_form_is_a_list_called_config_space() -> None:
    space = ConfigSpace.from_dict({"config_space": [{"key": "tp", "type": "int", "description": "", "choices": [1]}]})

    assert space.as_dict()["knobs"] == [{"key": "tp", "type": "int", "choices": [1], "description": ""}]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ([], "is no mapping"),
        ({}, "no list `knobs`"),
        ({"knobs": []}, "has no knobs"),
        ({"knobs": [{"key": "tp"}]}, "a knob needs"),
        ({"knobs": ["tp"]}, "a knob needs"),
        ({"knobs": [{"key": "tp", "choices": []}]}, "has no choices"),
        ({"knobs": [{"key": "t p", "choices": [1]}]}, "no identifier"),
        ({"knobs": [{"key": "tp", "type": "float", "choices": [float("inf")]}]}, "not finite"),
        ({"knobs": [{"key": "tp", "type": "int", "choices": [1, True]}]}, "choice True is no int"),
        ({"knobs": [{"key": "tp", "type": "list", "choices": [[1]]}]}, "unknown type"),
        ({"knobs": [{"key": "tp", "choices": [1]}, {"key": "tp", "choices": [2]}]}, "lists tp twice"),
        ({"knobs": [{"key": "tp", "choices": [1]}], "constraints": [{"name": "r"}]}, "a constraint needs"),
        ({"knobs": [{"key": "tp", "choices": [1]}], "constraints": ["tp * pp <= 4"]}, "names pp"),
        ({"knobs": [{"key": "tp", "choices": [1]}], "constraints": ["tp.real"]}, "dotted"),
        ({"knobs": [{"key": "tp", "choices": [1]}], "constraints": 3}, "constraints"),
        ({"knobs": [{"key": "tp", "choices": [1]}], "world_size": "dp"}, "world_size"),
    ],
)
def test_malformed_spaces_say_what_is_wrong(data: Any, complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        ConfigSpace.from_dict(data)


def test_a_space_file_is_read_and_its_troubles_are_one_line(tmp_path: Path) -> None:
    good = tmp_path / "mine.yaml"
    good.write_text("knobs:\n  - {key: tp, choices: [1, 2]}\n")
    assert load(good).name == "mine"

    bad = tmp_path / "bad.yaml"
    bad.write_text("knobs: [")
    with pytest.raises(BadInputError, match="no YAML"):
        load(bad)
    with pytest.raises(BadInputError, match="cannot be read"):
        load(tmp_path / "absent.yaml")
    with pytest.raises(BadInputError, match="cannot be read"):
        load(tmp_path)


def test_config_keys_are_equal_for_equal_configs_only() -> None:
    assert config_key({"tp": 1, "pp": 2}) == config_key({"pp": 2, "tp": 1})
    assert len({config_key({"x": value}) for value in (1, True, 1.0, "1")}) == 4


def _endless(count: int = 12) -> ConfigSpace:
    """A space of 10^count points whose only rule can be asked once all knobs but one are set, and never holds."""
    knobs = tuple(knob(f"k{place}", *range(10)) for place in range(count))
    return ConfigSpace("vast", knobs, (Constraint("never", parse(f"k{count - 1} < 0")),))


def test_a_walk_that_finds_nothing_for_long_is_given_up_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space_module, "MOST_DEAD_ENDS", 5_000)

    with pytest.raises(EndlessSpaceError, match=r"'vast' has 1e\+12 points, and 5,000 choices in a row") as caught:
        next(_endless().valid_configs({}, {}))

    assert "loosen a constraint" in caught.value.hint
    assert next(_endless().scattered_configs({}, {}, random.Random(0)), None) is None


def test_only_dead_ends_in_a_row_end_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space_module, "MOST_DEAD_ENDS", 10)
    rarely = ConfigSpace("rare", (knob("a", *range(100)), knob("b", *range(10))), (Constraint("r", parse("b == 9")),))

    assert sum(1 for _ in rarely.valid_configs({}, {})) == 100


def test_scattered_configs_are_valid_and_come_from_everywhere() -> None:
    settled = ConfigSpace(
        "thin", tuple(knob(key, *range(40)) for key in ("a", "b", "c", "d")), (Constraint("r", parse("a == d")),)
    )

    found = list(itertools.islice(settled.scattered_configs({}, {}, random.Random(1)), 400))

    assert all(not settled.violations(config, {}, {}) for config in found)
    assert len({config_key(config) for config in found}) > 380
    assert all(len({config[key] for config in found}) > 30 for key in settled.keys)
    again = itertools.islice(settled.scattered_configs({}, {}, random.Random(1)), 400)
    assert list(again) == found


@pytest.mark.parametrize(
    ("size", "complaint"),
    [
        ("[tp]", r"the world size `\[tp\]` of space 's' is \[2\]"),
        ("'many'", "is 'many'"),
        ("tp / 4", "is 0.5"),
        ("tp == 2", "is True"),
        ("1e999 * tp", "is inf"),
        ("tp * environment.racks", "needs environment.racks, which is not set"),
    ],
)
def test_a_world_size_that_is_no_whole_number_is_refused(size: str, complaint: str) -> None:
    found = ConfigSpace("s", (knob("tp", 1, 2),), (), parse(size))

    with pytest.raises(BadInputError, match=complaint) as caught:
        found.world_size({"tp": 2}, {}, {})

    assert "write the number of devices" in caught.value.hint


def test_a_world_size_may_be_a_quotient() -> None:
    assert ConfigSpace("s", (knob("tp", 2, 4),), (), parse("tp / 2")).world_size({"tp": 4}, {}, {}) == 2
