"""Policies in the style of recorded ones give the same config in every sandbox, types included."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.monty_runner import MontyRunner
from policies.process_runner import ProcessRunner
from policies.runner import PolicyError, PolicyErrorKind
from tests.policies.arena import process_runner
from tests.policies.styles import CHOICES_AND_HELPERS, RAISES_KEY_ERROR, STYLES
from tests.reference import shared_path

ECHO = "def generate_config(workload, environment):\n    return workload['echo']\n"


@pytest.fixture(scope="module")
def process() -> ProcessRunner:
    return ProcessRunner(unconfined=True)


def recorded_inputs() -> dict[str, dict[str, Any]]:
    return json.loads(shared_path("data/policy_golden.json").read_text())["inputs"]


def in_this_process(source: str, workload: dict[str, Any], environment: dict[str, Any]) -> dict[str, Any]:
    """What CPython makes of one of our own policies: the meaning every sandbox has to agree with."""
    names: dict[str, Any] = {}
    exec(source, names)
    return names["generate_config"](copy.deepcopy(workload), copy.deepcopy(environment))


def typed(config: dict[str, Any]) -> list[tuple[str, str, Any]]:
    return sorted((key, type(value).__name__, value) for key, value in config.items())


@pytest.mark.shared
@pytest.mark.parametrize("name", STYLES)
def test_recorded_inputs(name: str, monty: MontyRunner, process: ProcessRunner) -> None:
    inputs = recorded_inputs()
    assert len(inputs) == 15
    for number, pair in enumerate(inputs.values()):
        expected = typed(in_this_process(STYLES[name], pair["workload"], pair["environment"]))
        assert typed(monty.evaluate(STYLES[name], **pair)) == expected
        if number in (0, 12):  # a dense model, and a sparse one with facts that are None
            assert typed(process.evaluate(STYLES[name], **pair)) == expected


@pytest.mark.shared
def test_the_config_is_the_one_the_policy_describes(monty: MontyRunner, process: ProcessRunner) -> None:
    pair = recorded_inputs()["20260428_184951"]  # 16 devices, 4 a node, tp among 1, 2, 4, 8, 16; batch 32
    for runner in (monty, process):
        config = runner.evaluate(CHOICES_AND_HELPERS, **pair)
        assert {key: config[key] for key in ("tp", "pp", "dp")} == {"tp": 4, "pp": 1, "dp": 4}


@pytest.mark.shared
def test_the_mistake_recorded_policies_made(monty: MontyRunner, process: ProcessRunner) -> None:
    pair = recorded_inputs()["20260428_184951"]
    for runner in (monty, process):
        with pytest.raises(PolicyError) as caught:
            runner.evaluate(RAISES_KEY_ERROR, **pair)
        assert caught.value.kind is PolicyErrorKind.RAISED
        assert caught.value.message == "KeyError: 'name'"
        assert 'File "policy.py", line 3' in caught.value.traceback
        assert 'return {dim["name"]: dim["choices"][0]' in caught.value.traceback


_VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
)
_CONFIGS = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), _VALUES, max_size=64)


@settings(max_examples=40, deadline=None)
@given(config=_CONFIGS)
def test_values_survive_the_way_through_monty(monty: MontyRunner, config: dict[str, Any]) -> None:
    assert typed(monty.evaluate(ECHO, {"echo": config}, {})) == typed(config)


@settings(max_examples=4, deadline=None)
@given(config=_CONFIGS)
def test_values_survive_the_way_through_a_process(process: ProcessRunner, config: dict[str, Any]) -> None:
    assert typed(process.evaluate(ECHO, {"echo": config}, {})) == typed(config)


def test_unset_facts_arrive_as_they_are(monty: MontyRunner) -> None:
    source = (
        "def generate_config(w, e):\n    return {'none': w['a'] is None, 'absent': 'b' in w, 'n': len(w['c'][0])}\n"
    )
    expected = {"none": True, "absent": False, "n": 2}

    for runner in (monty, process_runner("none")):
        assert runner.evaluate(source, {"a": None, "c": [{"x": 1, "y": [2.5]}]}, {}) == expected
