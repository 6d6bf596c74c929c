"""What a policy may return, and that it does so twice. Whether a value is a choice of its knob is not asked here."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from policies.runner import PolicyError, PolicyErrorKind, PolicyLimits
from runs.errors import BadInputError

MAX_KEYS = 64
MAX_TEXT = 256
MAX_INTEGER_BITS = 63
MAX_SHOWN = 8 * 2**10
_REPEATABLE_FAILURES = {
    PolicyErrorKind.TIMEOUT,
    PolicyErrorKind.MEMORY,
    PolicyErrorKind.OUTPUT,
    PolicyErrorKind.CRASHED,
}


def checked_config(result: object) -> dict[str, Any]:
    """The result as a config: a plain dict of at most 64 str keys to int, float, str or bool, types taken exactly.

    Floats are finite, ints fit 64 bits, texts have at most 256 characters of valid Unicode. Nothing of the result
    is printed before its type and size are known.

    Raises:
        PolicyError: of kind `bad_result`, saying which key breaks which rule.
    """
    if type(result) is not dict:
        raise _bad(f"generate_config returned {type_name(result)} where a dict of knob names to values is needed")
    if len(result) > MAX_KEYS:
        raise _bad(f"generate_config returned {len(result)} keys, at most {MAX_KEYS} are allowed")
    for key, value in result.items():
        _check_key(key)
        problem = _problem(value)
        if problem:
            raise _bad(f"the value of {key!r} is {problem}")
    return dict(result)


def evaluate_twice(run: Callable[[], object]) -> dict[str, Any]:
    """The config of `run()`, provided that a second `run()` gives an equal one, types included.

    Raises:
        PolicyError: what `run` raises, `bad_result`, or `not_deterministic` where the two runs differ.
    """
    first = checked_config(run())
    try:
        second = checked_config(run())
    except PolicyError as error:
        if error.kind in _REPEATABLE_FAILURES:
            raise
        raise _not_deterministic(f"the second run failed ({error})", error.traceback) from error
    difference = first_difference(first, second)
    if difference:
        raise _not_deterministic(difference)
    return first


def first_difference(first: dict[str, Any], second: dict[str, Any]) -> str:
    """What tells two configs apart, in words; empty if they are equal, types included."""
    missing = object()
    for key in [*first, *(key for key in second if key not in first)]:
        one, two = first.get(key, missing), second.get(key, missing)
        if one is missing or two is missing:
            return f"only one of two runs returned {key!r}"
        if type(one) is not type(two) or one != two:
            return f"two runs gave {key}={one!r} and {key}={two!r}"
    return ""


def check_source(source: str, limits: PolicyLimits) -> None:
    """Refuse a source no runner could take.

    Raises:
        PolicyError: the source is longer than `limits.source_bytes`, or is no valid Unicode text.
    """
    try:
        size = len(source.encode())
    except UnicodeEncodeError as error:
        raise PolicyError(PolicyErrorKind.SYNTAX, "the source contains lone surrogates, which is no text") from error
    if size > limits.source_bytes:
        message = f"the source has {size} bytes, at most {limits.source_bytes} are allowed; write a shorter policy"
        raise PolicyError(PolicyErrorKind.UNSUPPORTED, message)
    if "\0" in source:
        raise PolicyError(PolicyErrorKind.SYNTAX, "the source contains null bytes")


def encoded_inputs(workload: dict[str, Any], environment: dict[str, Any]) -> str:
    """Both inputs as JSON: what every runner hands over, so that a policy sees the same values everywhere.

    Raises:
        BadInputError: an input holds something JSON has no form for.
    """
    try:
        return json.dumps([workload, environment], allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        hint = "use dicts, lists, texts, finite numbers, booleans and None only"
        raise BadInputError(f"the inputs of a policy are no JSON: {error}", hint) from error


def type_name(value: object) -> str:
    """The name of a value's type, short enough for any message."""
    return f"a value of type {type(value).__name__[:60]}"


def shown(text: str) -> str:
    """A text a policy controls, fit for logs, prompts and the store: valid Unicode, at most 8 KiB, its middle cut."""
    valid = text.encode(errors="replace").decode()
    return valid if len(valid) <= MAX_SHOWN else f"{valid[: MAX_SHOWN // 2]}\n…\n{valid[-MAX_SHOWN // 2 :]}"


def _check_key(key: object) -> None:
    if type(key) is not str:
        raise _bad(f"a key of the result is {type_name(key)}; keys are knob names (str)")
    problem = _text_problem(key)
    if problem:
        raise _bad(f"a key of the result is {problem}")


def _problem(value: object) -> str:
    if type(value) is bool:
        return ""
    if type(value) is int:
        return "" if value.bit_length() <= MAX_INTEGER_BITS else f"an int of {value.bit_length()} bits"
    if type(value) is float:
        return "" if math.isfinite(value) else f"{value}, which is no finite number"
    if type(value) is str:
        return _text_problem(value)
    return f"{type_name(value)}; int, float, str and bool are allowed"


def _text_problem(text: str) -> str:
    if len(text) > MAX_TEXT:
        return f"a text of {len(text)} characters, at most {MAX_TEXT} are allowed"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "a text with lone surrogates"
    return ""


def _bad(message: str) -> PolicyError:
    return PolicyError(PolicyErrorKind.BAD_RESULT, message)


def _not_deterministic(difference: str, traceback: str = "") -> PolicyError:
    message = f"{difference}; a policy gives the same config for the same inputs (no time, randomness or set order)"
    return PolicyError(PolicyErrorKind.NOT_DETERMINISTIC, message, traceback)
