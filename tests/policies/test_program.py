"""Loading policies, and what the prompt says about the dialect."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from policies.monty_runner import MontyRunner
from policies.program import (
    DIALECT_MISSING_MODULES,
    DIALECT_MISSING_SYNTAX,
    DIALECT_MODULES,
    Policy,
    dialect,
    load_policy,
)
from policies.runner import PolicyError
from runs.errors import BadInputError
from tests.policies.attacks import body


def test_the_hash_is_sha256_of_the_text() -> None:
    assert Policy("abc").sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_load_reads_utf8_and_settles_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "policy.py"
    path.write_bytes(b"\xef\xbb\xbf# \xc3\xa9\r\nx = 1\r\n")

    policy = load_policy(path)

    assert policy.source == "# é\nx = 1\n"
    assert policy.sha256 == hashlib.sha256("# é\nx = 1\n".encode()).hexdigest()


@pytest.mark.parametrize(
    ("data", "words"), [(b"#" * 65537, "larger than 65536 bytes"), (b"\xff\xfe", "no UTF-8"), (b" \n", "is empty")]
)
def test_files_that_are_no_policy(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "policy.py"
    path.write_bytes(data)

    with pytest.raises(BadInputError, match=words) as caught:
        load_policy(path)

    assert str(path) in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("name", ["absent.py", ""])
def test_paths_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInputError, match="cannot read the policy"):
        load_policy(tmp_path / name)


@pytest.mark.parametrize("module", DIALECT_MODULES)
def test_every_module_named_in_the_prompt_imports(module: str, monty: MontyRunner) -> None:
    assert re.search(rf"\b{module}\b", dialect())
    assert monty.evaluate(f"import {module}\n" + body("return {'tp': 1}"), {}, {}) == {"tp": 1}


@pytest.mark.parametrize("module", DIALECT_MISSING_MODULES)
def test_every_module_said_to_be_missing_is_missing(module: str, monty: MontyRunner) -> None:
    assert module in dialect()
    with pytest.raises(PolicyError, match=module) as caught:
        monty.evaluate(f"import {module}\n" + body("return {'tp': 1}"), {}, {})
    assert caught.value.kind == "unsupported"


@pytest.mark.parametrize("construct", DIALECT_MISSING_SYNTAX)
def test_every_construct_said_to_be_missing_is_refused(construct: str, monty: MontyRunner) -> None:
    assert construct in dialect()
    with pytest.raises(PolicyError) as caught:
        monty.evaluate(DIALECT_MISSING_SYNTAX[construct] + "\n" + body("return {'tp': 1}"), {}, {})
    assert caught.value.kind == "unsupported"
    assert "line" in caught.value.traceback


def test_the_constructs_the_prompt_promises_work(monty: MontyRunner) -> None:
    source = body(
        "def pick(values, *, best=None):",
        "    match values:",
        "        case []: return best",
        "        case [first, *rest]: return first",
        "try:",
        "    1 / 0",
        "except ZeroDivisionError as error:",
        "    text = f'{error!s:.8}'",
        "squares = {n: n * n for n in range(4) if n % 2}",
        "return {'a': pick([], best=7), 'b': pick([3, 4]), 'c': text, 'd': max(squares, key=lambda n: squares[n])}",
    )

    assert monty.evaluate(source, {}, {}) == {"a": 7, "b": 3, "c": "division", "d": 3}


def test_the_paragraph_is_one_paragraph() -> None:
    assert "\n" not in dialect()
    assert len(dialect()) < 1500
