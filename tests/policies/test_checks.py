"""What a result may be, and that two runs agree."""

from __future__ import annotations

from collections import OrderedDict
from enum import IntEnum
from typing import Any

import pytest

from policies.checks import (
    check_source,
    checked_config,
    encoded_inputs,
    evaluate_twice,
    first_difference,
    shown,
)
from policies.runner import PolicyError, PolicyErrorKind, PolicyLimits
from runs.errors import BadInputError


class _Loud(dict[str, Any]):
    def __repr__(self) -> str:
        raise AssertionError("a result was printed before it was checked")


class _Level(IntEnum):
    LOW = 1


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_a_plain_dict_is_returned_as_a_copy() -> None:
    config = {"tp": 4, "lr": 0.5, "algorithm": "ring", "compile": True, "big": 2**63 - 1, "low": -(2**63) + 1}

    checked = checked_config(config)

    assert checked == config
    assert checked is not config
    assert checked["compile"] is True


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "type NoneType"),
        ([("tp", 1)], "type list"),
        (_Loud(tp=1), "type _Loud"),
        (OrderedDict(tp=1), "type OrderedDict"),
        ({f"k{i}": i for i in range(65)}, "65 keys, at most 64"),
        ({1: 1}, "a key of the result is a value of type int"),
        ({"k" * 257: 1}, "a key of the result is a text of 257 characters"),
        ({"\ud800": 1}, "a key of the result is a text with lone surrogates"),
        ({"tp": None}, "'tp' is a value of type NoneType"),
        ({"tp": _Level.LOW}, "'tp' is a value of type _Level"),
        ({"tp": _nested(5000)}, "'tp' is a value of type list"),
        ({"tp": (1,)}, "'tp' is a value of type tuple"),
        ({"tp": float("nan")}, "'tp' is nan, which is no finite number"),
        ({"tp": float("-inf")}, "'tp' is -inf, which is no finite number"),
        ({"tp": 2**63}, "'tp' is an int of 64 bits"),
        ({"tp": "x" * 257}, "'tp' is a text of 257 characters"),
        ({"tp": 1 + 0j}, "'tp' is a value of type complex"),
    ],
)
def test_a_bad_result_says_what_is_wrong(result: object, words: str) -> None:
    with pytest.raises(PolicyError) as caught:
        checked_config(result)

    assert caught.value.kind is PolicyErrorKind.BAD_RESULT
    assert words in caught.value.message
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"tp": 2}, "tp=1 and tp=2"),
        ({"tp": True}, "tp=1 and tp=True"),
        ({"tp": 1.0}, "tp=1 and tp=1.0"),
        ({}, "only one of two runs returned 'tp'"),
        ({"tp": 1, "pp": 1}, "only one of two runs returned 'pp'"),
        (None, "the second run failed"),
    ],
)
def test_two_runs_that_differ(second: object, words: str) -> None:
    results = iter([{"tp": 1}, second])

    with pytest.raises(PolicyError) as caught:
        evaluate_twice(lambda: next(results))

    assert caught.value.kind is PolicyErrorKind.NOT_DETERMINISTIC
    assert words in caught.value.message


def test_the_order_of_keys_is_no_difference() -> None:
    results = iter([{"tp": 1, "pp": 2}, {"pp": 2, "tp": 1}])

    assert evaluate_twice(lambda: next(results)) == {"tp": 1, "pp": 2}
    assert first_difference({"x": 0.0}, {"x": 0.0}) == ""


def test_a_timeout_of_the_second_run_stays_a_timeout() -> None:
    results = iter([{"tp": 1}])

    def run() -> object:
        for result in results:
            return result
        raise PolicyError(PolicyErrorKind.TIMEOUT, "slow")

    with pytest.raises(PolicyError, match="slow") as caught:
        evaluate_twice(run)

    assert caught.value.kind is PolicyErrorKind.TIMEOUT


@pytest.mark.parametrize(
    ("source", "kind"),
    [("é" * 6, "unsupported"), ("x = '\ud800'", "syntax"), ("\0", "syntax")],
)
def test_sources_no_runner_takes(source: str, kind: str) -> None:
    with pytest.raises(PolicyError) as caught:
        check_source(source, PolicyLimits(source_bytes=11))

    assert caught.value.kind == kind
    check_source("é" * 5, PolicyLimits(source_bytes=11))


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object(), b"x"])
def test_inputs_that_are_no_json(value: object) -> None:
    with pytest.raises(BadInputError, match="no JSON"):
        encoded_inputs({"x": value}, {})


def test_texts_of_policies_are_cut_and_made_valid() -> None:
    assert shown("a\ud800b") == "a?b"
    assert len(shown("x" * 10**6)) < 9000
    assert shown("head" + "x" * 10**6 + "tail").startswith("head")
    assert shown("head" + "x" * 10**6 + "tail").endswith("tail")
